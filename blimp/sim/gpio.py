"""The header's 28 GPIO pins as wires: what the computer drives, what a device drives."""

from collections.abc import Callable

from blimp.sim.electrical import EdgeCallback, Pull
from blimp.sim.timeline import Timeline

PINS = 28  # BCM 0 to 27
PulseCallback = Callable[[int, float, float], None]  # pin, rise and fall in seconds
HostCallback = Callable[[float], None]  # how long the level before the change lasted, seconds


class _Pin:
    __slots__ = ("device_high", "duty", "frequency_hz", "high", "output", "pull")

    def __init__(self) -> None:
        self.output = False
        self.high = False
        self.duty: float | None = None  # None: no pulse-width modulation
        self.frequency_hz = 0.0
        self.pull = Pull.OFF
        self.device_high: bool | None = None  # None: no device drives this wire


class GpioBank:
    """All pins. Inputs at power-on, as on the Pi.

    A device reads a pin with `duty` and is notified of changes through `on_host_change`; it
    makes edges with `drive` now and with `plan_pulse` later.
    """

    def __init__(self, *, timeline: Timeline) -> None:
        self._timeline = timeline
        self._pins = [_Pin() for _ in range(PINS)]
        self._listeners: dict[int, list[HostCallback]] = {}
        self._watchers: dict[int, list[EdgeCallback]] = {}
        self._announced: list[PulseCallback] = []

    # --- the computer's side ---

    def set_mode(self, pin: int, *, output: bool, pull: Pull) -> None:
        wire = self._pins[pin]
        wire.pull = pull
        if wire.output != output:
            wire.output = output
            wire.duty = None
            self._tell(pin, 0.0)

    def is_output(self, pin: int) -> bool:
        return self._pins[pin].output

    def write(self, pin: int, high: bool, *, held_s: float) -> None:
        wire = self._pins[pin]
        changed = wire.high != high or wire.duty is not None
        wire.high = high
        wire.duty = None
        if changed and wire.output:
            self._tell(pin, held_s)

    def pwm(self, pin: int, duty: float | None, *, frequency_hz: float) -> None:
        wire = self._pins[pin]
        wire.frequency_hz = frequency_hz
        wire.high = False
        if wire.duty != duty:
            wire.duty = duty
            if wire.output:
                self._tell(pin, 0.0)

    def read(self, pin: int) -> bool:
        wire = self._pins[pin]
        if wire.output:
            return wire.high
        if wire.device_high is not None:
            return wire.device_high
        return wire.pull == Pull.UP

    def watch(self, pin: int, callback: EdgeCallback) -> None:
        """Call `callback` when a device makes an edge on `pin`."""
        self._watchers.setdefault(pin, []).append(callback)

    def unwatch(self, pin: int, callback: EdgeCallback) -> None:
        watchers = self._watchers.get(pin, [])
        if callback in watchers:
            watchers.remove(callback)

    def on_announced(self, callback: PulseCallback) -> None:
        """Call `callback` as soon as a pulse is planned, with the times of its edges."""
        self._announced.append(callback)

    # --- the devices' side ---

    def duty(self, pin: int) -> float:
        """Return the share of time the computer drives `pin` high; 0 where it does not."""
        wire = self._pins[pin]
        if not wire.output:
            return 0.0
        return wire.duty if wire.duty is not None else float(wire.high)

    def pulse_s(self, pin: int) -> float | None:
        """Return how long each pulse on `pin` is high; None where there are none."""
        wire = self._pins[pin]
        if not wire.output or not wire.duty or wire.duty >= 1.0 or wire.frequency_hz <= 0.0:
            return None
        return wire.duty / wire.frequency_hz

    def on_host_change(self, pin: int, callback: HostCallback) -> None:
        self._listeners.setdefault(pin, []).append(callback)

    def drive(self, pin: int, high: bool) -> None:
        """Let a device hold `pin` at a level from now on."""
        wire = self._pins[pin]
        if wire.device_high == high:
            return
        wire.device_high = high
        if not wire.output:
            for callback in tuple(self._watchers.get(pin, ())):
                callback(pin, high, self._timeline.now_s)

    def plan_pulse(self, pin: int, rise_s: float, fall_s: float) -> None:
        """Let a device drive `pin` high and low again at these exact times."""
        self._timeline.at(rise_s, lambda: self.drive(pin, True))
        self._timeline.at(fall_s, lambda: self.drive(pin, False))
        for callback in self._announced:
            callback(pin, rise_s, fall_s)

    def _tell(self, pin: int, held_s: float) -> None:
        for listener in self._listeners.get(pin, ()):
            listener(held_s)
