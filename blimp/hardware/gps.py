"""A GPS receiver that speaks NMEA 0183 on a serial port.

GGA (or GNS) and RMC are paired by the same UTC time only: a position and a velocity of two
different moments are no measurement. A receiver may send several GGA a moment, one for each
constellation, and RMC less often, at other seconds, or never: then positions come without velocity.
"""

import math
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.nmea import Gga, Rmc, SentenceReader, parse
from blimp.hardware.serial_sensor import StreamSensor
from blimp.types import GpsSample, Vec3

UNPAIRED_S = 2.5  # after which positions no longer wait for their velocity
PAIR_S = 0.5  # the sentences of one moment arrive within this
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

    UNIT: ClassVar[str] = "deg, deg, m"
    WIRING: ClassVar = Wiring(bus="serial")
    STALE_S: ClassVar[float] = 3.0  # without a new UTC time
    STALE_ERROR: ClassVar[str] = "no sentence with a new time"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses, reader=SentenceReader())
        self._options = read_options(row.options, Options, who=row.name)
        self._waiting: Gga | None = None  # for its velocity
        self._waiting_s = 0.0
        self._rmc: Rmc | None = None
        self._rmc_s = 0.0
        self._paired_s = -math.inf  # when a velocity came to its position; at first, the start
        self._utc_ms = -1  # of the newest position
        self._sends_positions = False

    def _start(self) -> Steps:
        self._waiting = self._rmc = None
        self._sends_positions = False
        yield from super()._start()

    def _read(self, now_s: float) -> GpsSample | None:
        if self._paired_s == -math.inf:
            self._paired_s = now_s  # the first position waits for a velocity as the others do
        sample = super()._read(now_s)
        return sample or (self._alone() if now_s - self._waiting_s > PAIR_S else None)

    def _take(self, line: str, now_s: float) -> GpsSample | None:
        sentence = parse(line)
        if sentence is None:
            return None
        waiting = self._waiting
        ended = waiting is not None and waiting.utc_ms != sentence.utc_ms
        if isinstance(sentence, Rmc):
            self._rmc, self._rmc_s = sentence, now_s
            return self._alone() if ended else self._pair(now_s)
        sample = self._alone() if ended else None
        return self._on_gga(sentence, now_s) or sample

    def _on_gga(self, gga: Gga, now_s: float) -> GpsSample | None:
        self._sends_positions = True
        waiting = self._waiting
        if gga.position is None or gga.satellites < self._options.min_satellites:
            # A receiver that searches may have no time yet: its sentences are its life.
            if gga.utc_ms == -1 or gga.utc_ms != self._utc_ms:
                self._alive(now_s, gga.why_none or f"{gga.satellites} satellites")
            return None
        if waiting is not None:  # of this moment, by another constellation
            if gga.satellites > waiting.satellites:
                self._waiting = gga
            return None
        if gga.utc_ms == self._utc_ms:
            return None  # the same moment again: frozen, or sent twice
        self._utc_ms = gga.utc_ms
        self._alive(now_s)
        self._waiting, self._waiting_s = gga, now_s
        if sample := self._pair(now_s):
            return sample
        return self._alone() if now_s - self._paired_s > UNPAIRED_S else None

    def _pair(self, now_s: float) -> GpsSample | None:
        """Return the waiting position with the velocity of its moment, if both are there."""
        gga, rmc = self._waiting, self._rmc
        if rmc is None or now_s - self._rmc_s > PAIR_S or rmc.utc_ms != self._utc_ms:
            return None
        self._paired_s = now_s
        if gga is None or now_s - self._waiting_s > PAIR_S:
            return None
        self._waiting = None
        if not rmc.valid:
            self._alive(now_s, "GGA and RMC contradict each other: fix and void")
            return None
        return self._sample(gga, _velocity(rmc), now_s)

    def _alone(self) -> GpsSample | None:
        """Return the waiting position, as of when it came, without a velocity."""
        gga, self._waiting = self._waiting, None
        return None if gga is None else self._sample(gga, None, self._waiting_s)

    def _sample(self, gga: Gga, velocity: Vec3 | None, t_s: float) -> GpsSample:
        assert gga.position is not None  # else it would not wait
        latitude_deg, longitude_deg, altitude_m = gga.position
        return GpsSample(
            t_s=t_s,
            latitude_deg=latitude_deg,
            longitude_deg=longitude_deg,
            altitude_msl_m=altitude_m,
            velocity_ned_mps=velocity,
            accuracy_m=max(0.5, METRES_PER_HDOP * gga.hdop),
            satellites=gga.satellites,
        )

    def _stale_error(self) -> str:
        if self._rmc is not None and not self._sends_positions:
            return "RMC comes, but no GGA or GNS (switch one on in the receiver)"
        return super()._stale_error()

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
