"""The camera as a station sees it: by messages, and by MAVSDK as it is."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pymavlink.dialects.v20 import all as dialect

from blimp.airframe import Device
from blimp.errors import LinkError
from blimp.tasks.reply import Reply
from ground_station.mavlink import telemetry
from ground_station.mavlink.camera import OVERDUE_S
from ground_station.mavlink.items import Item, legs_of
from ground_station.mavlink.places import Place
from ground_station.ship import Ship
from tests.faults.fuzz_mavlink import Bench, NotingShip, Twin, twin
from tests.ground_station.mavlink.test_vehicle import acks, fly, item, send, upload

CAMERA = 100
PARAMS = (0.0,) * 7


@pytest.fixture(scope="module")
def without() -> Twin:
    return twin()


@pytest.fixture
def eyed(without: Twin) -> Twin:
    """A ship with a camera."""
    row = Device(name="eye", chip="imx708", bus="camera", options={"width": 640, "height": 480})
    airframe = msgspec.structs.replace(without.airframe, device=(*without.airframe.device, row))
    return without._replace(airframe=airframe)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def command(number: int, *params: float, component: int = CAMERA) -> Any:
    given = (*params, *PARAMS)[:7]
    return dialect.MAVLink_command_long_message(1, component, number, 0, *given)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ((512, 259.0), "CAMERA_INFORMATION"),
        ((521, 1.0), "CAMERA_INFORMATION"),
        ((512, 260.0), "CAMERA_SETTINGS"),
        ((522, 1.0), "CAMERA_SETTINGS"),
        ((512, 261.0), "STORAGE_INFORMATION"),
        ((525, 0.0, 1.0), "STORAGE_INFORMATION"),
        ((512, 262.0), "CAMERA_CAPTURE_STATUS"),
        ((527, 1.0), "CAMERA_CAPTURE_STATUS"),
    ],
)
def test_what_is_asked_for_comes_from_the_camera(
    eyed: Twin, asked: tuple[float, ...], kind: str
) -> None:
    async def flight(bench: Bench) -> None:
        number, *params = asked
        await send(bench, command(int(number), *params))
        (found,) = bench.read(kind)
        (ack,) = bench.read("COMMAND_ACK")
        assert found.get_srcComponent() == ack.get_srcComponent() == CAMERA
        assert ack.result == 0
        assert bench.ship.asked == []

    fly(eyed, flight)


def test_a_photograph_needs_no_control_and_ends_no_mission(eyed: Twin) -> None:
    async def flight(bench: Bench) -> None:
        ended: list[str] = []
        bench.system.flown_by(lambda: ended.append("mission"))
        await send(bench, command(2000, 0.0, 0.0, 1.0, 1.0))
        await send(bench, command(203, 0.0, 0.0, 0.0, 0.0, 1.0))
        await send(bench, command(2001))
        assert acks(bench, 2000)[-1] == acks(bench, 203)[-1] == acks(bench, 2001)[-1] == 0
        assert bench.ship.asked == [("photo", {"count": 1}), ("photo", {}), ("photo_stop", {})]
        assert (bench.ship.is_held, ended) == (False, [])
        images = bench.read("CAMERA_IMAGE_CAPTURED")
        assert [(one.image_index, one.capture_result) for one in images] == [(0, 1), (1, 1)]
        assert images[0].lat == pytest.approx(360143000, abs=100)
        states = bench.read("CAMERA_CAPTURE_STATUS")
        assert [(one.image_status, one.image_interval) for one in states] == [(0, 0.0)] * 3
        assert states[-1].image_count == 2

    fly(eyed, flight)


class SeriesShip(NotingShip):
    """A ship that takes four photographs at intervals of 2 s from 1000 s on; the third one fails.

    lost_s: none after it is known.
    """

    lost_s = 0.0
    is_linked = True

    def _note(self, name: str, arguments: dict[str, Any]) -> Reply:
        reply = super()._note(name, arguments)
        if name != "photo":
            return reply
        next_one = {"next": "s.2"} if arguments.get("count") != 1 else {}
        return msgspec.structs.replace(reply, result={"name": "s.1", "taken_s": 1.5} | next_one)

    async def result(self, id: str) -> Reply:
        if not self.is_linked:
            raise LinkError("no broker")
        number = int(id.removeprefix("s."))
        if self._clock.now_s() < max(self.lost_s, 1000.0 + 2.0 * (number - 1)):
            return await super().result(id)
        found = {"reason": "no camera"} if number == 3 else {"name": id, "taken_s": float(number)}
        following = f"s.{number + 1}" if number < 4 else ""
        return Reply(id=id, task="", state="SUCCESS", result=found | {"next": following})

    async def sleep(self, seconds: float) -> None:
        until_s = self._clock.now_s() + seconds
        while self._clock.now_s() < until_s:
            await asyncio.sleep(0.0)


def series(bench: Bench, twin: Twin) -> SeriesShip:
    made = SeriesShip(bench.clock, twin)
    bench.ship, bench.system.ship = made, Ship(made)
    return made


def images(bench: Bench) -> list[tuple[int, int, str]]:
    return [
        (one.image_index, one.capture_result, one.file_url)
        for one in bench.read("CAMERA_IMAGE_CAPTURED")
    ]


def test_stations_hear_of_each_photograph_of_a_series(eyed: Twin) -> None:
    async def flight(bench: Bench) -> None:
        ship = series(bench, eyed)
        await send(bench, command(2000, 0.0, 2.0, 0.0, 1.0))
        assert images(bench) == [(0, 1, "s.1")]
        for step in range(120):
            ship.is_linked = step > 40
            bench.clock.advance(0.1)
            await bench.turn()
        assert images(bench) == [(0, 1, "s.1"), (1, 1, "s.2"), (2, 0, ""), (3, 1, "s.4")]
        states = bench.read("CAMERA_CAPTURE_STATUS")
        assert [(one.image_status, one.image_interval, one.image_count) for one in states] == [
            (2, 2.0, 1), (2, 2.0, 2), (2, 2.0, 3), (0, 0.0, 4),
        ]  # fmt: skip

    fly(eyed, flight)


def test_a_series_that_is_stopped_or_lost_is_followed_no_more(eyed: Twin) -> None:
    async def flight(bench: Bench) -> None:
        ship = series(bench, eyed)
        await send(bench, command(2000, 0.0, 2.0, 0.0, 1.0))
        await send(bench, command(2001))
        bench.clock.advance(3.0)
        await bench.turn()
        assert images(bench) == [(0, 1, "s.1")]
        assert bench.read("CAMERA_CAPTURE_STATUS")[-1].image_status == 0
        ship.lost_s = 1e9
        await send(bench, command(2000, 0.0, 2.0, 0.0, 1.0))
        for seconds, tasks in ((2.0, 2), (OVERDUE_S, 1)):
            bench.clock.advance(seconds)
            await bench.turn()
            assert len(asyncio.all_tasks()) == tasks

    fly(eyed, flight)


@pytest.mark.parametrize("asked", [(2504, 0.0), (512, 269.0)])
def test_it_says_that_there_is_no_video_stream(eyed: Twin, asked: tuple[float, ...]) -> None:
    async def flight(bench: Bench) -> None:
        number, *params = asked
        await send(bench, command(int(number), *params))
        assert acks(bench, int(number)) == [3]
        assert "no video stream: the page has" in bench.texts

    fly(eyed, flight)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((2000, 0.0, 0.2, 3.0), "every_s must be a finite number, 1 to 3600 s, not 0.2"),
        ((2000, 0.0, 0.0, 7.0), "count above 1 needs every_s"),
        ((203, 0.0, 1.0), "parameter 5 is 0, must be 1: take a photograph"),
        ((530, 0.0, 1.0), "camera mode 1, must be 0, images"),
    ],
)
def test_what_it_cannot_do_is_denied_with_the_reason(
    eyed: Twin, asked: tuple[float, ...], words: str
) -> None:
    async def flight(bench: Bench) -> None:
        number, *params = asked
        await send(bench, command(int(number), *params))
        assert acks(bench, int(number))[-1] == 2
        assert words in bench.texts
        assert bench.ship.asked == []

    fly(eyed, flight)


def test_a_ship_without_a_camera_has_no_such_component(without: Twin) -> None:
    async def flight(bench: Bench) -> None:
        bench.vehicle.parts.camera.tell()
        await send(bench, command(512, 259.0))
        assert bench.sent == []
        await send(bench, command(512, 259.0, component=1))
        assert acks(bench, 512) == [3]

    fly(without, flight)


def test_a_mission_takes_photographs(eyed: Twin) -> None:
    async def flight(bench: Bench) -> None:
        items = [item(0, 22), item(1, 2000), item(2, 2001), item(3, 21)]
        items[1].param2, items[1].param3, items[1].param4 = 2.0, 0.0, 0.0
        for one in items[1:3]:
            one.x = one.y = 0
            one.z = 0.0
        assert await upload(bench, *items) == 0

    fly(eyed, flight)


def test_a_plan_takes_photographs(without: Twin) -> None:
    def one(number: int, *params: float) -> Item:
        given = (*params, *PARAMS)[:7]
        return Item(name=f"item {number}", command=number, frame=2, params=given)

    plan = [one(203, 0, 0, 0, 0, 1.0), one(2000, 0, 3.0, 4.0), one(2001)]
    tables, _ = legs_of(plan, without.airframe.home)
    assert tables == [
        {"do": "arm"}, {"do": "photo"}, {"do": "photo", "every_s": 3.0, "count": 4},
        {"do": "photo_stop"},
    ]  # fmt: skip


class Served(Bench):
    """A gateway on a real port, whose ship tells of itself."""

    async def serve(self, use: Callable[[int], Any]) -> Any:
        async def tell() -> None:
            while True:
                self.clock.advance(0.1)
                for name in self.system.streams.due(self.clock.now_s()):
                    assert self.system.seen is not None
                    self.system.send(telemetry.STREAMS[name][0](self.system.seen))
                self.vehicle.parts.camera.tell()
                await asyncio.sleep(0.1)

        async with self.links:
            port = await self.links.listen(Place("udp", "127.0.0.1", 0))
            telling = asyncio.create_task(tell())
            try:
                return await use(port)
            finally:
                telling.cancel()


@pytest.mark.process
def test_mavsdk_takes_photographs(eyed: Twin) -> None:
    async def use(port: int) -> bytes:
        program = str(Path(__file__).with_name("camera_client.py"))
        client = await asyncio.create_subprocess_exec(
            sys.executable, program, str(port), stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        return (await client.communicate())[1]

    async def run() -> tuple[bytes, NotingShip]:
        bench = Served(eyed)
        series(bench, eyed)
        try:
            return await bench.serve(use), bench.ship
        finally:
            bench.close()

    said, ship = asyncio.run(run())
    found = json.loads(said.splitlines()[-1])
    assert found.get("error", "") == "", found
    assert found["component"] == CAMERA
    assert found["model"] == ["blimp", "imx708"]
    assert found["resolution"] == [640, 480]
    assert found["captured"][:2] == [True, 0]
    assert found["place"] == [pytest.approx(36.0143, abs=1e-4), pytest.approx(-75.6679, abs=1e-4)]
    assert found["series"] == [
        [True, 1, "s.1"], [True, 2, "s.2"], [False, 3, ""], [True, 4, "s.4"],
    ]  # fmt: skip
    assert ship.asked == [
        ("photo", {"count": 1}), ("photo", {"every_s": 2.0}), ("photo_stop", {}),
    ]  # fmt: skip
    assert found["video"]
