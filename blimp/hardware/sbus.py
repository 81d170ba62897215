"""SBUS: a receiver of Futaba, FrSky and others, one-way.

Source: the protocol as Betaflight's `src/main/rx/sbus.c` reads it; Futaba has published none. The
line is inverted: see docs/chips.md.
"""

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses, SerialPort
from blimp.hardware.receiver import Receiver, channels
from blimp.hardware.registers.receivers import CHANNELS
from blimp.hardware.registers.receivers import SBUS as R
from blimp.types import TransmitterSample

# In a row, 140 to 280 ms: repeated for so long, it is no stick that is held. A receiver sets its
# failsafe flag after about a second.
MAX_LOST_FRAMES = 20


class FrameReader:
    """Cuts bytes into frames of 25. `garbage` counts places where none could begin.

    The begin byte may also be a channel's: a frame counts if it ends right, and the frame after it,
    if its bytes are there already, begins right.
    """

    def __init__(self) -> None:
        self.garbage = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames completed by `data`."""
        rest = self._rest + data
        frames = []
        at = 0
        while len(rest) - at >= R.BYTES:
            end = at + R.BYTES
            follows = len(rest) == end or rest[end] == R.BEGIN
            if rest[at] == R.BEGIN and rest[end - 1] in R.ENDS and follows:
                frames.append(rest[at:end])
                at = end
            else:
                self.garbage += rest[at] == R.BEGIN
                at += 1
        self._rest = rest[at:]
        return frames

    def clear(self) -> None:
        """Forget a partial frame, as after a port was opened again."""
        self._rest = b""


class Sbus(Receiver[bytes]):
    """Its own flags are in each frame: failsafe, and a frame that repeats the one before.

    A receiver that repeats its last frame and sets neither looks like sticks held still.
    """

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses, reader=FrameReader())
        self._lost_frames = 0  # in a row

    def _open(self) -> SerialPort:
        self.close()
        port = self._opened = self._buses.serial(self._row.port, self._row.baud, framing=R.FRAMING)
        return port

    def _take(self, frame: bytes, now_s: float) -> TransmitterSample | None:
        flags = frame[R.FLAGS]
        self._lost_frames = self._lost_frames + 1 if flags & R.FRAME_LOST else 0
        if flags & R.FAILSAFE or self._lost_frames >= MAX_LOST_FRAMES:
            return self._unheard(now_s)
        if flags & R.FRAME_LOST:
            self._alive(now_s, "a frame was lost on the air")
            return None
        return self._heard(channels(frame[1 : 1 + CHANNELS.BYTES]), now_s)
