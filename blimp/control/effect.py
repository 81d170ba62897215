"""Whether the outputs have their effect: a bank of hypotheses, each a model of the forces.

Twice a second the forces that the motion shows (inertia and drag along the hull, aside, upwards and
about the vertical) are compared with those that the commands make under each hypothesis: no fault
beside those that are known, or one more: a motor dead, weak, reversed or running by itself, two
swapped, a tilt servo that stays at one angle, turns the other way or half as far. What the airframe
does not know exactly, thrust, drag, wind and weight, is part of every model: a force of its own,
unknown but slow, whose variance follows from their uncertainties; a Kalman filter follows it. The
noise of the motion is measured in flight, by what the likeliest model leaves unexplained.

The likelihood ratio of a fault against no fault is summed up over time, not below zero (CUSUM), and
slowly forgotten. Outputs are named when a fault of theirs is more likely, by one threshold, than no
fault and than a ship on which a greater unknown force acts, and when a fault of others is as
unlikely as a wrong name may be; what is wrong with them, when that is likely enough. A ship that
does not move at all may be held by somebody, and names nothing.

Source: R. Isermann, "Fault-Diagnosis Systems" (2006), chapters 7 and 9; M. Basseville and
I. Nikiforov, "Detection of Abrupt Changes" (1993), sections 2.2 and 7.2. The uncertainties were
compared with what 300 healthy ships drawn at random left unexplained (decision 39).
"""

from collections.abc import Sequence
from math import copysign, cos, degrees, exp, hypot, inf, isfinite, log, sin, sqrt
from typing import NamedTuple

import msgspec

from blimp.ability import drag_speed
from blimp.airframe import Airframe
from blimp.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.bounds import lifts, most_lift_n
from blimp.control.witness import AIRBORNE_M
from blimp.rotation import rotate_back
from blimp.types import ZERO3, ActuatorCommand, Vec3, VehicleState
from blimp.vector import minus
from blimp.wires.wrong import Wrong, seen, sentence

_STEP_S = 0.1  # in which a tilt servo counts as still
_WINDOW_S = 0.5  # of one comparison: within it the noise of the speeds averages out
_QUICK_S = 0.3  # of a look at whether a motor drives the ship up
_THRESHOLD = 18.0  # log odds of a fault against none: the rate of false alarms (decision 39)
_SURE = 3.9  # log odds against faults of other outputs: 2 % of names may be wrong
_KIND = 2.2  # log odds against other faults of the same: 10 % may be
_TIRED = 0.65  # of thrust: a fifth less than in the file, on a battery at 90 % of its voltage
_MEMORY_S = 20.0  # in which evidence fades: nothing is added up over a whole flight
_UNKNOWN = 2.0  # times the deviation of the unknown force: something else acts on the ship
_SLOW_S = 5.0  # time constant of the unknown force
_TAILS = 5.0  # degrees of freedom of the noise (Student): gusts and blows are not Gaussian
_SELDOM = {  # log odds by which a fault is less frequent than a motor that does nothing
    Wrong.RUNS: 4.0, Wrong.REVERSED: 2.0, Wrong.SWAPPED: 2.0, Wrong.WEAK: 8.0,
    Wrong.STUCK: 0.0, Wrong.OTHER_WAY: 2.0, Wrong.HALF_WAY: 2.0,
}  # fmt: skip
# These are so from the take-off on: what flew well before is not miswired.
_MISWIRED = {Wrong.REVERSED, Wrong.SWAPPED, Wrong.OTHER_WAY, Wrong.HALF_WAY}
_SLEEPS = {"nsleep", "stby"}  # pins by which a driver is put to sleep, and its motors with it
_GROUP = 2.0  # log odds by which motors of one driver fail together more seldom than one

# Deviations of what is not known exactly.
_THRUST = 0.12  # of all thrusts together, a share: battery, propellers, air
_EACH = 0.06  # of each beside the others
_IDLE = 0.01  # of full thrust, whatever is commanded: dead bands, steps of the driver
_DRAG = 0.75  # of drag, and of force and torque of air from aside: half to double of the file's
_WEIGHT = 0.002  # of the displaced mass, beside the weight that is believed
_WIND_MPS = 0.05  # of the wind along each axis, beside what is known of it
_GUSTS = 0.1  # of its speed, on top
_LEARNT_S = 3.0  # time constant in which a flight learns the wind, of which it knows nothing first
_BOUND = 0.9  # of the ship's speed: the wind's estimate is bounded there, and says no more

# Noise of speed and yaw rate, to begin with and at the least; in flight it is measured.
_SPEED_NOISE_MPS = 0.01
_RATE_NOISE_RADPS = 0.005  # of the rates between two windows, at first
_LEAST_NOISE = 0.3  # of that noise, however quiet a flight is
_NOISE_S = 10.0  # time constant in which a flight's own noise is learnt

