"""NMEA 0183 sentences GGA and RMC, as data.

Source: NMEA 0183 version 4; field order as in the u-blox M8 receiver description, 31.2.
Checked with the checksum of `$GPGGA,123519,...*47`.
"""

from functools import reduce

import msgspec

from blimp.hardware.lines import number

KNOT_MPS = 1852.0 / 3600.0


class Gga(msgspec.Struct, frozen=True, kw_only=True):
    """A fix. `utc_ms` counts from midnight; position is None where there is no fix."""

    utc_ms: int
    quality: int
    satellites: int
    hdop: float
    position: tuple[float, float, float] | None  # degrees north, degrees east, metres above MSL


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
    match fields[0][2:]:
        case "GGA" if len(fields) >= 10:
            return _gga(fields)
        case "RMC" if len(fields) >= 10:
            return _rmc(fields)
        case "GGA" | "RMC":
            raise ValueError(f"{fields[0]} has {len(fields)} fields, at least 10 expected")
    return None


def _gga(fields: list[str]) -> Gga:
    _, utc, latitude, north, longitude, east, quality, satellites, hdop, altitude = fields[:10]
    fix = _required(quality, "quality")
    position = None
    if fix > 0:
        position = (
            _angle(latitude, north, "NS", 90.0),
            _angle(longitude, east, "EW", 180.0),
            _required(altitude, "altitude"),
        )
    return Gga(
        utc_ms=_utc_ms(utc) if utc or fix > 0 else -1,
        quality=int(fix),
        satellites=int(number(satellites) or 0.0),
        hdop=number(hdop) or 99.9,
        position=position,
    )


def _rmc(fields: list[str]) -> Rmc:
    valid = fields[2] == "A"
    return Rmc(
        utc_ms=_utc_ms(fields[1]) if fields[1] or valid else -1,
        valid=valid,
        speed_mps=None if (v := number(fields[7])) is None else v * KNOT_MPS,
        course_deg=number(fields[8]),
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
    value = number(text)
    if value is None or (value < 0.0 and what != "altitude"):
        raise ValueError(f"{what} {text!r}")
    return value
