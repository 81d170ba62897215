import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.hardware.gps import GpsNmea
from blimp.hardware.nmea import Gga, Rmc, SentenceReader, checksum, parse
from blimp.types import GpsSample
from tests.hardware.doubles import Doubles, Port, on_port, polled, well

GOLDEN = "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47"


def sentence(body: str) -> bytes:
    return f"${body}*{checksum(body):02X}\r\n".encode()


def gga(
    utc: str,
    *,
    lat: str = "4807.038,N",
    fix: str = "1",
    satellites: str = "08",
    hdop: str = "0.9",
    altitude: str = "545.4",
    talker: str = "GP",
) -> bytes:
    return sentence(
        f"{talker}GGA,{utc},{lat},01131.000,E,{fix},{satellites},{hdop},{altitude},M,46.9,M,,"
    )


def rmc(
    utc: str,
    *,
    status: str = "A",
    speed: str = "1.9438",
    course: str = "90.0",
    mode: str | None = None,
) -> bytes:
    last = "" if mode is None else f",{mode}"
    return sentence(f"GPRMC,{utc},{status},4807.038,N,01131.000,E,{speed},{course},230394,,{last}")


def fitted(**options: object) -> tuple[GpsNmea, Port, Doubles]:
    row: dict[str, Any] = {"name": "gps", "chip": "gps-nmea", "baud": 9600, "rate_hz": 5.0}
    return on_port(GpsNmea, port="/dev/ttyAMA1", every_s=0.1, **row, options=options)


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
        (gga("123519", altitude="18001").decode().strip(), "altitude '18001'"),
        (gga("123519", altitude="-501").decode().strip(), "altitude '-501'"),
        (gga("123519", hdop="-1").decode().strip(), "HDOP '-1'"),
        (rmc("123519", speed="1002").decode().strip(), "speed '1002'"),
        (rmc("123519", speed="-0.1").decode().strip(), "speed '-0.1'"),
        (rmc("123519", course="360.1").decode().strip(), "course '360.1'"),
    ],
)
def test_what_cannot_be_read_says_why(line: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse(line)


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


def test_a_receiver_without_rmc_gives_positions_alone() -> None:
    gps, port, _ = fitted()
    for step in range(6):
        port.arrive(gga(f"12351{step}"))
        gps.poll(0.5 + step)
        if step < 3:  # its velocity may come yet
            gps.poll(1.01 + step)
        assert gps.sample is not None
        assert gps.sample.t_s == 0.5 + step, "as of when it came"
        assert gps.sample.velocity_ned_mps is None


def positions(lines: list[bytes], *, every_s: float = 0.5, **options: object) -> list[GpsSample]:
    """Return the samples that these bytes make, one piece a poll."""
    gps, port, _ = fitted(**options)
    made = []
    for step, line in enumerate(lines):
        port.arrive(line)
        gps.poll(0.2 + step * every_s)
        if gps.sample is not None and gps.sample not in made:
            made.append(gps.sample)
    return made


SECONDS = [f"12{minute:02d}{second:02d}.00" for minute in range(2) for second in range(60)][:20]


@pytest.mark.parametrize("every_s", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("talkers", [("GP", "GL"), ("GP", "GA"), ("GN", "GP", "GL", "GB")])
def test_several_gga_a_moment_make_one_sample(talkers: tuple[str, ...], every_s: float) -> None:
    lines = [
        line
        for utc in SECONDS
        for line in (*(gga(utc, talker=talker) for talker in talkers), rmc(utc))
    ]
    made = positions(lines, every_s=every_s)
    assert len(made) == len(SECONDS)
    if every_s * len(talkers) <= 0.5:
        assert all(sample.velocity_ned_mps is not None for sample in made)


@pytest.mark.parametrize("counts", [("09", "01"), ("01", "09")])
def test_the_gga_of_most_satellites_counts(counts: tuple[str, str]) -> None:
    lines = [
        line
        for utc in SECONDS
        for line in (*(gga(utc, satellites=count) for count in counts), rmc(utc))
    ]
    made = positions(lines, every_s=0.1)
    assert [sample.satellites for sample in made] == [9] * len(SECONDS)
    assert all(sample.velocity_ned_mps is not None for sample in made)


def test_rmc_of_other_seconds_leaves_positions_without_velocity() -> None:
    lines = [
        line
        for even, odd in zip(SECONDS[::2], SECONDS[1::2], strict=True)
        for line in (gga(even), rmc(odd))
    ]
    made = positions(lines, every_s=1.0)
    assert len(made) == len(SECONDS) // 2
    assert {sample.velocity_ned_mps for sample in made} == {None}


def test_rmc_less_often_than_gga() -> None:
    """Five positions a second and one velocity, as some receivers come from the factory."""
    lines = []
    for second in range(10):
        for fifth in range(5):
            utc = f"1200{second:02d}.{2 * fifth}0"
            lines += [gga(utc), rmc(utc) if fifth == 0 else b""]
    made = positions(lines, every_s=0.1)
    assert len(made) >= 49  # the last may wait yet
    assert sum(sample.velocity_ned_mps is not None for sample in made) == 10


def test_high_precision_lines_are_longer_than_the_standard_allows() -> None:
    made = positions(
        [
            line
            for utc in SECONDS
            for line in (
                gga(utc, lat="4807.03800000000,N", talker="GN"),
                sentence(
                    f"GNRMC,{utc},A,4807.03800000000,N,01131.00000000000,E,"
                    "0.10000000,10.000000,251126,2.5000,E,A,V"
                ),
            )
        ]
    )
    assert len(made) == len(SECONDS)
    assert made[0].latitude_deg == pytest.approx(48.1173)


@pytest.mark.parametrize(
    "binary",
    [
        bytes.fromhex("b5620107020024240c0a"),  # UBX, with $ in its payload
        bytes.fromhex("a0a2000229240050b0b3"),  # SiRF
        bytes.fromhex("d300133ed7d30202980edeef34b4bd62ac0941986f33360b98"),  # RTCM 3
        b"$GPGSV,3,1,12,01,",  # a sentence that was cut off
        bytes(300),
    ],
)
def test_a_sentence_behind_binary_counts(binary: bytes) -> None:
    lines = [binary + line + binary for utc in SECONDS for line in (gga(utc).strip(), rmc(utc))]
    assert len(positions(lines, every_s=0.1)) == len(SECONDS)


def test_gns_is_a_position_too() -> None:
    def gns(utc: str, modes: str) -> bytes:
        where = "4807.038,N,01131.000,E"
        return sentence(f"GNGNS,{utc},{where},{modes},11,1.3,168.9,39.5,,,V")

    made = positions([line for utc in SECONDS for line in (gns(utc, "NDD"), rmc(utc))])
    assert len(made) == len(SECONDS)
    assert made[0].altitude_msl_m == 168.9
    assert positions([line for utc in SECONDS for line in (gns(utc, "NES"), rmc(utc))]) == []


@pytest.mark.parametrize("quality", "06789")
def test_dead_reckoning_manual_and_simulated_positions_are_no_fix(quality: str) -> None:
    gps, port, _ = fitted()
    port.arrive(gga("123519", fix=quality) + rmc("123519"))
    gps.poll(1.0)
    gps.poll(2.0)
    assert gps.sample is None
    assert f"no fix, quality {quality}" in gps.error
    assert well(gps)


@pytest.mark.parametrize("mode", "EMNS")
def test_an_rmc_of_no_fix_is_void(mode: str) -> None:
    assert positions([gga("123519"), rmc("123519", mode=mode), b"", b"", b""]) == []


def test_a_fix_without_an_altitude_says_so() -> None:
    gps, port, _ = fitted()
    port.arrive(gga("123519", altitude="") + rmc("123519"))
    gps.poll(1.0)
    assert gps.sample is None
    assert "without an altitude" in gps.error
    assert well(gps)


def test_no_old_position_after_a_restart() -> None:
    gps, port, buses = fitted()
    half, rest = gga("123520")[:30], gga("123520")[30:]
    port.arrive(gga("123519") + half)
    gps.poll(0.2)
    port.dead = True
    polled(gps, 40, start_s=0.21)
    polled(gps, 40, start_s=0.7, every_s=0.1)
    assert buses.opened_ports > 1
    buses.ports["/dev/ttyAMA1"].arrive(rest + rmc("123520"))
    gps.poll(4.8)
    assert gps.sample is None


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


def test_a_course_left_out_at_rest_is_no_velocity_but_zero() -> None:
    standing = parse(rmc("123519", speed="0.02", course="").decode().strip())
    assert isinstance(standing, Rmc)
    gps, port, _ = fitted()
    port.arrive(gga("123519") + rmc("123519", speed="0.02", course=""))
    gps.poll(1.0)
    assert gps.sample is not None
    assert gps.sample.velocity_ned_mps == (0.0, 0.0, 0.0)
    (made,) = positions([gga("123520", hdop=""), rmc("123520", speed="0.5", course="")])
    assert made.velocity_ned_mps is None, "it moves, nobody knows where to"
    assert made.accuracy_m == pytest.approx(249.75), "nobody knows how good it is"


@given(
    st.lists(st.text("0123456789.-+NSEWAVnaif,", max_size=12), min_size=9, max_size=14),
    st.sampled_from(["GPGGA", "GNGNS", "GNRMC"]),
)
def test_well_framed_nonsense_makes_finite_samples_or_none(fields: list[str], kind: str) -> None:
    gps, port, _ = fitted()
    port.arrive(sentence(",".join([kind, *fields])))
    gps.poll(3.0)
    if gps.sample is not None:
        sample = gps.sample
        numbers = [sample.latitude_deg, sample.longitude_deg, sample.altitude_msl_m]
        assert all(map(math.isfinite, [*numbers, sample.accuracy_m]))
        assert -500.0 <= sample.altitude_msl_m <= 18000.0
        assert abs(sample.latitude_deg) <= 90.0
        assert abs(sample.longitude_deg) <= 180.0


@given(st.lists(st.binary(max_size=60), max_size=8), st.data())
def test_sentences_are_the_same_however_the_bytes_are_cut(
    noise: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(piece + gga(f"1200{i:02d}") for i, piece in enumerate(noise))
    whole = SentenceReader().feed(stream)
    reader = SentenceReader()
    cut, at = [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 150))
        cut += reader.feed(stream[at : at + size])
        at += size
    assert cut == whole
    assert len(whole) >= len(noise)


def test_a_stream_of_dollars_keeps_no_memory() -> None:
    reader = SentenceReader()
    for _ in range(100):
        reader.feed(b"$" + b"A" * 1000)
        reader.feed(b"$" * 1000)
    assert len(reader._rest) < 200
    assert reader.garbage > 100_000


def test_a_receiver_that_sends_no_position_sentence_is_named() -> None:
    gps, port, _ = fitted()
    for step in range(40):
        port.arrive(rmc(f"1200{step:02d}"))
        gps.poll(0.5 + 0.1 * step)
        if "for 3 s" in gps.error:
            break
    assert not well(gps)
    assert "RMC comes, but no GGA or GNS" in gps.error
