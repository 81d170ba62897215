"""Wrench in, actuator command out: geometry as data, saturation shared by priority.

Each thruster is a column (axis; r x axis) about the centre of gravity, one for every step of the
servo that turns it. A weighted pseudo-inverse of the columns at the servos' present angles turns a
wrench into thrusts. Where the servos go follows from the same inverse with two inputs for each
thruster that turns, one along its axis and one across: each servo aims along the thrusts that these
wish for, where it may, or backwards. One servo a cycle refines its target: it looks at the angles
beside it, and all take what leaves least of the wish. Source: Johansen & Fossen, "Control
allocation: a survey" (2013), sections 2.2 and 2.4.
"""

from collections.abc import Container, Mapping
from math import atan2, cos, exp, isfinite, pi, sin
from typing import NamedTuple

from blimp.airframe import Airframe, Thruster
from blimp.control.fins import Fins
from blimp.control.tilt import tilts
from blimp.linear import NOTHING, Column, less, weighted_pseudo_inverse
from blimp.types import ActuatorCommand, Vec3, Wrench
from blimp.vector import cross, minus, within

_NONE: Mapping[str, float] = {}  # of the servos has been found to stay

_FX, _FY, _FZ, _MX, _MY, _MZ = range(6)  # of a wrench
# Vertical first, then yaw, surge, sway: what is cut is cut from the last.
_STANDS = 0.05  # of its most: with less, nothing of a one-way propeller can be taken away
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
_SERVES_S = 1.0  # for so long an angle serves, before the wish is another
_SHORT_S = 0.2  # of a servo's way: less is no gap in the thrust
_KEPT = 2048  # settings of all servos together whose inverse is kept: some 10 MB
_SWAYS = 0.5  # of a wish for side force, or surge, alone must come, for a ship that can push so
_ASIDE = 0.1  # of the surge may push aside: less than a hull's drag from there makes good
_ALONE = 0.05  # of an axis: thrusters that make less of it do not fly it


