"""FOLLOW: keep a distance to what the camera sees, look for what is lost, and then hold.

Where it is follows from its direction and the angle that it fills. A frame is older than the
estimate, so it is put together with the pose of its exposure. A fading-memory filter of second
order carries its place and velocity on (Morrison 1969; Brookner 1998, 1.2.6: g = 1 - t^2, h =
(1 - t)^2), for frames that come at any rate.
"""

from collections import deque
from math import atan2, cos, exp, hypot, inf, pi, sin, tan
from typing import Any

import msgspec

from blimp.actions import MIN_ALTITUDE_M, FollowSeen
from blimp.control.modes.loiter import Loiter
from blimp.control.modes.mode import Demand, FlightMode, Ship
from blimp.control.modes.sticks import turned
from blimp.control.modes.velocity import ramped
from blimp.rotation import rotate, wrap_pi, yaw_of
from blimp.types import ZERO3, Mode, Quaternion, SeenSample, Setpoint, Sighting, Vec3, VehicleState
from blimp.vector import dot, minus

_MEMORY_S = 0.7  # of the filter: several frames, and a balloon drifts slower than it changes
_LATE_S = 1.0  # a frame of an earlier time shows another place
_FRESH_S = 1.0  # so long it goes on to where it was: a blink, or a swing of the hull
_WAIT_S = 3.0  # so long it waits for it to come back, looking there
_SPIRAL_S = 60.0  # 4 m round, for a ship of .5 m/s: then somebody must say what to do
_TOUCH, _TOUCH_S = 1.5, 2.0  # of its size: nearer it fills the picture, and the ship pushes on
_FAR_M = 20.0  # a smaller angle is noise
_SAME_RAD = 0.5  # seen a moment later, farther aside it is another one
_PER_S = 0.4  # of the distance: slower than the speed loop, so that it does not swing
_SHARE = 0.7  # of the ship's speed, the rest is for wind
_SLEW = 0.7  # of the yaw rate limit
_SPIRAL_M = 2.0  # between its turns: no farther than a balloon is seen in a dim room
_ALONG = 0.5  # of the camera's axis: such a one looks ahead, and the nose turns to what it sees


class _Pose(msgspec.Struct, frozen=True, gc=False):
    t_s: float
    attitude: Quaternion
    position_ned_m: Vec3


