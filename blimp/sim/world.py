"""One ship in its world: physics, and the electronics that measure and move it.

`World` is what the kernel seam plugs into (see `blimp.sim.electrical`), and what a runner
moves on: `Lockstep` on a ManualClock, `Server` in real time.
"""

import errno
import os
from collections import deque
from collections.abc import Sequence
from math import ceil
from typing import Any

from blimp.airframe import Airframe
from blimp.clock import ManualClock
from blimp.closing import Closing
from blimp.errors import ConfigError
from blimp.rotation import rotate_back
from blimp.scene import EMPTY, Scenery
from blimp.sim.atmosphere import GRAVITY_MPS2
from blimp.sim.electrical import BytesCallback, Cameras, CameraSight, EdgeCallback, Pull
from blimp.sim.electronics import Electronics
from blimp.sim.physics import Physics
from blimp.sim.timeline import Timeline
from blimp.types import ZERO3, Quaternion, Vec3, VehicleState

MAX_STEP_S = 0.005
_POSES = 250  # which a camera can look back on: about a second
_STRETCH = 0.02  # a step may be this much longer, so that 10.012 ms are two steps, not three
START_UTC_S = 1.7e9
AIRS = {  # what the air or the gas can be made to do, and the options of each
    "gust": ("north_mps", "east_mps", "seconds"),
    "heat": ("warmer_c",),
    "leak": ("m3_per_day",),
}


class _PhysicsTruth:
    """What the chips may see of the physics, always as it is now."""

    def __init__(self, physics: Physics) -> None:
        self._physics = physics
        self._state: VehicleState | None = None
        self.held: Quaternion | None = None

    def refresh(self) -> None:
        """Drop the cached state: physics has moved."""
        self._state = None

    @property
    def state(self) -> VehicleState:
        if self._state is None:
            self._state = self._physics.state
        return self._state

    @property
    def attitude(self) -> Quaternion:
        return self.state.attitude if self.held is None else self.held

    @property
    def rates_body_radps(self) -> Vec3:
        return self._physics.body_rates_radps if self.held is None else ZERO3

    @property
    def specific_force_body_mps2(self) -> Vec3:
        if self.held is None:
            return self._physics.specific_force_body_mps2
        return rotate_back(self.held, (0.0, 0.0, -GRAVITY_MPS2))

    @property
    def position_ned_m(self) -> Vec3:
        return self.state.position_ned_m

    @property
    def velocity_ned_mps(self) -> Vec3:
        return self.state.velocity_ned_mps

    @property
    def pressure_pa(self) -> float:
        return self._physics.pressure_pa

    @property
    def temperature_c(self) -> float:
        return self._physics.temperature_c

    @property
    def battery_v(self) -> float:
        return self._physics.battery_v

    @property
    def battery_current_a(self) -> float:
        return self._physics.battery_current_a