_STILL_MPS = 0.06  # slower and straighter than this, drag explains nothing
_STILL_RADPS = 0.02  # see above
_BLUR = 2.0  # deviations of the estimated speed, that a ship may be held and seem to move by
_TILTS = 13  # angles at which a servo may have stuck
_AXES = range(4)  # surge, sway, heave, yaw
_YAW = 3  # of these axes

Column = tuple[float, float, float, float]  # surge, sway and heave, N, and yaw, N m
_Sums = tuple[list[float], list[float]]  # of all thrusters, by axis: total, and of squares
_NOTHING: Column = (0.0, 0.0, 0.0, 0.0)  # of surge, sway, heave, yaw


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What is broken. thrusts_n: what each motor gives, if that is known. tilt_rad: of a servo that
    stays.

    asleep: the motors of a driver that sleeps, because one of them was said to run by itself.
    """

    names: tuple[str, ...]
    wrong: Wrong
    thrusts_n: tuple[float, ...] = ()
    tilt_rad: float | None = None
    asleep: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()  # the same of these looks no different

    @property
    def miswired(self) -> bool:
        """Whether it follows, if its commands are exchanged or turned round."""
        return self.wrong in _MISWIRED

    @property
    def runs(self) -> bool:
        """Whether it pushes without a command."""
        return self.wrong is Wrong.RUNS and not self.asleep

    def is_part_of(self, other: "Fault") -> bool:
        """Whether the other is the same of more motors."""
        return bool(self.thrusts_n) and self.fixed_n.items() < other.fixed_n.items()

    @property
    def dead(self) -> bool:
        """Whether it is a motor that does nothing."""
        return bool(self.thrusts_n) and not self.runs

    @property
    def all_dead(self) -> bool:
        """Whether several do nothing: a ship too light for them looks so, and none is left out."""
        return self.dead and len(self.names) > 1 and not self.asleep

    @property
    def fixed_n(self) -> dict[str, float]:
        """What the motors give, by name; of a servo nothing."""
        if self.asleep:
            return dict.fromkeys(self.asleep, 0.0)
        return dict(zip(self.names, self.thrusts_n, strict=False))

    @property
    def what(self) -> str:
        if self.tilt_rad is not None:
            return f"stays at {degrees(self.tilt_rad):.0f} degrees whatever is commanded"
        return seen(self.wrong) + (", so its driver sleeps" if self.asleep else "")

    @property
    def message(self) -> str:
        """What a person is informed of: with the cure, where it is one of the wires."""
        if not self.miswired:
            return f"{' and '.join(self.names)}: {self.what}"
        alike = f"; or {' and '.join(self.alike)}" if self.alike else ""
        return sentence(self.wrong, self.names) + alike


class _Effect(NamedTuple):
    """What a motor gives, as a share of its most: of another's share of its own, and always."""

    of: int
    factor: float
    always: float = 0.0


class _Model(msgspec.Struct, kw_only=True):
    """A hypothesis, and the filter of the force that it leaves unknown, by axis.

    effects: by thruster, of those that do not follow. columns: of those on a servo that stays.
    turns: a servo, and how many times as far as commanded it turns. wide: how many times as large
    as the airframe's uncertainties make it the unknown force may be.
    """

    fault: Fault | None = None
    least: float = 0.0  # evidence: 0 of what may begin at any time
    effects: dict[int, _Effect] = {}
    columns: dict[int, Column] = {}
    turns: tuple[str, float] = ("", 1.0)
    wide: float = 1.0
    force: list[float] = []
    variance: list[float] = []  # empty before the first window
    evidence: float = 0.0  # log likelihood ratio against no fault
    total: Sequence[float] = _NOTHING  # what all thrusters gave in the last window

    @property
    def odds(self) -> float:
        """Return the log odds of this fault against none."""
        assert self.fault is not None
        group = _GROUP if len(self.fault.names) > 1 and self.fault.thrusts_n else 0.0
        return self.evidence - group - _SELDOM.get(self.fault.wrong, 0.0)

    def begin(self, other: "_Model | None" = None) -> None:
        """Start the filter from nothing, or where another one is."""
        self.force = [*other.force] if other else [0.0] * len(_AXES)
        self.variance = [*other.variance] if other else []
        self.evidence = 0.0


