"""What receivers of a radio transmitter share: channels, and how they fail safe.

A receiver that has lost its transmitter may be silent, set a flag, or go on with the last or with
preset channels. So silence and the flag count, and never the channels' values.
"""

from typing import ClassVar

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.device import NoOptions, Wiring, read_options
from blimp.hardware.registers.receivers import CHANNELS as R
from blimp.hardware.serial_sensor import F, Reader, StreamSensor
from blimp.types import TransmitterSample

MAX_STEP = 0.5  # of a stick's way to one side; a flick over both takes more than four frames
LOST = "the receiver hears no transmitter"


def channels(packed: bytes) -> tuple[float, ...]:
    """Return 16 channels of 11 bits as shares, -1 to 1; what lies beyond an end is the end."""
    bits = int.from_bytes(packed, "little")
    mask = (1 << R.BITS) - 1
    half = 0.5 * (R.HIGH - R.LOW)
    raw = ((bits >> R.BITS * i) & mask for i in range(R.COUNT))
    return tuple(max(-1.0, min(1.0, (value - R.MIDDLE) / half)) for value in raw)


class Receiver(StreamSensor[TransmitterSample, F]):
    """Makes a sample of each frame that the frame before confirms.

    A checksum of 8 bits passes one broken frame in 256, and SBUS has none: a frame in which a
    channel is far from where the frame before had it counts only when the next frame says the same.
    A switch so takes one frame longer, 4 to 14 ms. A channel that jumps in two frames one after the
    other is noisy: it keeps what it had and is named in the sample, and the others count.
    """

    UNIT: ClassVar[str] = "share"
    WIRING: ClassVar = Wiring(bus="serial")
    STALE_S: ClassVar[float] = 0.5
    STALE_ERROR: ClassVar[str] = "no frame"

    def __init__(self, *, row: Row, buses: Buses, reader: Reader[F]) -> None:
        super().__init__(row=row, buses=buses, reader=reader)
        read_options(row.options, NoOptions, who=row.name)
        self._before: tuple[float, ...] | None = None
        self._sure: tuple[float, ...] = ()  # as the last sample has them
        self._jumped: frozenset[int] = frozenset()  # in the frame before

    def _heard(self, values: tuple[float, ...], now_s: float) -> TransmitterSample | None:
        before, self._before = self._before, values
        self._alive(now_s)
        if before is None:
            return None
        known, self._jumped = (
            self._jumped,
            frozenset(
                number
                for number, (value, old) in enumerate(zip(values, before, strict=True), start=1)
                if abs(value - old) > MAX_STEP
            ),
        )
        if self._jumped:
            if not self._sure or not self._jumped <= known:
                return None
            values = tuple(
                old if number in self._jumped else value
                for number, (value, old) in enumerate(zip(values, self._sure, strict=True), start=1)
            )
        self._sure = values
        return TransmitterSample(t_s=now_s, channels=values, doubted=tuple(sorted(self._jumped)))

    def _unheard(self, now_s: float, why: str = LOST) -> TransmitterSample:
        """Return the sample of a receiver that lives and has no transmitter."""
        self._before, self._sure, self._jumped = None, (), frozenset()
        self._alive(now_s, why)
        return TransmitterSample(t_s=now_s)

    def _value(self, sample: TransmitterSample) -> tuple[float, ...]:
        return tuple(round(value, 3) for value in sample.channels)
