"""DRV8833: two DC motors on GPIO pins.

Source: SLVSAR1E, table 2: sign and magnitude as PWM on IN1 (forward) or IN2 (reverse) with
the other input low. nSLEEP low stops both bridges whatever the inputs are: the kill.
"""

from typing import ClassVar

from blimp.hardware.bridge import Bridge
from blimp.hardware.device import Wiring


class Drv8833(Bridge):
    KILL: ClassVar[str] = "nsleep"
    PWM_PINS: ClassVar[frozenset[str]] = frozenset({"ain1", "ain2", "bin1", "bin2"})
    WIRING: ClassVar = Wiring(
        bus="gpio",
        pins=("nsleep",),
        channel_pins={"a": ("ain1", "ain2"), "b": ("bin1", "bin2")},
        channels=("a", "b"),
        drives=("thruster",),
    )

    def _drive(self, pins: tuple[str, ...], before: int, wanted: int) -> None:
        forward, reverse = pins
        # Off before on, so that a reversal never has both inputs high, which would brake.
        if wanted <= 0 < before:
            self._duty(forward, 0)
        if before < 0 <= wanted:
            self._duty(reverse, 0)
        if wanted > 0:
            self._duty(forward, wanted)
        elif wanted < 0:
            self._duty(reverse, -wanted)
