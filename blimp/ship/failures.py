"""What can go wrong in a flight, one row each: the failures of `blimp sim matrix`.

A row is flown on every ship that has all of its devices and outputs. Devices go by their
names in the airframe; "left motor" and the like are outputs, found on whatever drives them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from blimp.airframe import Airframe
from blimp.ship.lockstep import Lockstep


class Fault(msgspec.Struct, frozen=True):
    """One fault of one device, or of the device that drives `output`."""

    kind: str
    device: str = ""
    output: str = ""
    options: dict[str, Any] = {}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong.

    load: mass taken on, a share of the displaced air's; negative for ballast lost.
    at_start: before the ship is armed, else in the middle of the mode that is flown.
    transmitter: the pilot is at a radio transmitter, and nobody on the ground acts.
    """

    name: str
    text: str
    faults: tuple[Fault, ...] = ()
    load: float = 0.0
    at_start: bool = False
    link_lost: bool = False
    transmitter: bool = False
    dead_s: float = 0.0  # the flight process dies, and another starts after so long

    def fits(self, airframe: Airframe) -> bool:
        """Whether this ship has what fails."""
        buses = {device.name: device.bus for device in airframe.device}
        outputs = airframe.thruster_names + airframe.servo_names
        return all(
            (not fault.device or fault.device in buses)
            and (not fault.output or fault.output in outputs)
            and (fault.kind != "bus_stuck" or buses[fault.device].startswith("i2c"))
            for fault in self.faults
        )

    def happen(self, ship: Lockstep) -> None:
        """Let it begin now."""
        drivers = {name: row.name for row in ship.airframe.device for name in row.outputs.values()}
        for fault in self.faults:
            if fault.output:
                options = {**fault.options, "channel": fault.output}
                ship.fault(drivers[fault.output], fault.kind, **options)
            else:
                ship.fault(fault.device, fault.kind, **fault.options)
        if self.load:
            ship.world.physics.load(self.load * ship.world.physics.displaced_kg)
        if self.link_lost:
            ship.link_up = False
        if self.dead_s:
            ship.crash(down_s=self.dead_s)


def _sensor(
    name: str, text: str, device: str, kind: str, channel: str = "", **options: float
) -> Failure:
    given: dict[str, Any] = {**options, **({"channel": channel} if channel else {})}
    return Failure(name=name, text=text, faults=(Fault(kind, device=device, options=given),))


def _dead(*devices: str) -> tuple[Fault, ...]:
    return tuple(Fault("no_answer", device=device) for device in devices)


def _stuck(value: float, *outputs: str) -> tuple[Fault, ...]:
    return tuple(Fault("stuck", output=output, options={"value": value}) for output in outputs)


def _ranges(name: str, value: float, *devices: str) -> Failure:
    return Failure(
        name=name,
        text=f"{' and '.join(devices)} stuck at {value:g} m",
        faults=tuple(Fault("stuck", device=d, options={"value": value}) for d in devices),
    )


