"""A GPS receiver that speaks NMEA 0183 on a serial port.

GGA and RMC are paired by the same UTC time only: a position and a velocity of two different
moments are no measurement. A receiver that sends no RMC gives positions without velocity.
"""

import math
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.device import Wiring, read_options
from blimp.hardware.lines import LineReader
from blimp.hardware.nmea import Gga, Rmc, parse
from blimp.hardware.registers import NMEA
from blimp.hardware.serial_sensor import StreamSensor
from blimp.types import GpsSample, Vec3

RMC_MISSING_S = 2.5  # after which positions no longer wait for their velocity
PAIR_S = 0.5  # the two sentences of one moment arrive within this
METRES_PER_HDOP = 2.5
MIN_COURSE_SPEED_MPS = 0.1


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """min_satellites: a fix with fewer makes no sample."""

    min_satellites: int = 5


class GpsNmea(StreamSensor[GpsSample, str]):
    """Samples hold latitude and longitude of one sentence, velocity of the same moment.

    The vertical velocity is not in these sentences: it is given as 0. `accuracy_m` is the
    horizontal dilution of precision times 2.5 m.
    """

    ROLE: ClassVar[str] = "gps"
    UNIT: ClassVar[str] = "deg, deg, m"
    WIRING: ClassVar = Wiring(bus="serial")
    STALE_S: ClassVar[float] = 3.0  # without a new UTC time
    STALE_ERROR: ClassVar[str] = "no sentence with a new time"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses, reader=LineReader(limit=NMEA.MAX_LINE))
        self._options = read_options(row.options, Options, who=row.name)
        self._gga: Gga | None = None
        self._gga_s = -math.inf
        self._rmc: Rmc | None = None
        self._rmc_s = -math.inf
        self._utc_ms = -1

    def _read(self, now_s: float) -> GpsSample | None:
        if self._rmc_s == -math.inf:
            self._rmc_s = now_s  # the first position waits for a velocity as the others do
        return super()._read(now_s)

    def _take(self, line: str, now_s: float) -> GpsSample | None:
        sentence = parse(line)
        if isinstance(sentence, Gga):
            return self._on_gga(sentence, now_s)
        return self._on_rmc(sentence, now_s) if isinstance(sentence, Rmc) else None

    def _on_gga(self, gga: Gga, now_s: float) -> GpsSample | None:
        self._gga = None
        if gga.position is None or gga.satellites < self._options.min_satellites:
            # A receiver that searches may have no time yet: its sentences are its life.
            what = "no fix" if gga.position is None else f"{gga.satellites} satellites"
            self._alive(now_s, f"{what}, quality {gga.quality}")
            return None
        if gga.utc_ms == self._utc_ms:
            return None  # the same moment again: frozen, or sent twice
        self._utc_ms = gga.utc_ms
        self._alive(now_s)
        rmc = self._rmc
        if rmc is not None and rmc.utc_ms == gga.utc_ms and now_s - self._rmc_s <= PAIR_S:
            return self._sample(gga, rmc, now_s)
        if now_s - self._rmc_s > RMC_MISSING_S:
            return self._sample(gga, None, now_s)
        self._gga, self._gga_s = gga, now_s
        return None

    def _on_rmc(self, rmc: Rmc, now_s: float) -> GpsSample | None:
        self._rmc, self._rmc_s = rmc, now_s
        gga, self._gga = self._gga, None
        if gga is None or gga.utc_ms != rmc.utc_ms or now_s - self._gga_s > PAIR_S:
            return None
        return self._sample(gga, rmc, now_s)

    def _sample(self, gga: Gga, rmc: Rmc | None, now_s: float) -> GpsSample | None:
        if gga.position is None or (rmc is not None and not rmc.valid):
            self._alive(now_s, "GGA and RMC contradict each other: fix and void")
            return None
        latitude_deg, longitude_deg, altitude_m = gga.position
        return GpsSample(
            t_s=now_s,
            latitude_deg=latitude_deg,
            longitude_deg=longitude_deg,
            altitude_msl_m=altitude_m,
            velocity_ned_mps=None if rmc is None else _velocity(rmc),
            accuracy_m=max(0.5, METRES_PER_HDOP * gga.hdop),
            satellites=gga.satellites,
        )

    def _value(self, sample: GpsSample) -> tuple[float, ...]:
        return (sample.latitude_deg, sample.longitude_deg, sample.altitude_msl_m)


def _velocity(rmc: Rmc) -> Vec3 | None:
    """Return north, east, down; None without a speed. A slow receiver leaves out its course."""
    if rmc.speed_mps is None:
        return None
    if rmc.course_deg is None:
        return (0.0, 0.0, 0.0) if rmc.speed_mps < MIN_COURSE_SPEED_MPS else None
    course_rad = math.radians(rmc.course_deg)
    return (rmc.speed_mps * math.cos(course_rad), rmc.speed_mps * math.sin(course_rad), 0.0)
