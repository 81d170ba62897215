"""What dual H-bridges share: throttles in steps, and one pin that stops both motors."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import msgspec

from blimp.airframe import Airframe
from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses, DigitalOutput, PwmOutput
from blimp.hardware.device import Output, Steps, attempt_all, read_options

RESOLUTION = 1000  # steps of throttle; software PWM cannot do better


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """frequency_hz: of the PWM. Software PWM is coarse above some hundred hertz."""

    frequency_hz: float = 200.0


class Bridge(Output):
    """Throttles in [-1, 1] per channel. Safe is the pin `KILL` low and all inputs low.

    It sleeps, `KILL` low, if no channel is to turn (None), too: then a stuck input turns nothing.

    PWM_PINS: which of the channels' pins carry the modulation; the others are levels.
    """

    UNIT: ClassVar[str] = "throttle"
    KILL: ClassVar[str]
    PWM_PINS: ClassVar[frozenset[str]]

    def __init__(self, *, row: Row, buses: Buses, airframe: Airframe) -> None:
        super().__init__(row=row, buses=buses, airframe=airframe)
        options = read_options(row.options, Options, who=row.name)
        if not 1.0 <= options.frequency_hz <= 20e3:
            raise BoardError(
                f"{row.name}: frequency_hz {options.frequency_hz:g} is outside 1 to 20000"
            )
        self._frequency_hz = options.frequency_hz
        self._input_pins = [self.WIRING.channel_pins[channel] for channel in self._channels]
        self._kill: DigitalOutput | None = None
        self._awake = False
        self._pwms: dict[str, PwmOutput] = {}
        self._levels: dict[str, DigitalOutput] = {}
        self._steps_out = [0] * len(self.outputs)  # the last command to each bridge, in steps

    def safe(self) -> None:
        self.enabled = False
        self._steps_out = [0] * len(self._steps_out)
        attempt_all(
            f"{self.name} may not be safe",
            [self._sleep, *(partial(self._low, pin) for pins in self._input_pins for pin in pins)],
        )

    def close(self) -> None:
        held = [self._kill, *self._pwms.values(), *self._levels.values()]
        self._kill = None
        self._pwms, self._levels = {}, {}
        attempt_all(self.name, [pin.close for pin in held if pin is not None])

    def _start(self) -> Steps:
        self._sleep()
        for pins in self._input_pins:
            for pin in pins:
                self._low(pin)
        self._steps_out = [0] * len(self._steps_out)
        yield 0.0
        if self.enabled:
            self._enable()

    def _work(self, now_s: float) -> None:
        if self._kill is None:
            raise DeviceError(f"{self.name}: closed")
        self._alive(now_s)  # a bridge has no way to answer; its pins did

    def _put(self, values: Sequence[float | None]) -> None:
        steps = [self._in_steps(value) for value in values]  # all checked before any is written
        for i, (wanted, pins) in enumerate(zip(steps, self._input_pins, strict=True)):
            before = self._steps_out[i]
            if wanted != before:
                self._drive(pins, before, wanted)
                self._steps_out[i] = wanted
        if self._awake == all(value is None for value in values):
            (self._sleep if self._awake else self._enable)()

    @abstractmethod
    def _drive(self, pins: tuple[str, ...], before: int, wanted: int) -> None:
        """Take one bridge from one throttle to another, in steps of `RESOLUTION`."""

    def _in_steps(self, throttle: float | None) -> int:
        if throttle is None:
            return 0
        if not -1.0 <= throttle <= 1.0:  # refuses NaN as well
            raise ValueError(f"{self.name}: throttle {throttle!r} is outside -1 to 1")
        return round(throttle * RESOLUTION)

    def _enable(self) -> None:
        if self._kill is not None:
            self._kill.write(True)
        self._awake = True

    def _sleep(self) -> None:
        if self._kill is None:
            self._kill = self._buses.digital(self._row.pins[self.KILL])
        self._awake = False
        self._kill.write(False)

    def _low(self, pin: str) -> None:
        if pin not in self.PWM_PINS:
            self._level(pin, False)
            return
        held = self._pwms.get(pin)
        if held is None:
            held = self._pwms[pin] = self._buses.pwm(self._row.pins[pin], self._frequency_hz)
        held.duty(0.0)

    def _duty(self, pin: str, steps: int) -> None:
        self._pwms[pin].duty(steps / RESOLUTION)

    def _level(self, pin: str, high: bool) -> None:
        held = self._levels.get(pin)
        if held is None:
            held = self._levels[pin] = self._buses.digital(self._row.pins[pin])
        held.write(high)
