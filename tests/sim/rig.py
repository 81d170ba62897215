"""Control flown on the physics with synthetic samples: no chips, no drivers, no mailbox.

Faster than Lockstep and blind to everything between; for tuning and for control's own tests.
"""

import math
from collections.abc import Mapping
from random import Random
from typing import Any

from blimp import airframe as airframes
from blimp.control.build import build_flight_loop
from blimp.sim.physics import Physics
from blimp.types import (
    ActuatorCommand,
    BaroSample,
    Command,
    GpsSample,
    ImuSample,
    Outcome,
    OutcomeState,
    PositionSample,
    PowerSample,
    RangeSample,
    SensorReadings,
    SensorStatus,
    Vec3,
)
from tests.control.parts import ListInbox


class SyntheticSensors:
    """Samples of the truth with the noise of the twin's chips. Devices can be cut."""

    def __init__(
        self, *, physics: Physics, home: airframes.Home, seed: int, noisy: bool = True
    ) -> None:
        self._physics = physics
        self._home = home
        self._random = Random(f"rig:{seed}")
        self._k = 1.0 if noisy else 0.0
        gauss = self._random.gauss
        self.gyro_bias: Vec3 = (
            self._k * gauss(0.0, 0.0175),
            self._k * gauss(0.0, 0.0175),
            self._k * gauss(0.0, 0.0175),
        )
        self._accel_bias = tuple(self._k * gauss(0.0, 0.039) for _ in range(3))
        self._range_bias = self._k * gauss(0.0, 0.02)
        self._ticks = 0
        self._readings = SensorReadings(t_s=0.0)
        self.cut: set[str] = set()
        self.unhealthy: tuple[str, ...] = ()

    def watch(self, physics: Physics) -> None:
        """Sample another body from now on."""
        self._physics = physics

    def read(self, now_s: float) -> SensorReadings:
        self._ticks += 1
        tick, physics, state = self._ticks, self._physics, self._physics.state
        gauss, k = self._random.gauss, self._k
        fresh: dict[str, Any] = {}
        force, rates = physics.specific_force_body_mps2, state.rates_body_radps
        fresh["imu"] = ImuSample(
            t_s=now_s,
            accel_body_mps2=(
                force[0] + self._accel_bias[0] + k * gauss(0.0, 0.039),
                force[1] + self._accel_bias[1] + k * gauss(0.0, 0.039),
                force[2] + self._accel_bias[2] + k * gauss(0.0, 0.039),
            ),
            gyro_body_radps=(
                rates[0] + self.gyro_bias[0] + k * gauss(0.0, 0.0009),
                rates[1] + self.gyro_bias[1] + k * gauss(0.0, 0.0009),
                rates[2] + self.gyro_bias[2] + k * gauss(0.0, 0.0009),
            ),
            temperature_c=25.0,
        )
        if tick % 4 == 0:
            fresh["baro"] = BaroSample(
                t_s=now_s,
                pressure_pa=physics.pressure_pa + k * gauss(0.0, 1.3),
                temperature_c=physics.temperature_c,
            )
        if tick % 2 == 0:
            _, x, y, _ = state.attitude
            slant_m = -state.position_ned_m[2] / (1.0 - 2.0 * (x * x + y * y))
            if 0.2 < slant_m < 8.0:
                fresh["ranger"] = RangeSample(
                    t_s=now_s, distance_m=slant_m + self._range_bias + k * gauss(0.0, 0.01)
                )
        if tick % 10 == 0:
            sigma = k * (0.4 if self._random.random() < 0.02 else 0.08)
            n, e, d = state.position_ned_m
            fresh["tag"] = PositionSample(
                t_s=now_s,
                position_ned_m=(n + gauss(0.0, sigma), e + gauss(0.0, sigma), d),
                accuracy_m=0.17,  # as the driver takes it from the line's quality
            )
            fresh["power"] = PowerSample(
                t_s=now_s, voltage_v=physics.battery_v, current_a=physics.battery_current_a
            )
        if tick % 20 == 0:
            fresh["gps"] = self._gps(now_s)
        old = {name: getattr(self._readings, name) for name in _SAMPLES}
        old.update({name: sample for name, sample in fresh.items() if name not in self.cut})
        self._readings = SensorReadings(t_s=now_s, unhealthy=self.unhealthy, **old)
        return self._readings

    def _gps(self, now_s: float) -> GpsSample:
        home = self._home
        n, e, d = self._physics.state.position_ned_m
        per_degree = math.radians(1.0) * 6_371_000.0
        gauss = self._random.gauss
        return GpsSample(
            t_s=now_s,
            latitude_deg=home.latitude_deg + (n + 1.0 + gauss(0.0, 0.05)) / per_degree,
            longitude_deg=home.longitude_deg
            + (e - 0.7 + gauss(0.0, 0.05)) / per_degree / math.cos(math.radians(home.latitude_deg)),
            altitude_msl_m=home.altitude_msl_m - d,
            velocity_ned_mps=None,
            accuracy_m=1.5,
            satellites=9,
        )

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        found = {}
        for name in _SAMPLES:
            sample = getattr(self._readings, name)
            if sample is not None:
                found[name] = SensorStatus(
                    value=None, unit="", age_s=now_s - sample.t_s, healthy=name not in self.cut
                )
        return found


