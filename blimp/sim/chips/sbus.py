"""An SBUS receiver, a frame each 9 ms as FrSky's send. The inverter is on its line already.

Source: the frame in `hardware/registers/receivers.py`.
"""

from blimp.hardware.registers.receivers import SBUS as R
from blimp.sim.chips.receiver import Receiver, packed


class Sbus(Receiver):
    """Without a transmitter it goes on with the last channels, and sets its flags."""

    PERIOD_S = 0.009

    def frame(self, values: list[int]) -> bytes:
        flags = R.FRAME_LOST | R.FAILSAFE if self.faults.unlinked else 0
        return bytes([R.BEGIN]) + packed(values) + bytes([flags, 0x00])
