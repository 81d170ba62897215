"""Trajectories: the curve, the mode that flies it, and what of one is refused."""

from math import cos, inf, nan, pi, sin
from typing import Any

import msgspec
import pytest

from blimp.control.modes.auto import Auto
from blimp.control.trajectory import MAX_POINTS, Trajectory, TrajectoryPoint
from blimp.link.mailbox import MAX_COMMAND_BYTES
from blimp.types import Command, Mode, Outcome, OutcomeState
from ground_station.trajectory import chunks
from tests.control.parts import Bench, a_ship, at

RADIUS_M, RATE = 2.0, 0.2


def circle(first_s: float, last_s: float, step_s: float = 0.5) -> list[TrajectoryPoint]:
    def point(t: float) -> TrajectoryPoint:
        c, s = cos(RATE * t), sin(RATE * t)
        v = RADIUS_M * RATE
        return TrajectoryPoint(t, RADIUS_M * c, RADIUS_M * s, 3.0, -v * s, v * c, 0, RATE * t, RATE)

    count = round((last_s - first_s) / step_s)
    return [point(first_s + k * step_s) for k in range(count + 1)]


def test_the_curve_passes_through_its_points_at_their_velocity() -> None:
    curve = Trajectory(circle(0.0, 20.0))
    for t in (0.3, 7.0, 19.77, 2.5):  # in any order
        found = curve.at(t)
        assert found.position_ned_m == pytest.approx(
            (2.0 * cos(0.2 * t), 2.0 * sin(0.2 * t), -3.0), abs=1e-5
        )
        assert found.velocity_ned_mps[1] == pytest.approx(0.4 * cos(0.2 * t), abs=1e-4)
        assert found.acceleration_ned_mps2[0] == pytest.approx(-0.08 * cos(0.2 * t), abs=1e-3)
        assert found.yaw_rad == pytest.approx(0.2 * t)
        assert found.yaw_rate_radps == pytest.approx(0.2)
    assert curve.at(99.0).velocity_ned_mps == (0.0, 0.0, 0.0)


def auto(points: list[TrajectoryPoint], *, last: bool) -> Auto:
    return Auto(at(2.0, 0.0, 3.0), ship=a_ship(), name="a", points=points, last=last)


def test_a_trajectory_waits_for_a_ship_that_cannot_follow() -> None:
    """Before, a turn beyond the ship's was commanded the other way round at half a turn behind."""
    turning = [
        TrajectoryPoint(t, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.4 * t, 0.4) for t in range(0, 31, 3)
    ]
    moving = [TrajectoryPoint(t, 0.3 * t, 0.0, 3.0, 0.3, 0.0, 0.0) for t in range(0, 31, 3)]
    for points, behind in ((turning, 0.8 * pi), (moving, 4.0)):
        mode = Auto(at(0.0, 0.0, 3.0), ship=a_ship(), name="a", points=points, last=True)
        for _ in range(2000):
            setpoint = mode.update(at(0.0, 0.0, 3.0), dt_s=0.02)
        north_m, yaw_rad = setpoint.position_ned_m[0], setpoint.yaw_rad
        assert north_m is not None
        assert yaw_rad is not None
        assert abs(yaw_rad) + north_m == pytest.approx(behind, rel=0.02)
        assert abs(setpoint.yaw_rate_radps) + setpoint.velocity_ned_mps[0] < 0.02
        assert "cannot follow" in mode.note
        assert not mode.done


def fly(mode: Auto, seconds: float) -> Any:
    for _ in range(round(seconds / 0.02)):
        setpoint = mode.update(at(2.0, 0.0, 3.0), dt_s=0.02)
    return setpoint


def test_a_stream_that_runs_dry_holds_and_goes_on_with_the_next_chunk() -> None:
    mode = auto(circle(0.0, 4.0), last=False)
    assert fly(mode, 2.0).velocity_ned_mps[1] > 0.3
    assert mode.note == ""
    held = fly(mode, 3.0)
    assert held.velocity_ned_mps == (0.0, 0.0, 0.0)
    assert held.position_ned_m[1] == pytest.approx(2.0 * sin(0.8))
    assert mode.note == "trajectory a: nothing beyond 4 s has come: holding"
    assert mode.fraction < 1.0
    mode.extend(circle(5.5, 8.0), last=True)
    assert fly(mode, 1.0).velocity_ned_mps[1] > 0.1
    assert mode.note == ""
    end = fly(mode, 5.0)
    assert mode.done
    assert end.position_ned_m[1] == pytest.approx(2.0 * sin(1.6))
    assert mode.result["seconds"] == 8.0


def test_the_newest_points_win() -> None:
    mode = auto(circle(0.0, 8.0), last=True)
    fly(mode, 2.0)
    stay = circle(4.0, 4.0)[0]
    still = msgspec.structs.replace(stay, t_s=6.0, north_mps=0.0, east_mps=0.0, yaw_rate_radps=0.0)
    mode.extend([stay, still], last=True)
    assert mode.until_s == 6.0
    assert fly(mode, 10.0).position_ned_m[:2] == (stay.north_m, stay.east_m)


def test_a_trajectory_begins_at_0_s_and_near_the_ship() -> None:
    with pytest.raises(ValueError, match="its first point is at 0 s, not at 2 s"):
        auto(circle(2.0, 4.0), last=True)
    with pytest.raises(ValueError, match=r"4\.0 m from the ship, the limit is 2 m: goto there"):
        Auto(at(-2.0, 0.0, 3.0), ship=a_ship(), name="a", points=circle(0.0, 1.0), last=True)