class Follow(FlightMode):
    """Ends as LOITER would, at rest, after the seconds of its wish; `gave_up` says if it lost it.
    With a distance of 0 it ends once it has flown into it.

    before: the demand that this one replaces, whose ramp and height go on.
    """

    steered = True  # nobody has checked where it leads: the fence holds it

    def __init__(
        self, state: VehicleState, *, ship: Ship, wish: FollowSeen, before: Demand | None = None
    ) -> None:
        self.number = Mode.FOLLOW
        self._ship, self._wish = ship, wish
        self._poses: deque[_Pose] = deque(maxlen=256)
        self._after: Loiter | None = None
        self._turns = 1.0  # to the side where it was lost
        self._place: Vec3 | None = None
        self._moves: Vec3 = ZERO3
        self._flown_s = self._followed_s = self._touch_s = 0.0
        self._seen_s = -inf  # exposure of the last frame with it
        self._frame_s = -inf
        self._distance_m = inf
        self._axis: Vec3 = (1.0, 0.0, 0.0)
        self._camera_m: Vec3 = ZERO3
        self.resume(state)
        if before is not None:
            self._yaw_rad, self._wish_mps = before.yaw_rad, before.velocity_ned_mps
            self._down_m = before.down_m

    @property
    def demand(self) -> Demand | None:
        if self._after is not None:
            return None
        return Demand(yaw_rad=self._yaw_rad, velocity_ned_mps=self._wish_mps, down_m=self._down_m)

    @property
    def done(self) -> bool:
        touched = self._touch_s >= _TOUCH_S
        return not self.gave_up and (touched or self._flown_s >= self._wish.seconds)

    @property
    def gave_up(self) -> str:
        if self._spiral_s < _SPIRAL_S:
            return ""
        return f"no {self._wish.kind} in sight for {self._lost_s:.0f} s: holding"

    @property
    def fraction(self) -> float:
        return min(1.0, self._flown_s / self._wish.seconds)

    @property
    def result(self) -> dict[str, Any]:
        """followed_s: with it in sight. distance_m: to it, as last seen."""
        found: dict[str, Any] = {"followed_s": round(self._followed_s, 1)}
        if self._place is not None:
            found["distance_m"] = round(self._distance_m, 2)
        return found

    def resume(self, state: VehicleState) -> None:
        self._wish_mps = ZERO3
        self._yaw_rad = yaw_of(state.attitude)
        self._down_m = state.position_ned_m[2]
        self._lost_s = _FRESH_S if self._place is None else 0.0  # it looks for it from now on
        self._begin_search()
        if self._after is not None:
            self._after.resume(state)

    def _begin_search(self) -> None:
        self._searched_rad = self._spiral_rad = self._spiral_s = 0.0
        self._center: Vec3 | None = None

    def update(self, state: VehicleState, *, dt_s: float) -> Setpoint:
        if self._after is not None:
            return self._after.update(state, dt_s=dt_s)
        if self.gave_up or self.done:
            self.number, self._after = Mode.LOITER, Loiter(state, ship=self._ship)
            return self._after.update(state, dt_s=dt_s)
        self._flown_s += dt_s
        self._lost_s += dt_s
        self._poses.append(_Pose(state.t_s, state.attitude, state.position_ned_m))
        sample = self._ship.seen()
        if sample is not None and sample.t_s > self._frame_s:
            self._frame_s = sample.t_s
            self._look(sample)
        if self._place is not None and (self._lost_s < _WAIT_S or self._touch_s):
            return self._approach(self._place, state, dt_s)
        return self._search(state, dt_s)

    # --- where it is -----------------------------------------------------------------------

    def _look(self, sample: SeenSample) -> None:
        """Take a frame, put together with the pose that the ship had at its exposure."""
        now = self._poses[-1]
        if not now.t_s - _LATE_S <= sample.t_s <= now.t_s:
            return
        pose = next((p for p in reversed(self._poses) if p.t_s <= sample.t_s), self._poses[0])
        lever = rotate(pose.attitude, sample.camera_body_m)
        camera = _plus(pose.position_ned_m, lever)
        expected: Vec3 | None = None
        if self._place is not None and self._lost_s < _FRESH_S:
            expected = _unit(minus(self._place, camera))
        best, at = None, ZERO3
        for one in sample.found:
            if one.kind != self._wish.kind or not 0.0 < one.size_rad < pi:
                continue
            ray = rotate(pose.attitude, one.direction_body)
            if expected is not None and dot(ray, expected) < cos(_SAME_RAD):
                continue
            if best is None or one.size_rad > best.size_rad:
                best, at = one, ray
        if best is None:
            return
        self._axis, self._camera_m = sample.axis_body, sample.camera_body_m
        self._correct(_plus(camera, at, self._range_m(best)), sample.t_s)

    def _range_m(self, seen: Sighting) -> float:
        return min(_FAR_M, 0.5 * self._wish.size_m / tan(0.5 * seen.size_rad))

    def _correct(self, measured: Vec3, t_s: float) -> None:
        since_s = t_s - self._seen_s
        if self._place is None or since_s > _WAIT_S:
            self._place, self._moves = measured, ZERO3
        else:
            # `_place` is carried on in each cycle; what is measured belongs to the exposure.
            fades = exp(-since_s / _MEMORY_S)
            late_s = self._poses[-1].t_s - t_s
            off = minus(_plus(measured, self._moves, late_s), self._place)
            self._place = _plus(self._place, off, 1.0 - fades * fades)
            self._moves = _plus(self._moves, off, (1.0 - fades) ** 2 / max(since_s, 0.02))
        self._seen_s = t_s
        self._lost_s = self._poses[-1].t_s - t_s
        self._begin_search()

    # --- where to fly -----------------------------------------------------------------------

    def _approach(self, place: Vec3, state: VehicleState, dt_s: float) -> Setpoint:
        """Bring what is seen onto the camera's axis, at the distance that was asked for."""
        if self._lost_s < _FRESH_S:
            place = self._place = _plus(place, self._moves, dt_s)
            self._followed_s += dt_s
        here = _plus(state.position_ned_m, rotate(state.attitude, self._camera_m))
        ahead = minus(place, here)
        self._distance_m = hypot(*ahead)
        if self._touch_s or (self._wish.distance_m == 0.0 and self._distance_m < self._wish.size_m):
            self._touch_s += dt_s
            return self._fly(self._wish_mps, 0.0, state, dt_s)
        x, y, z = self._axis
        along = hypot(x, y)
        yaw_rad = yaw_of(state.attitude)
        if along > _ALONG and hypot(ahead[0], ahead[1]) > 0.3 * self._wish.size_m:
            yaw_rad = atan2(ahead[1], ahead[0]) - atan2(y, x)
        heading = yaw_rad if along > _ALONG else self._yaw_rad
        c, s, keep_m = cos(heading), sin(heading), self._wish.distance_m
        goal = (
            ahead[0] - keep_m * (c * x - s * y),
            ahead[1] - keep_m * (s * x + c * y),
            ahead[2] - keep_m * z,
        )
        if self._lost_s >= _FRESH_S:
            goal = ZERO3
        wish = self._towards(goal, self._moves if self._lost_s < _FRESH_S else ZERO3)
        turn = wrap_pi(heading - self._yaw_rad)
        if turn:
            self._turns = 1.0 if turn > 0.0 else -1.0
        return self._fly(wish, turn / max(dt_s, 1e-3), state, dt_s)

    def _search(self, state: VehicleState, dt_s: float) -> Setpoint:
        """Turn round once, and then fly a spiral with the nose along it.

        A ship with no side force does not turn where it stands: it begins with a circle.
        """
        if self._ship.sways() and self._searched_rad < 2.0 * pi:
            rate = _SLEW * self._ship.airframe.limits.yaw_rate_radps
            self._searched_rad += rate * dt_s
            return self._fly(ZERO3, self._turns * rate, state, dt_s)
        self._spiral_s += dt_s
        center = self._center = self._center or state.position_ned_m
        least_m = 0.0 if self._ship.sways() else 0.5 * _SPIRAL_M
        radius_m = max(least_m, _SPIRAL_M * self._spiral_rad / (2.0 * pi))
        turn = (cos(self._spiral_rad), sin(self._spiral_rad))
        ahead = (
            center[0] + radius_m * turn[0] - state.position_ned_m[0],
            center[1] + radius_m * turn[1] - state.position_ned_m[1],
            0.0,
        )
        speed = _SHARE * self._ship.airframe.limits.speed_mps
        if hypot(ahead[0], ahead[1]) < _SPIRAL_M:  # else it waits for the ship
            self._spiral_rad += speed * dt_s / max(radius_m, 0.5)
        course = atan2(ahead[1], ahead[0])
        wish = self._towards(ahead, (-speed * turn[1], speed * turn[0], 0.0))
        return self._fly(wish, wrap_pi(course - self._yaw_rad) / max(dt_s, 1e-3), state, dt_s)

    def _towards(self, ahead: Vec3, moves: Vec3) -> Vec3:
        """Return the velocity that closes a distance, no faster than the ship can stop."""
        limits = self._ship.airframe.limits
        far_m = hypot(ahead[0], ahead[1])
        speed = min(_PER_S * far_m, (2.0 * limits.acceleration_mps2 * far_m) ** 0.5)
        k = speed / far_m if far_m > 0.0 else 0.0
        north, east = k * ahead[0] + moves[0], k * ahead[1] + moves[1]
        over = max(1.0, hypot(north, east) / (_SHARE * limits.speed_mps))
        down = max(-limits.climb_mps, min(limits.descent_mps, _PER_S * ahead[2] + moves[2]))
        return (north / over, east / over, _SHARE * down)

    def _fly(self, wish: Vec3, turn_radps: float, state: VehicleState, dt_s: float) -> Setpoint:
        limits, area = self._ship.airframe.limits, self._ship.area
        north, east, _ = state.position_ned_m
        brakes_m = 0.5 * dot(self._wish_mps, self._wish_mps) / limits.acceleration_mps2
        far = hypot(north, east) + brakes_m > limits.max_distance_m
        if far and north * wish[0] + east * wish[1] > 0.0:
            wish = (0.0, 0.0, wish[2])
        most = _SLEW * limits.yaw_rate_radps
        turn_radps = max(-most, min(most, turn_radps))
        self._wish_mps = ramped(self._wish_mps, wish, limits.acceleration_mps2 * dt_s)
        if turn_radps:
            self._yaw_rad = turned(self._yaw_rad, turn_radps * dt_s, state)
        lowest_m = max(MIN_ALTITUDE_M, area.fence.floor_m or 0.0)
        down_m = self._down_m + self._wish_mps[2] * dt_s
        self._down_m = max(-self._ship.highest_m, min(-lowest_m, down_m))
        return Setpoint(
            position_ned_m=(None, None, self._down_m),
            velocity_ned_mps=self._wish_mps,
            yaw_rad=self._yaw_rad,
            yaw_rate_radps=turn_radps,
        )


def _plus(a: Vec3, b: Vec3, k: float = 1.0) -> Vec3:
    return (a[0] + k * b[0], a[1] + k * b[1], a[2] + k * b[2])


def _unit(a: Vec3) -> Vec3:
    size = hypot(*a)
    return (a[0] / size, a[1] / size, a[2] / size) if size > 0.0 else ZERO3
