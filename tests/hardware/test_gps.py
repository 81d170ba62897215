import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.airframe import Device as Row
from blimp.hardware.gps import GpsNmea
from blimp.hardware.nmea import Gga, Rmc, checksum, parse
from tests.hardware.doubles import Doubles, Port, well

GOLDEN = "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47"


def sentence(body: str) -> bytes:
    return f"${body}*{checksum(body):02X}\r\n".encode()


def gga(utc: str, *, lat: str = "4807.038,N", fix: str = "1", satellites: str = "08") -> bytes:
    return sentence(f"GPGGA,{utc},{lat},01131.000,E,{fix},{satellites},0.9,545.4,M,46.9,M,,")


def rmc(utc: str, *, status: str = "A", speed: str = "1.9438", course: str = "90.0") -> bytes:
    return sentence(f"GPRMC,{utc},{status},4807.038,N,01131.000,E,{speed},{course},230394,,")


def fitted() -> tuple[GpsNmea, Port, Doubles]:
    buses = Doubles()
    row = Row(
        name="gps", chip="gps-nmea", bus="serial", port="/dev/ttyAMA1", baud=9600, rate_hz=5.0
    )
    gps = GpsNmea(row=row, buses=buses)
    gps.poll(0.0)
    gps.poll(0.1)
    return gps, buses.ports["/dev/ttyAMA1"], buses


