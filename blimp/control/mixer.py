"""Wrench in, actuator command out: geometry as data, saturation shared by priority.

Each thruster is a column (axis; r x axis) about the centre of gravity. A weighted
pseudo-inverse of those columns turns a wrench into thrusts; where a servo tilts some of
them, one is computed per tilt step when the mixer is made, and the cycle picks the one for
where the servo now is: the wish is projected on the present direction of the propellers
while they swing. Source: Johansen & Fossen, "Control allocation: a survey" (2013),
sections 2.2 and 2.4.
"""

from collections.abc import Container, Mapping
from math import cos, exp, inf, isfinite, sin

from blimp.airframe import Airframe, Servo, Thruster
from blimp.control.linear import weighted_pseudo_inverse
from blimp.control.vector import cross, minus, within
from blimp.errors import AirframeError
from blimp.types import ActuatorCommand, Wrench

Column = tuple[float, float, float, float, float, float]  # force and torque of one newton

_TILT_STEP_RAD = 0.02  # finer than a hobby servo stands
_FX, _FY, _FZ, _MX, _MY, _MZ = range(6)  # of a wrench
# Vertical first, then yaw, surge, sway: what is cut is cut from the last.
_PRIORITY = (_FZ, _MZ, _FX, _FY)
_FLOWN = (_FX, _FZ, _MZ)  # without side force a ship turns its nose instead
# Pitch is not allocated: a hull hangs below its buoyancy and rights itself, and every
# newton of surge would otherwise be fought for its moment. Roll hardly.
_FORCE_WEIGHT = (1.0, 0.3, 1.0)
_ROLL_WEIGHT = 0.05  # against surge, heave and yaw: roll stands by itself
_YAW_WEIGHT = 2.0  # for the moment that one newton gives on the longest arm
_EFFORT_WEIGHT = 5e-3  # against propellers that push each other
_REVERSED = 4.0  # times the effort: a propeller running backwards wastes power
_STUCK = 0.06  # of the weight of surge and sway, if the tilt cannot be changed, times the lever
_LEVER = 0.33  # of a thrust that must point up or down, for height to be worth the way
_LEAST = 0.03  # the same share of thrust, if a ship that should sink does not
_TILT_FILTER_S = 0.25  # keeps noise out of the servo
_SCAN_STEPS = 7  # angles that are tried, before the best is refined
_SWING_COST = 2e-3  # N² per radian: what it must gain to be worth moving the servo
_SWAYS = 0.5  # of a wish for side force, or surge, alone must come, for a ship that can push so
_ASIDE = 0.1  # of the surge may push aside: less than a hull's drag from there makes good
_CRAWL = 0.05  # of full speed: with thrust by its square, 0.25 % of thrust
_ALONE = 0.05  # of an axis: thrusters that make less of it do not fly it
_SURFACE_LIMIT = 0.6  # of its travel
_SURFACE_MIN_Q = 0.09  # (m/s)^2: below 0.3 m/s a rudder is a flag


