"""Logs as other formats: a table of every cycle, and the track for maps."""

import csv
import json
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO
from xml.sax.saxutils import escape

import msgspec

from blimp.airframe import Home
from blimp.errors import LogError
from blimp.recording.recording import Happened, Recording
from blimp.recording.topics import NS

_AXES = ("north", "east", "down")
_ANGLES = ("roll", "pitch", "yaw")
_SET = ("north_m", "east_m", "down_m", "yaw_rad")
_STATUS = ("mode", "failsafe", "battery_v", "current_a", "wind_north_mps", "wind_east_mps")
_TRUTH = (
    *(f"true_{axis}_m" for axis in _AXES), *(f"true_{axis}_mps" for axis in _AXES),
    *(f"true_{angle}_rad" for angle in _ANGLES),
)  # fmt: skip
_KML_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2" xmlns:gx="http://www.google.com/kml/ext/2.2">
<Document><name>{name}</name>
"""


class Fix(NamedTuple):
    """A place of the ship on the Earth. altitude_m: above the pad."""

    time: str  # UTC, ISO 8601
    longitude_deg: float
    latitude_deg: float
    altitude_m: float


class Mark(NamedTuple):
    """Something that happened, and where the ship was."""

    fix: Fix
    name: str
    text: str


def as_csv(log: Recording, out: TextIO) -> None:
    """Write one row a cycle, SI units; an empty cell is not known, or a setpoint not controlled.

    Mode, battery, wind and votes are those of the newest /status, truth that of the newest /truth.
    """
    actuators = log.session.actuators
    votes = _votes_of(log)
    slow: list[Any] = [""] * (len(_STATUS) + 2 * len(votes))
    true: list[Any] = [""] * len(_TRUTH)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([
        "t_s", "cycle", "armed", "on_ground",
        *(f"{axis}_m" for axis in _AXES), *(f"{axis}_mps" for axis in _AXES),
        *(f"{angle}_rad" for angle in _ANGLES), *(f"{angle}_rate_radps" for angle in _ANGLES),
        *(f"set_{name}" for name in _SET), *actuators, "step_ms", *_STATUS,
        *(f"{name}_{what}" for name in votes for what in ("innovation", "agrees")), *_TRUTH,
    ])  # fmt: skip
    for entry in log.entries(("/snapshot", "/status", "/truth")):
        one = entry.data
        if entry.topic == "/status":
            slow = _slow(one, votes)
            continue
        if entry.topic == "/truth":
            angles = [one["attitude_rad"][angle] for angle in _ANGLES]
            true = [*one["position_ned_m"], *one["velocity_ned_mps"], *angles]
            continue
        writer.writerow([
            f"{entry.t_s:.4f}", one["cycle"], int(one["armed"]), int(one["on_ground"]),
            *one["position_ned_m"], *one["velocity_ned_mps"],
            *(one["attitude_rad"][angle] for angle in _ANGLES), *one["rates_body_radps"],
            *(one["setpoint"].get(name, "") for name in _SET),
            *(one["actuators"][name] for name in actuators), one["step_ms"], *slow, *true,
        ])  # fmt: skip


def _votes_of(log: Recording) -> list[str]:
    """Return the names of all votes in a log: "height_baro"."""
    return sorted({
        f"{quantity}_{vote['sensor']}"
        for entry in log.entries(("/status",))
        for quantity, vote in _votes(entry.data)
    })  # fmt: skip


def _votes(status: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for quantity, health in status.get("health", {}).items():
        for vote in health["votes"]:
            yield quantity, vote


def _slow(status: dict[str, Any], votes: list[str]) -> list[Any]:
    """Return the cells that a /status fills."""
    wind = status.get("wind_ned_mps") or ("", "")
    found = {f"{quantity}_{vote['sensor']}": vote for quantity, vote in _votes(status)}
    battery = (status.get("battery_v", ""), status.get("current_a", ""))
    cells = [status["mode"], status["failsafe"], *battery, *wind[:2]]
    for name in votes:
        vote = found.get(name)
        cells += ["", ""] if vote is None else [vote["innovation"], int(vote["agrees"])]
    return cells


def as_geojson(log: Recording, out: TextIO) -> None:
    """Write the track as one LineString, and a Point for each command, event and fault."""
    fixes, marks = _track(log)
    name = log.session.vehicle
    track = {
        "type": "Feature",
        "geometry": {"type": "LineString", "coordinates": [_place(fix) for fix in fixes]},
        "properties": {
            "name": name, "simulated": log.session.simulated,
            "times": [fix.time for fix in fixes],
        },
    }  # fmt: skip
    points = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": _place(mark.fix)},
            "properties": {"name": mark.name, "text": mark.text, "time": mark.fix.time},
        }
        for mark in marks
    ]
    json.dump({"type": "FeatureCollection", "features": [track, *points]}, out)
    out.write("\n")


def as_kml(log: Recording, out: TextIO) -> None:
    """Write the track with its times, above the ground, and a place for each mark."""
    fixes, marks = _track(log)
    name = escape(f"{log.session.vehicle}{' (simulated)' if log.session.simulated else ''}")
    out.write(_KML_HEAD.format(name=name))
    out.write(f"<Placemark><name>{name}</name><gx:Track>")
    out.write("<altitudeMode>relativeToGround</altitudeMode>\n")
    for fix in fixes:
        out.write(f"<when>{fix.time}</when>\n")
    for fix in fixes:
        out.write(f"<gx:coord>{_words(fix, ' ')}</gx:coord>\n")
    out.write("</gx:Track></Placemark>\n")
    for mark in marks:
        out.write(
            f"<Placemark><name>{escape(mark.name)}</name>"
            f"<description>{escape(mark.text)}</description>"
            f"<TimeStamp><when>{mark.fix.time}</when></TimeStamp>"
            "<Point><altitudeMode>relativeToGround</altitudeMode>"
            f"<coordinates>{_words(mark.fix, ',')}</coordinates></Point></Placemark>\n"
        )
    out.write("</Document></kml>\n")


FORMATS: dict[str, Callable[[Recording, TextIO], None]] = {
    "csv": as_csv,
    "kml": as_kml,
    "geojson": as_geojson,
}


def _track(log: Recording) -> tuple[list[Fix], list[Mark]]:
    """Return the track, ten fixes a second, and what happened on it. Raises LogError."""
    try:
        home = msgspec.convert(log.session.airframe.get("home"), Home)
    except msgspec.ValidationError as error:
        raise LogError(
            f"log {log.path}: no home of its airframe to put it on a map: {error}"
        ) from None
    fixes: list[Fix] = []
    marks: list[Mark] = []
    happened = deque(log.timeline())
    for entry in log.entries(("/status",)):
        fixes.append(_fix(home, entry.data["position_ned_m"], log, entry.t_s))
        while happened and happened[0].t_s <= entry.t_s:
            marks.append(_mark(fixes[-1], happened.popleft()))
    if not fixes:
        raise LogError(f"log {log.path}: no position is in it")
    marks += [_mark(fixes[-1], one) for one in happened]
    return fixes, marks


def _mark(fix: Fix, happened: Happened) -> Mark:
    """Return a happening at its place, named by its command, its device or its kind."""
    one = happened.happening
    is_named = one.kind in ("command", "fault")
    name = one.text.removeprefix("over: ").split()[0].rstrip(":") if is_named else one.kind
    return Mark(fix, name, one.text)


def _fix(home: Home, position: list[float], log: Recording, t_s: float) -> Fix:
    north_m, east_m, down_m = position
    latitude_deg, longitude_deg = home.global_deg(north_m, east_m)
    time = datetime.fromtimestamp(log.start_ns / NS + t_s, UTC)
    return Fix(
        time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        round(longitude_deg, 8),
        round(latitude_deg, 8),
        round(-down_m, 3),
    )


def _place(fix: Fix) -> list[float]:
    return [fix.longitude_deg, fix.latitude_deg, fix.altitude_m]


def _words(fix: Fix, separator: str) -> str:
    return separator.join(map(str, _place(fix)))
