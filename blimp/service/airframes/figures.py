"""What a ship can do, computed from its airframe: balance, swing, speeds, authority, wind."""

from cmath import sqrt as complex_sqrt
from collections.abc import Sequence
from math import atan2, hypot, inf, pi

import msgspec

from blimp.ability import brakes, max_wind_mps, terminal_mps
from blimp.airframe import Airframe
from blimp.control.mixer import Mixer
from blimp.sim.atmosphere import GRAVITY_MPS2, isa
from blimp.sim.rigid_body import RigidBody
from blimp.types import Wrench

AXES = ("surge", "sway", "heave", "roll", "pitch", "yaw")
_TOGETHER = 0.25  # of the lift and of the yaw: both in one flight
_BOTH = 0.5  # of them must come
# How far ships of each kind are off their place at the most in half a minute of HOLD: in still air,
# and with `CALM` of the wind whose mean they can hold. Simulated, `tests/sim/test_layouts.py`.
CALM = 0.3
HOLDS_M = {"sways": (0.6, 1.2), "steers": (0.9, 2.3), "steers or lifts": (1.5, 2.5)}
SETTLING_STEPS, SETTLING_STEP_S = 150, 0.02  # until a tilt servo is where a wrench wants it


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """What the thrusters give along each axis at their best, newtons and newton metres."""

    forward_n: float
    back_n: float
    side_n: float  # the weaker side
    up_n: float
    down_n: float
    yaw_nm: float  # the weaker direction
    aside_m: float  # how far beside the centre of gravity forward thrust acts, as it is mixed
    aside_share: float  # of forward thrust that pushes sideways, as it is mixed
    lift_roll_rad: float  # by which half the lift rolls the ship
    surge_pitch_rad: float  # by which half the forward thrust pitches it
    sways: bool  # it can push sideways and neither turn nor surge by it
    turns_lifting: float  # of lift and turn asked for together, what comes, and not ahead


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """lift: buoyancy less weight, at home. An unbounded figure is `inf`: nothing brakes."""

    static_lift_n: float
    ballast_g: float  # to add until it floats; below 0: to take out
    swing_hz: float  # of pitch; 0 if it does not swing
    swing_damping: float
    roll_hz: float
    time_constants_s: dict[str, float]  # of coasting, at the speeds in `limits`
    terminal_speeds_mps: dict[str, float]
    yaw_rate_radps: float  # at full thrust
    added_mass_kg: tuple[float, float, float, float, float, float]
    thrust_margin: float  # vertical thrust over what climbing and sinking at the limits takes
    max_wind_mps: float
    static_tilt_rad: float
    authority: Authority


def cannot(figures: Figures) -> tuple[str, ...]:
    """Return what this ship cannot do, in words that a pilot understands."""
    authority = figures.authority
    found = []
    if not authority.sways:
        found.append("push sideways without turning: it goes where its nose points")
    if authority.turns_lifting < _BOTH:
        found.append("turn while it lifts: what turns it must first swing level, so it wanders")
    if authority.back_n <= 0.0:
        found.append("brake or go back: it coasts")
    if authority.down_n <= 0.0:
        found.append("push itself down: it sinks by its weight alone")
    return tuple(found)


def holds_m(figures: Figures) -> tuple[float, float]:
    """Return how far off its place it is at the most, in still air and in `CALM` of its wind.

    With a tag. In more wind gusts may drive it off, one without side force tens of metres.
    """
    authority = figures.authority
    if authority.turns_lifting < _BOTH:
        return HOLDS_M["steers or lifts"]
    return HOLDS_M["sways" if authority.sways else "steers"]


def compute(airframe: Airframe) -> Figures:
    """Return the figures of a ship. Raises AirframeError if the mixer cannot drive it."""
    aero, limits = airframe.aero, airframe.limits
    authority = _authority(airframe)
    lift_n = static_lift_n(airframe)
    swing_hz, damping = swing(airframe, pitch=True)
    mass_kg = airframe.mass_kg
    inertia = airframe.mass.inertia_kg_m2
    speeds = (limits.speed_mps, limits.speed_mps, limits.climb_mps)
    constants = {
        AXES[k]: _ratio(mass_kg + aero.added_mass_kg[k], _slope(airframe, k, speeds[k]))
        for k in range(3)
    }
    constants["yaw"] = _ratio(
        inertia[2] + aero.added_inertia_kg_m2[2], _slope(airframe, 5, limits.yaw_rate_radps)
    )
    climb_n = _drag(airframe, 2, limits.climb_mps) - lift_n
    sink_n = _drag(airframe, 2, limits.descent_mps) + lift_n
    margins = [_ratio(authority.up_n, climb_n)] if climb_n > 0.0 else []
    # A ship without downward thrust sinks by its weight alone, which `sink_n` below 0 says.
    margins += [_ratio(authority.down_n, sink_n)] if sink_n > 0.0 and authority.down_n else []
    x, y, z = airframe.mass.center_of_gravity_m
    return Figures(
        static_lift_n=lift_n,
        ballast_g=1000.0 * lift_n / GRAVITY_MPS2,
        swing_hz=swing_hz,
        swing_damping=damping,
        roll_hz=swing(airframe, pitch=False)[0],
        time_constants_s=constants,
        terminal_speeds_mps={
            "forward": terminal_mps(airframe, 0, authority.forward_n),
            "back": terminal_mps(airframe, 0, authority.back_n),
            "side": terminal_mps(airframe, 1, authority.side_n),
            "up": terminal_mps(airframe, 2, authority.up_n + lift_n),
            "down": terminal_mps(airframe, 2, authority.down_n - lift_n),
        },
        yaw_rate_radps=terminal_mps(airframe, 5, authority.yaw_nm),
        added_mass_kg=aero.added_mass_kg + aero.added_inertia_kg_m2,
        thrust_margin=min(margins, default=inf),
        max_wind_mps=max_wind_mps(
            airframe,
            forward_n=authority.forward_n,
            side_n=authority.side_n,
            yaw_nm=authority.yaw_nm,
        ),
        static_tilt_rad=atan2(hypot(x, y), z),
        authority=authority,
    )