class Mixer:
    """Allocates a wrench to one airframe's thrusters, tilt servo and surfaces.

    After each `allocate`, `achieved` is the wrench the thrusters now give (as modelled)
    and `saturated` the sign, per wrench axis, in which no more can be had.
    """

    def __init__(self, *, airframe: Airframe) -> None:
        self._airframe = airframe
        self._thrusters = airframe.thruster
        self._low = tuple(_range(t)[0] for t in airframe.thruster)
        self._high = tuple(_range(t)[1] for t in airframe.thruster)
        self._tilt = _Tilt.of(airframe)
        # A grid through the neutral angle, where forwards and backwards cost the same.
        neutral = self._tilt.angle_rad if self._tilt else 0.0
        low, high = self._tilt.range_rad if self._tilt else (0.0, 0.0)
        below = int((neutral - low) / _TILT_STEP_RAD)
        steps = below + int((high - neutral) / _TILT_STEP_RAD) + 1
        self._first_tilt_rad = neutral - below * _TILT_STEP_RAD
        angles = [self._first_tilt_rad + k * _TILT_STEP_RAD for k in range(steps)]
        self._columns = [
            tuple(_column(airframe, t, angle) for t in self._thrusters) for angle in angles
        ]
        arm_m = max(abs(column[_MZ]) for columns in self._columns for column in columns)
        yaw_weight = _YAW_WEIGHT / arm_m**2 if arm_m > 1e-6 else 0.0
        self._weights: Column = (*_FORCE_WEIGHT, _ROLL_WEIGHT, 0.0, yaw_weight)
        self._smooth: Column = (0.0,) * 6
        self._stuck: tuple[int, float, list[Column]] | None = None
        self._accused: dict[int, float] = {}  # thrust of what is said to be broken, by thruster
        self._fixed: dict[int, float] = {}  # of these, what is left out
        self._asleep: tuple[str, ...] = ()
        self._given: list[Column] = []  # what that makes, by tilt
        self._height_first = False
        self._scanned = self._far = 0
        self._far_cost = inf
        self._weigh()
        self._limits = self._whole = [self._limit(axis) for axis in range(6)]
        self._most = [self._both_ways(axis) for axis in _FLOWN]
        self.left_over = 1.0  # share of the whole ship's surge, heave or yaw, of the weakest
        self._sways, self._straight = self._ways()
        self._rudders = _rudders(airframe)
        # Every motor still, every servo at its safe state.
        self.neutral = ActuatorCommand(
            motors=(0.0,) * len(self._thrusters),
            servos=tuple(s.neutral_rad for s in airframe.servo),
            asleep=airframe.thruster_names,
        )
        self.achieved = Wrench()
        self.thrusts_n: tuple[float, ...] | None = (
            None  # commanded to each thruster; None: not by us
        )
        self.saturated: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)

    @property
    def tilt_rad(self) -> float:
        """Where the tilt servo is by the mixer's model of its slew; 0 if there is none."""
        return self._tilt.angle_rad if self._tilt else 0.0

    @property
    def tilts_rad(self) -> dict[str, float]:
        """Where each tilt servo is, by name, as `tilt_rad`."""
        if self._tilt is None:
            return {}
        return {self._tilt.name: self._tilt.angle_rad}

    def limit_n(self, axis: int) -> float:
        """Return the force (N) or torque (N m) available both ways along one wrench axis.

        The best over all tilts, nothing else asked. axis: 0-5 for Fx, Fy, Fz, Mx, My, Mz.
        """
        return self._limits[axis]

    def reach_n(self, axis: int, sign: float) -> float:
        """Return the force (N) or torque (N m) available one way, `sign`, along one wrench axis.

        The best over all tilts, nothing else asked. axis: as of `limit_n`.
        """
        return max(self._reach(columns, axis, sign) for columns in self._columns)

    @property
    def doubted(self) -> bool:
        """Whether something that is said to be broken is driven: what it gives is not known."""
        return len(self._fixed) < len(self._accused)

    @property
    def sways(self) -> bool:
        """Whether it can push sideways and neither turn nor surge by it."""
        return self._sways

    @property
    def straight(self) -> bool:
        """Whether it can push ahead and neither turn nor sway by it."""
        return self._straight

    def leave_out(self, accused_n: Mapping[str, float], *, asleep: tuple[str, ...] = ()) -> None:
        """Allocate from now on to the other thrusters only. accused_n: what the broken ones give.

        asleep: those of them whose driver sleeps; none of these is driven.

        An empty one makes the ship whole again. Limits are those of what is left. The last
        thruster of surge, heave or yaw is driven all the same: broken, it does no harm, and
        accused by mistake it is all that holds the ship. One that runs by itself is left out if a
        servo turns it, since its thrust is of use then.
        """
        if not accused_n and not self._accused:
            return
        names = self._airframe.thruster_names
        accused = {names.index(name): thrust for name, thrust in accused_n.items()}
        if accused == self._accused:
            return
        self._accused, self._asleep = accused, asleep
        self._bound(accused)
        self.left_over = min(
            self._limit(axis) / self._whole[axis] for axis in _FLOWN if self._whole[axis] > 0.0
        )
        fixed: dict[int, float] = {}
        # What runs by itself first: beside it, the one that is said to do nothing is the last.
        for k, thrust in sorted(accused.items(), key=lambda item: item[1] == 0.0):
            self._bound(fixed)
            beside = self._pushed()
            self._bound({*fixed, k})
            turned = thrust != 0.0 and self._thrusters[k].tilted_by != ""
            if turned or names[k] in asleep or self._pushed() == beside:
                fixed[k] = thrust
        self._bound(fixed)
        self._fixed = fixed
        self._weigh()
        self._stuck = None
        self._given = []
        if any(fixed.values()):
            self._given = [_sum(columns, fixed) for columns in self._columns]
        self._limits = [self._limit(axis) for axis in range(6)] if fixed else self._whole
        self._sways, self._straight = self._ways()

    def _bound(self, fixed: Container[int]) -> None:
        """Set the bounds of thrust, with none for these thrusters."""
        rows = [(0.0, 0.0) if i in fixed else _range(t) for i, t in enumerate(self._thrusters)]
        self._low, self._high = tuple(low for low, _ in rows), tuple(high for _, high in rows)

    def _pushed(self) -> tuple[bool, ...]:
        """Return of surge, heave and yaw whether any thruster that can be commanded makes them."""
        return tuple(
            self._both_ways(axis) > _ALONE * most
            for axis, most in zip(_FLOWN, self._most, strict=True)
        )

    def _both_ways(self, axis: int) -> float:
        return self.reach_n(axis, 1.0) + self.reach_n(axis, -1.0)

    def _ways(self) -> tuple[bool, bool]:
        """Return whether a wish for side force comes true, and one for surge without side force."""
        index = self._index(0.0)
        made = []
        for axis in (_FY, _FX):
            gains = [row[axis] for row in self._inverse[index]]
            columns = zip(*self._columns[index], strict=True)
            made.append([sum(c * g for c, g in zip(row, gains, strict=True)) for row in columns])
        aside, ahead = made
        straight = ahead[_FX] > _SWAYS and abs(ahead[_FY]) < _ASIDE * ahead[_FX]
        return aside[_FY] > _SWAYS, straight

    def _limit(self, axis: int) -> float:
        return max(
            min(self._reach(columns, axis, 1.0), self._reach(columns, axis, -1.0))
            for columns in self._columns
        )

    def allocate(
        self,
        wrench: Wrench,
        *,
        dt_s: float,
        forward_mps: float = 0.0,
        unhealthy: tuple[str, ...] = (),
        stuck_rad: float | None = None,
        height_first: bool = False,
    ) -> ActuatorCommand:
        """Return the command whose wrench comes nearest to `wrench`, within all limits.

        forward_mps: speed along the body's x axis, for the rudder. unhealthy: devices; while
        the one that drives the tilt servo is among them the servo is taken to stay where it
        is, and height goes before all else. stuck_rad: where it has been found to stay.
        height_first: whatever way that costs. A wrench that is not finite gives the neutral
        command.
        """
        demand = wrench.force_body_n + wrench.torque_body_nm
        if not isfinite(sum(demand)):
            self._note_neutral()
            return self.neutral
        self._height_first = height_first
        index, inverse = 0, self._inverse[0]
        if self._tilt is not None:
            stuck = self._tilt.device in unhealthy or stuck_rad is not None
            if stuck_rad is not None:
                self._tilt.angle_rad = self._tilt.target_rad = stuck_rad
            if not stuck:
                self._tilt.slew(self._choose_tilt(self._tilt.target_rad, demand, dt_s), dt_s)
            index = self._index(self._tilt.angle_rad)
            inverse = self._inverse[index]
            if stuck:
                inverse = self._stuck_inverse(index, _LEAST if height_first else _LEVER)
        thrusts = self._share(self._beside(index, demand), inverse)
        for k, thrust in self._fixed.items():
            thrusts[k] = thrust
        self.thrusts_n = tuple(thrusts)
        self._note(demand, thrusts, self._columns[index])
        servos = list(self.neutral.servos)
        if self._tilt is not None:
            servos[self._tilt.index] = self._tilt.target_rad
        for rudder in self._rudders:
            servos[rudder.index] = rudder.angle_rad(demand[_MZ], forward_mps)
        return ActuatorCommand(
            motors=tuple(
                0.0 if k in self._fixed else throttle(thruster, thrust)
                for k, (thruster, thrust) in enumerate(zip(self._thrusters, thrusts, strict=True))
            ),
            servos=tuple(servos),
            asleep=self._asleep,
        )

    def follow(
        self,
        command: ActuatorCommand,
        *,
        dt_s: float,
        unhealthy: tuple[str, ...] = (),
        stuck_rad: float | None = None,
    ) -> None:
        """Keep the tilt model true while someone else commands the servos."""
        tilt = self._tilt
        if tilt is not None and tilt.device not in unhealthy and stuck_rad is None:
            tilt.slew(command.servos[tilt.index], dt_s)
        self._note_neutral()

    def _stuck_inverse(self, index: int, lever: float) -> list[Column]:
        """Return the inverse for a tilt that cannot be changed: surge pays for height.

        Not if it stays nearly level, less than `lever` of it upright: then a little height would
        cost a flight across the hall.
        """
        if max(abs(column[_FZ]) for column in self._columns[index]) < lever:
            return self._inverse[index]
        share = _STUCK * lever
        if self._stuck is None or self._stuck[:2] != (index, share):
            fx, fy, fz, *torques = self._weights
            weights: Column = (share * fx, share * fy, fz, torques[0], torques[1], torques[2])
            effort = (share * _EFFORT_WEIGHT,) * len(self._thrusters)
            inverse = weighted_pseudo_inverse(self._free(self._columns[index]), weights, effort)
            self._stuck = (index, share, inverse)
        return self._stuck[2]

    def _choose_tilt(self, target_rad: float, demand: Column, dt_s: float) -> float:
        """Return the tilt that serves the wish best, the present target preferred.

        Looks at both neighbours of the target, and at one far angle a cycle: after a quarter
        of a second at all of them. Propellers run backwards if that is the shorter way, since
        the cost of an angle knows what thrust it would take there.
        """
        keep = exp(-dt_s / _TILT_FILTER_S)
        new = 1.0 - keep
        fx, fy, fz, mx, my, mz = self._smooth
        dx, dy, dz, ex, ey, ez = demand
        smooth = self._smooth = (
            keep * fx + new * dx,
            keep * fy + new * dy,
            keep * fz + new * dz,
            keep * mx + new * ex,
            keep * my + new * ey,
            keep * mz + new * ez,
        )
        now = self._index(target_rad)
        best, best_cost = now, self._cost(now, smooth)
        last = len(self._inverse) - 1
        for index in (now + 2, now - 2, self._scan(smooth)):
            if 0 <= index <= last:
                cost = self._cost(index, smooth)
                cost += _SWING_COST * _TILT_STEP_RAD * abs(index - now)
                if cost < best_cost:
                    best, best_cost = index, cost
        return target_rad if best == now else self._first_tilt_rad + best * _TILT_STEP_RAD

    def _scan(self, demand: Column) -> int:
        """Look at one far angle; once all have been seen return the best, else -1."""
        # As a share of the wish, which may grow while the round lasts.
        wish = sum([w * d * d for w, d in zip(self._weights, demand, strict=True)])
        cost = self._cost(self._scanned, demand) / (wish + 1e-9)
        if cost < self._far_cost:
            self._far, self._far_cost = self._scanned, cost
        self._scanned += _SCAN_STEPS
        if self._scanned < len(self._inverse):
            return -1
        self._scanned -= len(self._inverse)
        far, self._far_cost = self._far, inf
        return far

    def _cost(self, index: int, demand: Column) -> float:
        """Return the weighted square of what `demand` would lack at this tilt, in N²."""
        wish_x, wish_y, wish_z, wish_roll, _, wish_yaw = self._beside(index, demand)
        lack_x, lack_y, lack_z, lack_roll, lack_yaw = wish_x, wish_y, wish_z, wish_roll, wish_yaw
        effort = 0.0
        for by_x, by_y, by_z, by_yaw, low, high, fx, fy, fz, roll, yaw in self._parts[index]:
            thrust = by_x * wish_x + by_y * wish_y + by_z * wish_z + by_yaw * wish_yaw
            if thrust > high:
                thrust = high
            elif thrust < low:
                thrust = low
            effort += thrust * thrust if thrust > 0.0 else _REVERSED * thrust * thrust
            lack_x -= fx * thrust
            lack_y -= fy * thrust
            lack_z -= fz * thrust
            lack_roll -= roll * thrust
            lack_yaw -= yaw * thrust
        wx, wy, wz, wr, _, wn = self._weights
        return (
            wx * lack_x * lack_x
            + wy * lack_y * lack_y
            + wz * lack_z * lack_z
            + wr * lack_roll * lack_roll
            + wn * lack_yaw * lack_yaw
            + _EFFORT_WEIGHT * effort
        )

    def _share(self, demand: Column, inverse: list[Column]) -> list[float]:
        """Add the axes in order of priority, each scaled down to what is left."""
        thrusts = [0.0] * len(self._thrusters)
        low, high = self._low, self._high
        for axis in _PRIORITY:
            wanted = demand[axis]
            if wanted == 0.0:
                continue
            scale = 1.0
            for k, row in enumerate(inverse):
                part = row[axis] * wanted
                if -1e-9 <= part <= 1e-9:
                    continue
                left = (high if part > 0.0 else low)[k] - thrusts[k]
                if left / part < scale:
                    scale = left / part
            if scale > 0.0:
                for k, row in enumerate(inverse):
                    thrusts[k] += scale * row[axis] * wanted
        return [
            least if thrust < least else most if thrust > most else thrust
            for thrust, least, most in zip(thrusts, low, high, strict=True)
        ]

    def _note(self, demand: Column, thrusts: list[float], columns: tuple[Column, ...]) -> None:
        fx = fy = fz = mx = my = mz = 0.0
        for (ax, ay, az, bx, by, bz), thrust in zip(columns, thrusts, strict=True):
            fx += ax * thrust
            fy += ay * thrust
            fz += az * thrust
            mx += bx * thrust
            my += by * thrust
            mz += bz * thrust
        self.achieved = Wrench(force_body_n=(fx, fy, fz), torque_body_nm=(mx, my, mz))
        limits = self._limits
        self.saturated = (
            _short(demand[_FX], fx, limits[_FX]),
            _short(demand[_FY], fy, limits[_FY]),
            _short(demand[_FZ], fz, limits[_FZ]),
            0,
            0,
            _short(demand[_MZ], mz, limits[_MZ]),
        )

    def _note_neutral(self) -> None:
        self.thrusts_n = None
        self.achieved = Wrench()
        self.saturated = (0, 0, 0, 0, 0, 0)

    def _index(self, tilt_rad: float) -> int:
        index = int((tilt_rad - self._first_tilt_rad) / _TILT_STEP_RAD + 0.5)
        return max(0, min(len(self._inverse) - 1, index))

    def _invert(self, columns: tuple[Column, ...]) -> list[Column]:
        effort = tuple(_EFFORT_WEIGHT for _ in self._high)
        return weighted_pseudo_inverse(self._free(columns), self._weights, effort)

    def _weigh(self) -> None:
        """Invert every tilt, and lay out by thruster what the search for the best one asks of it.

        _parts: thrust for each newton wished, lowest and highest, and what one newton makes.
        """
        self._inverse = [self._invert(columns) for columns in self._columns]
        self._parts = [
            [
                (row[_FX], row[_FY], row[_FZ], row[_MZ], low, high, fx, fy, fz, roll, yaw)
                for row, (fx, fy, fz, roll, _, yaw), low, high in zip(
                    inverse, columns, self._low, self._high, strict=True
                )
            ]
            for inverse, columns in zip(self._inverse, self._columns, strict=True)
        ]

    def _free(self, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns, those of broken thrusters zero: so are their thrusts, then."""
        nothing = (0.0,) * 6
        return tuple(nothing if k in self._fixed else c for k, c in enumerate(columns))

    def _beside(self, index: int, demand: Column) -> Column:
        """Return what is to be made beside what broken thrusters make at this tilt."""
        if not self._given:
            return demand
        (fx, fy, fz, mx, my, mz), made = demand, self._given[index]
        if self._height_first:  # what they turn the ship by is borne
            return (0.0, 0.0, fz - made[_FZ], 0.0, 0.0, 0.0)
        return (
            fx - made[_FX], fy - made[_FY], fz - made[_FZ],
            mx - made[_MX], my - made[_MY], mz - made[_MZ],
        )  # fmt: skip

    def _reach(self, columns: tuple[Column, ...], axis: int, sign: float) -> float:
        total = 0.0
        for column, low, high in zip(columns, self._low, self._high, strict=True):
            gain = sign * column[axis]
            total += gain * high if gain > 0.0 else gain * low
        return total


class _Tilt:
    """The servo that swings propellers from forward to up: where it is sent and where it is."""

    def __init__(self, *, index: int, servo: Servo, device: str) -> None:
        self.index = index
        self.name = servo.name
        self.device = device  # that drives it
        self.range_rad = (servo.min_rad, servo.max_rad)
        self._slew_radps = servo.slew_radps
        self.angle_rad = servo.neutral_rad  # modelled
        self.target_rad = servo.neutral_rad

    @classmethod
    def of(cls, airframe: Airframe) -> "_Tilt | None":
        """Raises AirframeError if two servos tilt: one table cannot hold both."""
        names = sorted({t.tilted_by for t in airframe.thruster if t.tilted_by})
        if not names:
            return None
        if len(names) > 1:
            raise AirframeError(
                f"airframe {airframe.name}: thrusters are tilted by {', '.join(names)}; "
                "the mixer knows one tilt servo"
            )
        index = airframe.servo_names.index(names[0])
        device = next(d.name for d in airframe.device if names[0] in d.outputs.values())
        return cls(index=index, servo=airframe.servo[index], device=device)

    def slew(self, target_rad: float, dt_s: float) -> None:
        """Send the servo to `target_rad` and move the model of it towards there."""
        low, high = self.range_rad
        self.target_rad = max(low, min(high, target_rad))
        self.angle_rad += within(self.target_rad - self.angle_rad, self._slew_radps * dt_s)


class _Rudder:
    """A surface that turns the ship: proportional help at speed, neutral without."""

    def __init__(
        self, *, index: int, gain_m: float, range_rad: tuple[float, float], neutral_rad: float
    ) -> None:
        self.index = index
        self._gain_m = gain_m  # N m per rad and (m/s)^2
        self._range_rad = range_rad
        self._neutral_rad = neutral_rad

    def angle_rad(self, torque_nm: float, forward_mps: float) -> float:
        pressure = forward_mps * abs(forward_mps)
        if forward_mps <= 0.0 or pressure < _SURFACE_MIN_Q:
            return self._neutral_rad
        low, high = self._range_rad
        wanted = 0.5 * torque_nm / (self._gain_m * pressure)
        return self._neutral_rad + _SURFACE_LIMIT * max(
            low - self._neutral_rad, min(high - self._neutral_rad, wanted)
        )


def throttle(thruster: Thruster, thrust_n: float) -> float:
    """Return the throttle in [-1, 1] for a thrust, the inverse of its curve."""
    if thrust_n >= 0.0:
        share = min(1.0, thrust_n / thruster.max_thrust_n)
        return _past(thruster.dead_band, float(share ** (1.0 / thruster.exponent)))
    if thruster.reverse_thrust_n <= 0.0:
        return 0.0
    share = min(1.0, -thrust_n / thruster.reverse_thrust_n)
    return -_past(thruster.reverse_dead_band, float(share ** (1.0 / thruster.exponent)))


def _past(dead_band: float, speed: float) -> float:
    """Return the throttle at which a motor with this dead band turns at `speed`, 0 to 1.

    Below `_CRAWL` the dead band is crossed on a line: a jump at 0 would let the motor be thrown
    from one direction to the other by a wish that is as good as none.
    """
    if dead_band <= 0.0:
        return speed
    return dead_band * min(1.0, speed / _CRAWL) + (1.0 - dead_band) * speed


def _range(thruster: Thruster) -> tuple[float, float]:
    return -thruster.reverse_thrust_n, thruster.max_thrust_n


def _column(airframe: Airframe, thruster: Thruster, tilt_rad: float) -> Column:
    """Force and torque about the centre of gravity of one newton at this tilt."""
    ax, ay, az = thruster.axis
    if thruster.tilted_by:
        c, s = cos(tilt_rad), sin(tilt_rad)
        ax, az = c * ax + s * az, c * az - s * ax
    arm = minus(thruster.position_m, airframe.mass.center_of_gravity_m)
    return (ax, ay, az, *cross(arm, (ax, ay, az)))


def _sum(columns: tuple[Column, ...], thrusts: Mapping[int, float]) -> Column:
    total = [sum(columns[k][axis] * thrust for k, thrust in thrusts.items()) for axis in range(6)]
    return (total[0], total[1], total[2], total[3], total[4], total[5])


def _rudders(airframe: Airframe) -> tuple[_Rudder, ...]:
    """Surfaces that push sideways well off the centre turn the ship; the rest stay neutral."""
    found = []
    for surface in airframe.surface:
        rx, ry, _ = minus(surface.position_m, airframe.mass.center_of_gravity_m)
        gain_m = (rx * surface.axis[1] - ry * surface.axis[0]) * surface.force_per_rad
        if abs(surface.axis[1]) > 0.7 and abs(gain_m) > 1e-6:
            index = airframe.servo_names.index(surface.servo)
            servo = airframe.servo[index]
            found.append(
                _Rudder(
                    index=index,
                    gain_m=gain_m,
                    range_rad=(servo.min_rad, servo.max_rad),
                    neutral_rad=servo.neutral_rad,
                )
            )
    return tuple(found)


def _short(wanted: float, got: float, limit: float) -> int:
    """Return the sign in which `got` misses `wanted` by a tenth of it and 3 % of the limit."""
    missing = wanted - got
    if abs(missing) <= 0.1 * abs(wanted) + 0.03 * limit:
        return 0
    return 1 if missing > 0.0 else -1
