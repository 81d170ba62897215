"""Golden bytes: the polls of MON-VER and NAV-PVT, and a NAV-PVT published in a driver's tests."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.errors import BoardError
from blimp.hardware import ubx
from blimp.hardware.gps_ubx import GpsUbx, settings
from tests.hardware.doubles import Doubles, Port, on_port, polled, well

PVT = (0x01, 0x07)
PUBLISHED = bytes.fromhex(
    "b562 0107 5c00 00000000 e007 0a15160d0a04 01000000 01000000 030ce00b 86be2fff ad1f2104"
    "e0f20900 a0560900 01000000 01000000" + "00" * 44 + "d673"
)


def solution(itow_ms: int = 1000, **changes: int) -> bytes:
    """A NAV-PVT frame: a good fix, with some fields changed."""
    fields = {
        "fix": 3, "flags": 1, "satellites": 10, "lon": -22403544, "lat": 534507692,
        "msl": 36378, "h_acc": 1719, "north": 68, "east": -26, "down": 131, "s_acc": 139,
        "flags3": 0,
    } | changes  # fmt: skip
    payload = bytearray(92)
    for at, form, name in (
        (20, "<B", "fix"), (21, "<B", "flags"), (23, "<B", "satellites"), (24, "<i", "lon"),
        (28, "<i", "lat"), (36, "<i", "msl"), (40, "<I", "h_acc"), (48, "<i", "north"),
        (52, "<i", "east"), (56, "<i", "down"), (68, "<I", "s_acc"), (78, "<H", "flags3"),
    ):  # fmt: skip
        struct.pack_into(form, payload, at, fields[name])
    struct.pack_into("<I", payload, 0, itow_ms)
    return ubx.frame(PVT, bytes(payload))


def fitted(baud: int = 9600, **options: object) -> tuple[GpsUbx, Port, Doubles]:
    row = {"name": "gps", "chip": "gps-ubx", "baud": baud, "rate_hz": 5.0, "options": options}
    return on_port(GpsUbx, port="/dev/ttyAMA1", polls=3, every_s=0.1, **row)


@pytest.mark.parametrize(
    ("message", "golden"),
    [((0x0A, 0x04), "b5620a0400000e34"), ((0x01, 0x07), "b562010700000819")],
)
def test_golden_polls(message: tuple[int, int], golden: str) -> None:
    assert ubx.frame(message).hex() == golden
    assert ubx.FrameReader().feed(bytes.fromhex(golden)) == [(message, b"")]


def test_a_length_that_no_message_has_costs_no_good_frame_behind_it() -> None:
    reader = ubx.FrameReader()
    assert reader.feed(bytes.fromhex("b5620107ffff") + PUBLISHED)[0][0] == PVT
    assert reader.garbage == 1


def test_a_published_solution() -> None:
    ((message, payload),) = ubx.FrameReader().feed(PUBLISHED)
    assert message == PVT
    pvt = ubx.pvt(payload)
    assert (pvt.fix_type, pvt.fix_ok, pvt.satellites) == (3, False, 11)
    assert pvt.longitude_deg == pytest.approx(-1.364825)
    assert pvt.latitude_deg == pytest.approx(6.9279661)
    assert pvt.altitude_msl_m == pytest.approx(612.0)
    assert pvt.accuracy_m == pytest.approx(0.001)


def test_a_solution_makes_a_sample() -> None:
    gps, port, _ = fitted()
    port.arrive(solution())
    gps.poll(1.0)
    assert well(gps)
    assert gps.sample is not None
    assert gps.sample.latitude_deg == pytest.approx(53.4507692)
    assert gps.sample.longitude_deg == pytest.approx(-2.2403544)
    assert gps.sample.altitude_msl_m == pytest.approx(36.378)
    assert gps.sample.velocity_ned_mps == pytest.approx((0.068, -0.026, 0.131))
    assert gps.sample.accuracy_m == pytest.approx(1.719)
    assert gps.sample.satellites == 10


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"flags": 0}, "no fix"), ({"fix": 2}, "no fix, type 2"), ({"fix": 5}, "no fix, type 5"),
        ({"flags3": 1}, "marked invalid"), ({"satellites": 4}, "4 satellites"),
        ({"h_acc": 20001}, "accuracy 20 m"), ({"msl": 18001000}, "altitude 18001 m"),
        ({"msl": -501000}, "altitude -501 m"), ({"east": -516000}, "speed 516 m/s"),
    ],
)  # fmt: skip
def test_what_is_no_position_is_said_and_no_fault(changes: dict[str, int], said: str) -> None:
    gps, port, _ = fitted()
    for step in range(10):
        port.arrive(solution(1000 + 200 * step, **changes))
        gps.poll(1.0 + step)
    assert gps.sample is None
    assert well(gps)
    assert said in gps.error


def test_a_velocity_that_the_receiver_doubts_is_none() -> None:
    gps, port, _ = fitted()
    port.arrive(solution(s_acc=1500))
    gps.poll(1.0)
    assert gps.sample is not None
    assert gps.sample.velocity_ned_mps is None


@pytest.mark.parametrize("changes", [{"lat": 900000001}, {"lon": -1800000001}])
def test_impossible_angles_are_unreadable(changes: dict[str, int]) -> None:
    gps, port, _ = fitted()
    port.arrive(solution(**changes))
    gps.poll(1.0)
    assert gps.sample is None
    assert gps.garbage == 1
    assert "refused: NAV-PVT at latitude" in gps.error


@pytest.mark.parametrize("at", range(2, 100, 7))
def test_one_wrong_bit_is_found_by_the_checksum(at: int) -> None:
    gps, port, _ = fitted()
    data = bytearray(solution())
    data[at] ^= 0x10
    port.arrive(bytes(data) + solution(2000))
    gps.poll(1.0)
    port.arrive(solution(3000) * 30)
    gps.poll(1.2)
    assert gps.sample is not None, "what follows is read, also when the length was wrong"
    assert gps.sample.latitude_deg == pytest.approx(53.4507692)
    assert gps.garbage >= 1


def test_frames_come_in_pieces_and_between_sentences() -> None:
    reader = ubx.FrameReader()
    stream = b"$GPGGA,1,2*00\r\n" + solution(1) + b"\xb5\xb5$GP" + solution(2) + b"\xb5"
    found = []
    for i in range(0, len(stream), 3):
        found += reader.feed(stream[i : i + 3])
    assert [payload[0] for _, payload in found] == [1, 2]
    assert reader.garbage == 0
    assert [payload[0] for _, payload in reader.feed(solution(3)[1:])] == [3]


def test_a_time_that_stands_still_is_frozen() -> None:
    gps, port, buses = fitted()
    for step in range(12):
        port.arrive(solution())
        gps.poll(1.0 + 0.5 * step)
        port = buses.ports["/dev/ttyAMA1"]
    assert gps.sample is not None
    assert gps.sample.t_s == 1.0
    assert not well(gps)
    assert "no NAV-PVT with a new time" in gps.error


def test_a_silent_port_is_opened_again_and_asked_again() -> None:
    gps, port, buses = fitted()
    polled(gps, 80, start_s=0.5, every_s=0.1)
    assert not well(gps)
    assert buses.opened_ports > 1
    assert not port.is_open
    assert buses.ports["/dev/ttyAMA1"].written == b"".join(settings(5.0))


def test_a_rate_that_the_line_cannot_carry_is_refused() -> None:
    with pytest.raises(BoardError, match="4800 baud carry 4 solutions a second"):
        fitted(baud=4800)


@given(st.binary(min_size=92, max_size=92))
def test_well_framed_nonsense_makes_finite_samples_or_none(payload: bytes) -> None:
    gps, port, _ = fitted()
    port.arrive(ubx.frame(PVT, payload))
    gps.poll(1.0)
    if gps.sample is not None:
        sample = gps.sample
        assert all(map(math.isfinite, (sample.altitude_msl_m, sample.accuracy_m)))
        assert abs(sample.latitude_deg) <= 90.0
        assert abs(sample.longitude_deg) <= 180.0
        assert sample.accuracy_m <= 20.0
