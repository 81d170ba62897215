"""Whether the outputs have their effect: the commanded wrench against the motion.

What moves the ship beside the command is, along the hull, the wind's drag, which has a bound for a
wind the ship can fly; upwards, weight, which has a bound as well; about the vertical, the moment of
hull and fins in air from aside, which is computed with the wind that is known. A difference beyond
these bounds that lasts is compared with what each single fault would make of the same commands: a
motor that runs full or not at all, a tilt servo that stays at one angle. The fault is named only if
it explains most of the difference, and clearly more than any other. A ship that does not move at
all may be held by somebody, and names nothing.

Source: residuals and a bank of fault models as in R. Isermann, "Fault-Diagnosis Systems" (2006),
chapters 5 and 9.
"""

from collections.abc import Sequence
from math import cos, degrees, exp, hypot, isfinite, sin

import msgspec

from blimp.ability import drag_speed
from blimp.airframe import Airframe
from blimp.control.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.control.ground import AIRBORNE_M
from blimp.control.vector import minus
from blimp.rotation import rotate_back
from blimp.types import ZERO3, Vec3, VehicleState

_PERIOD_S = 0.1
_SMOOTH_S = 1.0
_SCORE_S = 1.5
_LASTS_S = 2.0
_WIND = 1.6  # of the speed limit: the wind whose drag is no fault
_WEIGHT = 0.02  # of the displaced mass may come or go without a fault
_YAW = 0.3  # of the greatest yaw torque: gusts, and a rudder hard over at speed
_EXPLAINED = 0.15  # of the difference (its square) may be left by the fault that is named: of
# healthy ships off by drag, thrust, weight and wind 7 in 149 were accused with 0.3, 3 with this
_CLEARER = 0.7  # times what the next best leaves
_CLEARLY = 0.5  # of what pushes or stays: reversed thrust looks like a shaft turned round
_NOISE = 0.5  # of a difference that would count: so little needs no other explanation
_STILL_MPS = 0.06
_STILL_RADPS = 0.02
_TILTS = 13

