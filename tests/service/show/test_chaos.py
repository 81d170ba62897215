"""Harm to a simulated stack: its limits, what it refuses, and what the ship did about it."""

import subprocess
import sys
from math import nan
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blimp import airframe as airframes
from blimp.clock import SystemClock
from blimp.errors import BlimpError, ConfigError
from blimp.service.airframes.figures import compute
from blimp.service.show.chaos import Chaos, process_of, report_lines
from blimp.service.show.chaos_offers import offers
from blimp.service.show.reaction import sentence
from blimp.sim.remote import RemoteWorld
from blimp.sim.wire import Truth
from blimp.sim.world import World
from blimp.tasks.client import VehicleClient
from blimp.types import VehicleState
from tests.ground_station.test_view import SHIP
from tests.queue.conftest import wait_until
from tests.sim.running import RunningStack

TWIN = airframes.load("twin")
LEVEL = VehicleState(t_s=0.0)


def most(name: str, *, wind_mps: float = 0.0, heaviness_kg: float = 0.0) -> float:
    truth = Truth(LEVEL, {}, True, (0.0, wind_mps, 0.0), heaviness_kg)
    limit = next(one.most for one in offers(TWIN, truth) if one.name == name)
    assert limit is not None
    return limit


def test_wind_heat_and_leak_are_capped_at_what_the_airframe_can_fly() -> None:
    holds_mps = compute(TWIN).max_wind_mps
    assert 0.0 <= holds_mps - most("gust") < 0.02
    assert most("gust", wind_mps=0.5) == pytest.approx(most("gust") - 0.5, abs=0.02)
    assert most("gust", wind_mps=5.0) == 0.0
    # What has been lost cannot be lost again.
    assert most("leak", heaviness_kg=0.02) == pytest.approx(most("leak") - 20.0, abs=0.1)
    assert most("heat", heaviness_kg=0.02) < most("heat") - 2.0
    assert most("leak", heaviness_kg=1.0) == most("heat", heaviness_kg=1.0) == 0.0


def test_what_cannot_be_flown_is_refused_with_the_limit() -> None:
    gust = next(one for one in offers(TWIN, Truth(LEVEL, {}, True)) if one.name == "gust")
    assert gust.most is not None
    for amount in (gust.most + 0.001, 0.0, -1.0, nan, float("inf")):
        with pytest.raises(ConfigError, match=f"to {gust.most:g} m/s.*twin holds"):
            gust.checked(amount, None)
    with pytest.raises(ConfigError, match="takes no device"):
        gust.checked(0.1, "baro")
    calm = next(
        one for one in offers(TWIN, Truth(LEVEL, {}, True, (9.0, 0.0, 0.0))) if one.name == "gust"
    )
    with pytest.raises(ConfigError, match="no more can be flown"):
        calm.checked(None, None)


def test_the_air_blows_heats_and_leaks_and_says_what_it_does_not_know() -> None:
    with World(TWIN, seed=1, wind_mps=0.0) as world:
        before_kg = world.physics.heaviness_kg
        world.air("heat", warmer_c=5.0)
        assert world.physics.heaviness_kg == pytest.approx(before_kg + 0.033, abs=0.002)
        world.air("heat", warmer_c=0.0)
        world.air("gust", north_mps=0.0, east_mps=0.4, seconds=2.0)
        world.advance(1.0)
        assert world.physics.wind_ned_mps == pytest.approx((0.0, 0.4, 0.0), abs=0.01)
        world.air("leak", m3_per_day=86.4)
        world.advance(2.0)
        # 2 l, less what a taut hull lost before it became slack
        assert before_kg + 0.001 < world.physics.heaviness_kg < before_kg + 0.0025
        for kind, options in (
            ("rain", {}), ("gust", {"north_mps": 1.0}), ("heat", {"warmer_c": 61.0}),
            ("leak", {"m3_per_day": nan}), ("heat", {"warmer_c": nan}),
            ("gust", {"north_mps": 1.0, "east_mps": 0.0, "seconds": 0.0}),
        ):  # fmt: skip
            with pytest.raises(ConfigError):
                world.air(kind, **options)


