"""NMEA 0183 sentences GGA, GNS and RMC, out of a byte stream and as data.

Source: NMEA 0183 version 4; field order as in the u-blox M8 receiver description, 31.2.
Checked with the checksum of `$GPGGA,123519,...*47`.
"""

import re
from functools import reduce
from math import inf

import msgspec

from blimp.hardware.lines import number
from blimp.hardware.registers.position import GNSS
from blimp.hardware.registers.position import NMEA as R

KNOT_MPS = 1852.0 / 3600.0
MAX_KNOTS = GNSS.MAX_SPEED_MPS / KNOT_MPS
NO_HDOP = 99.9  # what receivers send without a fix

# From $ to the checksum; neither $ nor * is in between.
_SENTENCE = re.compile(rb"\$[ -#%%-)+-~]{1,%d}\*[0-9A-Fa-f]{2}" % R.MAX_LENGTH)


class SentenceReader:
    """Cuts bytes into sentences, from $ to the checksum; keeps a partial one for the next call.

    What lies between is skipped, and need not end in a line feed: receivers send binary messages
    beside their sentences (UBX, SiRF, RTCM). `garbage` counts the $ that no sentence follows.
    """

    def __init__(self) -> None:
        self.garbage = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the sentences completed by `data`."""
        data = self._rest + data
        sentences, end = [], 0
        for match in _SENTENCE.finditer(data):
            self.garbage += data.count(b"$", end, match.start())
            sentences.append(match[0].decode("ascii"))
            end = match.end()
        start = data.rfind(b"$", end)
        is_partial = start >= 0 and len(data) - start <= R.MAX_LENGTH + 3  # the last: "*hh"
        self._rest = data[start:] if is_partial else b""
        self.garbage += data.count(b"$", end) - is_partial
        return sentences

    def clear(self) -> None:
        """Forget a partial sentence, as after a port was opened again."""
        self._rest = b""


class Gga(msgspec.Struct, frozen=True, kw_only=True):
    """A fix of GGA or GNS, or why it is none. `utc_ms` counts from midnight, -1 without a time.

    position: degrees north, degrees east, metres above mean sea level; None without a fix.
    """

    utc_ms: int
    satellites: int
    hdop: float
    position: tuple[float, float, float] | None
    why_none: str = ""


class Rmc(msgspec.Struct, frozen=True, kw_only=True):
    """The least a ship needs. Speed and course are None where the receiver leaves them out."""

    utc_ms: int
    valid: bool
    speed_mps: float | None
    course_deg: float | None


def checksum(body: str) -> int:
    """Return the exclusive-or of all characters between $ and *."""
    return reduce(lambda a, b: a ^ b, body.encode("latin-1"), 0)


def parse(line: str) -> Gga | Rmc | None:
    """Read one line.

    Returns None for a good sentence of another kind. Raises ValueError naming what is wrong
    with the frame, the checksum or a field.
    """
    start = line.rfind("$")  # a line that was cut off may precede this one
    body, star, given = line[start + 1 :].partition("*")
    if start < 0 or not star:
        raise ValueError("no $ or no *")
    if len(given) != 2 or given.upper() != f"{checksum(body):02X}":
        raise ValueError(f"checksum {given!r}, expected {checksum(body):02X}")
    fields = body.split(",")
    if len(fields[0]) != 5 or fields[0][0] == "P":
        return None  # a maker's own: Garmin's PGRMC is no RMC
    match fields[0][2:]:
        case "GGA" if len(fields) >= 10:
            return _gga(fields)
        case "GNS" if len(fields) >= 10:
            return _gga(fields)
        case "RMC" if len(fields) >= 10:
            return _rmc(fields)
        case "GGA" | "GNS" | "RMC":
            raise ValueError(f"{fields[0]} has {len(fields)} fields, at least 10 expected")
    return None


def _gga(fields: list[str]) -> Gga:
    name, utc, latitude, north, longitude, east, how, satellites, hdop, altitude = fields[:10]
    why_none = _no_fix_by_modes(how) if name[2:] == "GNS" else _no_fix_by_quality(how)
    if not why_none and not altitude:
        why_none = "a fix without an altitude"
    position = None
    if not why_none:
        position = (
            _angle(latitude, north, "NS", 90.0),
            _angle(longitude, east, "EW", 180.0),
            _within(altitude, "altitude", GNSS.MIN_ALTITUDE_M, GNSS.MAX_ALTITUDE_M),
        )
    return Gga(
        utc_ms=_utc_ms(utc) if utc or position else -1,
        satellites=int(number(satellites) or 0.0),
        hdop=_required(hdop, "HDOP") if hdop else NO_HDOP,
        position=position,
        why_none=why_none,
    )


def _no_fix_by_quality(text: str) -> str:
    quality = int(_required(text, "quality"))
    if quality in R.FIXES:
        return ""
    return f"no fix, quality {quality} ({R.QUALITIES.get(quality, 'unknown')})"


def _no_fix_by_modes(modes: str) -> str:
    """One letter a constellation, of which those without a fix have N."""
    return "" if set(modes) & set(R.FIX_MODES) else f"no fix, modes {modes[:8]!r}"


def _rmc(fields: list[str]) -> Rmc:
    mode = fields[12] if len(fields) > 12 else ""
    valid = fields[2] == "A" and not (mode and mode in R.NO_FIX_MODES)
    speed, course = fields[7:9]
    return Rmc(
        utc_ms=_utc_ms(fields[1]) if fields[1] or valid else -1,
        valid=valid,
        speed_mps=_within(speed, "speed", 0.0, MAX_KNOTS) * KNOT_MPS if speed else None,
        course_deg=_within(course, "course", 0.0, 360.0) if course else None,
    )


def _utc_ms(text: str) -> int:
    value = _required(text, "time")
    hours, rest = divmod(value, 10000.0)
    minutes, seconds = divmod(rest, 100.0)
    if hours >= 24.0 or minutes >= 60.0 or seconds >= 61.0:
        raise ValueError(f"time {text!r}")
    return round((hours * 60.0 + minutes) * 60000.0 + seconds * 1000.0)


def _angle(text: str, hemisphere: str, signs: str, limit_deg: float) -> float:
    """Turn (d)ddmm.mmmm and N, S, E or W into degrees."""
    value = _required(text, "angle")
    degrees, minutes = divmod(value, 100.0)
    degrees += minutes / 60.0
    if minutes >= 60.0 or degrees > limit_deg or len(hemisphere) != 1 or hemisphere not in signs:
        raise ValueError(f"angle {text!r} {hemisphere!r}")
    return degrees if hemisphere == signs[0] else -degrees


def _required(text: str, what: str) -> float:
    return _within(text, what, 0.0, inf)


def _within(text: str, what: str, low: float, high: float) -> float:
    value = number(text)
    if value is None or not low <= value <= high:
        raise ValueError(f"{what} {text!r}")
    return value
