"""CRSF: a receiver of ExpressLRS or Crossfire, and what it sends back to the transmitter.

Source: TBS CRSF specification (github.com/tbs-fpv/tbs-crsf-spec), frame construction, 0x08 battery,
0x14 link statistics, 0x16 channels, 0x1E attitude, 0x21 flight mode.
"""

from collections.abc import Callable
from math import inf, pi
from struct import pack

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.receiver import Receiver, channels
from blimp.hardware.registers.receivers import CHANNELS
from blimp.hardware.registers.receivers import CRSF as R
from blimp.rotation import wrap_pi
from blimp.types import Snapshot, TransmitterSample

Frame = tuple[int, bytes]  # type, payload

STATISTICS_S = 1.0  # ExpressLRS and Crossfire send them about ten times a second
NO_STATISTICS = f"no link statistics for {STATISTICS_S:g} s: nothing says that channels are new"
MAX_MODE_LETTERS = 15  # a transmitter shows no more


def crc(data: bytes) -> int:
    """Return the CRC-8 DVB-S2 of type and payload."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value << 1 ^ (R.CRC_POLYNOMIAL if value & 0x80 else 0)) & 0xFF
    return value


CRC_TABLE = tuple(crc(bytes([byte])) for byte in range(256))


def _crc(data: bytes) -> int:
    """As `crc`, for every frame of every cycle."""
    value = 0
    for byte in data:
        value = CRC_TABLE[value ^ byte]
    return value


def frame(kind: int, payload: bytes) -> bytes:
    """Return the bytes of one frame."""
    body = bytes([kind]) + payload
    return bytes([R.SYNC, len(body) + 1]) + body + bytes([_crc(body)])


class FrameReader:
    """Cuts bytes into frames; keeps a partial one. `garbage` counts wrong checksums."""

    def __init__(self) -> None:
        self.garbage = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames completed by `data`."""
        rest = self._rest + data
        frames = []
        at = 0
        while len(rest) - at >= 2:
            if rest[at] not in (R.SYNC, R.BROADCAST) or not (
                R.MIN_LENGTH <= rest[at + 1] <= R.MAX_LENGTH
            ):
                at += 1
                continue
            end = at + 2 + rest[at + 1]
            if len(rest) < end:
                break
            body = rest[at + 2 : end - 1]
            if _crc(body) != rest[end - 1]:
                # Only one byte is thrown out: a good frame may begin within.
                self.garbage += 1
                at += 1
                continue
            frames.append((body[0], body[1:]))
            at = end
        self._rest = rest[at:]
        return frames

    def clear(self) -> None:
        """Forget a partial frame, as after a port was opened again."""
        self._rest = b""


class Crsf(Receiver[Frame]):
    """Its own flag is the link statistics' uplink quality: 0 % is a lost transmitter.

    Channels count while the statistics do: a receiver that repeats its last frame shows by nothing
    else that it hears no transmitter.
    """

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses, reader=FrameReader())
        self._quality = 0
        self._judged_s = -inf  # when the statistics last came
        self._turn = 0

    def _take(self, frame: Frame, now_s: float) -> TransmitterSample | None:
        kind, payload = frame
        if kind == R.LINK_STATISTICS and len(payload) >= R.LINK_STATISTICS_BYTES:
            self._quality, self._judged_s = payload[R.UPLINK_QUALITY], now_s
            return None if self._quality else self._unheard(now_s)
        if kind != R.RC_CHANNELS:
            return None
        if len(payload) != CHANNELS.BYTES:
            raise ValueError(f"{len(payload)} bytes of channels, expected {CHANNELS.BYTES}")
        if now_s - self._judged_s > STATISTICS_S:
            return self._unheard(now_s, NO_STATISTICS)
        if not self._quality:
            return self._unheard(now_s)
        return self._heard(channels(payload), now_s)

    def tell(self, snapshot: Snapshot) -> None:
        """Send the transmitter one frame, in turn: battery, attitude, mode."""
        make = _TELEMETRY[self._turn % len(_TELEMETRY)]
        self._turn += 1
        self._port.write(make(snapshot))


def battery(snapshot: Snapshot) -> bytes:
    """Volts alone: what is left is not measured, and 0 says so on every transmitter."""
    tenths = min(0xFFFF, max(0, round(10.0 * (snapshot.battery_v or 0.0))))
    return frame(R.BATTERY, pack(">HHI", tenths, 0, 0))


def attitude(snapshot: Snapshot) -> bytes:
    at = snapshot.attitude_rad
    return frame(R.ATTITUDE, pack(">hhh", _angle(at.pitch), _angle(at.roll), _angle(at.yaw)))


def flight_mode(snapshot: Snapshot) -> bytes:
    """The mode, in ExpressLRS' way with a star while disarmed; KILLED, or a "!" for a failsafe."""
    text = snapshot.mode + ("" if snapshot.armed else "*")
    if snapshot.failsafe:
        text = f"!{snapshot.mode}"
    if snapshot.killed:
        text = "KILLED"
    return frame(R.FLIGHT_MODE, text[:MAX_MODE_LETTERS].encode("ascii", "replace") + b"\0")


_TELEMETRY: tuple[Callable[[Snapshot], bytes], ...] = (battery, attitude, flight_mode)


def _angle(rad: float) -> int:
    """In 0.0001 rad: pi is 31416, which 16 bits hold."""
    return round(1e4 * max(-pi, min(pi, wrap_pi(rad))))