_SAMPLES = ("imu", "baro", "ranger", "tag", "gps", "power")


class DirectOutputs:
    """What the loop drives goes straight to the physics."""

    def __init__(self, *, airframe: airframes.Airframe) -> None:
        self._names = airframe.thruster_names + airframe.servo_names
        self.neutral = ActuatorCommand(
            motors=(0.0,) * len(airframe.thruster),
            servos=tuple(s.neutral_rad for s in airframe.servo),
        )
        self.command = self.neutral
        self.enabled = False

    @property
    def last(self) -> Mapping[str, float]:
        return dict(zip(self._names, self.command.motors + self.command.servos, strict=True))

    def drive(self, command: ActuatorCommand) -> None:
        if self.enabled:
            self.command = command

    def safe(self) -> None:
        self.enabled = False
        self.command = self.neutral

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        self.safe()


class Rig:
    """A ship on its pad, switched on, past its arming checks."""

    def __init__(
        self,
        *,
        airframe: str | airframes.Airframe = "twin",
        seed: int = 1,
        wind_mps: float = 0.0,
        noisy: bool = True,
        bench: bool = False,
        settle_s: float = 4.0,
    ) -> None:
        frame = airframes.load(airframe) if isinstance(airframe, str) else airframe
        self.airframe = frame
        self.physics = Physics(airframe=frame, seed=seed, wind_mps=wind_mps)
        self.sensors = SyntheticSensors(
            physics=self.physics, home=frame.home, seed=seed, noisy=noisy
        )
        self.outputs = DirectOutputs(airframe=frame)
        self.inbox = ListInbox()
        self.loop = build_flight_loop(
            frame,
            sensors=self.sensors,
            outputs=self.outputs,
            inbox=self.inbox,
            vehicle=frame.name,
            boot_id="rig",
            bench=bench,
            simulated=True,
        )
        self.now_s = 0.0
        self._sent = 0
        self.on_step: Any = None
        self.step(settle_s)
        while settle_s > 1.0 and self.loop.problems() and self.now_s < 15.0:
            self.step(0.5)

    def step(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds * 100.0))):
            self.now_s += 0.01
            command = self.outputs.command
            self.physics.step(0.005, command.motors, command.servos)
            self.physics.step(0.005, command.motors, command.servos)
            self.loop.step(self.now_s)
            if self.on_step is not None:
                self.on_step(self)

    def become(self, other: "Rig") -> None:
        """Let this ship's control fly the body of `other`."""
        self.physics = other.physics
        self.sensors.watch(other.physics)

    def command(self, name: str, /, **arguments: Any) -> Outcome:
        self._sent += 1
        id = f"{name}-{self._sent}"
        self.inbox.commands.append(Command(id=id, name=name, arguments=arguments))
        self.step(0.01)
        return self.inbox.of(id)[-1]

    def complete(self, name: str, /, *, within_s: float, **arguments: Any) -> Outcome:
        outcome = self.command(name, **arguments)
        until_s = self.now_s + within_s
        while outcome.state is OutcomeState.IN_PROGRESS and self.now_s < until_s:
            self.step(0.1)
            outcome = self.inbox.of(outcome.id)[-1]
        return outcome
