"""Texas Instruments DRV8833 dual H-bridge with two brushed motors. Source: SLVSAR1E, table 2."""

from typing import ClassVar

from blimp.sim.chips.bridge import Bridge


class Drv8833(Bridge):
    """Row: pins {ain1, ain2, bin1, bin2, nsleep}, outputs {"a": motor, "b": motor}."""

    KILL = "nsleep"
    CHANNEL_PINS: ClassVar = {"a": ("ain1", "ain2"), "b": ("bin1", "bin2")}

    def _bridge(self, *duties: float) -> float:
        # Mean of the bridge over a period: forward while only IN1 is high, reverse while only
        # IN2 is; both high brakes, both low coasts. True for a PWM on either input.
        in1, in2 = duties
        return in1 - in2
