"""The example programs: flown in lockstep, one on a running stack; tasks run by a worker.

The programs of docs/python.md fly as well: by the queue, or in lockstep as they do themselves.
"""

import ast
import asyncio
import csv
import inspect
import io
import math
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from blimp.ship import Lockstep
from ground_station import examples, plain
from ground_station.examples import failsafe, follow, log_csv, square, sticks, swarm
from ground_station.ship import Ship
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.forked import ran
from tests.ground_station.ship import FlyingShip
from tests.queue.conftest import working

pytestmark = pytest.mark.long  # seconds of computing each


def test_square() -> None:
    corners: list[tuple[float, float]] = []

    async def fly(simulated: Lockstep) -> None:
        async with Ship.lockstep(simulated) as ship, asyncio.TaskGroup() as tasks:
            flying = tasks.create_task(square.fly(ship))
            while not flying.done():
                north_m, east_m, _ = simulated.truth.position_ned_m
                near = [c for c in square.CORNERS_M if math.dist(c, (north_m, east_m)) < 0.7]
                corners.extend(c for c in near if c not in corners[-1:])
                await ship.sleep(0.2)

    with Lockstep("twin", seed=1) as simulated:
        asyncio.run(fly(simulated))
        assert simulated.truth.on_ground
    home, *others = corners
    assert home == square.CORNERS_M[-1]
    assert tuple(others) == square.CORNERS_M


def test_follow() -> None:
    async def fly(simulated: Lockstep) -> list[float]:
        async with Ship.lockstep(simulated) as ship:
            await ship.arm()
            await ship.takeoff(3.0)
            began_s = ship.now_s
            flying = asyncio.create_task(follow.follow(ship, seconds=60.0))
            apart_m = []
            while not flying.done():
                goal = follow.target_m(ship.now_s - began_s)
                apart_m.append(math.dist(goal, simulated.truth.position_ned_m[:2]))
                await ship.sleep(0.5)
            await flying
            assert (await ship.state()).mode == "LOITER"
            return apart_m

    with Lockstep("twin", seed=1) as simulated:
        apart_m = asyncio.run(fly(simulated))
    assert max(apart_m) < 2.0  # of a target that walks over six metres from where it began


def test_sticks() -> None:
    async def fly(simulated: Lockstep) -> None:
        async with Ship.lockstep(simulated) as ship:

            async def typed() -> AsyncIterator[sticks.Stick]:
                for stick in ((0.3, 0.0, 0.0), (0.0, 0.3, 0.0)):
                    yield stick
                    await ship.sleep(10.0)

            await ship.arm()
            await ship.takeoff(3.0)
            await sticks.fly(ship, typed())
            assert (await ship.state()).mode == "LOITER"
        north_m, east_m, _ = simulated.truth.position_ned_m
        assert 1.5 < north_m < 4.0  # 3 m, and some to speed up and to stop
        assert 1.5 < east_m < 4.0

    with Lockstep("twin", seed=1) as simulated:
        asyncio.run(fly(simulated))


def test_log_csv() -> None:
    out = io.StringIO()
    with Lockstep("twin", seed=1) as simulated, plain.Ship.lockstep(simulated) as ship:
        ship.arm()
        ship.takeoff(2.0)
        log_csv.log(ship, out, seconds=2.0)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(rows) == pytest.approx(11, abs=1)
    assert [float(row["altitude_m"]) for row in rows] == pytest.approx([2.0] * len(rows), abs=0.4)
    assert rows[0]["mode"] == "LOITER"
    assert float(rows[0]["battery_v"]) > 5.0


def test_swarm() -> None:
    async def fly(simulated: list[Lockstep]) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(Ship.lockstep(simulated[0]))
            others = [
                await stack.enter_async_context(Ship.lockstep(one, beside=first))
                for one in simulated[1:]
            ]
            await swarm.fly([first, *others])

    with ExitStack() as stack:
        simulated = [stack.enter_context(Lockstep("twin", seed=seed)) for seed in range(1, 4)]
        asyncio.run(fly(simulated))
        for number, one in enumerate(simulated):
            station = swarm.STATIONS_M[(number + 2) % 3]
            assert one.truth.on_ground
            assert math.dist(one.truth.position_ned_m[:2], station) < 1.0