def test_no_more_points_wait_than_the_limit() -> None:
    mode = auto(circle(0.0, 60.0, 0.04), last=False)
    mode.extend(circle(60.06, 120.0, 0.06), last=False)
    with pytest.raises(ValueError, match=f"the limit is {MAX_POINTS}: send the rest later"):
        mode.extend(circle(120.1, 150.0, 0.01), last=False)
    assert mode.until_s == pytest.approx(120.0, abs=0.1)  # unchanged


def rows(points: list[TrajectoryPoint]) -> list[list[float]]:
    return [list(msgspec.to_builtins(point)) for point in points]


def up_at_the_start() -> Bench:
    ship = Bench()
    ship.tell("arm")
    ship.lift(3.0)
    return ship


@pytest.fixture(scope="module")
def up() -> Bench:
    """One ship for all that moves none."""
    return up_at_the_start()


def ask(ship: Bench, points: Any, *, last: bool = True, name: str = "a") -> Outcome:
    return ship.tell("trajectory", name=name, points=points, last=last)


GOOD = [
    [0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [1.0, 0.1, 0.0, 3.0, 0.1, 0.0, 0.0, 0.0, 0.0],
]


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (0, nan, ["number 2", "t_s is nan, must be a finite number"]),
        (1, nan, ["north_m is nan"]),
        (7, inf, ["yaw_rad is inf"]),
        (0, 0.0, ["number 2: is 0 s after the one before"]),
        (0, 9.0, ["number 2: is 9 s after the one before, must be more than 0 to 5 s"]),
        (1, 3.0, ["needs 3.00 m/s to be reached, the limit is 0.7"]),
        (1, 101.0, ["is 101 m from the pad, the limit is 100 m"]),
        (3, 31.0, ["altitude_m is 31, must be within 0.3 to 30 m"]),
        (3, 0.1, ["altitude_m is 0.1"]),
        (3, 1.0, ["needs -2.00 m/s upwards, the limits are -0.3 to 0.4"]),
        (4, 0.9, ["flies at 0.90 m/s, the limit is 0.7"]),
        (6, -0.9, ["up_mps is -0.9"]),
        (7, 2.0, ["needs a turn of 2.00 rad/s"]),
        (7, None, ["yaw_rad: some points have one and others do not"]),
        (8, 3.0, ["turns at 3 rad/s"]),
        (2, "east", ["trajectory", "points[1]"]),
    ],
)
def test_a_bad_point_is_refused_naming_it_and_the_limit(
    up: Bench, column: int, value: Any, words: list[str]
) -> None:
    bad = [GOOD[0], [value if k == column else x for k, x in enumerate(GOOD[1])]]
    ship = up
    outcome = ask(ship, bad)
    assert outcome.state is OutcomeState.REFUSED
    for word in words:
        assert word in outcome.reason
    assert ship.snapshot().mode == "HOLD"


def test_a_chunk_is_refused_in_the_past_and_after_a_gap_and_without_the_first() -> None:
    ship = up_at_the_start()
    later = [[t, 0.1, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0] for t in (1.5, 2.5)]
    assert "its first point is at 0 s, not at 1.5 s" in ask(ship, later).reason
    first = ask(ship, GOOD, last=False)
    assert first.state is OutcomeState.DONE
    assert first.result["until_s"] == 1.0
    assert ship.snapshot().mode == Mode.AUTO.name
    gap = [[7.0, *GOOD[1][1:]]]
    assert "number 1, at 7 s: is 6 s after the one before" in ask(ship, gap).reason
    ship.run(2.0)
    assert "trajectory a: nothing beyond 1 s has come: holding" in ship.snapshot().messages
    assert "is in the past: the ship is at 2." in ask(ship, later[:1]).reason
    end = ask(ship, [[t, *later[0][1:]] for t in (3.0, 4.0)])
    assert end.state is OutcomeState.IN_PROGRESS
    ship.run(2.5)
    assert ship.inbox.of(end.id)[-1].state is OutcomeState.DONE
    assert ship.inbox.of(end.id)[-1].result["trajectory"] == "a"


def test_a_chunk_of_the_ground_fits_into_a_command() -> None:
    point = [123.1234, -99.1234, -99.1234, 29.1234, -0.1234, -0.1234, -0.1234, -123.1234, -0.1234]
    part = chunks("n" * 40, [point] * 300)[0]
    command = Command(
        id="i" * 36, name="trajectory", arguments=part, source="s" * 80, trace="t" * 55
    )
    assert len(msgspec.json.encode(command)) < MAX_COMMAND_BYTES


def test_velocity_at_20_hz_flies_on_where_the_last_one_was() -> None:
    ship = up_at_the_start()
    wish = {"north_mps": 0.5, "east_mps": 0.0, "up_mps": 0.0, "seconds": 1.0}
    reached = 0.0
    for _ in range(200):
        assert ship.tell("velocity", **wish).state is OutcomeState.IN_PROGRESS
        ship.run(0.04)
        demand = ship.loop._pilot.flying.update(ship.loop.state, dt_s=0.0)
        reached = demand.velocity_ned_mps[0]
    assert reached == pytest.approx(0.5)
