"""What the GPS drivers make of gpsd's recordings.

    python -m benchmarks.gpsd_logs gpsd/test/daemon --satellites 0

gpsd has some 200 logs of receivers, each beside what gpsd reads in it (NAME.log.chk). Each log with
a position and a GGA goes through the driver, byte for byte, at the pace of its own times; then the
positions of each moment are compared. Where one side has none, the log's own sentences say why:
what a ship must not fly by is no difference, nor is a moment that gpsd has not ended with the log.
Each NAV-PVT goes through the UBX driver; its position must be among those that gpsd gives.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from blimp.airframe import Device as Row
from blimp.hardware import ubx
from blimp.hardware.bus import Buses
from blimp.hardware.gps import GpsNmea
from blimp.hardware.gps_ubx import GpsUbx
from blimp.hardware.registers.position import UBX
from blimp.types import GpsSample

BYTES_A_S = 11520.0  # 115200 baud
MAX_GAP_S = 1.0  # between two moments: many logs were cut
DEGREES = 6e-6  # sentences of one moment differ: a plotter's by 0.0003 minutes
METRES = 0.1  # of altitude, in tenths in most sentences

UTC = re.compile(rb"\$[^P].(?:GGA|RMC|GNS),(\d{6}(?:\.\d*)?),")
GGA = re.compile(rb"\$[^P].(?:GGA|GNS),(\d{6}[^*$\r\n]*)(\*?)")

Places = dict[float, list[tuple[float, float, float | None]]]  # by time of day


class OneLog:
    """A serial port that sends what it is given, and buses that have only this."""

    def __init__(self) -> None:
        self.waiting = b""

    def serial(self, port: str, baud: int, *, framing: str = "8N1") -> "OneLog":  # noqa: ARG002
        return self

    def read_available(self) -> bytes:
        data, self.waiting = self.waiting, b""
        return data

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


def fixes(check: Path) -> Places:
    """Return what gpsd found: several places a moment, since it refines them as bytes come."""
    found: Places = {}
    for line in check.read_text("latin-1").splitlines():
        if not line.startswith('{"class":"TPV"'):
            continue
        tpv: dict[str, Any] = json.loads(line)
        if tpv.get("mode", 0) >= 2 and "lat" in tpv and "lon" in tpv:
            utc_s = seconds(tpv["time"][11:23].replace(":", "")) if "time" in tpv else -1.0
            found.setdefault(utc_s, []).append((tpv["lat"], tpv["lon"], tpv.get("altMSL")))
    return found


def samples(data: bytes, satellites: int) -> Iterator[tuple[float, GpsSample]]:
    """Yield what the driver makes of a log, each with the time of day in the log."""
    port = OneLog()
    gps = GpsNmea(row=row("gps-nmea", min_satellites=satellites), buses=cast(Buses, port))
    polls, now_s, begun = [(-2.0, b""), (-1.0, b"")], 0.0, [(0.0, -1.0)]
    for chunk in data.splitlines(keepends=True):
        now_s += len(chunk) / BYTES_A_S
        if (timed := UTC.search(chunk)) and (utc_s := seconds(timed[1].decode())) != begun[-1][1]:
            gap_s = min((utc_s - begun[-1][1]) % 86400.0, MAX_GAP_S)
            now_s = max(now_s, begun[-1][0] + gap_s)
            begun.append((now_s, utc_s))
            polls.append((now_s - 1e-3, b""))
        polls.append((now_s, chunk))
    before = None
    for poll_s, chunk in (*polls, (now_s + 1.0, b"")):
        port.waiting += chunk
        gps.poll(poll_s)
        if gps.sample is not None and gps.sample is not before:
            before = gps.sample
            yield next(utc_s for t_s, utc_s in reversed(begun) if t_s <= before.t_s), before


def row(chip: str, **options: float) -> Row:
    return Row(
        name="gps", chip=chip, bus="serial", port="log", baud=115200, rate_hz=10.0, options=options
    )


def solutions(data: bytes, places: list[tuple[float, float, float | None]]) -> Counter[str]:
    """Count what the UBX driver makes of each NAV-PVT in a log."""
    port = OneLog()
    options = {"min_satellites": 0, "max_error_m": 1e6}  # as gpsd has them
    gps = GpsUbx(row=row("gps-ubx", **options), buses=cast(Buses, port))
    gps.poll(-2.0)
    gps.poll(-1.0)
    counts: Counter[str] = Counter()
    for step, (message, payload) in enumerate(ubx.FrameReader().feed(data)):
        before = gps.sample
        port.waiting += ubx.frame(message, payload)
        gps.poll(0.05 * step)
        if message == UBX.NAV_PVT and gps.sample is not None and gps.sample is not before:
            counts["agree" if agrees(places, gps.sample) else "differ"] += 1
        elif message == UBX.NAV_PVT:
            counts[f"none: {gps.error}"] += 1
    return counts


def seconds(utc: str) -> float:
    return round(int(utc[:2]) * 3600.0 + int(utc[2:4]) * 60.0 + float(utc[4:]), 2)


def agrees(places: list[tuple[float, float, float | None]], sample: GpsSample) -> bool:
    return any(
        abs(lat - sample.latitude_deg) <= DEGREES
        and abs(lon - sample.longitude_deg) <= DEGREES
        and (alt is None or abs(alt - sample.altitude_msl_m) <= METRES)
        for lat, lon, alt in places
    )


def why_not(utc_s: float, data: bytes, least: int) -> str:
    """Return why a position of gpsd's is none of ours, from the log's own GGA and RMC of then."""
    whys = set()
    for line, star in GGA.findall(data):
        utc, *_, quality, satellites, _, altitude = (line.decode("latin-1") + "," * 9).split(",")[
            :9
        ]
        if not utc or seconds(utc) != utc_s:
            continue
        if not star:
            whys.add("GGA without a checksum")
        elif quality in ("6", "7", "8"):
            whys.add("estimated, set by hand or simulated")
        elif not altitude:
            whys.add("GGA without an altitude")
        elif int(satellites or 0) < least:
            whys.add(f"fewer than {least} satellites")
        elif quality not in ("", "0") and quality.strip("N"):
            whys.add("?")
    return "?" if "?" in whys else min(whys, default="no GGA or GNS of this moment")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="gpsd's test/daemon")
    parser.add_argument("--satellites", type=int, default=5, help="a fix of fewer is none")
    parser.add_argument("--all", action="store_true", help="show the logs that agree, too")
    arguments = parser.parse_args()
    totals: Counter[str] = Counter()
    for log in sorted(arguments.directory.glob("*.log")):
        check = log.with_name(log.name + ".chk")
        found = fixes(check) if check.exists() else {}
        lines = log.read_bytes().splitlines(keepends=True)
        while lines and lines[0].startswith(b"#"):
            lines.pop(0)
        data = b"".join(lines)
        if found and any(bytes(UBX.NAV_PVT) + n in data for n in (b"\x5c\0", b"\x54\0")):
            every = [place for places in found.values() for place in places]
            totals += Counter({f"NAV-PVT {k}": n for k, n in solutions(data, every).items()})
        if not found or not GGA.search(data):
            totals[f"logs with {'a position but no GGA' if found else 'no position'}"] += 1
            continue
        made = dict(samples(data, arguments.satellites))
        if -1.0 in found:  # before the date is known
            early = [sample for sample in made.values() if agrees(found[-1.0], sample)]
            if early:
                made[-1.0] = early[0]
        both = found.keys() & made.keys()
        same = sum(agrees(found[utc_s], made[utc_s]) for utc_s in both)
        late = sum(
            not agrees(found[utc_s], made[utc_s])
            and agrees(found.get(utc_s + 1.0, []), made[utc_s])
            for utc_s in both
        )
        other = len(both) - same - late
        whys = Counter(
            why_not(utc_s, data, arguments.satellites) for utc_s in found.keys() - made.keys()
        )
        differs = other or whys["?"]
        totals[f"logs that {'differ' if differs else 'agree'}"] += 1
        totals["positions of gpsd's in these"] += len(found)
        totals["positions the same here"] += same
        totals["positions the same, but a second later in gpsd's"] += late
        totals["positions that differ"] += other
        totals["positions here where gpsd's log has none"] += len(made.keys() - found.keys())
        totals += Counter({f"no position here: {why}": count for why, count in whys.items()})
        if differs or arguments.all:
            why = ", ".join(f"{count} {why}" for why, count in whys.items())
            print(f"{log.name}: gpsd {len(found)}, same {same}, other {other}; {why}")
    print()
    for what, count in sorted(totals.items()):
        print(f"{count:7} {what}")
    return 1 if totals["logs that differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
