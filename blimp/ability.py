"""What a ship can be asked for, and what it takes from its battery: computed from its airframe.

The currents are estimates on the careful side: momentum theory for the thrust that drag and
weight take, and a share of all motors for holding heading and place. A twin in the simulator takes
0.77 to 0.99 A hovering and 0.83 to 0.97 A at 0.7 m/s, which this puts at 0.95 and 1.03 A.
"""

from bisect import bisect_right
from math import degrees, inf, sqrt

import msgspec

from blimp.actions import Need
from blimp.airframe import Airframe, Battery, Device, Thruster
from blimp.chips import role_of
from blimp.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2
from blimp.reading import ready

GUST_SHARE = 0.4  # two sigma of Dryden's side gust at 10 m height, over the mean wind
# Of force and torque, what may carry the wind: the rest steers, brakes and climbs. Measured: nearly
# all healthy flights of drawn ships that went wrong had more wind than this leaves (decision 39).
_HOLDS_SHARE = 0.45
RESERVE = 0.2  # of what a mission takes, for wind and a second try
_CONTROL_SHARE = 0.12  # of the motors' full current, on average
_ALONG = 0.5  # of a thruster's axis: it pushes that way
# State of charge of a resting lithium-polymer cell, as makers' discharge sheets have it.
_CHARGE: tuple[tuple[float, float], ...] = (
    (3.0, 0.0), (3.45, 0.05), (3.6, 0.1), (3.7, 0.2), (3.75, 0.3), (3.8, 0.45), (3.85, 0.57),
    (3.95, 0.72), (4.05, 0.84), (4.2, 1.0),
)  # fmt: skip
_FULL_CELL_V = 4.2
# What measures what an action, a mode or a failsafe needs: the roles of chips, in words.
SENSORS: dict[Need, dict[str, str]] = {
    Need.ATTITUDE: {"imu": "IMU"},
    Need.HEIGHT: {"baro": "barometer", "ranger": "ranger", "sonar": "sonar"},
    Need.POSITION: {"tag": "tag", "gps": "GPS", "camera": "camera with a map of tags"},
    Need.BATTERY: {"power": "power monitor"},
    Need.CAMERA: {"seen": "camera with colours to look for"},
}


class PayloadServo(msgspec.Struct, frozen=True, kw_only=True):
    """A servo that neither tilts a propeller nor moves a surface. channel: counted from 1."""

    name: str
    channel: int
    min_deg: float
    max_deg: float
    min_pulse_us: float
    max_pulse_us: float


@ready
class Ability(msgspec.Struct, frozen=True, kw_only=True):
    """usable_ah: until the battery is low; None if it is not known. pad_deg: where its pad is.

    lacks: the needs that no sensor of its airframe measures.
    """

    name: str
    speed_mps: float
    climb_mps: float
    descent_mps: float
    column_mps: float
    max_altitude_m: float
    max_distance_m: float
    hover_a: float
    cruise_a: float  # at `speed_mps`
    usable_ah: float | None = None
    payload: tuple[PayloadServo, ...] = ()
    pad_deg: tuple[float, float] | None = None
    lacks: tuple[Need, ...] = ()


def camera_of(airframe: Airframe) -> Device | None:
    """Return the row of the airframe's camera, None if it has none."""
    return next((row for row in airframe.device if role_of(row.chip) == "camera"), None)


def lacking(airframe: Airframe) -> tuple[Need, ...]:
    """Return the needs that no sensor of this airframe measures."""
    # A camera without a map of tags takes pictures, and knows no place.
    roles = {
        role
        for device in airframe.device
        if (role := role_of(device.chip)) != "camera" or device.options.get("tags")
    }
    if any(one.options.get("sees") or one.options.get("detector") for one in airframe.device):
        roles.add("seen")
    return tuple(need for need, measured_by in SENSORS.items() if not roles & measured_by.keys())


def without(need: Need) -> str:
    """Return which sensors a ship that lacks this has not: "no tag or GPS"."""
    *most, last = SENSORS[need].values()
    return f"no {', '.join(most)} or {last}" if most else f"no {last}"


def ability(
    airframe: Airframe, *, battery_v: float | None, pad_deg: tuple[float, float] | None = None
) -> Ability:
    """Return what this ship can do. battery_v: at rest, None if it is not known."""
    limits = airframe.limits
    return Ability(
        name=airframe.name,
        speed_mps=limits.speed_mps,
        climb_mps=limits.climb_mps,
        descent_mps=limits.descent_mps,
        column_mps=limits.column_mps,
        max_altitude_m=limits.max_altitude_m,
        max_distance_m=limits.max_distance_m,
        hover_a=current_a(airframe, speed_mps=0.0),
        cruise_a=current_a(airframe, speed_mps=limits.speed_mps),
        usable_ah=None if battery_v is None else usable_ah(airframe, battery_v),
        payload=payload_servos(airframe),
        pad_deg=pad_deg,
        lacks=lacking(airframe),
    )


def full_v(battery: Battery) -> float:
    """Return the voltage of a full, resting battery."""
    return _FULL_CELL_V * battery.cells


