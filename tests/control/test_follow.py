"""FOLLOW on a ship that is at once where and how it should be, and a camera of our own."""

from collections.abc import Callable
from math import asin, atan2, cos, dist, hypot, pi, radians, sin

import msgspec
import pytest

from blimp.actions import ACTIONS, FollowSeen
from blimp.control.modes.follow import Follow
from blimp.control.modes.mode import Ship
from blimp.geofence import Geofence
from blimp.rotation import from_euler, rotate_back
from blimp.types import (
    Mode,
    OutcomeState,
    SeenSample,
    Setpoint,
    Sighting,
    Vec3,
    VehicleState,
)
from tests.control.parts import Bench, a_ship, at, twin

DT_S = 0.02
SIZE_M = 0.28
AHEAD, DOWNWARD = (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
VIEW_RAD = radians(33.0)  # to each side of its axis


def minus(a: Vec3, b: Vec3) -> Vec3:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


class Scene:
    """A ship, a balloon that drifts, and a camera whose frames come late."""

    def __init__(
        self,
        balloon_ned_m: Vec3,
        *,
        wish: FollowSeen | None = None,
        drift_mps: Vec3 = (0.0, 0.0, 0.0),
        axis: Vec3 = AHEAD,
        late_s: float = 0.15,
        altitude_m: float = 2.0,
    ) -> None:
        self.balloon, self.drift, self.axis, self.late_s = balloon_ned_m, drift_mps, axis, late_s
        self.sees: Callable[[], bool] = lambda: True
        self.kind = "red"
        self._frames: list[SeenSample] = []
        self._next_s = 0.0
        self.state = at(0.0, 0.0, altitude_m)
        self.setpoint = Setpoint()
        self.ship: Ship = msgspec.structs.replace(a_ship(), seen=self.newest)
        self.mode = Follow(
            self.state, ship=self.ship, wish=wish or FollowSeen(kind="red", seconds=300.0)
        )

    def newest(self) -> SeenSample | None:
        come = [f for f in self._frames if f.t_s + self.late_s <= self.state.t_s]
        return come[-1] if come else None

    def _expose(self) -> None:
        rel = rotate_back(self.state.attitude, minus(self.balloon, self.state.position_ned_m))
        far_m = hypot(*rel)
        ray = (rel[0] / far_m, rel[1] / far_m, rel[2] / far_m)
        inside = sum(a * b for a, b in zip(ray, self.axis, strict=True)) > cos(VIEW_RAD)
        size = 2.0 * asin(min(1.0, 0.5 * SIZE_M / far_m))
        found = (Sighting(kind=self.kind, direction_body=ray, size_rad=size),)
        seen = inside and self.sees()
        self._frames.append(
            SeenSample(t_s=self.state.t_s, found=found if seen else (), axis_body=self.axis)
        )

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / DT_S)):
            if self.state.t_s >= self._next_s:
                self._next_s += 0.1
                self._expose()
            wish = self.setpoint = self.mode.update(self.state, dt_s=DT_S)
            place = [
                now + v * DT_S if want is None else want
                for want, now, v in zip(
                    wish.position_ned_m,
                    self.state.position_ned_m,
                    wish.velocity_ned_mps,
                    strict=True,
                )
            ]
            assert wish.yaw_rad is not None
            swing = 0.1 * sin(4.5 * self.state.t_s)  # of the hull, .7 Hz
            self.state = VehicleState(
                t_s=self.state.t_s + DT_S,
                position_ned_m=(place[0], place[1], place[2]),
                velocity_ned_mps=wish.velocity_ned_mps,
                attitude=from_euler(swing, -swing, wish.yaw_rad),
            )
            self.balloon = (
                self.balloon[0] + self.drift[0] * DT_S,
                self.balloon[1] + self.drift[1] * DT_S,
                self.balloon[2] + self.drift[2] * DT_S,
            )

    @property
    def distance_m(self) -> float:
        return dist(self.balloon, self.state.position_ned_m)


@pytest.mark.parametrize("distance_m", [1.0, 2.5])
def test_it_keeps_the_distance_to_a_balloon_that_drifts_with_the_nose_on_it(
    distance_m: float,
) -> None:
    wish = FollowSeen(kind="red", distance_m=distance_m, seconds=300.0)
    scene = Scene((5.0, 1.0, -2.5), wish=wish, drift_mps=(0.05, -0.1, 0.0))
    scene.run(40.0)
    for _ in range(50):
        scene.run(0.5)
        assert scene.distance_m == pytest.approx(distance_m, abs=0.1)
        assert scene.setpoint.yaw_rad is not None
        ahead = minus(scene.balloon, scene.state.position_ned_m)
        assert scene.setpoint.yaw_rad == pytest.approx(atan2(ahead[1], ahead[0]), abs=0.1)
        assert scene.state.position_ned_m[2] == pytest.approx(-2.5, abs=0.1)


def test_a_camera_that_looks_down_has_it_below() -> None:
    scene = Scene((0.5, 0.5, -0.3), axis=DOWNWARD, wish=FollowSeen(kind="red", distance_m=1.5))
    scene.run(30.0)
    assert scene.state.position_ned_m == pytest.approx((0.5, 0.5, -1.8), abs=0.1)
    assert scene.setpoint.yaw_rad == pytest.approx(0.0, abs=0.05)  # nothing to turn to


def test_it_turns_round_and_finds_what_is_behind_it() -> None:
    scene = Scene((-3.0, 0.0, -2.0))
    scene.run(40.0)
    assert scene.distance_m == pytest.approx(2.0, abs=0.15)


