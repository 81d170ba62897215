"""L293D: two DC motors on GPIO pins, at up to 0.6 A each and 1.4 V less at each half bridge.

Source: SLRS008D, table 3 and figure 6: while EN is high, current flows from the output whose input
is high to the one whose input is low; EN low lets both motors coast, whatever the inputs are.
Both enables, 1,2EN and 3,4EN, are wired to one pin: the kill. It needs a pull-down resistor, for
an input that is left open counts as high.
"""

from typing import ClassVar

from blimp.hardware.device import Wiring
from blimp.hardware.drv8833 import Drv8833


class L293D(Drv8833):
    """Sign and magnitude as PWM on one input, as a DRV8833; between its pulses it brakes."""

    KILL: ClassVar[str] = "en"
    PWM_PINS: ClassVar[frozenset[str]] = frozenset({"in1", "in2", "in3", "in4"})
    WIRING: ClassVar = Wiring(
        bus="gpio",
        pins=("en",),
        channel_pins={"a": ("in1", "in2"), "b": ("in3", "in4")},
        channels=("a", "b"),
        drives=("thruster",),
    )
