"""Pins, through a module with RPi.GPIO's interface that is passed in.

RPi.GPIO on a Pi up to 4, rpi-lgpio on a Pi 5, the simulator's where there is no Pi. Pins are
numbered as BCM. Every failure leaves here as a BusError that names the pin.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from blimp.clock import Clock
from blimp.errors import BusError

# RPi.GPIO raises RuntimeError where the machine or the rights are wrong, ValueError for a pin
# it does not have, and ImportError where it is not installed at all.
GPIO_ERRORS = (OSError, RuntimeError, ValueError, ImportError)

_TRIGGER_S = 12e-6
_TRIGGER_SPINS = 400  # a bound on the spin below; in CPython far longer than 12 µs
_MAX_PULSES = 64


class GpioOutput:
    """One output pin through RPi.GPIO."""

    def __init__(self, *, gpio: Any, pin: int, closed: Callable[[], None]) -> None:
        self._gpio = gpio
        self._pin = pin
        self._closed = closed
        self._is_open = True
        try:
            gpio.setup(pin, gpio.OUT, initial=gpio.LOW)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {pin}: {error}") from error

    def write(self, high: bool) -> None:
        if not self._is_open:
            raise BusError(f"GPIO {self._pin} is closed")
        try:
            self._gpio.output(self._pin, self._gpio.HIGH if high else self._gpio.LOW)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {self._pin}: {error}") from error

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._closed()
        try:
            self._gpio.output(self._pin, self._gpio.LOW)
            self._gpio.cleanup(self._pin)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {self._pin}: {error}") from error


class GpioPwm:
    """One output pin with RPi.GPIO's software PWM."""

    def __init__(
        self, *, gpio: Any, pin: int, frequency_hz: float, closed: Callable[[], None]
    ) -> None:
        self._gpio = gpio
        self._pin = pin
        self._closed = closed
        self._is_open = True
        try:
            gpio.setup(pin, gpio.OUT, initial=gpio.LOW)
            self._pwm = gpio.PWM(pin, frequency_hz)
            self._pwm.start(0.0)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {pin} PWM at {frequency_hz:g} Hz: {error}") from error

    def duty(self, fraction: float) -> None:
        if not 0.0 <= fraction <= 1.0:  # refuses NaN as well
            raise ValueError(f"GPIO {self._pin}: duty {fraction!r} is outside 0 to 1")
        if not self._is_open:
            raise BusError(f"GPIO {self._pin} is closed")
        try:
            self._pwm.ChangeDutyCycle(100.0 * fraction)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {self._pin}: {error}") from error

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._closed()
        try:
            self._pwm.stop()
            self._gpio.output(self._pin, self._gpio.LOW)
            self._gpio.cleanup(self._pin)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {self._pin}: {error}") from error


class GpioEcho:
    """Trigger and echo pins; edges are timed in RPi.GPIO's callback, never waited for."""

    def __init__(
        self,
        *,
        gpio: Any,
        trigger_pin: int,
        echo_pin: int,
        clock: Clock,
        closed: Callable[[], None],
    ) -> None:
        self._gpio = gpio
        self._trigger_pin = trigger_pin
        self.echo_pin = echo_pin
        self._clock = clock
        self._closed = closed
        self._is_open = True
        self._rose_s: float | None = None
        # The callback runs in RPi.GPIO's own thread; append and popleft are atomic.
        self._pulses: deque[tuple[float, float]] = deque(maxlen=_MAX_PULSES)
        try:
            gpio.setup(trigger_pin, gpio.OUT, initial=gpio.LOW)
            gpio.setup(echo_pin, gpio.IN)
            gpio.add_event_detect(echo_pin, gpio.BOTH, callback=self._edge)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {trigger_pin} and {echo_pin}: {error}") from error

    def trigger(self) -> None:
        if not self._is_open:
            raise BusError(f"GPIO {self._trigger_pin} is closed")
        try:
            self._gpio.output(self._trigger_pin, self._gpio.HIGH)
            # Counted as well as timed: a clock that stands still must not hang the loop.
            until_s = self._clock.now_s() + _TRIGGER_S
            for _ in range(_TRIGGER_SPINS):
                if self._clock.now_s() >= until_s:
                    break
            self._gpio.output(self._trigger_pin, self._gpio.LOW)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {self._trigger_pin}: {error}") from error

    def take_pulses(self) -> list[tuple[float, float]]:
        taken: list[tuple[float, float]] = []
        while self._pulses:
            taken.append(self._pulses.popleft())
        return taken

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._closed()
        try:
            self._gpio.remove_event_detect(self.echo_pin)
            self._gpio.output(self._trigger_pin, self._gpio.LOW)
            self._gpio.cleanup(self._trigger_pin)
            self._gpio.cleanup(self.echo_pin)
        except GPIO_ERRORS as error:
            raise BusError(f"GPIO {self._trigger_pin} and {self.echo_pin}: {error}") from error

    def _edge(self, _channel: int) -> None:
        now_s = self._clock.now_s()
        if self._gpio.input(self.echo_pin):
            self._rose_s = now_s
        elif self._rose_s is not None:
            self._pulses.append((now_s, now_s - self._rose_s))
            self._rose_s = None
