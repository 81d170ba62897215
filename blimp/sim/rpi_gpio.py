"""An `RPi.GPIO` module whose pins are simulated wires.

Names, numbers, defaults and errors are those of RPi.GPIO 0.7.1, which itself can only be
installed on a Raspberry Pi. Edge callbacks run where the edge comes from: inside
`World.advance` in lockstep, in the remote world's thread in real time.
"""

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from time import perf_counter
from types import ModuleType
from typing import Any

from blimp.clock import Clock
from blimp.sim.electrical import Electrical, Pull

BOARD, BCM = 10, 11
OUT, IN = 0, 1
LOW, HIGH = 0, 1
PUD_OFF, PUD_DOWN, PUD_UP = 20, 21, 22
RISING, FALLING, BOTH = 31, 32, 33
SERIAL, SPI, I2C, HARD_PWM, UNKNOWN = 40, 41, 42, 43, -1
_NO_BOUNCE = -666

_BOARD_TO_BCM = {
    3: 2, 5: 3, 7: 4, 8: 14, 10: 15, 11: 17, 12: 18, 13: 27, 15: 22, 16: 23, 18: 24, 19: 10,
    21: 9, 22: 25, 23: 11, 24: 8, 26: 7, 27: 0, 28: 1, 29: 5, 31: 6, 32: 12, 33: 13, 35: 19,
    36: 16, 37: 26, 38: 20, 40: 21,
}  # fmt: skip
_PULLS = {PUD_OFF: Pull.OFF, PUD_DOWN: Pull.DOWN, PUD_UP: Pull.UP}

_INFO = {
    "P1_REVISION": 3,
    "REVISION": "a020d3",
    "TYPE": "Pi 3 Model B+",
    "MANUFACTURER": "Sony",
    "PROCESSOR": "BCM2837",
    "RAM": "1G",
}


class _Detection:
    """Edge detection on one input pin."""

    def __init__(self, channel: int, edge: int, bounce_s: float) -> None:
        self.channel = channel
        self.edge = edge
        self.bounce_s = bounce_s
        self.callbacks: list[Callable[[int], Any]] = []
        self.last_s: float | None = None
        self.seen = False
        self.level: bool | None = None  # after the last edge; None before the first


