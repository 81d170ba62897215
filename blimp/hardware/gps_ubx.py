"""A u-blox GPS receiver (7 to M10) that speaks UBX on a serial port.

NAV-PVT holds position, velocity and their accuracies of one moment, the vertical velocity
included, which NMEA lacks. The receiver is set to it at each start, in the old way (CFG-MSG,
CFG-RATE) and in the new (CFG-VALSET): each generation refuses the one it does not know.
"""

import math
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import BoardError
from blimp.hardware import ubx
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.registers.position import GNSS
from blimp.hardware.registers.position import UBX as R
from blimp.hardware.serial_sensor import StreamSensor
from blimp.types import GpsSample

MAX_RATE_HZ = 10.0
FRAME_BITS = 1000  # of one NAV-PVT on the line


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fix with fewer satellites, or by its own word less accurate, makes no sample.

    max_speed_error_mps: above it a sample has no velocity.
    """

    min_satellites: int = 5
    max_error_m: float = 20.0
    max_speed_error_mps: float = 1.0


def settings(rate_hz: float) -> list[bytes]:
    """Return the messages that make a receiver send NAV-PVT, and no NMEA, at this rate."""
    period_ms = round(1000.0 / rate_hz).to_bytes(2, "little")
    one, none = b"\x01", b"\x00"
    values = bytes((0, R.LAYER_RAM, 0, 0))
    for key, value in (
        (R.KEY_RATE_MEAS, period_ms),
        (R.KEY_NAV_PVT_UART1, one),
        (R.KEY_UART1_NMEA, none),
    ):
        values += key.to_bytes(4, "little") + value
    return [
        ubx.frame(R.CFG_VALSET, values),
        ubx.frame(R.CFG_MSG, bytes(R.NAV_PVT) + one),
        *(ubx.frame(R.CFG_MSG, bytes((R.NMEA_CLASS, id_)) + none) for id_ in R.NMEA_IDS),
        ubx.frame(R.CFG_RATE, period_ms + b"\x01\x00\x01\x00"),
    ]


class GpsUbx(StreamSensor[GpsSample, ubx.Message]):
    UNIT: ClassVar[str] = "deg, deg, m"
    WIRING: ClassVar = Wiring(bus="serial")
    STALE_S: ClassVar[float] = 3.0  # without a solution of a new time
    STALE_ERROR: ClassVar[str] = "no NAV-PVT with a new time"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses, reader=ubx.FrameReader())
        self._options = read_options(row.options, Options, who=row.name)
        self._rate_hz = min(row.rate_hz, MAX_RATE_HZ)
        if self._rate_hz * FRAME_BITS > row.baud:
            raise BoardError(
                f"{row.name}: {row.baud} baud carry {row.baud // FRAME_BITS} solutions a second, "
                f"and rate_hz asks for {self._rate_hz:g}"
            )
        self.start_s = 2.5  # it may send once a second until it is set up
        self._itow_ms = -1
        self._asked = False
        self._is_too_old = False

    def _start(self) -> Steps:
        yield from super()._start()
        self._asked = self._is_too_old = False
        self._port.write(b"".join(settings(self._rate_hz)))

    def _take(self, frame: ubx.Message, now_s: float) -> GpsSample | None:
        message, payload = frame
        if message in (R.ACK_ACK, R.ACK_NAK) and not self._asked:
            self._asked = True
            self._port.write(ubx.frame(R.MON_VER))
        if message == R.MON_VER:
            hardware = payload[R.HARDWARE_AT :][: R.HARDWARE_LENGTH]
            self._is_too_old = hardware.isalnum() and hardware < R.HARDWARE_OF_7
        if message != R.NAV_PVT:
            return None
        pvt = ubx.pvt(payload)
        if pvt.itow_ms == self._itow_ms:
            return None  # the same moment again: frozen, or sent twice
        self._itow_ms = pvt.itow_ms
        why = self._why_not(pvt)
        self._alive(now_s, why)
        if why:
            return None
        trusted = pvt.speed_accuracy_mps <= self._options.max_speed_error_mps
        return GpsSample(
            t_s=now_s,
            latitude_deg=pvt.latitude_deg,
            longitude_deg=pvt.longitude_deg,
            altitude_msl_m=pvt.altitude_msl_m,
            velocity_ned_mps=pvt.velocity_ned_mps if trusted else None,
            accuracy_m=max(0.5, pvt.accuracy_m),
            satellites=pvt.satellites,
        )

    def _why_not(self, pvt: ubx.Pvt) -> str:
        """Return why a solution is no position, "" if it is one."""
        if not pvt.fix_ok or pvt.fix_type not in (R.FIX_3D, R.FIX_WITH_DEAD_RECKONING):
            return f"no fix, type {pvt.fix_type}"
        if not pvt.position_valid:
            return "its position is marked invalid"
        if pvt.satellites < self._options.min_satellites:
            return f"{pvt.satellites} satellites"
        if pvt.accuracy_m > self._options.max_error_m:
            return f"accuracy {pvt.accuracy_m:.0f} m"
        if not GNSS.MIN_ALTITUDE_M <= pvt.altitude_msl_m <= GNSS.MAX_ALTITUDE_M:
            return f"altitude {pvt.altitude_msl_m:.0f} m"
        if (speed_mps := math.hypot(*pvt.velocity_ned_mps)) > GNSS.MAX_SPEED_MPS:
            return f"speed {speed_mps:.0f} m/s"
        return ""

    def _stale_error(self) -> str:
        if not self._is_too_old:
            return super()._stale_error()
        return (
            f"{self.STALE_ERROR} (it is a u-blox 6 or older, which has none: use "
            'chip = "gps-nmea", once its power was off)'
        )

    def _value(self, sample: GpsSample) -> tuple[float, ...]:
        return (sample.latitude_deg, sample.longitude_deg, sample.altitude_msl_m)