class Mixer:
    """Allocates a wrench to one airframe's thrusters, tilt servos and fins.

    After each `allocate`, `achieved` is the wrench the thrusters now give (as modelled)
    and `saturated` the sign, per wrench axis, in which no more can be had.
    """

    def __init__(self, *, airframe: Airframe) -> None:
        self._airframe = airframe
        self._thrusters = airframe.thruster
        self._low = tuple(_range(t)[0] for t in airframe.thruster)
        self._high = tuple(_range(t)[1] for t in airframe.thruster)
        self._tilts = tilts(airframe)
        names = [tilt.name for tilt in self._tilts]
        self._turned_by = [names.index(t.tilted_by) if t.tilted_by else -1 for t in self._thrusters]
        # Of each thruster a column for every step of its servo.
        self._columns = [
            [_column(airframe, t, angle) for angle in (self._tilts[k].steps if k >= 0 else (0.0,))]
            for t, k in zip(self._thrusters, self._turned_by, strict=True)
        ]
        arm_m = max(abs(column[_MZ]) for columns in self._columns for column in columns)
        yaw_weight = _YAW_WEIGHT / arm_m**2 if arm_m > 1e-6 else 0.0
        self._weights: Column = (*_FORCE_WEIGHT, _ROLL_WEIGHT, 0.0, yaw_weight)
        self._smooth: Column = (0.0,) * 6
        self._turn = 0  # of the searches
        self._stuck: tuple[tuple[int, ...], float, list[Column]] | None = None
        self._accused: dict[int, float] = {}  # thrust of what is said to be broken, by thruster
        self._fixed: dict[int, float] = {}  # of these, what is left out
        self._asleep: tuple[str, ...] = ()
        self._height_first = self._opposed = False
        self._settings: dict[tuple[int, ...], _Setting] = {}  # by step of each servo, as needed
        self._aims = self._aiming()
        self._limits = self._whole = [self._limit(axis) for axis in range(6)]
        self._most = [self._both_ways(axis) for axis in _FLOWN]
        self.left_over = 1.0  # share of the whole ship's surge, heave or yaw, of the weakest
        self._sways, self._straight = self._ways()
        self._fins = Fins(airframe=airframe)
        # Every motor still, every servo at its safe state.
        self.neutral = ActuatorCommand(
            motors=(0.0,) * len(self._thrusters),
            servos=tuple(s.neutral_rad for s in airframe.servo),
            asleep=airframe.thruster_names,
        )
        self.achieved = Wrench()
        self.fins_made: Column = NOTHING  # of `achieved`, by the fins
        self.thrusts_n: tuple[float, ...] | None = (
            None  # commanded to each thruster; None: not by us
        )
        self.saturated: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)

    @property
    def tilts_rad(self) -> dict[str, float]:
        """Where each tilt servo is by the mixer's model of its slew, by name."""
        return {tilt.name: tilt.angle_rad for tilt in self._tilts}

    def limit_n(self, axis: int) -> float:
        """Return the force (N) or torque (N m) available both ways along one wrench axis.

        The best over all tilts, nothing else asked. axis: 0-5 for Fx, Fy, Fz, Mx, My, Mz.
        """
        return self._limits[axis]

    def reach_n(self, axis: int, sign: float) -> float:
        """Return the force (N) or torque (N m) available one way, `sign`, along one wrench axis.

        The best over all tilts, nothing else asked. axis: as of `limit_n`.
        """
        return sum(max(steps) for steps in self._reaches(axis, sign))

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
        self._settings.clear()
        self._aims = self._aiming()
        self._stuck = None
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
        """Return whether a wish for side force comes true, and one for surge without side force.

        No side force is had for more surge than that, as where propellers that push one way alone
        would have to hold the turn that it makes.
        """
        aside, pushed = self._made(_FY)
        ahead, _ = self._made(_FX)
        sways = aside[_FY] > _SWAYS and abs(pushed[_FX]) < abs(pushed[_FY])
        return sways, ahead[_FX] > _SWAYS and abs(ahead[_FY]) < _ASIDE * ahead[_FX]

    def _made(self, axis: int) -> tuple[list[float], list[float]]:
        """Return what a wish along one axis makes, by the inverse, and within bounds of thrust.

        The wish is far from any limit, so that none bends the angles.
        """
        wish = 0.1 * max(self._high + tuple(-low for low in self._low))
        x, y, z = (wish * (axis == i) for i in range(3))
        demand = (x, y, z, 0.0, 0.0, 0.0)
        setting = self._setting(self._best(demand))
        rows = [*zip(*setting.columns, strict=True)]
        shared = self._share(demand, setting.inverse)
        gains = [row[axis] for row in setting.inverse]
        return (
            [sum(c * g for c, g in zip(row, gains, strict=True)) for row in rows],
            [sum(c * n for c, n in zip(row, shared, strict=True)) / wish for row in rows],
        )

    def _limit(self, axis: int) -> float:
        return min(self.reach_n(axis, 1.0), self.reach_n(axis, -1.0))

    def _reaches(self, axis: int, sign: float) -> list[list[float]]:
        """Return what is available one way: of what none turns, and by step of each servo."""
        found = [[0.0], *([0.0] * len(tilt.steps) for tilt in self._tilts)]
        for k, columns in enumerate(self._columns):
            sums, low, high = found[self._turned_by[k] + 1], self._low[k], self._high[k]
            for i, column in enumerate(columns):
                gain = sign * column[axis]
                sums[i] += gain * high if gain > 0.0 else gain * low
        return found

    def _aiming(self) -> list[list[tuple[Column, Column]]]:
        """Return, by servo and thruster on it, what it should give along its axis and across.

        Rows of an inverse: of one newton wished.
        """
        inputs: list[Column] = []
        owners: list[int] = []
        for k, (thruster, turn) in enumerate(zip(self._thrusters, self._turned_by, strict=True)):
            dead = self._fixed.get(k) == 0.0
            for direction in thruster.turned[1:] if turn >= 0 else (thruster.axis,):
                inputs.append(NOTHING if dead else _about(self._airframe, thruster, direction))
                owners.append(turn)
        effort = (_EFFORT_WEIGHT,) * len(inputs)
        rows = weighted_pseudo_inverse(inputs, self._weights, effort)
        found: list[list[tuple[Column, Column]]] = []
        for turn in range(len(self._tilts)):
            own = [row for row, owner in zip(rows, owners, strict=True) if owner == turn]
            found.append(list(zip(own[::2], own[1::2], strict=True)))
        return found

    def _aimed(self, demand: Column) -> list[float]:
        """Return for each servo the angle along the thrusts that a wish takes of its thrusters."""
        angles = []
        x, y, z, roll, _, yaw = demand
        for pairs in self._aims:
            aa = ab = bb = 0.0
            made = []
            for (p, q, r, u, _, v), (e, f, g, h, _, w) in pairs:
                a = p * x + q * y + r * z + u * roll + v * yaw
                b = e * x + f * y + g * z + h * roll + w * yaw
                aa, ab, bb = aa + a * a, ab + a * b, bb + b * b
                made.append((a, b))
            angle = 0.5 * atan2(2.0 * ab, aa - bb)
            c, s = cos(angle), sin(angle)
            angles.append(angle if sum([a * c + b * s for a, b in made]) >= 0.0 else angle + pi)
        return angles

    def _best(self, demand: Column) -> tuple[int, ...]:
        """Return the steps of the servos that serve a wish of one axis, wherever they are now."""
        pairs = list(zip(self._tilts, self._aimed(demand), strict=True))
        ahead = tuple([tilt.step(tilt.ahead(angle)) for tilt, angle in pairs])
        near = tuple([tilt.step(tilt.nearest(angle)) for tilt, angle in pairs])
        return min(ahead, near, key=lambda at: self._cost(at, demand))

    def allocate(
        self,
        wrench: Wrench,
        *,
        dt_s: float,
        forward_mps: float = 0.0,
        unhealthy: tuple[str, ...] = (),
        stuck_rad: Mapping[str, float] = _NONE,
        height_first: bool = False,
    ) -> ActuatorCommand:
        """Return the command whose wrench comes nearest to `wrench`, within all limits.

        forward_mps: speed through the air along the body's x axis, for fins, which take what yaw
        they can before thrusters. unhealthy: devices; while the one that drives a tilt servo is
        among them the servo is taken to stay where it is. stuck_rad: where servos have been found
        to stay, by name. If none can move, height goes before all else. height_first: whatever
        way that costs. A wrench that is not finite gives the neutral command.
        """
        demand = wrench.force_body_n + wrench.torque_body_nm
        if not isfinite(sum(demand)):
            self._note_neutral()
            return self.neutral
        self._height_first = height_first
        # The height that goes first is answered by its opposite, or not at all. With a motor that
        # is said to be broken the answer is too little known to give up all else for it.
        opposed = demand[_FZ] * self.achieved.force_body_n[2] <= 0.0
        self._opposed = height_first and opposed and not self._accused
        moves = self._swing(demand, dt_s, unhealthy, stuck_rad)
        at = tuple([tilt.step(tilt.angle_rad) for tilt in self._tilts])
        setting = self._setting(at)
        inverse = setting.inverse
        if self._tilts and not moves:
            inverse = self._stuck_inverse(at, _LEAST if height_first else _LEVER)
        angles, made = self._fins.steer(demand[_MZ], forward_mps)
        thrusts = self._share(self._beside(setting, less(demand, made)), inverse)
        for k, thrust in self._fixed.items():
            thrusts[k] = thrust
        self.thrusts_n = tuple(thrusts)
        self._note(demand, thrusts, setting.columns, made)
        servos = list(self.neutral.servos)
        for tilt in self._tilts:
            servos[tilt.index] = tilt.target_rad
        for index, angle in angles.items():
            servos[index] += angle
        return ActuatorCommand(
            motors=tuple(
                0.0 if k in self._fixed else thruster.throttle(thrust)
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
        stuck_rad: Mapping[str, float] = _NONE,
    ) -> None:
        """Keep the tilt model true while someone else commands the servos."""
        for tilt in self._tilts:
            if tilt.device not in unhealthy and tilt.name not in stuck_rad:
                tilt.slew(command.servos[tilt.index], dt_s)
        self._note_neutral()

    def _swing(
        self,
        demand: Column,
        dt_s: float,
        unhealthy: tuple[str, ...],
        stuck_rad: Mapping[str, float],
    ) -> bool:
        """Send the servos on, one of them to where it serves the wish best.

        Returns whether any moves.
        """
        moving = []
        for k, tilt in enumerate(self._tilts):
            if tilt.name in stuck_rad:
                tilt.angle_rad = tilt.target_rad = stuck_rad[tilt.name]
            elif tilt.device not in unhealthy:
                moving.append(k)
        if moving:
            self._choose_tilts(moving, demand, dt_s)
        for k in moving:
            self._tilts[k].slew(self._tilts[k].target_rad, dt_s)
        return bool(moving)

    def _stuck_inverse(self, at: tuple[int, ...], lever: float) -> list[Column]:
        """Return the inverse for a tilt that cannot be changed: surge pays for height.

        Not if it stays nearly level, less than `lever` of it upright: then a little height would
        cost a flight across the hall.
        """
        setting = self._setting(at)
        if max(abs(column[_FZ]) for column in setting.columns) < lever:
            return setting.inverse
        share = _STUCK * lever
        if self._stuck is None or self._stuck[:2] != (at, share):
            fx, fy, fz, *torques = self._weights
            weights: Column = (share * fx, share * fy, fz, torques[0], torques[1], torques[2])
            effort = (share * _EFFORT_WEIGHT,) * len(self._thrusters)
            inverse = weighted_pseudo_inverse(self._free(setting.columns), weights, effort)
            self._stuck = (at, share, inverse)
        return self._stuck[2]

    def _choose_tilts(self, moving: list[int], demand: Column, dt_s: float) -> None:
        """Send the servos to the angles that serve the wish best, their present targets preferred.

        These are compared with the angles beside them of one servo, and with where all aim that
        can move: so that thrust is positive, and the nearest way. Propellers run backwards if that
        is shorter, since the cost of an angle knows what thrust it would take there.
        """
        servos = self._tilts
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
        smooth = self._beside_height(smooth)
        now = tuple([tilt.step(tilt.target_rad) for tilt in servos])
        # By turns where they aim, and the angles beside the target of one.
        self._turn += 1
        tried: list[tuple[int, ...]] = []
        if self._turn % 2:
            ahead, near = list(now), list(now)
            aimed = self._aimed(smooth)
            for k in moving:
                ahead[k] = servos[k].step(servos[k].ahead(aimed[k]))
                near[k] = servos[k].step(servos[k].nearest(aimed[k]))
            tried = [tuple(near)] if near == ahead else [tuple(ahead), tuple(near)]
        else:
            turn = moving[self._turn // 2 % len(moving)]
            for index in (now[turn] + 2, now[turn] - 2):
                if 0 <= index < len(servos[turn].steps):
                    tried.append((*now[:turn], index, *now[turn + 1 :]))
        best, now_cost = now, self._cost(now, smooth)
        best_cost = now_cost
        for at in tried:
            if at == now:
                continue
            cost = self._cost(at, smooth)
            way_s = 0.0  # height goes there whatever the way costs
            for tilt, i, j in () if self._opposed else zip(servos, now, at, strict=True):
                cost += tilt.swing_cost * abs(i - j)
                way_s = max(way_s, tilt.way_s(i, j))
            if way_s > _SHORT_S:  # what is lost on the way there, as where it is half done
                between = tuple([(i + j) // 2 for i, j in zip(now, at, strict=True)])
                cost += way_s / _SERVES_S * max(0.0, self._cost(between, smooth) - now_cost)
            if cost < best_cost:
                best, best_cost = at, cost
        for tilt, i, j in zip(servos, now, best, strict=True):
            if i != j:
                tilt.target_rad = tilt.steps[j]

    def _beside_height(self, demand: Column) -> Column:
        """Return a wish without what its height leaves no thrust for: height goes first.

        Else a heavy ship that wants to turn turned its thrust from upwards to that, and sank; and
        a wish to turn, ten times a small one to sink, held thrust upright that lifts.
        """
        fx, fy, fz, roll, pitch, yaw = demand
        if self._opposed:
            return 0.0, 0.0, fz, 0.0, 0.0, 0.0
        most_n = self._limits[_FZ]
        left = 1.0 - min(1.0, abs(fz) / most_n) if most_n > 0.0 else 1.0
        return fx, fy, fz, roll, pitch, within(yaw, left * self._limits[_MZ])

    def _cost(self, at: tuple[int, ...], demand: Column) -> float:
        """Return the weighted square of what `demand` would lack at these tilts, in N²."""
        setting = self._settings.get(at) or self._setting(at)
        wish_x, wish_y, wish_z, wish_roll, _, wish_yaw = self._beside(setting, demand)
        lack_x, lack_y, lack_z, lack_roll, lack_yaw = wish_x, wish_y, wish_z, wish_roll, wish_yaw
        effort = 0.0
        for by_x, by_y, by_z, by_yaw, low, high, fx, fy, fz, roll, yaw in setting.parts:
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
                if part < 0.0 and low[k] == 0.0 and thrusts[k] <= _STANDS * high[k]:
                    continue  # it pushes one way alone: its opposite does its half of the axis
                left = (high if part > 0.0 else low)[k] - thrusts[k]
                if left / part < scale:
                    scale = left / part
            if scale > 0.0:
                for k, row in enumerate(inverse):
                    thrusts[k] += scale * row[axis] * wanted
                    if thrusts[k] < 0.0 == low[k]:
                        thrusts[k] = 0.0
        return [
            least if thrust < least else most if thrust > most else thrust
            for thrust, least, most in zip(thrusts, low, high, strict=True)
        ]

    def _note(
        self, demand: Column, thrusts: list[float], columns: tuple[Column, ...], made: Column
    ) -> None:
        self.fins_made = made
        fx, fy, fz, mx, my, mz = made
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
        self.fins_made = NOTHING
        self.achieved = Wrench()
        self.saturated = (0, 0, 0, 0, 0, 0)

    def _setting(self, at: tuple[int, ...]) -> "_Setting":
        """Return what the servos at these steps make of the thrusters, worked out when needed."""
        found = self._settings.get(at)
        if found is not None:
            return found
        if len(self._settings) >= _KEPT:
            self._settings.clear()
        columns = tuple(
            [
                steps[at[k] if k >= 0 else 0]
                for steps, k in zip(self._columns, self._turned_by, strict=True)
            ]
        )
        effort = (_EFFORT_WEIGHT,) * len(columns)
        inverse = weighted_pseudo_inverse(self._free(columns), self._weights, effort)
        found = self._settings[at] = _Setting(
            columns=columns,
            inverse=inverse,
            parts=[
                (row[_FX], row[_FY], row[_FZ], row[_MZ], low, high, fx, fy, fz, roll, yaw)
                for row, (fx, fy, fz, roll, _, yaw), low, high in zip(
                    inverse, columns, self._low, self._high, strict=True
                )
            ],
            given=_sum(columns, self._fixed) if any(self._fixed.values()) else None,
        )
        return found

    def _free(self, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns, those of broken thrusters zero: so are their thrusts, then."""
        return tuple(NOTHING if k in self._fixed else c for k, c in enumerate(columns))

    def _beside(self, setting: "_Setting", demand: Column) -> Column:
        """Return what is to be made beside what broken thrusters make at these tilts."""
        if setting.given is None:
            return demand
        made = setting.given
        if self._height_first:  # what they turn the ship by is borne
            return (0.0, 0.0, demand[_FZ] - made[_FZ], 0.0, 0.0, 0.0)
        return less(demand, made)


class _Setting(NamedTuple):
    """What the servos at certain steps make of the thrusters.

    parts: by thruster what the search for the best angles asks: thrust for each newton wished,
    lowest and highest, and what one newton makes. given: what broken thrusters make.
    """

    columns: tuple[Column, ...]
    inverse: list[Column]
    parts: list[tuple[float, ...]]
    given: Column | None


def _range(thruster: Thruster) -> tuple[float, float]:
    return -thruster.reverse_thrust_n, thruster.max_thrust_n


def _column(airframe: Airframe, thruster: Thruster, tilt_rad: float) -> Column:
    """Force and torque about the centre of gravity of one newton at this tilt."""
    return _about(airframe, thruster, thruster.axis_at(tilt_rad))


def _about(airframe: Airframe, thruster: Thruster, force: Vec3) -> Column:
    """Return a force at a thruster with its torque about the centre of gravity."""
    arm = minus(thruster.position_m, airframe.mass.center_of_gravity_m)
    return (*force, *cross(arm, force))


def _sum(columns: tuple[Column, ...], thrusts: Mapping[int, float]) -> Column:
    total = [sum(columns[k][axis] * thrust for k, thrust in thrusts.items()) for axis in range(6)]
    return (total[0], total[1], total[2], total[3], total[4], total[5])


def _short(wanted: float, got: float, limit: float) -> int:
    """Return the sign in which `got` misses `wanted` by a tenth of it and 3 % of the limit."""
    missing = wanted - got
    if abs(missing) <= 0.1 * abs(wanted) + 0.03 * limit:
        return 0
    return 1 if missing > 0.0 else -1