def test_what_is_out_of_sight_after_a_turn_is_looked_for_in_a_spiral() -> None:
    scene = Scene((6.0, 4.0, -2.0))
    scene.sees = lambda: scene.distance_m < 3.5  # it is dim
    scene.run(100.0)
    assert scene.distance_m == pytest.approx(2.0, abs=0.3)


def test_lost_it_goes_on_then_waits_then_looks_and_at_last_gives_up_and_holds() -> None:
    scene = Scene((4.0, 0.0, -2.0))
    scene.run(3.0)
    assert scene.setpoint.velocity_ned_mps[0] > 0.1
    scene.sees = lambda: False
    scene.run(0.8)
    assert scene.setpoint.velocity_ned_mps[0] > 0.1
    before_mps = hypot(*scene.setpoint.velocity_ned_mps)
    scene.run(2.0)
    assert hypot(*scene.setpoint.velocity_ned_mps) < 0.6 * before_mps  # it brakes
    assert scene.setpoint.yaw_rate_radps == 0.0
    scene.run(10.0)
    assert scene.setpoint.yaw_rate_radps != 0.0
    assert (scene.mode.gave_up, scene.mode.number) == ("", Mode.FOLLOW)
    scene.run(90.0)
    assert scene.mode.gave_up.startswith("no red in sight for ")
    assert not scene.mode.done
    here = scene.state.position_ned_m
    assert scene.mode.number is Mode.LOITER
    scene.run(10.0)
    assert scene.state.position_ned_m == pytest.approx(here, abs=0.5)


def test_what_it_does_not_look_for_and_what_is_no_angle_move_nothing() -> None:
    scene = Scene((4.0, 0.0, -2.0))
    scene.kind = "blue"
    scene.run(2.0)
    assert scene.setpoint.velocity_ned_mps == (0.0, 0.0, 0.0)
    nan = Sighting(kind="red", direction_body=AHEAD, size_rad=float("nan"))
    bad = SeenSample(t_s=scene.state.t_s, found=(nan,))
    scene.mode._look(bad)
    assert "distance_m" not in scene.mode.result


def test_a_frame_of_long_ago_is_not_used() -> None:
    scene = Scene((4.0, 0.0, -2.0), late_s=1.2)
    scene.run(5.0)
    assert "distance_m" not in scene.mode.result


def test_another_one_of_its_colour_does_not_take_its_place() -> None:
    scene = Scene((4.0, 0.0, -2.0))
    scene.run(10.0)
    frame = scene.newest()
    assert frame is not None
    side = (cos(pi / 4), sin(pi / 4), 0.0)
    other = Sighting(kind="red", direction_body=side, size_rad=1.0)  # nearer
    before = scene.mode._place
    scene.mode._look(msgspec.structs.replace(frame, t_s=scene.state.t_s - 0.02, found=(other,)))
    assert scene.mode._place == before


def test_it_flies_no_lower_than_the_floor_and_no_higher_than_the_ceiling() -> None:
    low = Scene((4.0, 0.0, 0.0))
    low.run(30.0)
    assert low.state.position_ned_m[2] == pytest.approx(-0.5, abs=0.01)
    high = Scene((2.0, 0.0, -4.0), altitude_m=3.5)
    high.ship.area.fence = Geofence(ceiling_m=3.6)
    high.run(30.0)
    assert high.state.position_ned_m[2] == pytest.approx(-3.6, abs=0.01)


def test_it_goes_no_farther_from_the_pad_than_its_airframe_may() -> None:
    limit_m = twin().limits.max_distance_m
    scene = Scene((limit_m + 3.0, 0.0, -2.0))
    scene.state = at(limit_m - 0.5, 0.0, 2.0)
    scene.run(30.0)
    assert scene.state.position_ned_m[0] < limit_m + 0.3


def test_with_no_distance_to_keep_it_flies_into_it_and_ends() -> None:
    scene = Scene((4.0, 0.5, -1.5), wish=FollowSeen(kind="red", distance_m=0.0))
    nearest_m = 9.0
    while not scene.mode.done and scene.state.t_s < 60.0:
        scene.run(0.1)
        nearest_m = min(nearest_m, scene.distance_m)
    assert scene.mode.done
    assert nearest_m < 0.25
    assert scene.mode.result["distance_m"] < 1.5 * SIZE_M


def test_it_ends_after_its_seconds_and_stays() -> None:
    scene = Scene((4.0, 0.0, -2.0), wish=FollowSeen(kind="red", seconds=20.0))
    scene.run(19.0)
    assert 0.9 < scene.mode.fraction < 1.0
    scene.run(2.0)
    assert scene.mode.done
    assert scene.mode.number is Mode.LOITER
    assert scene.mode.result == {
        "followed_s": pytest.approx(20.0, abs=1.0),
        "distance_m": pytest.approx(2.0, abs=0.2),
    }


@pytest.mark.parametrize("kind", ["", "Red", "a b", "x" * 41, "-a", "ö"])
def test_what_is_no_kind_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="kind: must have 1 to 40 of a-z"):
        ACTIONS["follow"].checked({"kind": kind})


def test_a_ship_with_no_camera_and_one_whose_camera_is_silent_say_so() -> None:
    ship = Bench()
    ship.tell("arm")
    ship.lift(2.0)
    refused = ship.tell("follow", kind="red")
    assert refused.state is OutcomeState.REFUSED
    assert refused.reason == "follow needs a camera: twin has no camera with colours to look for"
