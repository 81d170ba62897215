"""All outputs of a ship, and the last gate before them.

What is not a finite number in its range never reaches a chip: that output goes to its safe
value, and the refusal is counted and named. Nothing leaves here unless enabled.
"""

from collections.abc import Sequence

from blimp.airframe import Airframe
from blimp.clock import Clock
from blimp.hardware.device import Output, attempt_all
from blimp.types import ActuatorCommand, SensorStatus

CHECK_S = 0.1  # between two looks at an output device
STAGGER_S = 0.2  # between the first pulses of two servos: two that jump at once brown out a Pi
MAX_STEP_S = 0.1  # of slewing after a pause
_NUMBER = (int, float)
ROUNDING = 1e-6  # beyond a limit by this much is arithmetic, and is clipped


class Actuators:
    """Takes commands in the airframe's order and drives the devices that carry them.

    Starts disabled: `drive` then only checks its argument. `last` holds by name what was
    last put out: throttles (0 while disabled) and servo angles in radians.
    """

    def __init__(self, *, airframe: Airframe, outputs: Sequence[Output], clock: Clock) -> None:
        self.outputs = tuple(outputs)
        self.enabled = False
        self.refused: dict[str, int] = {}
        self.last_refusal = ""
        self._clock = clock
        self._thrusters = airframe.thruster_names
        self._servos = airframe.servo
        self._motors = [0.0] * len(self._thrusters)
        self._angles = [servo.neutral_rad for servo in self._servos]
        names = self._thrusters + airframe.servo_names
        self._where = [[names.index(name) for name in output.outputs] for output in self.outputs]
        self._pulses_from_s = [0.0] * len(self._servos)
        self._driven_s = clock.now_s()
        self._check_due_s = 0.0
        self._checked_s = self._driven_s
        self._closed = False

    @property
    def last(self) -> dict[str, float]:
        named = dict(zip(self._thrusters, self._motors, strict=True))
        named.update(
            (servo.name, angle) for servo, angle in zip(self._servos, self._angles, strict=True)
        )
        return named

    @property
    def unhealthy(self) -> tuple[str, ...]:
        """The names of the output devices that do not answer or have lost their settings."""
        return tuple(output.name for output in self.outputs if not output.healthy)

    def enable(self) -> None:
        """Let commands through. Servos get their first pulses one after the other."""
        now_s = self._clock.now_s()
        self.enabled = True
        self._driven_s = now_s
        self._pulses_from_s = [now_s + STAGGER_S * i for i in range(len(self._servos))]
        for output in self.outputs:
            output.enable(now_s)

    def disable(self) -> tuple[str, ...]:
        """Bring all outputs to safe, once. Returns what failed, as `safe` does."""
        return self.safe() if self.enabled else ()

    def poll(self, now_s: float) -> None:
        """Look after the devices when it is time: start them, find those that were reset.

        Disarmed, too: whether the outputs answer is what arming needs to know. Never raises.
        """
        if now_s >= self._check_due_s:
            self._check_due_s = now_s + CHECK_S
            self._checked_s = now_s
            for output in self.outputs:
                output.poll(now_s)

    def drive(self, command: ActuatorCommand) -> None:
        """Put a command out, servos no faster than they can slew. Never raises."""
        now_s = self._clock.now_s()
        dt_s = min(max(now_s - self._driven_s, 0.0), MAX_STEP_S)
        self._driven_s = now_s
        self.poll(now_s)
        motors = self._gate_motors(command.motors)
        angles = self._gate_servos(command.servos)
        if not self.enabled:
            return
        self._motors = motors
        values: list[float | None] = [*motors]
        for name in command.asleep:
            row = self._thrusters.index(name)
            values[row] = values[row] or None
        for i, (servo, target) in enumerate(zip(self._servos, angles, strict=True)):
            if now_s < self._pulses_from_s[i]:
                values.append(None)
                continue
            step = servo.slew_radps * dt_s
            angle = self._angles[i]
            turn = target - angle
            angle += -step if turn < -step else step if turn > step else turn
            self._angles[i] = angle
            values.append(angle)
        for output, where in zip(self.outputs, self._where, strict=True):
            output.write([values[i] for i in where], now_s)

    def safe(self) -> tuple[str, ...]:
        """Bring every output to its safe state now, whatever state the devices are in.

        Returns an error text per device that failed; the others were made safe all the same.
        In the order of `outputs`, and from any thread: the watchdog calls it while the loop
        hangs in a transfer.
        """
        self.enabled = False
        self._motors = [0.0] * len(self._motors)
        errors = []
        for output in self.outputs:
            try:
                output.safe()
            except Exception as error:
                # Anything: a fault in one driver must not keep the next motor running.
                errors.append(f"{output.name}: {error}")
        # Again: the loop may have enabled all while a bus held this thread up, and must notice.
        self.enabled = False
        return tuple(errors)

    def status(self, now_s: float) -> dict[str, SensorStatus]:
        """Return every output device as a person sees it; its age is that of the last look."""
        last = self.last
        return {
            output.name: SensorStatus(
                value=tuple(last[name] for name in output.outputs),
                unit=output.unit,
                age_s=now_s - max(self._driven_s, self._checked_s),
                healthy=output.healthy,
                error=output.error,
            )
            for output in self.outputs
        }

    def close(self) -> None:
        """Make safe, then close every device. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.safe()
        attempt_all("closing the outputs", [output.close for output in self.outputs])

    def _gate_motors(self, throttles: Sequence[float]) -> list[float]:
        if len(throttles) != len(self._thrusters):
            self._refuse("motors", f"{len(throttles)} throttles for {len(self._thrusters)} motors")
            return [0.0] * len(self._thrusters)
        return [
            self._gate(name, throttle, -1.0, 1.0, safe=0.0)
            for name, throttle in zip(self._thrusters, throttles, strict=True)
        ]

    def _gate_servos(self, angles: Sequence[float]) -> list[float]:
        if len(angles) != len(self._servos):
            self._refuse("servos", f"{len(angles)} angles for {len(self._servos)} servos")
            return [servo.neutral_rad for servo in self._servos]
        return [
            self._gate(servo.name, angle, servo.min_rad, servo.max_rad, safe=servo.neutral_rad)
            for servo, angle in zip(self._servos, angles, strict=True)
        ]

    def _gate(self, name: str, value: object, low: float, high: float, *, safe: float) -> float:
        # NaN compares false with everything, and so is refused.
        if isinstance(value, _NUMBER) and low - ROUNDING <= value <= high + ROUNDING:
            value = float(value)
            return low if value < low else high if value > high else value
        self._refuse(name, f"{value!r} is outside {low:g} to {high:g}")
        return safe

    def _refuse(self, name: str, why: str) -> None:
        self.refused[name] = self.refused.get(name, 0) + 1
        self.last_refusal = f"{name}: {why}"