Column = tuple[float, float, float]  # surge and heave, N, and yaw, N m


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What is broken. thrusts_n: what each motor gives. tilt_rad: of a servo that stays."""

    names: tuple[str, ...]
    thrusts_n: tuple[float, ...] = ()
    tilt_rad: float | None = None

    @property
    def runs(self) -> bool:
        """Whether it pushes without a command."""
        return any(self.thrusts_n)

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
        return self.dead and len(self.names) > 1

    @property
    def fixed_n(self) -> dict[str, float]:
        """What the motors give, by name; of a servo nothing."""
        return dict(zip(self.names, self.thrusts_n, strict=False))

    @property
    def what(self) -> str:
        if self.tilt_rad is not None:
            return f"stays at {degrees(self.tilt_rad):.0f} degrees whatever is commanded"
        return "runs by itself" if self.runs else "does nothing"


class _Hypothesis(msgspec.Struct, kw_only=True):
    fault: Fault
    thrusts: dict[int, float]  # by thruster
    columns: list[Column] | None = None  # at the angle of a servo that stays
    left: float = 0.0  # mean square of what this fault does not explain


class EffectCheck:
    """Call `update` every cycle in flight with what was driven, what was found so far counted in.

    If a difference is left, one more is named: beside a motor that does nothing, else instead.
    """

    def __init__(self, *, airframe: Airframe) -> None:
        self._aero = airframe.aero
        self._thrusters = airframe.thruster
        arms = [minus(t.position_m, airframe.mass.center_of_gravity_m) for t in airframe.thruster]
        self._mounts = [
            (t.axis, t.tilted_by, arm[0], arm[1])
            for t, arm in zip(airframe.thruster, arms, strict=True)
        ]
        mass_kg = AIR_DENSITY_KGM3 * airframe.hull.volume_m3
        added = airframe.aero.added_mass_kg
        self._mass_kg = (mass_kg + added[0], mass_kg + added[1], mass_kg + added[2])
        self._inertia = airframe.mass.inertia_kg_m2[2] + airframe.aero.added_inertia_kg_m2[2]
        wind = self.drag(0, _WIND * airframe.limits.speed_mps)
        self._bounds = (
            wind + 0.05,
            _WEIGHT * mass_kg * GRAVITY_MPS2,
            max(1e-4, _YAW * self._yaw_limit_nm()),
        )
        self._hypotheses = _hypotheses(airframe)
        for hypothesis in self._hypotheses:
            fault = hypothesis.fault
            if fault.tilt_rad is not None:  # the mixer knows one tilt servo
                hypothesis.columns = self._columns({fault.names[0]: fault.tilt_rad})
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new flight."""
        self._blame(())
        self._before: tuple[float, float, float] | None = None
        self._window_s = self._aside = 0.0  # the latter: sideways speed times yaw rate, times dt
        self._commanded: list[float] = []
        self._tilts: dict[str, float] = {}
        self._motion = (0.0, 0.0, 0.0)
        self._beyond_s = 0.0
        self._score = 0.0
        self._smooth: list[list[float]] = []

    def pause(self) -> None:
        """Nothing is commanded: the motion meanwhile is no motor's doing, nor its failing."""
        self._before, self._beyond_s = None, 0.0

    def _blame(self, faults: tuple[Fault, ...]) -> None:
        """From now on these are known.

        fixed_n: what broken motors give, by name. stuck_rad: the angle at which the tilt servo
        stays, None if it moves. broken: every actuator that is named. only_dead: no motor pushes by
        itself and no servo stays, so that the mixer knows what they give.
        """
        self.faults = faults
        named = [fault for fault in faults if not fault.all_dead]
        self.fixed_n = {name: n for fault in named for name, n in fault.fixed_n.items()}
        self.stuck_rad = next((f.tilt_rad for f in faults if f.tilt_rad is not None), None)
        self.broken = tuple(name for fault in faults for name in fault.names)
        self.only_dead = all(fault.dead and not fault.all_dead for fault in faults)
        self._lost = any(fault.all_dead for fault in faults)

    def update(
        self,
        state: VehicleState,
        motors_n: Sequence[float],
        tilts_rad: dict[str, float],
        *,
        weight_n: float,
        wind_ned_mps: Vec3 = ZERO3,
        dt_s: float,
    ) -> None:
        """Take one cycle. motors_n: commanded thrusts. weight_n, wind: as known."""
        known = state.attitude_valid and state.height_valid and state.position_valid
        usable = known and not state.health.in_doubt  # a motion in doubt names no actuator
        # Below the height of a ship that flies it may lie on the ground, where no push moves it; so
        # may one whose estimate has sunk into the ground and sinks on.
        low = state.on_ground or state.altitude_m < AIRBORNE_M
        if self._lost or not usable or low:
            self.pause()
            return
        v = rotate_back(state.attitude, state.velocity_ned_mps)
        now = (v[0], v[2], state.rates_body_radps[2])
        numbers = (*v, now[2], *motors_n, *tilts_rad.values(), weight_n, *wind_ned_mps, dt_s)
        if not isfinite(sum(numbers)):
            self.pause()  # one NaN would stay in every sum
            return
        self._aside += v[1] * now[2] * dt_s
        if self._before is None:
            self._begin(now, motors_n)
        self._window_s += dt_s
        for i, thrust in enumerate(motors_n):
            self._commanded[i] += thrust * dt_s
        self._tilts = tilts_rad
        if self._window_s >= _PERIOD_S:
            air = rotate_back(state.attitude, minus(state.velocity_ned_mps, wind_ned_mps))
            self._compare(now, weight_n, self._air_torque_nm(air, now[2]))
            if self._before is not None:
                self._begin(now, motors_n)

    def _begin(self, now: tuple[float, float, float], motors_n: Sequence[float]) -> None:
        if self._before is None:
            self._smooth = [[0.0] * 3 for _ in range(len(self._hypotheses) + 1)]
            self._score = self._beyond_s = 0.0
            for hypothesis in self._hypotheses:
                hypothesis.left = 0.0
        self._before = now
        self._window_s = self._aside = 0.0
        self._commanded = [0.0] * len(motors_n)

    def _compare(
        self, now: tuple[float, float, float], weight_n: float, air_torque_nm: float
    ) -> None:
        assert self._before is not None
        dt_s, before = self._window_s, self._before
        if hypot(now[0], now[1]) < _STILL_MPS and abs(now[2]) < _STILL_RADPS:
            self.pause()  # held, perhaps: nothing can be said
            return
        commanded = [total / dt_s for total in self._commanded]
        surge, sway, heave = self._mass_kg
        turning = sway * self._aside / dt_s  # a ship that slips and turns feels it along the hull
        felt = (
            surge * (now[0] - before[0]) / dt_s + self.drag(0, now[0]) - turning,
            heave * (now[1] - before[1]) / dt_s + self.drag(2, now[1]) - weight_n,
            self._inertia * (now[2] - before[2]) / dt_s + self.drag(5, now[2]) - air_torque_nm,
        )
        keep, score_keep = exp(-dt_s / _SMOOTH_S), exp(-dt_s / _SCORE_S)

        def left(k: int, given: tuple[float, float, float]) -> float:
            smooth = self._smooth[k]
            total = 0.0
            for axis in range(3):
                smooth[axis] = keep * smooth[axis] + (1.0 - keep) * (felt[axis] - given[axis])
                total += (smooth[axis] / self._bounds[axis]) ** 2
            return total

        columns = self._columns(self._tilts)
        off = left(0, _wrench(columns, commanded))
        self._score = score_keep * self._score + (1.0 - score_keep) * off
        for k, hypothesis in enumerate(self._hypotheses, start=1):
            thrusts = commanded
            if hypothesis.thrusts:
                thrusts = [*commanded]
                for i, thrust in hypothesis.thrusts.items():
                    thrusts[i] = thrust
            rest = left(k, _wrench(hypothesis.columns or columns, thrusts))
            hypothesis.left = score_keep * hypothesis.left + (1.0 - score_keep) * rest
        self._beyond_s = self._beyond_s + dt_s if self._score > 1.0 else 0.0
        if self._beyond_s >= _LASTS_S:
            self._name()

    def _name(self) -> None:
        dead = [fault for fault in self.faults if fault.dead]
        known = {name for fault in self.faults if not fault.runs for name in fault.names}
        new = [
            h
            for h in self._hypotheses
            if not known.intersection(h.fault.names) and h.fault not in self.faults
        ]
        ranked = sorted(new, key=lambda hypothesis: hypothesis.left)
        best = ranked[0]
        if best.left > _EXPLAINED * self._score:
            return
        parts = [h for h in ranked if h.fault.is_part_of(best.fault)]
        if parts and parts[0].left <= min(_EXPLAINED * self._score, _NOISE):
            best = parts[0]  # one motor explains it as well as several
        others = [
            h.left
            for h in ranked
            if h.fault.names != best.fault.names and not best.fault.is_part_of(h.fault)
        ]
        clearer = _CLEARER if best.fault.dead else _CLEARLY
        if not others or best.left < clearer * min(others):
            self._blame((*dead, best.fault))  # what ran or stayed was not it
            self._before = None  # from here on the mixer leaves it out

    def float_mps(self, weight_n: float) -> float:
        """Return the speed at which no ship of about this weight rises without thrust."""
        return drag_speed(
            self._bounds[1] - min(0.0, weight_n),
            self._aero.linear_drag[2],
            self._aero.quadratic_drag[2],
        )

    def wrench(self, thrusts: Sequence[float], tilts: dict[str, float]) -> Column:
        """Return surge, heave and yaw of these thrusts, servos at these angles."""
        return _wrench(self._columns(tilts), thrusts)

    def _columns(self, tilts: dict[str, float]) -> list[Column]:
        """Return surge, heave and yaw of one newton of each thruster."""
        columns = []
        for (ax, ay, az), servo, arm_x, arm_y in self._mounts:
            if servo:
                angle = tilts.get(servo, 0.0)
                c, s = cos(angle), sin(angle)
                ax, az = c * ax + s * az, c * az - s * ax
            columns.append((ax, az, arm_x * ay - arm_y * ax))
        return columns

    def _yaw_limit_nm(self) -> float:
        each = (abs(x * axis[1] - y * axis[0]) for axis, _, x, y in self._mounts)
        return sum(t.max_thrust_n * arm for t, arm in zip(self._thrusters, each, strict=True))

    def _air_torque_nm(self, air_mps: Vec3, yaw_radps: float) -> float:
        """Return what turns the ship in air that comes from aside.

        The Munk moment of the hull, and what the fins hold against it, or add if it flies astern.
        """
        aero, (u, v, _) = self._aero, air_mps
        surge, sway, _ = aero.added_mass_kg
        side = v + yaw_radps * aero.fin_position_m
        fins_n = aero.fin_lift_per_rad * abs(u) * side
        return (surge - sway) * u * v - aero.fin_position_m * fins_n

    def drag(self, axis: int, speed: float) -> float:
        aero = self._aero
        return speed * (aero.linear_drag[axis] + aero.quadratic_drag[axis] * abs(speed))