def static_lift_n(airframe: Airframe) -> float:
    """Return buoyancy less weight in the standard air at home; above 0 it is light."""
    air_kg = isa(airframe.home.altitude_msl_m).density_kg_m3 * airframe.hull.volume_m3
    return GRAVITY_MPS2 * (air_kg - airframe.mass_kg)


def swing(airframe: Airframe, *, pitch: bool) -> tuple[float, float]:
    """Return frequency (Hz) and damping ratio of the small swing about level.

    The linear part of pitch with surge, or of roll with sway: (M s^2 + D s + K) = 0 with the
    mass matrix of `blimp/sim/rigid_body.py`, solved by Newton's method from the undamped root.
    (0, 0) if it hangs above its buoyancy or does not swing.
    """
    mass = airframe.mass
    level = [0.0] * len(airframe.servo)
    body = RigidBody.of(airframe, mass_kg=airframe.mass_kg, angles_rad=level)
    along, turn = (0, 4) if pitch else (1, 3)
    m, j, c = body.matrix[along][along], body.matrix[turn][turn], body.matrix[along][turn]
    d, b = brakes(airframe, along)[0], brakes(airframe, turn)[0]
    k = airframe.mass_kg * GRAVITY_MPS2 * mass.center_of_gravity_m[2]
    moved = m * j - c * c
    if k <= 0.0 or moved <= 0.0:
        return 0.0, 0.0
    a3, a2, a1, a0 = moved, j * d + b * m, b * d + k * m, k * d
    s = complex_sqrt(complex(-a1 / a3))
    for _ in range(50):
        s -= (((a3 * s + a2) * s + a1) * s + a0) / ((3.0 * a3 * s + 2.0 * a2) * s + a1)
    if abs(s) == 0.0 or abs(s.imag) < 1e-6 * abs(s):
        return 0.0, 0.0
    return abs(s.imag) / (2.0 * pi), -s.real / abs(s)


def _authority(airframe: Airframe) -> Authority:
    mixer = Mixer(airframe=airframe)
    forward_n, up_n = mixer.reach_n(0, 1.0), mixer.reach_n(2, -1.0)
    surge = _mixed(mixer, 0, 0.5 * forward_n)
    lift = _mixed(mixer, 2, -0.5 * up_n)
    righting_nm = airframe.mass_kg * GRAVITY_MPS2 * airframe.mass.center_of_gravity_m[2]
    got_n = max(surge[0], 1e-9)
    return Authority(
        forward_n=forward_n,
        back_n=mixer.reach_n(0, -1.0),
        side_n=min(mixer.reach_n(1, 1.0), mixer.reach_n(1, -1.0)),
        up_n=up_n,
        down_n=mixer.reach_n(2, 1.0),
        yaw_nm=min(mixer.reach_n(5, 1.0), mixer.reach_n(5, -1.0)),
        aside_m=abs(surge[5]) / got_n,
        aside_share=abs(surge[1]) / got_n,
        lift_roll_rad=atan2(abs(lift[3]), righting_nm),
        surge_pitch_rad=atan2(abs(surge[4]), righting_nm),
        sways=mixer.sways,
        turns_lifting=_turns_lifting(mixer, up_n),
    )


def _turns_lifting(mixer: Mixer, up_n: float) -> float:
    """Return what share comes of a quarter of lift and yaw together, less what pushes ahead."""
    lift_n = _TOGETHER * up_n
    yaw_nm = _TOGETHER * min(mixer.reach_n(5, 1.0), mixer.reach_n(5, -1.0))
    if lift_n <= 0.0 or yaw_nm <= 0.0:
        return 0.0
    _settle(mixer, (0.0, 0.0, -lift_n, 0.0, 0.0, yaw_nm))
    ahead_n, _, down_n = mixer.achieved.force_body_n
    share = min(-down_n / lift_n, mixer.achieved.torque_body_nm[2] / yaw_nm)
    return share - abs(ahead_n) / lift_n


def _mixed(mixer: Mixer, axis: int, wanted: float) -> tuple[float, ...]:
    """Return the wrench that the mixer gives if asked for one axis alone."""
    demand = [0.0] * 6
    demand[axis] = wanted
    _settle(mixer, demand)
    return mixer.achieved.force_body_n + mixer.achieved.torque_body_nm


def _settle(mixer: Mixer, demand: Sequence[float]) -> None:
    """Ask for a wrench until the tilt servos are where it wants them."""
    wrench = Wrench(
        force_body_n=(demand[0], demand[1], demand[2]),
        torque_body_nm=(demand[3], demand[4], demand[5]),
    )
    for _ in range(SETTLING_STEPS):
        mixer.allocate(wrench, dt_s=SETTLING_STEP_S)


def _drag(airframe: Airframe, axis: int, speed: float) -> float:
    return _slope(airframe, axis, speed) * speed


def _slope(airframe: Airframe, axis: int, speed: float) -> float:
    linear, quadratic = brakes(airframe, axis)
    return linear + quadratic * speed


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0.0 else inf
