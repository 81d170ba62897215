"""u-blox UBX frames and NAV-PVT, as data.

Source: UBX-13003221 (u-blox M8 receiver description), 32.2 (frame), 32.4 (checksum), 32.17.15
(NAV-PVT). Checked with the poll of MON-VER: B5 62 0A 04 00 00 0E 34.
"""

from struct import Struct

import msgspec

from blimp.hardware.registers.position import UBX as R

_HEADER = 6
_CHECKSUM = 2
# iTOW, fixType, flags, numSV, lon, lat, hMSL, hAcc, velN E D, sAcc, flags3: by their offsets.
_PVT = Struct("<I16xBBxBii4xiI4xiii8xI6xH12x")

Message = tuple[tuple[int, int], bytes]  # class and id, payload


class Pvt(msgspec.Struct, frozen=True, kw_only=True):
    """One solution. Units are SI and degrees; `itow_ms` is its time in the GPS week."""

    itow_ms: int
    fix_type: int
    fix_ok: bool
    position_valid: bool
    satellites: int
    latitude_deg: float
    longitude_deg: float
    altitude_msl_m: float
    accuracy_m: float
    velocity_ned_mps: tuple[float, float, float]
    speed_accuracy_mps: float


def checksum(data: bytes) -> bytes:
    """Return the two bytes of the 8-bit Fletcher sum over class, id, length and payload."""
    a = b = 0
    for byte in data:
        a = (a + byte) & 0xFF
        b = (b + a) & 0xFF
    return bytes((a, b))


def frame(message: tuple[int, int], payload: bytes = b"") -> bytes:
    """Return the bytes of one message."""
    body = bytes(message) + len(payload).to_bytes(2, "little") + payload
    return R.SYNC + body + checksum(body)


def pvt(payload: bytes) -> Pvt:
    """Read the payload of NAV-PVT. Raises ValueError on another length or impossible fields."""
    if len(payload) == R.NAV_PVT_LENGTH_7:
        payload = payload.ljust(R.NAV_PVT_LENGTH, b"\0")
    if len(payload) != R.NAV_PVT_LENGTH:
        raise ValueError(f"NAV-PVT has {len(payload)} bytes, expected {R.NAV_PVT_LENGTH}")
    (itow, fix, flags, satellites, lon, lat, msl, h_acc, north, east, down, s_acc, flags3) = (
        _PVT.unpack(payload)
    )
    if abs(lat) > 90e7 or abs(lon) > 180e7:
        raise ValueError(f"NAV-PVT at latitude {lat * 1e-7:g}, longitude {lon * 1e-7:g}")
    return Pvt(
        itow_ms=itow,
        fix_type=fix,
        fix_ok=bool(flags & R.GNSS_FIX_OK),
        position_valid=not flags3 & R.INVALID_LLH,
        satellites=satellites,
        latitude_deg=lat * 1e-7,
        longitude_deg=lon * 1e-7,
        altitude_msl_m=msl * 1e-3,
        accuracy_m=h_acc * 1e-3,
        velocity_ned_mps=(north * 1e-3, east * 1e-3, down * 1e-3),
        speed_accuracy_mps=s_acc * 1e-3,
    )


class FrameReader:
    """Cuts bytes into messages; keeps a partial one for the next call.

    `garbage` counts frames with a wrong checksum or an impossible length. What lies between
    frames, such as NMEA sentences, is no error.
    """

    def __init__(self) -> None:
        self.garbage = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages completed by `data`."""
        rest = self._rest + data
        messages = []
        while (start := rest.find(R.SYNC)) >= 0 and len(rest) - start >= _HEADER:
            length = int.from_bytes(rest[start + 4 : start + _HEADER], "little")
            end = start + _HEADER + length + _CHECKSUM
            if length > R.MAX_LENGTH:
                self.garbage += 1
                rest = rest[start + 1 :]
            elif len(rest) < end:
                break
            elif checksum(rest[start + 2 : end - _CHECKSUM]) != rest[end - _CHECKSUM : end]:
                # Not a frame's length of bytes is thrown out: a good frame may begin in them.
                self.garbage += 1
                rest = rest[start + 1 :]
            else:
                message = (rest[start + 2], rest[start + 3])
                messages.append((message, rest[start + _HEADER : end - _CHECKSUM]))
                rest = rest[end:]
        # Without a beginning nothing is kept but what may be half of one.
        self._rest = rest[start:] if start >= 0 else rest[-1:]
        return messages

    def clear(self) -> None:
        """Forget a partial frame, as after a port was opened again."""
        self._rest = b""
