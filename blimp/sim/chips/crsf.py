"""A CRSF receiver at 150 frames a second, as ExpressLRS has it. Source: TBS CRSF specification."""

from blimp.hardware.registers.receivers import CRSF as R
from blimp.sim.chips.chip import Fitting
from blimp.sim.chips.receiver import Receiver, packed

_STATISTICS_EVERY = 15  # frames: ten times a second


class Crsf(Receiver):
    """`telemetry` keeps the newest payload of each type that the computer sent, by type.

    Without a transmitter it sends no channels, and statistics that say so; frozen it repeats its
    last channels, and sends no statistics.
    """

    PERIOD_S = 1.0 / 150.0

    def __init__(self, fitting: Fitting) -> None:
        super().__init__(fitting)
        self.telemetry: dict[int, bytes] = {}
        self._received = b""

    def frame(self, values: list[int]) -> bytes:
        lost = self.faults.unlinked
        data = b"" if lost else _frame(R.RC_CHANNELS, packed(values))
        if self._count % _STATISTICS_EVERY == 0 and not self.faults.frozen:
            quality = 0 if lost else 100
            data += _frame(R.LINK_STATISTICS, bytes([60, 60, quality, 10, 0, 4, 1, 60, 100, 10]))
        return data

    def receive(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 2 and len(self._received) >= self._received[1] + 2:
            end = self._received[1] + 2
            frame, self._received = self._received[:end], self._received[end:]
            if frame[0] == R.SYNC and _crc(frame[2:-1]) == frame[-1]:
                self.telemetry[frame[2]] = frame[3:-1]


def _frame(kind: int, payload: bytes) -> bytes:
    body = bytes([kind]) + payload
    return bytes([R.SYNC, len(body) + 1]) + body + bytes([_crc(body)])


def _crc(data: bytes) -> int:
    """Divide by x^8 + x^7 + x^6 + x^4 + x^2 + 1, the whole message at once."""
    left = int.from_bytes(data, "big") << 8
    for place in range(8 * len(data) - 1, -1, -1):
        if left >> place + 8 & 1:
            left ^= 0x1D5 << place
    return left
