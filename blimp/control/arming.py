"""May the motors be given power? Named reasons when not, each with its cure.

In the air less is asked: a flight process that was restarted there must be able to bring a
ship down, and for that neither position nor heading is needed.
"""

from collections.abc import Callable, Mapping
from math import hypot

import msgspec

from blimp.ability import lacking, without
from blimp.actions import Need
from blimp.airframe import Airframe, Device
from blimp.control.failsafe import FLIGHT_TIME_LOW, Flags
from blimp.control.samples import role
from blimp.rotation import euler
from blimp.types import SensorStatus, VehicleState

_LEVEL_RAD = 0.26  # 15 degrees
_STILL_RADPS = 0.3  # a ship in a person's arms turns by less
_STALL_S = 2.0  # after a cycle that came late
_POSITION = ("tag", "gps", "camera")


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """All that the checks look at."""

    airframe: Airframe
    state: VehicleState
    flags: Flags
    sensors: Mapping[str, SensorStatus]
    max_wind_mps: float  # that this airframe can hold against


Check = Callable[[Readiness], list[str]]


def problems(ready: Readiness) -> tuple[str, ...]:
    """Return every reason not to arm, as "what: why; cure". Empty: it may be armed."""
    return tuple(reason for check in CHECKS for reason in check(ready))


def _devices(ready: Readiness) -> list[str]:
    found = []
    for device in ready.airframe.device:
        status = ready.sensors.get(device.name)
        if device.required and _is_sick(ready, device) and not stand_in(ready, device):
            why = status.error if status is not None and status.error else "no answer"
            found.append(f"{device.name}: {why}; check its wiring at {where(device)}")
    return found


def stand_in(ready: Readiness, device: Device) -> str:
    """Return the healthy device that gives the position in place of `device`, "" if none does.

    Outdoors there are no anchors, and the ship flies by GPS.
    """
    if role(device) not in _POSITION or not ready.state.position_valid:
        return ""
    for other in ready.airframe.device:
        status = ready.sensors.get(other.name)
        healthy = status is not None and status.healthy and status.value is not None
        if other is not device and role(other) in _POSITION and healthy:
            return other.name if other.name not in ready.flags.unhealthy else ""
    return ""


def substitutes(ready: Readiness) -> tuple[str, ...]:
    """Return a sentence for each required device that another one stands in for."""
    return tuple(
        f"{device.name} is out: the position is that of {other}"
        for device in ready.airframe.device
        if device.required and _is_sick(ready, device) and (other := stand_in(ready, device))
    )


def _is_sick(ready: Readiness, device: Device) -> bool:
    status = ready.sensors.get(device.name)
    return device.name in ready.flags.unhealthy or (status is not None and not status.healthy)


def _equipped(ready: Readiness) -> list[str]:
    """What every armed ship needs to come down by itself."""
    lacks, airframe = lacking(ready.airframe), ready.airframe
    found = [
        f"{need.split()[-1]}: {airframe.name} has {without(need)}; fit one"
        for need in (Need.ATTITUDE, Need.HEIGHT)
        if need in lacks
    ]
    if Need.BATTERY in lacks and not airframe.battery.flight_time_s:
        found.append(
            f"battery: {airframe.name} has {without(Need.BATTERY)}; fit one, or measure how long "
            "the battery lasts and give battery.flight_time_s"
        )
    return found


def _attitude(ready: Readiness) -> list[str]:
    state = ready.state
    if state.attitude_valid and not (state.coasting and state.on_ground):
        return []
    return ["attitude: not known; check the imu and wait for its first samples"]


def _height(ready: Readiness) -> list[str]:
    if ready.state.height_valid:
        return []
    return ["height: not known; check the barometer and the ranger"]


def _position(ready: Readiness) -> list[str]:
    if ready.state.position_valid or not ready.state.on_ground:
        return []
    if Need.POSITION in lacking(ready.airframe):
        return []
    if not ready.state.heading_valid:
        return [
            "heading: not known; if wind has turned the ship on its pad, keep it still for 5 s, "
            "else lay it down nose north and start the flight process again"
        ]
    return ["position: not known; wait for the tag's anchors or a GPS fix"]


def _gyro(ready: Readiness) -> list[str]:
    if ready.flags.gyro_settled or not ready.state.on_ground:
        return []
    return [
        "gyro: its bias is not measured yet; lay the ship down nose north, keep it still for 3 s, "
        "or wait for 12 s if wind moves it"
    ]


def _battery(ready: Readiness) -> list[str]:
    volts, warn = ready.flags.battery_v, ready.airframe.battery.warn_v
    if ready.flags.flown >= FLIGHT_TIME_LOW:
        return [
            f"battery: {100.0 * ready.flags.flown:.0f} % of its flight time is used up, limit "
            f"{100.0 * FLIGHT_TIME_LOW:.0f} %; change it, and start the flight process again"
        ]
    if Need.BATTERY in lacking(ready.airframe):
        return []
    if volts is None:
        return ["battery: no reading; check the power monitor"]
    if volts <= warn:
        return [f"battery: {volts:.2f} V, must be above {warn:.2f} V; charge or change it"]
    return []


def _stop(ready: Readiness) -> list[str]:
    why = ready.flags.deaf
    if ready.flags.stopped:
        return ["emergency stop: the transmitter's stop switch is on; put it off"]
    if ready.flags.stops or not why:  # the switch stops the ship: it has done so
        return []
    cure = "ask 'blimp doctor' and the worker's log"
    if ready.flags.heard:
        cure += ", or try the transmitter's stop switch: put it on, then off"
    return [f"emergency stop: {why}; {cure}"]


def _level(ready: Readiness) -> list[str]:
    roll, pitch, _ = euler(ready.state.attitude)
    tilt = max(abs(roll), abs(pitch))
    if not ready.state.attitude_valid or tilt <= _LEVEL_RAD:
        return []
    degrees = 57.2958 * tilt
    return [f"level: tilted by {degrees:.0f} degrees, limit 15; put the ship level"]


def _still(ready: Readiness) -> list[str]:
    found = []
    rate = hypot(*ready.state.rates_body_radps)
    if ready.state.attitude_valid and rate > _STILL_RADPS:
        found.append(f"still: turning at {rate:.2f} rad/s, limit {_STILL_RADPS}; hold it still")
    speed = hypot(*ready.state.velocity_ned_mps)
    if ready.state.position_valid and speed > ready.max_wind_mps:
        found.append(
            f"wind: it or a person moves the ship at {speed:.1f} m/s, and {ready.airframe.name} "
            f"holds against {ready.max_wind_mps:.1f} m/s; hold it still, or wait for less wind"
        )
    return found


def _loop(ready: Readiness) -> list[str]:
    if ready.flags.since_stall_s > _STALL_S:
        return []
    return ["loop: has just stalled; wait 2 s, and look for what else the computer is doing"]


CHECKS: tuple[Check, ...] = (
    _devices,
    _equipped,
    _attitude,
    _height,
    _position,
    _gyro,
    _battery,
    _stop,
    _level,
    _still,
    _loop,
)


def where(device: Device) -> str:
    """Return where a device is wired: its bus with address, port or pins."""
    if device.address is not None:
        return f"{device.bus} 0x{device.address:02x}"
    if device.port:
        return device.port
    pins = ", ".join(f"{name} {pin}" for name, pin in device.pins.items())
    return f"{device.bus} {pins}".strip()
