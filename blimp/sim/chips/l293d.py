"""Texas Instruments L293D quad half bridge with two brushed motors. Source: SLRS008D, table 3."""

from typing import ClassVar

from blimp.sim.chips.bridge import Bridge


class L293D(Bridge):
    """Row: pins {in1, in2, in3, in4, en}, outputs {"a": motor, "b": motor}."""

    KILL = "en"
    CHANNEL_PINS: ClassVar = {"a": ("in1", "in2"), "b": ("in3", "in4")}

    def _bridge(self, *duties: float) -> float:
        # Current flows while the inputs differ, from the high one to the low one; else it brakes.
        in1, in2 = duties
        return in1 - in2