def _wrench(columns: Sequence[Column], thrusts: Sequence[float]) -> Column:
    fx = fz = mz = 0.0
    for (x, z, yaw), thrust in zip(columns, thrusts, strict=True):
        fx, fz, mz = fx + thrust * x, fz + thrust * z, mz + thrust * yaw
    return fx, fz, mz


def _hypotheses(airframe: Airframe) -> list[_Hypothesis]:
    found = []
    names = airframe.thruster_names
    groups: list[tuple[str, ...]] = [(name,) for name in names]
    groups += [
        tuple(sorted(outputs, key=names.index))
        for device in airframe.device
        if len(outputs := [n for n in device.outputs.values() if n in names]) > 1
    ]
    for group in groups:
        rows = [names.index(name) for name in group]
        full = tuple(airframe.thruster[i].max_thrust_n for i in rows)
        back = tuple(-airframe.thruster[i].reverse_thrust_n for i in rows)
        still = (0.0,) * len(rows)
        found += [
            _Hypothesis(
                fault=Fault(names=group, thrusts_n=thrusts),
                thrusts=dict(zip(rows, thrusts, strict=True)),
            )
            for thrusts in ((full, back, still) if any(back) else (full, still))
        ]
    for servo in airframe.servo:
        if any(thruster.tilted_by == servo.name for thruster in airframe.thruster):
            step = (servo.max_rad - servo.min_rad) / (_TILTS - 1)
            found += [
                _Hypothesis(
                    fault=Fault(names=(servo.name,), tilt_rad=servo.min_rad + k * step), thrusts={}
                )
                for k in range(_TILTS)
            ]
    return found
