"""The arguments of a command, checked against the limits of the ship that flies.

`parse` raises ValueError with a sentence that names the argument, its value and the limit:
the commander turns it into a refusal.
"""

from collections.abc import Callable
from math import degrees, hypot, isfinite, radians
from typing import Any

import msgspec

from blimp import actions
from blimp.ability import payload_servos
from blimp.actions import ACTIONS
from blimp.airframe import Airframe, Servo
from blimp.control import trajectory
from blimp.forms import Arguments, arguments_of
from blimp.geofence import Geofence
from blimp.parameters import with_parameter
from blimp.types import Mode

MAX_NAME_LETTERS = 40  # of a trajectory


def parse(command: str, arguments: dict[str, Any], airframe: Airframe) -> Arguments:
    """Return `arguments` in the command's form. Raises ValueError: "command: argument, limit"."""
    form = ACTIONS[command].arguments
    try:
        parsed = msgspec.convert(arguments, form)
        for argument in arguments_of(form):
            value = getattr(parsed, argument.name)
            if argument.names in _NAMES:
                _known(argument.name, argument.names, value, _NAMES[argument.names](airframe))
            if value is not None and argument.is_bounded:
                _within(argument.name, value, *argument.bounds(airframe.limits), argument.unit)
        check = _CHECKS.get(form)
        if check is not None:
            check(parsed, airframe)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"{command}: {error}") from error
    return parsed


# --- what a form asks beside the bounds of each argument -------------------------------------


def _mode(wish: actions.SetMode, airframe: Airframe) -> None:  # noqa: ARG001
    if wish.name.upper() not in Mode.__members__:
        raise ValueError(f"name: no mode {wish.name!r}; modes are {', '.join(Mode.__members__)}")


def _goto(wish: actions.Goto, airframe: Airframe) -> None:
    limit_m, distance_m = airframe.limits.max_distance_m, hypot(wish.north_m, wish.east_m)
    if distance_m > limit_m + 1e-6:
        raise ValueError(
            f"distance from the pad is {distance_m:g} m, the limit is "
            f"{limit_m:g} m (max_distance_m of {airframe.name})"
        )


def geofence_of(wish: actions.SetGeofence) -> Geofence:
    return Geofence(
        zones=wish.zones, ceiling_m=wish.ceiling_m, floor_m=wish.floor_m, rally=wish.rally
    )


def _geofence(wish: actions.SetGeofence, airframe: Airframe) -> None:
    limits = airframe.limits
    problem = geofence_of(wish).problem(
        max_altitude_m=limits.max_altitude_m, max_distance_m=limits.max_distance_m
    )
    if problem:
        raise ValueError(problem)


def _velocity(wish: actions.SetVelocity, airframe: Airframe) -> None:
    speed_mps = hypot(wish.north_mps, wish.east_mps)
    _within("horizontal speed", speed_mps, 0.0, airframe.limits.speed_mps, "m/s")


def _trajectory(wish: actions.FlyTrajectory, airframe: Airframe) -> None:
    if not 0 < len(wish.name) <= MAX_NAME_LETTERS or not wish.name.isprintable():
        raise ValueError(f"name {wish.name[:40]!r}: must have 1 to {MAX_NAME_LETTERS} letters")
    trajectory.check(wish.points, airframe)


def _servo(wish: actions.Servo, airframe: Airframe) -> None:
    servo = servo_of(airframe, wish.name)
    _within("deg", wish.deg, degrees(servo.min_rad), degrees(servo.max_rad), "degrees")


def _payload(wish: actions.Payload, airframe: Airframe) -> None:
    if problem := wish.problem():
        raise ValueError(problem)
    name = payload_name(wish, airframe)
    _known("name", "payload servo", name, tuple(one.name for one in payload_servos(airframe)))
    servo = servo_of(airframe, name)
    if wish.deg is not None:
        _within("deg", wish.deg, degrees(servo.min_rad), degrees(servo.max_rad), "degrees")
    if wish.pulse_us is not None:
        low, high = 1e6 * servo.min_pulse_s, 1e6 * servo.max_pulse_s
        _within("pulse_us", wish.pulse_us, low, high, "us")


def _parameter(wish: actions.SetParameter, airframe: Airframe) -> None:
    with_parameter(airframe, wish.name, wish.value)


# Goto's comes after the bounds: a place that is no number has no distance.
_CHECKS: dict[type[Arguments], Callable[..., None]] = {
    actions.SetMode: _mode,
    actions.Goto: _goto,
    actions.SetVelocity: _velocity,
    actions.FlyTrajectory: _trajectory,
    actions.Servo: _servo,
    actions.Payload: _payload,
    actions.SetGeofence: _geofence,
    actions.SetParameter: _parameter,
}
_NAMES: dict[str, Callable[[Airframe], tuple[str, ...]]] = {
    "motor": lambda airframe: airframe.thruster_names,
    "servo": lambda airframe: airframe.servo_names,
}


# --- what handlers share with the checks -----------------------------------------------------


def servo_of(airframe: Airframe, name: str) -> Servo:
    return airframe.servo[airframe.servo_names.index(name)]


def payload_name(wish: actions.Payload, airframe: Airframe) -> str:
    """Return the servo's name; "channel 9" for a channel that drives none."""
    if wish.name is not None:
        return wish.name
    channel = wish.channel or 0
    driven = (row.outputs.get(str(channel - 1), "") for row in airframe.device)
    return next((name for name in driven if name in airframe.servo_names), f"channel {channel}")


def payload_rad(wish: actions.Payload, airframe: Airframe) -> float:
    servo = servo_of(airframe, payload_name(wish, airframe))
    if wish.deg is not None:
        return max(servo.min_rad, min(servo.max_rad, radians(wish.deg)))
    pulse_s = 1e-6 * (wish.pulse_us or 0.0)
    share = (pulse_s - servo.min_pulse_s) / (servo.max_pulse_s - servo.min_pulse_s)
    return servo.min_rad + max(0.0, min(1.0, share)) * (servo.max_rad - servo.min_rad)


def _within(name: str, value: float, low: float, high: float, unit: str) -> None:
    if not isfinite(value):
        raise ValueError(f"{name} is {value}, must be a finite number")
    if not low - 1e-6 <= value <= high + 1e-6:
        raise ValueError(f"{name} is {value:g}, must be within {low:g} to {high:g} {unit}")


def _known(argument: str, kind: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise ValueError(
            f"{argument}: no {kind} {name!r}; {kind}s are {', '.join(names) or 'none'}"
        )
