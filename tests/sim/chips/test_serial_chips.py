"""The position tag and the GPS receiver: their lines, their errors, their faults."""

import math
import re
import statistics
from functools import reduce
from itertools import pairwise

import pytest

from tests.sim.bench import Bench

POS = re.compile(rb"POS,(-?\d+\.\d\d),(-?\d+\.\d\d),(-?\d+\.\d\d),(\d+)\r\n")


def fixes(bench: Bench) -> list[tuple[float, ...]]:
    matches = [POS.fullmatch(line) for _, line in bench.sent]
    assert all(matches)
    return [tuple(float(v) for v in match.groups()) for match in matches if match]


def test_the_tag_speaks_of_east_north_and_up() -> None:
    bench = Bench()
    bench.truth.position_ned_m = (1.0, 2.0, -3.0)
    bench.fit("tag")
    bench.run(30.0)
    found = fixes(bench)
    assert len(found) == pytest.approx(300, abs=2)
    for axis, value in enumerate((2.0, 1.0, 3.0)):
        assert statistics.median(fix[axis] for fix in found) == pytest.approx(value, abs=0.03)
        deviations = sorted(abs(fix[axis] - value) for fix in found)
        assert 0.03 < deviations[150] / 0.6745 < 0.11  # 0.08 m, robustly
    assert all(0 <= fix[3] <= 100 for fix in found)


def test_the_tags_lep_command_toggles_its_lines() -> None:
    bench = Bench()
    tag = bench.fit("tag")
    bench.run(1.0)
    assert bench.sent
    tag.receive(b"\r\rle")
    tag.receive(b"p\r")
    bench.run(0.2)
    bench.sent.clear()
    bench.run(1.0)
    assert not bench.sent
    tag.receive(b"lep\r")
    bench.run(1.0)
    assert bench.sent


def test_bytes_take_the_time_of_the_line() -> None:
    bench = Bench()
    bench.fit("gps")
    bench.run(0.5)
    (gga_s, gga), (rmc_s, rmc) = bench.sent
    assert gga_s == pytest.approx(0.2 + 0.05 + len(gga) * 10 / 9600)
    assert rmc_s == pytest.approx(gga_s + len(rmc) * 10 / 9600)


def test_gps_sentences_are_framed_and_paired() -> None:
    bench = Bench()
    bench.truth.position_ned_m = (100.0, -200.0, -10.0)
    bench.truth.velocity_ned_mps = (0.0, 2.0, 0.0)
    bench.fit("gps")
    bench.run(10.3)
    lines = [line for _, line in bench.sent]
    assert len(lines) == 100
    for line in lines:
        assert line.startswith(b"$")
        assert line.endswith(b"\r\n")
        assert len(line) <= 82
        body, checksum = line[1:-2].split(b"*")
        assert int(checksum, 16) == reduce(lambda a, b: a ^ b, body)
    assert [line[:6] for line in lines] == [b"$GPGGA", b"$GPRMC"] * 50
    times = [line.split(b",")[1] for line in lines]
    assert times[0::2] == times[1::2]
    assert len(set(times)) == 50
    assert times[0] == b"221320.20"  # 1.7e9 s after the epoch is 14 November 2023, 22:13:20

    gga = lines[0].decode().split(",")
    home = bench.ship.home
    latitude = int(gga[2][:2]) + float(gga[2][2:]) / 60.0
    longitude = -(int(gga[4][:3]) + float(gga[4][3:]) / 60.0)
    assert (gga[3], gga[5]) == ("N", "W")
    north_m = (latitude - home.latitude_deg) * 111_000.0
    east_m = (longitude - home.longitude_deg) * 111_320.0 * math.cos(math.radians(36.0))
    assert north_m == pytest.approx(100.0, abs=5.0)
    assert east_m == pytest.approx(-200.0, abs=5.0)
    assert float(gga[9]) == pytest.approx(home.altitude_msl_m + 10.0, abs=8.0)

    rmc = lines[1].decode().split(",")
    assert rmc[2] == "A"
    assert float(rmc[7]) * 0.514444 == pytest.approx(2.0, abs=0.3)
    assert float(rmc[8]) == pytest.approx(90.0, abs=8.0)
    assert rmc[9] == "141123"


def test_the_gps_wanders_slowly() -> None:
    bench = Bench()
    bench.fit("gps")
    bench.run(300.0)
    latitudes = [float(line.split(b",")[2]) * 1855.0 for _, line in bench.sent if b"GGA" in line]
    steps = [abs(b - a) for a, b in pairwise(latitudes)]
    assert statistics.fmean(steps) < 0.3
    assert max(latitudes) - min(latitudes) > 0.8