class RpiGpio:
    """The module's state, one for each simulated computer."""

    def __init__(self, electrical: Electrical, *, clock: Clock) -> None:
        self._electrical = electrical
        self._clock = clock
        self._mode: int | None = None
        self._warn = True
        self._directions: dict[int, int] = {}  # BCM pin -> OUT or IN, set up by this process
        self._levels_since: dict[int, tuple[float, float]] = {}
        self._pwms: dict[int, PWM] = {}
        self._detections: dict[int, _Detection] = {}
        self._edges = threading.Condition()
        self.edge = threading.local()  # t_s: when the edge was whose callbacks this thread runs
        self.package = ModuleType("RPi", "Simulated RPi package.")
        self.package.__path__ = []
        self.module = ModuleType("RPi.GPIO", __doc__)
        self.package.GPIO = self.module  # type: ignore[attr-defined]
        gpio = self

        class BoundPWM(PWM):
            def __init__(self, channel: int, frequency: float) -> None:
                super().__init__(gpio, channel, frequency)

        BoundPWM.__name__ = BoundPWM.__qualname__ = "PWM"
        vars(self.module).update(
            {name: value for name, value in globals().items() if name in _CONSTANTS},
            VERSION="0.7.1",
            RPI_REVISION=3,
            RPI_INFO=dict(_INFO),
            PWM=BoundPWM,
            **{name: getattr(self, name) for name in _FUNCTIONS},
        )

    # --- set-up -------------------------------------------------------------------------------

    def setmode(self, mode: int) -> None:
        if mode not in (BOARD, BCM):
            raise ValueError("An invalid mode was passed to setmode()")
        if self._mode is not None and self._mode != mode:
            raise ValueError("A different mode has already been set!")
        self._mode = mode

    def getmode(self) -> int | None:
        return self._mode

    def setwarnings(self, on: bool) -> None:
        self._warn = bool(on)

    def setup(
        self,
        channel: int | Iterable[int],
        direction: int,
        pull_up_down: int = PUD_OFF,
        initial: int | None = None,
    ) -> None:
        if direction not in (OUT, IN):
            raise ValueError("An invalid direction was passed to setup()")
        if direction == OUT and pull_up_down != PUD_OFF:
            raise ValueError("pull_up_down parameter is not valid for outputs")
        if direction == IN and initial is not None:
            raise ValueError("initial parameter is not valid for inputs")
        if pull_up_down not in _PULLS:
            raise ValueError(
                "Invalid value for pull_up_down - should be either PUD_OFF, PUD_UP or PUD_DOWN"
            )
        wires = self._electrical
        for pin in self._pins(channel):
            if self._warn and pin not in self._directions and wires.pin_is_output(pin):
                warnings.warn(
                    "This channel is already in use, continuing anyway.  "
                    "Use GPIO.setwarnings(False) to disable warnings.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            if direction == OUT and initial is not None:
                self._write(pin, bool(initial))  # the level is there before the pin drives
            wires.pin_mode(pin, output=direction == OUT, pull=_PULLS[pull_up_down])
            self._directions[pin] = direction

    def cleanup(self, channel: int | Iterable[int] | None = None) -> None:
        everything = channel is None
        if everything and not self._directions:
            if self._warn:
                warnings.warn(
                    "No channels have been set up yet - nothing to clean up!  "
                    "Try cleaning up at the end of your program instead!",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        pins = list(self._directions) if channel is None else self._pins(channel)
        for pin in pins:
            self._stop_detection(pin)
            if pin in self._directions:
                del self._directions[pin]
                self._electrical.pin_mode(pin, output=False, pull=Pull.OFF)
        if everything:
            self._mode = None

    def gpio_function(self, channel: int) -> int:
        return OUT if self._electrical.pin_is_output(self._pin(channel)) else IN

    # --- levels ---------------------------------------------------------------------------

    def output(self, channel: int | Iterable[int], value: Any) -> None:
        pins = self._pins(channel)
        values = list(value) if isinstance(value, list | tuple) else [value] * len(pins)
        if len(values) != len(pins):
            raise RuntimeError("Number of channels != number of values")
        for pin, level in zip(pins, values, strict=True):
            self._need_output(pin)
            self._write(pin, bool(level))

    def input(self, channel: int) -> int:
        pin = self._pin(channel)
        if pin not in self._directions:
            raise RuntimeError("You must setup() the GPIO channel first")
        detection = self._detections.get(pin)
        if detection is not None and detection.level is not None:
            return int(detection.level)  # as of the edge that is being reported
        return int(self._electrical.pin_read(pin))

    def _write(self, pin: int, high: bool) -> None:
        # How long the level before stood. A clock that stands still inside one flight cycle
        # would make every pulse 0 long, so the time this process really took counts as well.
        now = (self._clock.now_s(), perf_counter())
        since = self._levels_since.get(pin, now)
        self._levels_since[pin] = now
        held_s = max(now[0] - since[0], now[1] - since[1])
        self._electrical.pin_write(pin, high, held_s=held_s)

    def _need_output(self, pin: int) -> None:
        if self._directions.get(pin) != OUT:
            raise RuntimeError("The GPIO channel has not been set up as an OUTPUT")

    # --- edges ------------------------------------------------------------------------------

    def add_event_detect(
        self,
        channel: int,
        edge: int,
        callback: Callable[[int], Any] | None = None,
        bouncetime: int = _NO_BOUNCE,
    ) -> None:
        pin = self._pin(channel)
        self._check_edge(pin, edge, bouncetime)
        if callback is not None and not callable(callback):
            raise TypeError("Parameter must be callable")
        if pin in self._detections:
            raise RuntimeError("Conflicting edge detection already enabled for this GPIO channel")
        detection = _Detection(channel, edge, max(0.0, bouncetime * 1e-3))
        if callback is not None:
            detection.callbacks.append(callback)
        self._detections[pin] = detection
        self._electrical.pin_watch(pin, self._edge)

    def add_event_callback(self, channel: int, callback: Callable[[int], Any]) -> None:
        detection = self._detections.get(self._pin(channel))
        if detection is None:
            raise RuntimeError(
                "Add event detection using add_event_detect first before adding a callback"
            )
        if not callable(callback):
            raise TypeError("Parameter must be callable")
        detection.callbacks.append(callback)

    def remove_event_detect(self, channel: int) -> None:
        self._stop_detection(self._pin(channel))

    def event_detected(self, channel: int) -> bool:
        detection = self._detections.get(self._pin(channel))
        if detection is None:
            return False
        seen, detection.seen = detection.seen, False
        return seen

    def wait_for_edge(
        self, channel: int, edge: int, bouncetime: int = _NO_BOUNCE, timeout: int = -1
    ) -> int | None:
        """Block until another thread moves the world on to an edge, or `timeout` ms."""
        pin = self._pin(channel)
        self._check_edge(pin, edge, bouncetime)
        added = pin not in self._detections
        if added:
            self.add_event_detect(channel, edge, bouncetime=bouncetime)
        elif self._detections[pin].edge != edge:
            raise RuntimeError("Conflicting edge detection already enabled for this GPIO channel")
        detection = self._detections[pin]
        detection.seen = False
        try:
            with self._edges:
                limit_s = None if timeout < 0 else timeout * 1e-3
                return channel if self._edges.wait_for(lambda: detection.seen, limit_s) else None
        finally:
            if added:
                self._stop_detection(pin)

    def _check_edge(self, pin: int, edge: int, bouncetime: int) -> None:
        if self._directions.get(pin) != IN:
            raise RuntimeError("You must setup() the GPIO channel as an input first")
        if edge not in (RISING, FALLING, BOTH):
            raise ValueError("The edge must be set to RISING, FALLING or BOTH")
        if bouncetime != _NO_BOUNCE and bouncetime <= 0:
            raise ValueError("Bouncetime must be greater than 0")

    def _stop_detection(self, pin: int) -> None:
        if self._detections.pop(pin, None) is not None:
            self._electrical.pin_watch(pin, None)

    def _edge(self, pin: int, high: bool, t_s: float) -> None:
        detection = self._detections.get(pin)
        if detection is None:
            return
        detection.level = high
        if detection.edge != BOTH and high != (detection.edge == RISING):
            return
        if detection.last_s is not None and t_s - detection.last_s < detection.bounce_s:
            return
        detection.last_s = t_s
        with self._edges:
            detection.seen = True
            self._edges.notify_all()
        self.edge.t_s = t_s
        try:
            for callback in tuple(detection.callbacks):
                try:
                    callback(detection.channel)
                except Exception:  # as RPi.GPIO's thread: printed, and the next one runs
                    sys.excepthook(*sys.exc_info())
        finally:
            self.edge.t_s = None

    # --- channels ---------------------------------------------------------------------------

    def _pin(self, channel: int) -> int:
        if self._mode is None:
            raise RuntimeError(
                "Please set pin numbering mode using GPIO.setmode(GPIO.BOARD) or "
                "GPIO.setmode(GPIO.BCM)"
            )
        if not isinstance(channel, int):
            raise ValueError("Channel must be an integer or list/tuple of integers")
        pin = _BOARD_TO_BCM.get(channel, -1) if self._mode == BOARD else channel
        if not 0 <= pin <= 27:
            raise ValueError("The channel sent is invalid on a Raspberry Pi")
        return pin

    def _pins(self, channel: int | Iterable[int]) -> list[int]:
        if isinstance(channel, list | tuple):
            return [self._pin(one) for one in channel]
        return [self._pin(channel)]  # type: ignore[arg-type]

    def close(self) -> None:
        """Stop watching; the pins stay as they are. Idempotent."""
        for pin in list(self._detections):
            self._stop_detection(pin)


class PWM:
    """Software pulse-width modulation on one output pin."""

    def __init__(self, gpio: RpiGpio, channel: int, frequency: float) -> None:
        self._running = False
        self._pin = pin = gpio._pin(channel)
        self._gpio = gpio
        if gpio._directions.get(pin) != OUT:
            raise RuntimeError("You must setup() the GPIO channel as an output first")
        if pin in gpio._pwms:
            raise RuntimeError("A PWM object already exists for this GPIO channel")
        self._frequency_hz = _frequency(frequency)
        self._duty = 0.0
        gpio._pwms[pin] = self

    def start(self, dutycycle: float) -> None:
        self._duty = _duty(dutycycle)
        self._running = True
        self._drive()

    def ChangeDutyCycle(self, dutycycle: float) -> None:  # noqa: N802
        self._duty = _duty(dutycycle)
        if self._running:
            self._drive()

    def ChangeFrequency(self, frequency: float) -> None:  # noqa: N802
        self._frequency_hz = _frequency(frequency)
        if self._running:
            self._drive()

    def stop(self) -> None:
        if self._running:
            self._running = False
            self._gpio._electrical.pin_pwm(self._pin, None, frequency_hz=self._frequency_hz)
        self._release()

    def _drive(self) -> None:
        self._gpio._electrical.pin_pwm(self._pin, self._duty, frequency_hz=self._frequency_hz)

    def _release(self) -> None:
        if self._gpio._pwms.get(self._pin) is self:
            del self._gpio._pwms[self._pin]


def _frequency(value: float) -> float:
    if not value > 0.0:
        raise ValueError("frequency must be greater than 0.0")
    return float(value)


def _duty(value: float) -> float:
    if not 0.0 <= value <= 100.0:
        raise ValueError("dutycycle must have a value from 0.0 to 100.0")
    return float(value) / 100.0


_CONSTANTS = frozenset(
    (
        "BOARD", "BCM", "OUT", "IN", "LOW", "HIGH", "PUD_OFF", "PUD_DOWN", "PUD_UP", "RISING",
        "FALLING", "BOTH", "SERIAL", "SPI", "I2C", "HARD_PWM", "UNKNOWN",
    )
)  # fmt: skip
_FUNCTIONS = (
    "setmode", "getmode", "setwarnings", "setup", "cleanup", "gpio_function", "output", "input",
    "add_event_detect", "add_event_callback", "remove_event_detect", "event_detected",
    "wait_for_edge",
)  # fmt: skip
