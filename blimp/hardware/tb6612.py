"""TB6612FNG: two DC motors on GPIO pins.

Source: Toshiba TB6612FNG data sheet of 2014-10-01, "H-SW control function": IN1 high with IN2
low drives forward while PWM is high, the other way round reverse; both low stop. STBY low
stops both bridges whatever the inputs are: the kill.
"""

from typing import ClassVar

from blimp.hardware.bridge import Bridge
from blimp.hardware.device import Wiring


class Tb6612(Bridge):
    """Between its pulses this bridge brakes the motor, where a DRV8833 lets it coast."""

    KILL: ClassVar[str] = "stby"
    PWM_PINS: ClassVar[frozenset[str]] = frozenset({"pwma", "pwmb"})
    WIRING: ClassVar = Wiring(
        bus="gpio",
        pins=("stby",),
        channel_pins={"a": ("pwma", "ain1", "ain2"), "b": ("pwmb", "bin1", "bin2")},
        channels=("a", "b"),
        drives=("thruster",),
    )

    def _drive(self, pins: tuple[str, ...], before: int, wanted: int) -> None:
        pwm, in1, in2 = pins
        if (wanted > 0) != (before > 0) or (wanted < 0) != (before < 0):
            # Without current, and low before high: both high would brake.
            self._duty(pwm, 0)
            if wanted <= 0:
                self._level(in1, False)
            if wanted >= 0:
                self._level(in2, False)
            if wanted > 0:
                self._level(in1, True)
            elif wanted < 0:
                self._level(in2, True)
        self._duty(pwm, abs(wanted))