class World(Closing):
    """A ship switched on, on its pad, at time 0. Implements `Electrical`.

    seed: of wind, noise and biases; the same seed and the same calls give the same bytes.
    clock: in lockstep, the clock that follows the world, so that a reader in an
    edge callback reads the edge's exact time. A driver that sleeps on it moves it ahead;
    the world catches up at the next `advance`.
    start_utc_s: the date at time 0, for the GPS. scene: what the ship's cameras can see.
    """

    def __init__(
        self,
        airframe: Airframe,
        *,
        seed: int = 1,
        wind_mps: float = 0.0,
        clock: ManualClock | None = None,
        start_utc_s: float = START_UTC_S,
        scene: Scenery = EMPTY,
    ) -> None:
        self.airframe = airframe
        self.scene = scene
        # Where the scene's balloons are now, NED with the floor at 0: what catches one moves it.
        self.balloons = [(b.north_m, b.east_m, -b.altitude_m) for b in scene.balloon]
        self._poses: deque[tuple[float, Vec3, Quaternion]] = deque(maxlen=_POSES)
        self.physics = Physics(airframe=airframe, seed=seed, wind_mps=wind_mps)
        self.timeline = Timeline()
        self.computer: Any = None  # the seam's open files, which last between its visits
        self._truth = _PhysicsTruth(self.physics)
        self._t_s = 0.0  # how far the physics are; electrical time may be a little ahead
        self.is_moving = False  # in the middle of `advance_to`, where edges have callbacks
        self.electronics = Electronics(
            airframe=airframe,
            truth=self._truth,
            timeline=self.timeline,
            seed=seed,
            start_utc_s=start_utc_s,
        )
        self._watched: dict[int, EdgeCallback] = {}
        self._listened: dict[str, BytesCallback] = {}
        self._clock: ManualClock | None = None
        self._clock_zero_s = 0.0
        self.clock = clock

    @property
    def clock(self) -> ManualClock | None:
        return self._clock

    @clock.setter
    def clock(self, clock: ManualClock | None) -> None:
        self._clock = clock
        if clock is not None:
            self._clock_zero_s = clock.now_s() - self._t_s

    # --- moving it -------------------------------------------------------------------------

    def advance(self, dt_s: float) -> None:
        """Let `dt_s` pass. Raises ValueError on a step back."""
        if not dt_s >= 0.0:
            raise ValueError(f"the world cannot go back: advance({dt_s!r})")
        self._tick()
        self.advance_to(max(self._t_s, self.timeline.now_s) + dt_s)

    def advance_to(self, end_s: float) -> None:
        """Move the world to `end_s`; it stays where it is when that has passed."""
        if end_s <= self._t_s:
            return
        span_s = end_s - self._t_s
        steps = max(1, ceil(span_s / MAX_STEP_S - _STRETCH * span_s / MAX_STEP_S))
        start_s = self._t_s
        self.is_moving = True
        try:
            for step in range(1, steps + 1):
                self._step(end_s if step == steps else start_s + span_s * step / steps)
        finally:
            self.is_moving = False
        if self.computer is not None:
            self.computer.settle()

    def _step(self, until_s: float) -> None:
        """Events up to `until_s` happen at their exact times, then physics catches up."""
        timeline = self.timeline
        while timeline.next_s <= until_s:
            if self._clock is not None:
                self._follow(max(timeline.next_s, timeline.now_s))
            timeline.run_next()
        dt_s = until_s - self._t_s
        if dt_s > 0.0:
            electronics = self.electronics
            self.physics.step(dt_s, electronics.throttles(), self._servo_targets())
            self._truth.refresh()
            self._t_s = until_s
            if electronics.cameras:
                truth = self._truth
                self._poses.append((until_s, truth.position_ned_m, truth.attitude))
        timeline.now_s = max(timeline.now_s, until_s)
        if self._clock is not None:
            self._follow(timeline.now_s)

    def _servo_targets(self) -> Sequence[float]:
        """A servo without pulses is limp: it stays where it is."""
        commanded = self.electronics.servo_angles()
        if None not in commanded:
            return commanded  # type: ignore[return-value]
        return [
            now if target is None else target
            for target, now in zip(commanded, self.physics.servo_angles_rad, strict=True)
        ]

    def _follow(self, t_s: float) -> None:
        assert self._clock is not None
        behind_s = t_s + self._clock_zero_s - self._clock.now_s()
        if behind_s > 0.0:
            self._clock.advance(behind_s)

    def _tick(self) -> None:
        """Bring electrical time up to the clock, where a driver has slept on it."""
        if self._clock is not None:
            now_s = self._clock.now_s() - self._clock_zero_s
            if now_s > self.timeline.now_s:
                self.timeline.now_s = now_s

    def set_time(self, t_s: float) -> None:
        """Bring electrical time up to `t_s`, between two physics steps."""
        if t_s > self.timeline.now_s:
            self.timeline.now_s = t_s

    # --- looking at it -----------------------------------------------------------------------

    @property
    def t_s(self) -> float:
        """How far the physics are, in seconds since the world began."""
        return self._t_s

    @property
    def truth(self) -> VehicleState:
        return self._truth.state

    @property
    def outputs(self) -> dict[str, float]:
        """Throttle that reaches each motor, and the commanded angle of each servo, in radians."""
        frame = self.airframe
        outputs = dict(zip(frame.thruster_names, self.electronics.throttles(), strict=True))
        outputs.update(zip(frame.servo_names, self._servo_targets(), strict=True))
        return outputs

    @property
    def outputs_safe(self) -> bool:
        """Whether no motor is driven and no servo gets pulses."""
        electronics = self.electronics
        return not any(electronics.throttles()) and not any(
            angle is not None for angle in electronics.servo_angles()
        )

    def hold(self, attitude: Quaternion | None) -> None:
        """Let the inertial chips feel a ship that a person holds so, still.

        The physics go on where they are. None: it is let go of.
        """
        self._truth.held = attitude

    def fault(self, device: str, kind: str, /, **options: object) -> None:
        """Let a device fail; see `blimp.sim.faults`. Raises ConfigError naming what is known."""
        self._tick()
        self.electronics.fault(device, kind, options)

    def air(self, kind: str, /, **options: float) -> None:
        """Let the air or the gas do something: one of `AIRS`, with just its options.

        Raises ConfigError naming what is known, or the limit.
        """
        needed = AIRS.get(kind)
        if needed is None:
            raise ConfigError(f"no air {kind!r}: known are {', '.join(AIRS)}")
        if set(options) != set(needed):
            raise ConfigError(f"air {kind!r} needs {', '.join(needed)}, not {sorted(options)}")
        try:
            if kind == "gust":
                blows = (options["north_mps"], options["east_mps"], 0.0)
                self.physics.wind.begin_draught(blows, seconds=options["seconds"])
            elif kind == "heat":
                self.physics.weather(warmer_c=options["warmer_c"])
            else:
                self.physics.leak(options["m3_per_day"])
        except ValueError as error:
            raise ConfigError(str(error)) from error

    # --- its wires: `Electrical` ---------------------------------------------------------------

    def i2c_buses(self) -> tuple[int, ...]:
        return tuple(self.electronics.buses)

    def serial_ports(self) -> dict[str, int]:
        return self.electronics.ports

    def pwm_pins(self) -> dict[tuple[int, int], int]:
        return self.electronics.pwm_pins

    def spi_devices(self) -> tuple[tuple[int, int], ...]:
        return tuple(self.electronics.spi_chips)

    def spi(self, bus: int, select: int, data: bytes) -> bytes:
        self._tick()
        return self.electronics.spi(bus, select, data)

    def i2c(self, bus: int, address: int, data: bytes, length: int) -> bytes:
        self._tick()
        return self.electronics.i2c(bus, address, data, length)

    def pin_mode(self, pin: int, *, output: bool, pull: Pull) -> None:
        self._tick()
        self.electronics.pins.set_mode(pin, output=output, pull=pull)

    def pin_is_output(self, pin: int) -> bool:
        return self.electronics.pins.is_output(pin)

    def pin_write(self, pin: int, high: bool, *, held_s: float) -> None:
        self._tick()
        self.electronics.pins.write(pin, high, held_s=held_s)

    def pin_pwm(self, pin: int, duty: float | None, *, frequency_hz: float) -> None:
        self._tick()
        self.electronics.pins.pwm(pin, duty, frequency_hz=frequency_hz)

    def pin_read(self, pin: int) -> bool:
        return self.electronics.pins.read(pin)

    def pin_watch(self, pin: int, callback: EdgeCallback | None) -> None:
        old = self._watched.pop(pin, None)
        if old is not None:
            self.electronics.pins.unwatch(pin, old)
        if callback is not None:
            self._watched[pin] = callback
            self.electronics.pins.watch(pin, callback)

    def serial_listen(self, port: str, callback: BytesCallback | None) -> None:
        old = self._listened.pop(port, None)
        if old is not None:
            self.electronics.unlisten(port, old)
        if callback is not None:
            self._listened[port] = callback
            self.electronics.listen(port, callback)

    def serial_write(self, port: str, data: bytes) -> None:
        self._tick()
        self.electronics.serial_write(port, data)

    def cameras(self) -> Cameras:
        return Cameras(
            places=tuple(chip.place for chip in self.electronics.cameras), scene=self.scene
        )

    def camera(self, number: int, since_s: float) -> CameraSight:
        self._tick()
        if not 0 <= number < len(self.electronics.cameras):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        state = self.electronics.cameras[number].state()
        if state.busy:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        newest = (self._t_s, self._truth.position_ned_m, self._truth.attitude)
        return CameraSight(
            zero_s=self._clock_zero_s,
            poses=tuple(pose for pose in self._poses if pose[0] >= since_s) or (newest,),
            balloons=tuple(self.balloons),
            state=state,
        )

    def camera_close(self, number: int) -> None:
        """In this process the module `picamera2` knows which cameras are open."""

    def close(self) -> None:
        """Close what the seam has left open. Idempotent."""
        if self.computer is not None:
            self.computer.close()
            self.computer = None