def current_a(airframe: Airframe, *, speed_mps: float) -> float:
    """Return the current (A) of level flight at this speed, electronics included."""
    aero, motors = airframe.aero, airframe.thruster
    drag_n = (aero.linear_drag[0] + aero.quadratic_drag[0] * speed_mps) * speed_mps
    weight_n = GRAVITY_MPS2 * abs(airframe.mass.heaviness_kg)
    control_a = _CONTROL_SHARE * sum(motor.max_current_a for motor in motors)
    forward = [m for m in motors if m.ways[0] > _ALONG]
    lifting = [m for m in motors if m.ways[2] > _ALONG]
    thrust_a = _shared_a(forward, drag_n) + _shared_a(lifting, weight_n)
    return airframe.battery.idle_current_a + control_a + thrust_a


def max_wind_mps(airframe: Airframe, *, forward_n: float, side_n: float, yaw_nm: float) -> float:
    """Return the mean wind that it can hold, nose into it, gusts of two sigma included.

    Of its force and torque a share may carry the wind. Forward thrust carries the drag of mean and
    gust; side thrust, where there is one, that of a side gust; and the yaw thrust the Munk moment
    of both, in which the fins are not counted.
    """
    gust = 1.0 + GUST_SHARE
    limits_mps = [terminal_mps(airframe, 0, _HOLDS_SHARE * forward_n) / gust]
    if side_n > 0.0:
        limits_mps.append(terminal_mps(airframe, 1, _HOLDS_SHARE * side_n) / GUST_SHARE)
    added = airframe.aero.added_mass_kg
    munk_kg = abs(added[1] - added[0]) * gust * GUST_SHARE
    if munk_kg > 0.0:
        limits_mps.append(sqrt(_HOLDS_SHARE * yaw_nm / munk_kg))
    return min(limits_mps)


def brakes(airframe: Airframe, axis: int) -> tuple[float, float]:
    """Return linear and quadratic drag along an axis, those of a polar with no sideslip in it."""
    aero = airframe.aero
    linear, quadratic = aero.linear_drag[axis], aero.quadratic_drag[axis]
    if aero.polar is not None:
        if axis == 0:
            quadratic += 0.5 * AIR_DENSITY_KGM3 * aero.polar.area_m2 * aero.polar.drag[0]
        if axis >= 3:
            linear += aero.polar.damping[axis - 3]
    return linear, quadratic


def terminal_mps(airframe: Airframe, axis: int, force: float) -> float:
    """Return the speed at which drag takes `force`: the root of q v^2 + l v = force.

    axis: as of the drag: 0-2 in N and m/s, 3-5 in N m and rad/s.
    """
    return drag_speed(force, *brakes(airframe, axis))


def drag_speed(force: float, linear: float, quadratic: float) -> float:
    """Return the speed at which this drag takes `force`; infinite without drag."""
    if force <= 0.0:
        return 0.0
    slope = linear + sqrt(linear * linear + 4.0 * quadratic * force)
    return 2.0 * force / slope if slope > 0.0 else inf


def _shared_a(motors: list[Thruster], force_n: float) -> float:
    """Return what these motors take for a force that all of them share: as thrust^1.5."""
    whole_n = sum(motor.max_thrust_n for motor in motors)
    share = min(1.0, force_n / whole_n) if whole_n > 0.0 else 0.0
    return float(share**1.5 * sum(motor.max_current_a for motor in motors))


def usable_ah(airframe: Airframe, battery_v: float) -> float:
    """Return the charge (Ah) left until the battery is low, where the ship returns by itself."""
    battery, cruise_a = airframe.battery, current_a(airframe, speed_mps=airframe.limits.speed_mps)
    now = _charge(battery, battery_v + battery.idle_current_a * battery.settled_ohm)
    low = _charge(battery, battery.warn_v + cruise_a * battery.settled_ohm)
    return max(0.0, now - low) * battery.capacity_ah


def lasts_s(airframe: Airframe, *, battery_v: float, current_a: float) -> float:
    """Return how long (s) it gives `current_a`, under which it has `battery_v`, until empty."""
    battery, sag_v = airframe.battery, current_a * airframe.battery.settled_ohm
    left = _charge(battery, battery_v + sag_v) - _charge(battery, battery.empty_v + sag_v)
    return max(0.0, left) * battery.capacity_ah * 3600.0 / max(current_a, battery.idle_current_a)


def _charge(battery: Battery, volts: float) -> float:
    cell_v = volts / battery.cells
    i = min(max(bisect_right(_CHARGE, (cell_v, 1.0)), 1), len(_CHARGE) - 1)
    (v0, c0), (v1, c1) = _CHARGE[i - 1], _CHARGE[i]
    return c0 + (c1 - c0) * min(1.0, max(0.0, (cell_v - v0) / (v1 - v0)))


def payload_servos(airframe: Airframe) -> tuple[PayloadServo, ...]:
    """Return the servos that steer nothing."""
    steering = {t.tilted_by for t in airframe.thruster} | {s.servo for s in airframe.surface}
    channels = {
        name: channel
        for row in airframe.device
        for channel, name in row.outputs.items()
        if channel.isdecimal()
    }
    return tuple(
        PayloadServo(
            name=servo.name,
            channel=int(channels.get(servo.name, "-1")) + 1,
            min_deg=degrees(servo.min_rad),
            max_deg=degrees(servo.max_rad),
            min_pulse_us=1e6 * servo.min_pulse_s,
            max_pulse_us=1e6 * servo.max_pulse_s,
        )
        for servo in airframe.servo
        if servo.name not in steering
    )
