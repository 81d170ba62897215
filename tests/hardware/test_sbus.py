"""Golden bytes: a frame written out by hand from the layout that Betaflight reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.hardware.sbus import FrameReader, Sbus
from tests.hardware.doubles import Port, on_port, well

# Channels of Betaflight's CRSF test, packed alike: 2047, 31, 0, 172, 0, 992, 0, 1811.
UNPACKING = bytes.fromhex("0F FFFF0000580100F00160E2 0000000000000000000000 00 00")
REST = bytes.fromhex("0F" + "E0031FF8C0073EF0810F7C" * 2 + "0000")  # sixteen times 992


def fitted() -> tuple[Sbus, Port]:
    row = {"name": "transmitter", "chip": "sbus", "baud": 100000, "rate_hz": 100.0}
    return on_port(Sbus, port="/dev/ttyAMA4", polls=3, every_s=0.01, **row)[:2]


def shares(made: Sbus) -> tuple[float, ...]:
    assert made.sample is not None
    return made.sample.channels


def with_flags(frame: bytes, flags: int) -> bytes:
    return frame[:23] + bytes([flags]) + frame[24:]


def test_the_golden_frames() -> None:
    made, port = fitted()
    assert port.framing == "8E2"
    port.arrive(UNPACKING * 2)
    made.poll(0.1)
    assert made.sample is not None
    values = [round(992 + 819.5 * share) for share in made.sample.channels[:8]]
    assert values == [1812, 172, 172, 172, 172, 992, 172, 1811]  # beyond an end is the end
    port.arrive(REST * 2)
    made.poll(0.2)
    assert made.sample.channels == (0.0,) * 16


def test_the_failsafe_flag_is_a_lost_transmitter_whatever_the_channels_say() -> None:
    made, port = fitted()
    port.arrive(REST * 2 + with_flags(REST, 0x0C))
    made.poll(0.1)
    assert made.sample is not None
    assert made.sample.channels == ()
    assert made.error == "the receiver hears no transmitter"
    assert well(made)


def test_a_lost_frame_is_no_sample() -> None:
    made, port = fitted()
    port.arrive(REST * 2)
    made.poll(0.1)
    port.arrive(with_flags(REST, 0x04))
    made.poll(0.2)
    assert made.sample is not None
    assert made.sample.t_s == 0.1
    assert made.error == "a frame was lost on the air"


def test_twenty_lost_frames_in_a_row_are_a_lost_transmitter() -> None:
    made, port = fitted()
    port.arrive(REST * 2)
    made.poll(0.1)
    for count in range(1, 21):
        assert len(shares(made)) == 16
        port.arrive(with_flags(REST, 0x04))
        made.poll(0.1 + 0.009 * count)
    assert shares(made) == ()
    port.arrive(REST * 2)
    made.poll(0.4)
    assert shares(made) == (0.0,) * 16


def test_one_broken_frame_moves_nothing() -> None:
    """It has no checksum: what jumps needs a second frame."""
    made, port = fitted()
    port.arrive(REST * 2 + UNPACKING)
    made.poll(0.1)
    assert made.sample is not None
    assert made.sample.channels == (0.0,) * 16


@given(cut=st.integers(1, 120), noise=st.binary(max_size=40))
def test_frames_are_found_in_any_pieces_behind_noise(cut: int, noise: bytes) -> None:
    reader = FrameReader()
    data = noise + REST * 4
    found = reader.feed(data[:cut]) + reader.feed(data[cut:])
    assert found.count(REST) >= 2


def test_a_begin_byte_within_a_frame_costs_no_frame() -> None:
    assert FrameReader().feed(b"\x0f" + REST * 2) == [REST] * 2


@pytest.mark.parametrize("end", [0x00, 0x04, 0x14, 0x24, 0x34])
def test_sbus2_ends_are_read(end: int) -> None:
    frame = REST[:24] + bytes([end])
    assert FrameReader().feed(frame * 2) == [frame] * 2


def test_an_inverted_line_is_named_by_its_unreadable_bytes() -> None:
    made, port = fitted()
    for step in range(60):
        port.arrive(bytes(byte ^ 0xFF for byte in REST))
        made.poll(0.1 + 0.01 * step)
        if "cannot be read" in made.error:
            break
    assert "100000 baud" in made.error
    assert not well(made)