class EffectCheck:
    """Call `update` every cycle in flight with what was driven, what was found so far counted in.

    If a difference is left, one more is named: beside a motor that does nothing, else instead. What
    is named and driven all the same, as the last thruster of an axis is, is taken back by the same
    threshold if it follows its commands.
    """

    def __init__(self, *, airframe: Airframe) -> None:
        self._airframe = airframe
        self._aero = aero = airframe.aero
        self._thrusters = airframe.thruster
        self._most_n = [(t.max_thrust_n, t.reverse_thrust_n) for t in airframe.thruster]
        arms = [minus(t.position_m, airframe.mass.center_of_gravity_m) for t in airframe.thruster]
        self._mounts = [
            (t.turned, t.tilted_by, arm[0], arm[1])
            for t, arm in zip(airframe.thruster, arms, strict=True)
        ]
        displaced_kg = AIR_DENSITY_KGM3 * airframe.hull.volume_m3
        self._weight_n = GRAVITY_MPS2 * displaced_kg
        x, y, z = (displaced_kg + added_kg for added_kg in aero.added_mass_kg)
        self._mass_kg = (x, y, z)
        self._inertias = (x, y, z, airframe.mass.inertia_kg_m2[2] + aero.added_inertia_kg_m2[2])
        hang = airframe.mass.center_of_gravity_m[2] * displaced_kg
        self._swing_m = (hang / x, hang / y)
        self._speed_mps = airframe.limits.speed_mps
        self._heavy = False
        self._well = _Model()  # no fault beside those that are known
        self._other = _Model(wide=_UNKNOWN)
        # Thrust of all motors is less by a low battery and by what the file says too much.
        self._tired = _Model(effects={i: _Effect(i, _TIRED) for i in range(len(airframe.thruster))})
        self._faulty = _hypotheses(airframe)
        self._drivers = [
            tuple(device.outputs.values())
            for device in airframe.device
            if not _SLEEPS.isdisjoint(device.pins)
        ]
        for model in self._faulty:
            if model.fault is not None and model.fault.tilt_rad is not None:
                (servo,) = model.fault.names
                columns = self._columns({servo: model.fault.tilt_rad})
                model.columns = {
                    i: columns[i] for i, t in enumerate(self._thrusters) if t.tilted_by == servo
                }
        self._lifters = [
            model
            for model in self._faulty
            if model.fault is not None
            and model.fault.runs
            and len(model.fault.names) == 1
            and self._sleepers(model.fault)
            and lifts(airframe, model.fault.names)
        ]
        # What each servo turns by: as it should, and by each hypothesis.
        self._turns = list(dict.fromkeys(model.turns for model in (self._well, *self._faulty)))
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new flight."""
        self._blame(())
        deviations = (*(_SPEED_NOISE_MPS,) * 3, _RATE_NOISE_RADPS)
        self._noise = [
            2.0 * (inertia * noise / _WINDOW_S) ** 2
            for inertia, noise in zip(self._inertias, deviations, strict=True)
        ]
        self._least = [_LEAST_NOISE * noise for noise in self._noise]
        for model in (self._well, self._other, self._tired, *self._faulty):
            model.begin()
        self._flown_s = 0.0
        self._contested_s = inf  # since torque and gyro were apart
        self._speeds = [0.0] * len(self._thrusters)  # of the motors: roots of their thrusts
        self.pause()

    def pause(self) -> None:
        """Nothing is commanded: the motion meanwhile is no motor's doing, nor its failing."""
        self._before: Column | None = None
        # Which model was the likeliest in the last window, and what it left unexplained.
        self._left: tuple[_Model, list[float]] | None = None

    def _blame(self, faults: tuple[Fault, ...]) -> None:
        """From now on these are known.

        fixed_n: what broken motors give, by name. stuck_rad: the angles at which tilt servos stay,
        of those that do not move. broken: every actuator that is named. asleep: the motors whose
        drivers sleep. only_dead: no motor pushes by itself and no servo stays, so that the mixer
        knows what they give.
        """
        self.faults = faults
        named = [fault for fault in faults if not fault.all_dead]
        self.fixed_n = {name: n for fault in named for name, n in fault.fixed_n.items()}
        self.stuck_rad = {f.names[0]: f.tilt_rad for f in faults if f.tilt_rad is not None}
        self.broken = tuple(name for fault in faults for name in fault.names)
        self.asleep = tuple(name for fault in faults for name in fault.asleep)
        rows = {thruster.name: i for i, thruster in enumerate(self._thrusters)}
        given = []
        for f in faults:
            fixed = {rows[name]: thrust_n for name, thrust_n in f.fixed_n.items()}
            given.append({i: _Effect(i, 0.0, _share(n, self._most_n[i])) for i, n in fixed.items()})
            if f.wrong is Wrong.WEAK:
                given[-1] = {rows[f.names[0]]: _Effect(rows[f.names[0]], 0.5)}
        self._well.effects = {i: effect for one in given for i, effect in one.items()}
        self._mended = [
            _Model(
                fault=fault,
                effects={i: e for other in given if other is not one for i, e in other.items()},
            )
            for fault, one in zip(faults, given, strict=True)
            if one and not fault.asleep
        ]
        self._miswired = [
            model for model in self._faulty if model.fault in faults and model.fault.miswired
        ]
        # With its commands turned round, what was no miswiring does what such a wiring did.
        self._mended += [
            _Model(fault=model.fault, effects=self._well.effects | model.effects)
            for model in self._miswired
            if model.effects
        ]
        self.only_dead = all(
            (fault.dead and not fault.all_dead) or fault.miswired for fault in faults
        )
        self._lost = any(fault.all_dead for fault in faults)

    def update(
        self,
        state: VehicleState,
        motors_n: Sequence[float],
        tilts_rad: dict[str, float],
        *,
        weight_n: float,
        fins: Sequence[float] = (0.0,) * 6,
        wind_ned_mps: Vec3 = ZERO3,
        heavy: bool = False,
        dt_s: float,
    ) -> None:
        """Take one cycle. motors_n: commanded thrusts. weight_n, wind: as known. heavy: surely.

        fins: the wrench of control surfaces.
        """
        self._heavy = heavy
        known = state.attitude_valid and state.height_valid and state.position_valid
        usable = known and not state.health.in_doubt  # a motion in doubt names no actuator
        self._contested_s = 0.0 if state.health.heading.contested else self._contested_s + dt_s
        # Below the height of a ship that flies it may lie on the ground, where no push moves it; so
        # may one whose estimate has sunk into the ground and sinks on.
        low = state.on_ground or state.altitude_m < AIRBORNE_M
        if not usable or low:
            self.pause()
            return
        u, v, w = rotate_back(state.attitude, state.velocity_ned_mps)
        p, q, r = state.rates_body_radps
        numbers = (u, v, w, p, q, r, *motors_n, *tilts_rad.values(), weight_n, *wind_ned_mps, dt_s)
        if not isfinite(sum(numbers)):
            self.pause()  # one NaN would stay in every sum
            return
        # The hull swings about the common centre of its mass and the air's: that one only forces
        # move (see the controller).
        now = (u + q * self._swing_m[0], v - p * self._swing_m[1], w, r)
        if self._before is None:
            self._begin(now)
        x, y, z = self._mass_kg
        forces = self._forces  # a ship that turns while it moves feels that along its axes
        forces[0] += dt_s * (z * q * w - y * r * v - fins[0])
        forces[1] += dt_s * (x * r * u - z * p * w - fins[1])
        forces[2] += dt_s * (y * p * v - x * q * u - weight_n - fins[2])
        forces[3] -= dt_s * fins[5]
        for i, thrust in enumerate(motors_n):
            self._step_ns[i] += dt_s * self._spun_up(i, thrust, dt_s)
        self._step_s += dt_s
        self._flown_s += dt_s
        if self._step_s < _STEP_S:
            return
        air = rotate_back(state.attitude, minus(state.velocity_ned_mps, wind_ned_mps))
        self._add(air, minus((u, v, w), air), (p, q, r), tilts_rad)
        if self._window_s >= _WINDOW_S - 0.5 * _STEP_S:
            slow_mps = _STILL_MPS + _BLUR * state.health.velocity.sigma
            self._compare(now, air, hypot(*wind_ned_mps), slow_mps=slow_mps)
        elif self._window_s >= _QUICK_S - 0.5 * _STEP_S:
            self._look_up(now, air, hypot(*wind_ned_mps))

    def _begin(self, now: Column) -> None:
        count = len(self._thrusters)
        self._before = now
        self._step_s = self._window_s = 0.0
        self._forces = [0.0] * len(_AXES)  # times seconds, like all sums of a window
        self._spin_nms = 0.0  # of them the drag against turning
        self._step_ns, self._thrust_ns = [0.0] * count, [0.0] * count
        self._ways = [[_NOTHING] * count for _ in self._turns]
        self._pushes = [[_NOTHING] * count for _ in self._turns]

    def _spun_up(self, i: int, thrust_n: float, dt_s: float) -> float:
        """Return what a motor gives, which needs time to follow its command."""
        thruster = self._thrusters[i]
        wish = copysign(abs(thrust_n) ** (1.0 / thruster.exponent), thrust_n)
        share = dt_s / (thruster.lag_s + dt_s)
        speed = self._speeds[i] = self._speeds[i] + share * (wish - self._speeds[i])
        return copysign(abs(speed) ** thruster.exponent, speed)

    def _add(self, air: Vec3, wind: Vec3, rates: Vec3, tilts_rad: dict[str, float]) -> None:
        """Count in a step, in which the servos stood at one angle. air, wind: along the body."""
        dt_s, forces = self._step_s, self._forces
        (x, y, z), (wx, wy, wz), (p, q, yaw_radps) = self._mass_kg, wind, rates
        # The air that moves with the hull has the wind's speed already: a ship that turns in wind
        # meets its different masses along and aside (Kirchhoff's equations with speeds through
        # the air, of a wind that turns in body axes).
        forces[0] += dt_s * (q * wz * (x - z) + yaw_radps * wy * (y - x))
        forces[1] += dt_s * (yaw_radps * wx * (y - x) + p * wz * (z - y))
        forces[2] += dt_s * (p * wy * (z - y) + q * wx * (x - z))
        for (servo, times), ways, pushes in zip(self._turns, self._ways, self._pushes, strict=True):
            turned = {servo: times * tilts_rad[servo]} if servo in tilts_rad else {}
            columns = self._columns(tilts_rad | turned)
            for i, column in enumerate(columns):
                ways[i] = _plus(ways[i], column, dt_s)
                pushes[i] = _plus(pushes[i], column, self._step_ns[i])
        for i, step_ns in enumerate(self._step_ns):
            self._thrust_ns[i] += step_ns
            self._step_ns[i] = 0.0
        side_n, torque_nm = self._hull(air, yaw_radps)
        spin_nms = dt_s * self.drag(5, yaw_radps)
        self._spin_nms += spin_nms
        forces[0] += dt_s * self.drag(0, air[0])
        forces[1] += dt_s * (self.drag(1, air[1]) + side_n)
        forces[2] += dt_s * self.drag(2, air[2])
        forces[3] += spin_nms - dt_s * torque_nm
        self._window_s += dt_s
        self._step_s = 0.0

    def _compare(self, now: Column, air: Vec3, wind_mps: float, *, slow_mps: float) -> None:
        """Judge a window: what moved the ship, and which hypothesis says so.

        slow_mps: of a slower ship the estimate cannot tell that it moves at all.
        """
        assert self._before is not None
        dt_s, before = self._window_s, self._before
        if hypot(now[0], now[2]) < slow_mps and abs(now[3]) < _STILL_RADPS:
            self.pause()  # held, perhaps: nothing can be said
            return
        felt = [
            (self._inertias[axis] * (now[axis] - before[axis]) + self._forces[axis]) / dt_s
            for axis in _AXES
        ]
        driven = [[_times(push, 1.0 / dt_s) for push in pushes] for pushes in self._pushes]
        pushes = self._given(self._well.effects, driven[0])
        # The estimate is bounded by the speed of the ship: at its bound it says no more than that.
        bounded = wind_mps > _BOUND * self._speed_mps
        doubts = self._doubts(air, wind_mps, yaw_radps=now[3], bounded=bounded)
        keep, remember = exp(-dt_s / _SLOW_S), exp(-dt_s / _MEMORY_S)
        sums = _sums(pushes)
        base = self._likelihood(self._well, felt, sums, doubts, keep)
        for model in (self._other, self._tired, *self._faulty, *self._mended):
            if model.columns:
                given = [*pushes]
                for i, column in model.columns.items():
                    given[i] = _times(column, self._mean_n(i, self._well.effects))
                mine = _sums(given)
            elif model.turns != self._well.turns:
                turned = driven[self._turns.index(model.turns)]
                mine = _sums(self._given(self._well.effects, turned))
            elif model.fault in self.faults:
                mine = _sums(self._given(model.effects, driven[0]))
            else:
                mine = self._instead(sums, pushes, model.effects)
            gain = self._likelihood(model, felt, mine, doubts, keep) - base
            model.evidence = gain + model.evidence * (remember if model.evidence > 0.0 else 1.0)
            if bounded and model.fault is not None and model.fault.dead:
                model.evidence = 0.0  # a ship that an unknown wind takes along looks so
            if model.evidence < model.least:
                model.evidence = model.least
                if model.fault is not None and not model.fault.miswired:
                    model.begin(self._well)
        likeliest = max((self._well, *self._faulty), key=lambda model: model.evidence)
        self._measure_noise(likeliest, felt)
        self._take_back()
        self._name()
        if self._before is not None:
            self._begin(now)

    def _look_up(self, now: Column, air: Vec3, wind_mps: float) -> None:
        """Find a motor that drives the ship up before a whole window has passed.

        It gathers way that nothing takes back. By the heave of a part of a window: a driver that is
        put to sleep by mistake costs a landing, a motor that drives a light ship up the ship.
        """
        assert self._before is not None
        dt_s, z = self._window_s, 2
        well = self._given(self._well.effects, [_times(p, 1.0 / dt_s) for p in self._pushes[0]])
        total_n = sum(push[z] for push in well)
        shift_mps = now[z] - self._before[z]
        felt_n = (self._inertias[z] * shift_mps + self._forces[z]) / dt_s
        doubt = self._doubts(air, wind_mps, yaw_radps=0.0, bounded=False)[z]
        # What the last window could not explain by more than that may be the motor.
        most_n = _UNKNOWN * sqrt(doubt)
        left_n = felt_n - total_n - max(-most_n, min(most_n, self._well.force[z]))
        for model in self._lifters:
            (i,) = model.effects
            more_n = self._way(i)[z] * self._mean_n(i, model.effects) - well[i][z]
            if model.fault in self.faults or more_n >= 0.0 or i in self._well.effects:
                continue
            noise = self._noise[z] * (_WINDOW_S / dt_s) ** 2
            may = doubt + (_THRUST * (total_n + more_n)) ** 2
            far = left_n * left_n - (left_n - more_n) ** 2
            if 0.5 * far / (noise + may) > _THRESHOLD:
                assert model.fault is not None
                asleep = self._sleepers(model.fault)
                fault = msgspec.structs.replace(model.fault, asleep=asleep)
                self._believe(model, (*(f for f in self.faults if f.dead or f.miswired), fault))
                return

    def _doubts(self, air: Vec3, wind_mps: float, *, yaw_radps: float, bounded: bool) -> Column:
        """Return the variance of the forces that are not the thrusters'."""
        aero, (u, v, w) = self._aero, air
        unknown = 1.0 if bounded else exp(-self._flown_s / _LEARNT_S)
        wind = _WIND_MPS + _GUSTS * wind_mps + unknown * self._speed_mps

        def drag(axis: int, speed: float, wind: float) -> float:
            slope = aero.linear_drag[axis] + aero.quadratic_drag[axis] * (2.0 * abs(speed) + wind)
            return (_DRAG * self.drag(axis, speed)) ** 2 + (wind * slope) ** 2

        lift = aero.fin_lift_per_rad
        sides, turns = _DRAG * lift * u * v, wind * lift * hypot(u, v)
        munk = aero.added_mass_kg[0] - aero.added_mass_kg[1]
        turning = (wind * munk * yaw_radps) ** 2
        fins = copysign(aero.fin_position_m * lift, u)
        torque = wind * (munk - fins) * (hypot(u, v) + 0.5 * wind)
        each = (_DRAG * munk * u * v, _DRAG * fins * u * v, torque)
        idle = [0.0] * len(_AXES)
        for thruster, way in zip(self._thrusters, self._ways[0], strict=True):
            least_n = _IDLE * thruster.max_thrust_n / self._window_s
            for axis in _AXES:
                idle[axis] += (least_n * way[axis]) ** 2
        return (
            idle[0] + drag(0, u, wind) + turning,
            idle[1] + drag(1, v, wind) + turning + sides * sides + turns * turns,
            # Gusts are half as strong upwards.
            idle[2] + drag(2, w, 0.5 * wind) + (_WEIGHT * self._weight_n) ** 2,
            idle[3] + sum(n * n for n in each) + (_DRAG * self._spin_nms / self._window_s) ** 2,
        )

    def _given(self, effects: dict[int, _Effect], pushes: Sequence[Column]) -> Sequence[Column]:
        """Return what each thruster gives with these effects, mean of the window."""
        return [
            _times(self._way(i), self._mean_n(i, effects)) if i in effects else push
            for i, push in enumerate(pushes)
        ]

    def _way(self, i: int) -> Column:
        """Return what one newton of a thruster makes, mean of the window."""
        return _times(self._ways[0][i], 1.0 / self._window_s)

    def _instead(self, sums: _Sums, pushes: Sequence[Column], effects: dict[int, _Effect]) -> _Sums:
        """Return the sums of all thrusters if some have these effects."""
        if not effects:
            return sums
        total, squares = [*sums[0]], [*sums[1]]
        for i in effects:
            push = _times(self._way(i), self._mean_n(i, effects))
            for axis, (old, new) in enumerate(zip(pushes[i], push, strict=True)):
                total[axis] += new - old
                squares[axis] += new * new - old * old
        return total, squares

    def _mean_n(self, i: int, effects: dict[int, _Effect]) -> float:
        """Return the mean thrust of a motor in the window, with these effects."""
        effect = effects.get(i)
        if effect is None:
            return self._thrust_ns[i] / self._window_s
        sent_n = self._thrust_ns[effect.of] / self._window_s
        share = effect.always + effect.factor * _share(sent_n, self._most_n[effect.of])
        return share * self._most_n[i][share < 0.0]

    def _measure_noise(self, model: _Model, felt: Sequence[float]) -> None:
        """Follow the variance of a window's forces: half the mean square of their steps."""
        left = [force - total for force, total in zip(felt, model.total, strict=True)]
        last, self._left = self._left, (model, left)
        if last is None or last[0] is not model:
            return
        share = _WINDOW_S / _NOISE_S
        for axis, noise in enumerate(self._noise):
            step = left[axis] - last[1][axis]
            new = noise + share * (min(0.5 * step * step, 9.0 * noise) - noise)
            self._noise[axis] = max(new, self._least[axis])

    def _likelihood(
        self, model: _Model, felt: Sequence[float], sums: _Sums, doubts: Column, keep: float
    ) -> float:
        """Take a window into the model's filter; return the log likelihood of what was felt."""
        far, spread = 0.0, 1.0
        wide, kept = model.wide * model.wide, keep * keep
        model.total, squares = sums
        first, forces, variances = not model.variance, model.force, model.variance
        if first:
            variances = model.variance = [0.0] * len(_AXES)
        for axis, total in enumerate(model.total):
            thrusts = _THRUST * _THRUST * total * total + _EACH * _EACH * squares[axis]
            may = wide * (doubts[axis] + thrusts)
            variance = may if first else kept * variances[axis] + (1.0 - kept) * may
            force = keep * forces[axis]
            new = felt[axis] - total - force
            sure = variance + self._noise[axis]
            gain = variance / sure
            forces[axis] = force + gain * new
            variances[axis] = (1.0 - gain) * variance
            far += new * new / sure
            spread *= sure
        return -0.5 * ((_TAILS + len(_AXES)) * log(1.0 + far / _TAILS) + log(spread))

    def _name(self) -> None:
        """Name the fault that is more likely than all that contradict it, if there is one."""
        if self._lost:
            return
        kept = [fault for fault in self.faults if fault.dead or fault.miswired]
        known = {name for fault in self.faults if not fault.runs for name in fault.names}
        odds = {
            model.fault: model.odds
            for model in self._faulty
            if model.fault is not None
            and model.fault not in self.faults
            and not known.intersection(model.fault.names)
            and self._turns_as(model)
        }
        best = max(odds, key=odds.__getitem__, default=None)
        if best is None or odds[best] < _THRESHOLD:
            return
        for fault in odds:
            if fault.is_part_of(best) and odds[fault] > odds[best] - _GROUP:
                best = fault  # one motor explains it as well as several
        alike = [
            fault
            for fault in odds
            if fault.wrong is best.wrong is Wrong.SWAPPED and odds[fault] > odds[best] - _SURE
        ]
        same = [odd for fault, odd in odds.items() if fault.names == best.names]
        kinds = [
            odd
            for fault, odd in odds.items()
            if fault.names == best.names and fault.wrong is not best.wrong
        ]
        others = [
            odd
            for fault, odd in odds.items()
            if fault.names != best.names and not best.is_part_of(fault) and fault not in alike
        ]
        none = _sum_of_odds([0.0, self._other.evidence])
        sure = _sum_of_odds(same) - none - _THRESHOLD
        if sure < 0.0:
            return
        if _sum_of_odds(same) - _sum_of_odds([self._tired.evidence, *others]) < _SURE:
            return
        if kinds and odds[best] - _sum_of_odds(kinds) < _KIND and sure < _THRESHOLD:
            return
        named = next(model for model in self._faulty if model.fault == best)
        if best.runs:
            best = msgspec.structs.replace(best, asleep=self._sleepers(best))
        for fault in alike:
            if fault is not best:
                best = msgspec.structs.replace(best, alike=fault.names)
        self._believe(named, (*kept, best))  # what ran or stayed was not it

    def _turns_as(self, model: _Model) -> bool:
        """Whether a fault may be named while the torque that is given and the gyro are apart.

        The gyro may be wrong as well, and by its heading all forces are: only a fault that explains
        half of what the ship turns otherwise.
        """
        if self._contested_s > _MEMORY_S:
            return True
        return abs(model.force[_YAW]) < 0.5 * abs(self._well.force[_YAW])

    def _sleepers(self, fault: Fault) -> tuple[str, ...]:
        """Return the motors of the driver to put to sleep, if that is better than to let it run.

        Not if it pushes down, or a servo turns it: it may be all that a light ship has. A heavy one
        has all of its motors put to sleep by the failsafe, which wakes them to brake.
        """
        driver = next((names for names in self._drivers if {*fault.names} <= {*names}), ())
        if not lifts(self._airframe, driver):
            return driver
        rows = [t for t in self._thrusters if t.name in fault.names]
        up_n = -sum(n * t.axis[2] for n, t in zip(fault.thrusts_n, rows, strict=True))
        turned = any(thruster.tilted_by for thruster in rows)
        return () if turned or up_n <= 0.0 or self._heavy else driver

    def _take_back(self) -> None:
        """Believe a motor again that follows its commands."""
        for model in self._mended:
            if model.evidence - self._other.evidence > _THRESHOLD:
                left = tuple(fault for fault in self.faults if fault != model.fault)
                self._believe(model, left)
                return

    def _believe(self, model: _Model, faults: tuple[Fault, ...]) -> None:
        """Go on with this hypothesis; from here on the mixer drives the ship by it."""
        self._blame(faults)
        for other in (self._well, self._other, self._tired, *self._faulty, *self._mended):
            other.begin(model)
        self.pause()

    def correct(self, command: ActuatorCommand) -> ActuatorCommand:
        """Return the command that has a miswired ship do what this one asks for."""
        if not self._miswired:
            return command
        motors, servos = [*command.motors], [*command.servos]
        for model in self._miswired:
            for i, effect in model.effects.items():
                motors[i] = effect.factor * command.motors[effect.of]
            for k, servo in enumerate(self._airframe.servo):
                if model.fault is not None and servo.name in model.fault.names:
                    wish_rad = servos[k] / model.turns[1]
                    servos[k] = max(servo.min_rad, min(servo.max_rad, wish_rad))
        return msgspec.structs.replace(command, motors=tuple(motors), servos=tuple(servos))

    def float_mps(self, weight_n: float) -> float:
        """Return the speed at which no ship of about this weight rises without thrust."""
        return drag_speed(
            most_lift_n(self._airframe, weight_n),
            self._aero.linear_drag[2],
            self._aero.quadratic_drag[2],
        )

    def wrench(self, thrusts: Sequence[float], tilts: dict[str, float]) -> Column:
        """Return surge, sway, heave and yaw of these thrusts, servos at these angles."""
        total = _NOTHING
        for column, thrust in zip(self._columns(tilts), thrusts, strict=True):
            total = _plus(total, column, thrust)
        return total

    def _columns(self, tilts: dict[str, float]) -> list[Column]:
        """Return the wrench of one newton of each thruster."""
        columns = []
        for ((ax, ay, az), (bx, by, bz), (cx, cy, cz)), servo, arm_x, arm_y in self._mounts:
            if servo:
                angle = tilts.get(servo, 0.0)
                c, s = cos(angle), sin(angle)
                ax, ay, az = ax + c * bx + s * cx, ay + c * by + s * cy, az + c * bz + s * cz
            columns.append((ax, ay, az, arm_x * ay - arm_y * ax))
        return columns

    def _hull(self, air_mps: Vec3, yaw_radps: float) -> tuple[float, float]:
        """Return the force against the side (N) and the torque (N m) of air that comes from aside.

        The Munk moment of the hull, and what the fins hold against it, or add if it flies astern.
        """
        aero, (u, v, _) = self._aero, air_mps
        surge, sway, _ = aero.added_mass_kg
        fins_n = aero.fin_lift_per_rad * abs(u) * (v + yaw_radps * aero.fin_position_m)
        return fins_n, (surge - sway) * u * v - aero.fin_position_m * fins_n

    def drag(self, axis: int, speed: float) -> float:
        aero = self._aero
        return speed * (aero.linear_drag[axis] + aero.quadratic_drag[axis] * abs(speed))