def test_golden_checksum_and_fields() -> None:
    assert checksum(GOLDEN[1:-3]) == 0x47
    fix = parse(GOLDEN)
    assert isinstance(fix, Gga)
    assert fix.position == pytest.approx((48.1173, 11.516667, 545.4), abs=1e-6)
    assert fix.utc_ms == ((12 * 60 + 35) * 60 + 19) * 1000
    assert fix.satellites == 8


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (GOLDEN[:-2] + "48", "checksum '48', expected 47"),
        (GOLDEN[1:], r"no \$"),
        (GOLDEN[:-3], r"no \*"),
        (sentence("GPGGA,1,2").decode().strip(), "fields"),
        (gga("123519", lat="9100.000,N").decode().strip(), "angle"),
        (gga("123519", lat="4860.000,N").decode().strip(), "angle"),
        (gga("123519", lat="4807.038,E").decode().strip(), "angle"),
        (gga("123519", lat=",").decode().strip(), "angle"),
        (gga("123519", lat="nan,N").decode().strip(), "angle"),
        (gga("250000").decode().strip(), "time"),
        (gga("123519", fix="").decode().strip(), "quality"),
    ],
)
def test_what_cannot_be_read_says_why(line: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(line)


def test_other_sentences_are_no_error() -> None:
    assert parse(sentence("GPGSV,1,1,00").decode().strip()) is None


def test_southern_and_western_angles_are_negative() -> None:
    body = "GNGGA,120000.00,3351.000,S,15112.000,W,1,08,0.9,-5.0,M,,M,,"
    fix = parse(sentence(body).decode().strip())
    assert isinstance(fix, Gga)
    assert fix.position == pytest.approx((-33.85, -151.2, -5.0))


def test_position_and_velocity_of_one_moment_make_one_sample() -> None:
    gps, port, _ = fitted()
    port.arrive(rmc("123518") + gga("123519"))
    gps.poll(1.0)
    assert gps.status(1.0).value is None, "the velocity it has is of another moment"
    port.arrive(rmc("123519"))
    gps.poll(1.2)
    assert gps.sample is not None
    assert gps.sample.t_s == 1.2
    assert gps.sample.latitude_deg == pytest.approx(48.1173)
    assert gps.sample.velocity_ned_mps == pytest.approx((0.0, 1.0, 0.0), abs=1e-4)
    assert gps.sample.accuracy_m == pytest.approx(2.25)


def test_the_order_of_the_two_does_not_matter() -> None:
    gps, port, _ = fitted()
    port.arrive(rmc("123519.00") + gga("123519"))
    gps.poll(1.0)
    assert gps.sample is not None
    assert gps.sample.velocity_ned_mps is not None


def test_latitude_zero_is_a_latitude() -> None:
    gps, port, _ = fitted()
    port.arrive(gga("000000", lat="0000.000,N") + rmc("000000"))
    gps.poll(1.0)
    assert gps.sample is not None
    assert gps.sample.latitude_deg == 0.0


def test_a_receiver_without_rmc_gives_positions_alone() -> None:
    gps, port, _ = fitted()
    for step in range(4):
        port.arrive(gga(f"12351{step}"))
        gps.poll(0.5 + step)
        assert (gps.sample is None) == (step < 3)
    assert gps.sample is not None
    assert gps.sample.velocity_ned_mps is None


def test_no_fix_is_no_sample_and_no_fault() -> None:
    gps, port, _ = fitted()
    for step in range(10):
        port.arrive(gga(f"1235{step:02d}", fix="0", lat=",") + rmc(f"1235{step:02d}", status="V"))
        gps.poll(1.0 + step)
    assert gps.sample is None
    assert well(gps)
    assert "no fix" in gps.error


def test_too_few_satellites_are_no_fix() -> None:
    gps, port, _ = fitted()
    port.arrive(gga("123519", satellites="03") + rmc("123519"))
    gps.poll(1.0)
    assert gps.sample is None
    assert "3 satellites" in gps.error


def test_fix_and_void_contradict_each_other() -> None:
    gps, port, _ = fitted()
    port.arrive(gga("123519") + rmc("123519", status="V"))
    gps.poll(1.0)
    assert gps.sample is None
    assert "contradict" in gps.error


def test_a_time_that_stands_still_is_frozen() -> None:
    gps, port, buses = fitted()
    for step in range(12):
        port.arrive(gga("123519") + rmc("123519"))
        gps.poll(1.0 + 0.5 * step)
        port = buses.ports["/dev/ttyAMA1"]
    assert gps.sample is not None
    assert gps.sample.t_s == 1.0
    assert not well(gps)


def test_a_silent_port_is_opened_again() -> None:
    gps, port, buses = fitted()
    for step in range(80):
        gps.poll(0.2 + 0.1 * step)
    assert not well(gps)
    assert "no sentence with a new time" in gps.error
    assert buses.opened_ports > 1
    assert not port.is_open


def test_a_missing_port_is_named_and_tried_again() -> None:
    buses = Doubles()
    buses.missing.add("/dev/ttyAMA1")
    row = Row(name="gps", chip="gps-nmea", bus="serial", port="/dev/ttyAMA1")
    gps = GpsNmea(row=row, buses=buses)
    gps.poll(0.0)
    assert "/dev/ttyAMA1" in gps.error
    buses.missing.clear()
    gps.poll(1.0)
    gps.poll(1.1)
    assert buses.opened_ports == 1


def test_a_course_left_out_at_rest_is_no_velocity_but_zero() -> None:
    standing = parse(rmc("123519", speed="0.02", course="").decode().strip())
    assert isinstance(standing, Rmc)
    gps, port, _ = fitted()
    port.arrive(gga("123519") + rmc("123519", speed="0.02", course=""))
    gps.poll(1.0)
    assert gps.sample is not None
    assert gps.sample.velocity_ned_mps == (0.0, 0.0, 0.0)


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_garbage_never_raises_and_makes_no_sample(pieces: list[bytes]) -> None:
    gps, port, _ = fitted()
    for step, piece in enumerate(pieces):
        port.arrive(piece)
        gps.poll(0.2 + 0.1 * step)
    assert gps.sample is None


@given(
    st.lists(st.text("0123456789.-+NSEWAVnaif,", max_size=12), min_size=9, max_size=14),
    st.sampled_from(["GPGGA", "GNRMC"]),
)
def test_well_framed_nonsense_makes_finite_samples_or_none(fields: list[str], kind: str) -> None:
    gps, port, _ = fitted()
    port.arrive(sentence(",".join([kind, *fields])))
    gps.poll(3.0)
    if gps.sample is not None:
        sample = gps.sample
        numbers = [sample.latitude_deg, sample.longitude_deg, sample.altitude_msl_m]
        assert all(map(math.isfinite, [*numbers, sample.accuracy_m]))
        assert abs(sample.latitude_deg) <= 90.0
        assert abs(sample.longitude_deg) <= 180.0