def test_failsafe() -> None:
    async def fly(simulated: Lockstep) -> dict[str, float]:
        async with Ship.lockstep(simulated) as ship:
            return await failsafe.lose_the_link(ship, simulated)

    with Lockstep("twin", seed=1) as simulated:
        began_s = asyncio.run(fly(simulated))
        assert simulated.truth.on_ground
        assert math.dist(simulated.truth.position_ned_m[:2], (0.0, 0.0)) < 1.0
    assert list(began_s) == ["LOITER", "HOLD", "RTL", "LAND"]
    # docs/failsafe.md
    assert (began_s["HOLD"], began_s["RTL"], began_s["LAND"]) == pytest.approx((3, 30, 60), abs=1)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    with socket_directory() as directory, EmbeddedBroker(directory=directory / "b") as server:
        server.start()
        monkeypatch.setenv("BROKER_URL", server.url)
        yield server


def program(name: str) -> dict[str, Any]:
    """Return the names of an example that is loaded with this test's broker."""
    return runpy.run_path(str(Path(examples.__file__).with_name(f"{name}.py")))


def test_leases(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    names = program("leases")
    with names["app"] as app:
        with working(app):
            names["main"]()
        assert app.pools["camera"].holders() == ()
    lines = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert list(lines) == [f"picture {number}" for number in range(6)]
    assert set(lines.values()) <= set(names["CAMERAS"])


def test_canvas(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    names = program("canvas")
    with names["app"] as app, working(app):
        names["main"]()
    assert capsys.readouterr().out == "the hall: 22.0 degrees\n"


def test_api(broker: EmbeddedBroker) -> None:
    names = program("api")

    async def main() -> list[float]:
        api = httpx.ASGITransport(names["api"])
        async with httpx.AsyncClient(transport=api, base_url="http://here") as client:
            ids = [(await client.post("/stations/EDDB")).json() for _ in range(10)]
            answers = await asyncio.gather(*(client.get(f"/results/{id}") for id in ids))
            return [answer.json() for answer in answers]

    with working(names["queue"]):
        assert asyncio.run(main()) == [12.5] * 10


@pytest.fixture
def programs(tmp_path: Path) -> list[Path]:
    """The Python blocks of the page, each saved as a reader saves it."""
    page = Path(__file__).parents[2] / "docs" / "python.md"
    found = re.findall(r"^```py(?:thon)?\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M)
    paths = [tmp_path / f"block{number}.py" for number in range(len(found))]
    for path, text in zip(paths, found, strict=True):
        path.write_text(text, "utf-8")
    return paths


def test_the_programs_of_the_page(broker: EmbeddedBroker, programs: list[Path]) -> None:
    with_coroutines, plainly, in_lockstep, *_ = programs
    environment = {**os.environ, "BLIMP_BROKER_URL": broker.url}
    with Lockstep("twin", seed=1) as simulated:
        twin = FlyingShip(broker=broker, vehicle="twin", ship=simulated)
        with twin.worker(), twin.telling():
            done = ran([sys.executable, str(with_coroutines)], env=environment)
            assert (done.returncode, done.stderr) == (0, "")
            assert simulated.truth.on_ground
            assert math.dist(simulated.truth.position_ned_m[:2], (5.0, 0.0)) < 1.0
            with subprocess.Popen(
                [sys.executable, "-u", str(plainly)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            ) as watching:  # fmt: skip
                try:
                    assert watching.stdout is not None
                    heights_m = [float(watching.stdout.readline() or "nan") for _ in range(3)]
                    watching.send_signal(signal.SIGINT)  # it prints until Ctrl-C
                    _, said = watching.communicate()
                finally:
                    watching.kill()
            assert heights_m == pytest.approx([3.0] * 3, abs=0.4), said
            assert "KeyboardInterrupt" in said
    done = ran([sys.executable, str(in_lockstep)])
    assert (done.returncode, done.stderr) == (0, "")
    north_m, east_m, _ = map(float, re.findall(r"-?[\d.]+(?:e-?\d+)?", done.stdout))
    assert math.dist((north_m, east_m), (0.0, 0.0)) < 1.0


def test_the_cells_of_the_notebook(
    broker: EmbeddedBroker, programs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As IPython runs them: each with `await` at its top level, in one loop that runs already."""
    monkeypatch.setenv("BLIMP_BROKER_URL", broker.url)
    names: dict[str, Any] = {}

    async def notebook() -> None:
        for cell in programs[3:]:
            code = compile(cell.read_text("utf-8"), cell, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            under_way = eval(code, names)
            if inspect.isawaitable(under_way):
                await under_way

    with Lockstep("twin", seed=1) as simulated:
        twin = FlyingShip(broker=broker, vehicle="twin", ship=simulated)
        with twin.worker(), twin.telling():
            asyncio.run(notebook())
            assert simulated.truth.on_ground
            assert math.dist(simulated.truth.position_ned_m[:2], (5.0, 0.0)) < 1.0