def _sum_of_odds(odds: Sequence[float]) -> float:
    """Return the log odds of one or another."""
    most = max(odds)
    return most + log(sum(exp(odd - most) for odd in odds))


def _plus(one: Column, other: Column, times: float) -> Column:
    return (
        one[0] + times * other[0],
        one[1] + times * other[1],
        one[2] + times * other[2],
        one[3] + times * other[3],
    )


def _sums(pushes: Sequence[Column]) -> _Sums:
    axes = [*zip(*pushes, strict=True)]
    return [sum(axis) for axis in axes], [sum(n * n for n in axis) for axis in axes]


def _times(column: Column, times: float) -> Column:
    return column[0] * times, column[1] * times, column[2] * times, column[3] * times


def _hypotheses(airframe: Airframe) -> list[_Model]:
    found: list[_Model] = []
    names = airframe.thruster_names
    groups: list[tuple[str, ...]] = [(name,) for name in names]
    groups += [
        tuple(sorted(outputs, key=names.index))
        for device in airframe.device
        if len(outputs := [n for n in device.outputs.values() if n in names]) > 1
    ]

    def add(group: tuple[str, ...], wrong: Wrong, *effects: _Effect, known: bool = False) -> None:
        rows = [names.index(name) for name in group]
        motors = [airframe.thruster[i] for i in rows]
        thrusts_n = tuple(
            e.always * (t.max_thrust_n if e.always > 0.0 else t.reverse_thrust_n)
            for e, t in zip(effects, motors, strict=True)
        )
        fault = Fault(names=group, wrong=wrong, thrusts_n=thrusts_n if known else ())
        found.append(_Model(fault=fault, effects=dict(zip(rows, effects, strict=True))))

    for group in groups:
        rows = [names.index(name) for name in group]
        turns_back = any(airframe.thruster[i].reverse_thrust_n for i in rows)
        for always, wrong in ((1.0, Wrong.RUNS), (-1.0, Wrong.RUNS), (0.0, Wrong.DEAD)):
            if always >= 0.0 or turns_back:
                add(group, wrong, *(_Effect(i, 0.0, always) for i in rows), known=True)
    for i, name in enumerate(names):
        add((name,), Wrong.WEAK, _Effect(i, 0.5))
        if airframe.thruster[i].reverse_thrust_n:
            add((name,), Wrong.REVERSED, _Effect(i, -1.0))
        for j in range(i):
            add((names[j], name), Wrong.SWAPPED, _Effect(i, 1.0), _Effect(j, 1.0))
    for servo in airframe.servo:
        if any(thruster.tilted_by == servo.name for thruster in airframe.thruster):
            step = (servo.max_rad - servo.min_rad) / (_TILTS - 1)
            one = (servo.name,)
            found += [
                _Model(fault=Fault(names=one, wrong=Wrong.STUCK, tilt_rad=servo.min_rad + k * step))
                for k in range(_TILTS)
            ]
            found += [
                _Model(fault=Fault(names=one, wrong=wrong), turns=(servo.name, times))
                for wrong, times in ((Wrong.OTHER_WAY, -1.0), (Wrong.HALF_WAY, 0.5))
            ]
    for model in found:
        if model.fault is not None and model.fault.miswired:
            model.least = -_THRESHOLD
    return found


def _share(thrust_n: float, most: tuple[float, float]) -> float:
    """Return a thrust as a share of the most ahead, or backwards. most: both in N."""
    return thrust_n / (most[0] if thrust_n > 0.0 else most[1] or most[0])
