"""DRV8833: two DC motors on GPIO pins.

Source: SLVSAR1E, table 2: sign and magnitude as PWM on IN1 (forward) or IN2 (reverse) with
the other input low. nSLEEP low stops both bridges whatever the inputs are: the kill.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import msgspec

from blimp.airframe import Airframe
from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses, DigitalOutput, PwmOutput
from blimp.hardware.device import Output, Steps, Wiring, attempt_all, read_options

RESOLUTION = 1000  # steps of throttle; software PWM cannot do better


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """frequency_hz: of the PWM. Software PWM is coarse above some hundred hertz."""

    frequency_hz: float = 200.0


class Drv8833(Output):
    """Throttles in [-1, 1] per channel. Safe is nSLEEP low and all inputs low."""

    UNIT: ClassVar[str] = "throttle"
    WIRING: ClassVar = Wiring(
        bus="gpio",
        pins=("nsleep",),
        channel_pins={"a": ("ain1", "ain2"), "b": ("bin1", "bin2")},
        channels=("a", "b"),
        drives="thruster",
    )

    def __init__(self, *, row: Row, buses: Buses, airframe: Airframe) -> None:
        super().__init__(row=row, buses=buses, airframe=airframe)
        options = read_options(row.options, Options, who=row.name)
        if not 1.0 <= options.frequency_hz <= 20e3:
            raise BoardError(
                f"{row.name}: frequency_hz {options.frequency_hz:g} is outside 1 to 20000"
            )
        self._frequency_hz = options.frequency_hz
        self._input_pins = [
            tuple(row.pins[pin] for pin in self.WIRING.channel_pins[channel])
            for channel in self._channels
        ]
        self._nsleep: DigitalOutput | None = None
        self._inputs: dict[int, PwmOutput] = {}
        self._steps_out = [0] * len(self.outputs)  # the last command to each bridge, in steps

    def safe(self) -> None:
        self.enabled = False
        self._steps_out = [0] * len(self._steps_out)
        attempt_all(
            f"{self.name} may not be safe",
            [self._sleep, *(partial(self._low, pin) for pins in self._input_pins for pin in pins)],
        )

    def close(self) -> None:
        held = [self._nsleep, *self._inputs.values()]
        self._nsleep = None
        self._inputs = {}
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
        if self._nsleep is None:
            raise DeviceError(f"{self.name}: closed")
        self._alive(now_s)  # the bridge has no way to answer; its pins did

    def _put(self, values: Sequence[float | None]) -> None:
        steps = [self._in_steps(value) for value in values]  # all checked before any is written
        for i, (wanted, pins) in enumerate(zip(steps, self._input_pins, strict=True)):
            before = self._steps_out[i]
            if wanted == before:
                continue
            forward, reverse = (self._inputs[pin] for pin in pins)
            # Off before on, so that a reversal never has both inputs high, which would brake.
            if wanted <= 0 < before:
                forward.duty(0.0)
            if before < 0 <= wanted:
                reverse.duty(0.0)
            if wanted > 0:
                forward.duty(wanted / RESOLUTION)
            elif wanted < 0:
                reverse.duty(-wanted / RESOLUTION)
            self._steps_out[i] = wanted

    def _in_steps(self, throttle: float | None) -> int:
        if throttle is None:
            return 0
        if not -1.0 <= throttle <= 1.0:  # refuses NaN as well
            raise ValueError(f"{self.name}: throttle {throttle!r} is outside -1 to 1")
        return round(throttle * RESOLUTION)

    def _enable(self) -> None:
        if self._nsleep is not None:
            self._nsleep.write(True)

    def _sleep(self) -> None:
        if self._nsleep is None:
            self._nsleep = self._buses.digital(self._row.pins["nsleep"])
        self._nsleep.write(False)

    def _input(self, pin: int) -> PwmOutput:
        held = self._inputs.get(pin)
        if held is None:
            held = self._inputs[pin] = self._buses.pwm(pin, self._frequency_hz)
        return held

    def _low(self, pin: int) -> None:
        self._input(pin).duty(0.0)
