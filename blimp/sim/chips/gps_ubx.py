"""A u-blox M8 receiver: NMEA after power-on, NAV-PVT when it was asked for.

Source: UBX-13003221, 32. Not simulated: CFG-VALSET, which an M8 refuses, CFG-PRT, and other
messages than those below.
"""

import struct
from datetime import UTC, datetime
from math import atan2, degrees, hypot

from blimp.hardware.registers.position import UBX
from blimp.sim.chips.chip import Fitting
from blimp.sim.chips.gps_nmea import GpsNmea

_ACCURACY_MM = (1800, 2500, 80)  # horizontal, vertical, mm/s of speed
_POWER_ON_S = 1.0  # a solution a second
_GPS_EPOCH_S = 315964800.0  # 1980-01-06, in seconds of 1970; leap seconds left out
_WEEK_S = 604800.0
_LEAP_S = 18.0


class GpsUbx(GpsNmea):
    """Channels: those of `GpsNmea`."""

    POWER_ON_HZ = 1.0 / _POWER_ON_S

    def __init__(self, fitting: Fitting) -> None:
        self._rates: dict[tuple[int, int], int] = {(UBX.NMEA_CLASS, id_): 1 for id_ in UBX.NMEA_IDS}
        self._received = b""
        super().__init__(fitting)

    def _epoch_messages(self) -> list[bytes]:
        sentences = super()._epoch_messages()
        gga, rmc = (UBX.NMEA_CLASS, 0), (UBX.NMEA_CLASS, 4)
        sent = [s for s, which in zip(sentences, (gga, rmc), strict=True) if self._rates[which]]
        if self._rates.get(UBX.NAV_PVT):
            sent.append(_frame(UBX.NAV_PVT, self._pvt()))
        return sent

    def _pvt(self) -> bytes:
        north, east, up, v_north, v_east = self._measured
        latitude, longitude, altitude_m = self._geodetic(north, east, up)
        now_s = self._start_utc_s + self.timeline.now_s
        utc = datetime.fromtimestamp(now_s, UTC)
        itow_ms = round((now_s - _GPS_EPOCH_S + _LEAP_S) % _WEEK_S * 1000.0)
        v_down = self.truth.velocity_ned_mps[2] + self.random.gauss(0.0, 0.08)
        speed = hypot(v_north, v_east)
        course = degrees(atan2(v_east, v_north)) % 360.0
        # Offsets 0, 4, 11, 20, 24, 40, 48, 64, 76, 84.
        return b"".join(
            (
                struct.pack("<I", itow_ms),
                struct.pack(
                    "<HBBBBB", utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second
                ),
                struct.pack("<BIi", 0x37, 30, utc.microsecond * 1000),
                struct.pack("<BBBB", UBX.FIX_3D, UBX.GNSS_FIX_OK, 0x0A, self.SATELLITES),
                struct.pack("<ii", round(longitude * 1e7), round(latitude * 1e7)),
                struct.pack("<ii", round(1e3 * (altitude_m + 47.0)), round(1e3 * altitude_m)),
                struct.pack("<II", *_ACCURACY_MM[:2]),
                struct.pack("<iii", round(1e3 * v_north), round(1e3 * v_east), round(1e3 * v_down)),
                struct.pack(
                    "<iiII", round(1e3 * speed), round(1e5 * course), _ACCURACY_MM[2], 10**6
                ),
                struct.pack("<HHI", 150, 0, 0),
                struct.pack("<ihH", 0, 0, 0),
            )
        )

    def receive(self, data: bytes) -> None:
        """Take commands; what is no whole frame with its checksum right is ignored."""
        if self.faults.no_answer:
            return
        self._received = (self._received + data)[-2048:]
        while (start := self._received.find(UBX.SYNC)) >= 0:
            frame = self._received[start:]
            length = int.from_bytes(frame[4:6], "little")
            if len(frame) < 8 + length:
                return
            body, check = frame[2 : 6 + length], frame[6 + length : 8 + length]
            self._received = frame[8 + length :] if check == _fletcher(body) else frame[2:]
            if check == _fletcher(body):
                self._obey((body[0], body[1]), body[4:])

    def _obey(self, message: tuple[int, int], payload: bytes) -> None:
        if message == UBX.MON_VER and not payload:
            self.send(_frame(message, b"ROM CORE 3.01".ljust(30, b"\0") + b"00080000\0\0"))
            return
        done = False
        if message == UBX.CFG_MSG and len(payload) == 3:
            self._rates[payload[0], payload[1]] = payload[2]
            done = True
        elif message == UBX.CFG_RATE and len(payload) == 6:
            period_ms = int.from_bytes(payload[:2], "little")
            done = period_ms >= 1000.0 / self.MAX_RATE_HZ
            if done:
                self._period_s = period_ms / 1000.0
        self.send(_frame(UBX.ACK_ACK if done else UBX.ACK_NAK, bytes(message)))


def _fletcher(body: bytes) -> bytes:
    """The checksum as sums: each byte counts once in A, and in B as often as it was in A."""
    a = sum(body) % 256
    b = sum((len(body) - i) * byte for i, byte in enumerate(body)) % 256
    return bytes((a, b))


def _frame(message: tuple[int, int], payload: bytes) -> bytes:
    body = struct.pack("<BBH", *message, len(payload)) + payload
    return UBX.SYNC + body + _fletcher(body)