FAILURES: tuple[Failure, ...] = (
    Failure(name="none", text="nothing fails"),
    # --- inertial
    Failure(name="imu-dead", text="IMU dead", faults=_dead("imu")),
    _sensor("imu-frozen", "IMU frozen", "imu", "frozen"),
    _sensor("imu-garbage", "IMU sends random bytes", "imu", "garbage"),
    _sensor("accel-z-reversed", "accelerometer z reversed", "imu", "scale", "accel_z", factor=-1.0),
    _sensor("accel-x-biased", "accelerometer x 1 m/s² off", "imu", "offset", "accel_x", amount=1.0),
    _sensor("accel-z-biased", "accelerometer z 1 m/s² off", "imu", "offset", "accel_z", amount=1.0),
    _sensor("accel-noisy", "accelerometer z noise of 3 m/s²", "imu", "noise", "accel_z", sigma=3.0),
    _sensor("gyro-x-stuck", "gyro x stuck at 0.2 rad/s", "imu", "stuck", "gyro_x", value=0.2),
    _sensor("gyro-z-stuck", "gyro z stuck at 0.2 rad/s", "imu", "stuck", "gyro_z", value=0.2),
    _sensor("gyro-z-still", "gyro z stuck at 0", "imu", "stuck", "gyro_z", value=0.0),
    _sensor("gyro-z-biased", "gyro z 0.3 °/s off", "imu", "offset", "gyro_z", amount=0.00524),
    # --- height
    Failure(name="baro-dead", text="barometer dead", faults=_dead("baro")),
    _sensor("baro-frozen", "barometer frozen", "baro", "frozen"),
    _sensor("baro-garbage", "barometer sends random bytes", "baro", "garbage"),
    _sensor("baro-rising", "barometer drifts 0.4 m/s up", "baro", "drift", rate=-5.0),
    _sensor("baro-sinking", "barometer drifts 0.4 m/s down", "baro", "drift", rate=5.0),
    _sensor("baro-jump-up", "barometer jumps 25 m up", "baro", "offset", amount=-300.0),
    _sensor("baro-jump-down", "barometer jumps 25 m down", "baro", "offset", amount=300.0),
    Failure(name="ranger-dead", text="ranger dead", faults=_dead("ranger")),
    _sensor("ranger-frozen", "ranger frozen", "ranger", "frozen"),
    _ranges("ranger-stuck-0.22", 0.22, "ranger"),
    _ranges("ranger-stuck-0.5", 0.5, "ranger"),
    _ranges("ranger-stuck-1.0", 1.0, "ranger"),
    _ranges("ranger-stuck-7", 7.0, "ranger"),
    _ranges("ranges-stuck-0.22", 0.22, "ranger", "sonar"),
    _ranges("ranges-stuck-0.5", 0.5, "ranger", "sonar"),
    _ranges("ranges-stuck-1.0", 1.0, "ranger", "sonar"),
    Failure(name="sonar-dead", text="sonar dead", faults=_dead("sonar")),
    _ranges("sonar-stuck-0.3", 0.3, "sonar"),
    Failure(name="height-dead", text="all height dead", faults=_dead("baro", "ranger", "sonar")),
    Failure(name="i2c-stuck", text="I2C bus stuck", faults=(Fault("bus_stuck", device="imu"),)),
    # --- position
    Failure(name="tag-dead", text="tag dead", faults=_dead("tag")),
    _sensor("tag-frozen", "tag frozen", "tag", "frozen"),
    _sensor("tag-drifting", "tag drifts 0.3 m/s beside a good GPS", "tag", "drift", "x", rate=0.3),
    _sensor("tag-jump", "tag jumps 5 m", "tag", "offset", "x", amount=5.0),
    Failure(name="gps-dead", text="GPS dead", faults=_dead("gps")),
    _sensor("gps-drifting", "GPS drifts 0.3 m/s", "gps", "drift", "north", rate=0.3),
    Failure(name="position-dead", text="tag and GPS dead", faults=_dead("tag", "gps")),
    # --- camera
    Failure(name="camera-dead", text="camera's process killed", faults=_dead("camera")),
    _sensor("camera-frozen", "camera's picture frozen", "camera", "frozen"),
    _sensor("camera-garbage", "camera's process sends random bytes", "camera", "garbage"),
    _sensor("camera-dark", "lens covered, or light off", "camera", "stuck", "light", value=0.0),
    _sensor(
        "camera-blind", "no tag in view in the last metre", "camera", "stuck", "blind", value=1.0
    ),
    _sensor("camera-late", "camera's latency doubled", "camera", "offset", "latency", amount=0.1),
    _sensor("camera-scale", "camera's calibration 2 % off", "camera", "scale", "z", factor=1.02),
    _sensor(
        "tags-moved", "the tags in view were moved by 0.4 m", "camera", "offset", "x", amount=0.4
    ),
    _sensor("map-wrong", "another room's map: 3 m off", "camera", "offset", "y", amount=3.0),
    _sensor("map-turned", "map turned against the room", "camera", "offset", "yaw", amount=0.8),
    # --- power
    Failure(name="power-dead", text="power monitor silent", faults=_dead("power")),
    _sensor("power-garbage", "power monitor sends random bytes", "power", "garbage"),
    _sensor("battery-low", "battery at 6.9 V", "power", "stuck", "voltage", value=6.9),
    _sensor("battery-empty", "battery at 6.0 V", "power", "stuck", "voltage", value=6.0),
    # --- outputs
    Failure(name="left-dead", text="left motor dead", faults=_stuck(0.0, "left")),
    Failure(name="mains-dead", text="both main motors dead", faults=_stuck(0.0, "left", "right")),
    Failure(name="tail-dead", text="tail motor dead", faults=_stuck(0.0, "tail")),
    Failure(name="left-full", text="left motor stuck full", faults=_stuck(1.0, "left")),
    Failure(
        name="mains-full", text="both main motors stuck full", faults=_stuck(1.0, "left", "right")
    ),
    Failure(
        name="mains-reverse",
        text="both main motors stuck in full reverse",
        faults=_stuck(-1.0, "left", "right"),
    ),
    Failure(name="tail-full", text="tail motor stuck full", faults=_stuck(1.0, "tail")),
    Failure(
        name="mains-frozen",
        text="main motors frozen as they are",
        faults=(Fault("frozen", device="motors_main"),),
    ),
    Failure(name="servos-dead", text="servo chip dead", faults=_dead("servos")),
    _sensor("servos-frozen", "servos frozen where they are", "servos", "frozen"),
    Failure(name="tilt-up", text="tilt servo stuck upright", faults=_stuck(1.57, "tilt")),
    Failure(name="tilt-ahead", text="tilt servo stuck ahead", faults=_stuck(0.0, "tilt")),
    Failure(name="tilt-down", text="tilt servo stuck downwards", faults=_stuck(-1.57, "tilt")),
    Failure(name="rudder-hard", text="rudder stuck hard over", faults=_stuck(0.6, "rudder")),
    # --- the rest
    Failure(name="link-lost", text="ground link lost", link_lost=True),
    Failure(
        name="transmitter-lost",
        text="transmitter lost, its receiver repeats the last frame",
        faults=(Fault("frozen", device="transmitter"),),
        transmitter=True,
    ),
    Failure(
        name="both-lost",
        text="transmitter and ground link lost",
        faults=(Fault("unlinked", device="transmitter"),),
        link_lost=True,
        transmitter=True,
    ),
    Failure(name="crash", text="flight process dies, restarts after 1.5 s", dead_s=1.5),
    Failure(name="ballast-lost", text="ballast lost: light by 1.5 %", load=-0.015),
    Failure(name="wet", text="wet hull: heavy by 1.5 %", load=0.015),
    Failure(name="light-5", text="5 % light from the start", load=-0.05, at_start=True),
    Failure(name="heavy-5", text="5 % heavy from the start", load=0.05, at_start=True),
)

BY_NAME: Mapping[str, Failure] = {failure.name: failure for failure in FAILURES}