def test_a_ship_that_is_not_simulated_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "blimp").mkdir()
    (tmp_path / "blimp" / "__init__.py").touch()
    (tmp_path / "blimp" / "__main__.py").write_text("print(flush=True)\ninput()\n")
    words = [sys.executable, "-m", "blimp", "fly", "--runtime-dir", str(tmp_path)]
    with subprocess.Popen(
        words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as flight:
        try:
            assert flight.stdout is not None
            assert flight.stdout.readline()
            with pytest.raises(BlimpError, match="not simulated"):
                process_of("fly", tmp_path)
            with pytest.raises(BlimpError, match="no `blimp worker`"):
                process_of("worker", tmp_path)
        finally:
            flight.kill()


@pytest.mark.parametrize(
    ("ship", "back_ms", "expected"),
    [
        (
            {"mode": "GOTO", "armed": True, "altitude_m": 2.74, "target_ned_m": (3.0, 0.0, -2.7)},
            712.0,
            "The worker was killed: a command was answered after 0.7 s; "
            "armed in GOTO, 2.7 m up, 0.05 m off its place (at most 0.21 m).",
        ),
        (
            {"armed": False, "altitude_m": 2.75, "failsafe": "killed in the air: it sinks"},
            3114.0,
            "The worker was killed: a command was answered after 3.1 s; "
            "disarmed, 2.8 m up; killed in the air: it sinks.",
        ),
        (
            {"armed": False, "altitude_m": -0.01},
            None,
            "The worker was killed: not seen within 30 s that a command was answered; "
            "disarmed, 0.0 m up.",
        ),
    ],
)
def test_the_sentence_of_a_fault_is_about_the_ship_with_its_evidence(
    ship: dict[str, Any], back_ms: float | None, expected: str
) -> None:
    now = msgspec.structs.replace(
        SHIP,
        **(
            {"position_ned_m": (3.0, 0.03, -2.74), "target_ned_m": (None,) * 3, "failsafe": ""}
            | ship
        ),
    )
    most_m = None if now.target_ned_m[0] is None else 0.21
    assert expected == sentence(
        now, words="the worker was killed", again="a command was answered", back_ms=back_ms,
        most_m=most_m,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_running_ship_is_harmed_and_says_what_it_did() -> None:
    with RunningStack("--wind", "0.2") as stack:
        chaos = Chaos(
            paths=stack.paths, vehicle="twin", broker=stack.ready["broker"], airframe=TWIN,
            clock=SystemClock(),
        )  # fmt: skip
        before = process_of("worker", stack.paths.directory)
        report = chaos.act("kill-worker")
        assert report.back_ms is not None
        assert report.back_ms > 0.0
        assert process_of("worker", stack.paths.directory) != before
        # A loaded machine may have starved the flight process, which is then restarted, too.
        stack.wait_for_event(
            lambda event: event["event"] == "restarted" and event["process"] == "worker"
        )

        with pytest.raises(ConfigError, match=r"gust must be above 0, to .* not 5"):
            chaos.act("gust", amount=5.0)
        with pytest.raises(ConfigError, match="no action 'rain'"):
            chaos.act("rain")
        with RemoteWorld(stack.paths.world) as world:

            def speed_mps() -> float:  # on its feet a ship trembles in the wind
                return max(map(abs, world.truth().velocity_ned_mps))

            chaos.act("hold-ship")
            wait_until(lambda: speed_mps() < 1e-12, "not held")
            assert chaos.act("let-go").words == "the ship was let go of"
            wait_until(lambda: speed_mps() > 1e-8, "still held")
        report = chaos.act("kill-flight")
        assert report.back_ms is not None
        assert any(one.text.startswith("the flight process runs: ") for one in report.seen)
        assert "its successor was heard without a failsafe after" in report_lines(report)[0]
        assert report.is_well
        with VehicleClient(stack.ready["broker"], "twin") as ground:

            def arms() -> bool:  # once its gyro has settled again
                return ground.send("arm").wait(10.0).state == "SUCCESS"

            wait_until(arms, "it does not arm")
            assert ground.send("takeoff", {"altitude_m": 1.5}).wait(60.0).state == "SUCCESS"
        report = chaos.act("kill-flight")  # a process that runs again is not a ship that flies
        # Not weighed, it lands; on a loaded machine it is down before its successor runs.
        assert report.lost.startswith(("the flight process died in the air", "the ship came down"))
        assert any(words in report_lines(report)[0] for words in ("disarmed, ", report.lost))
        assert not report.is_well
        assert [one.action for one in chaos.faults] == [
            "kill-worker", "kill-flight", "kill-flight"
        ]  # fmt: skip
    with pytest.raises(BlimpError, match="no simulated world answers"):
        chaos.act("kill-worker")
