"""Golden bytes: frames captured from receivers, as Betaflight's and TBS's documents have them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.hardware import crsf
from blimp.hardware.crsf import Crsf
from blimp.types import Attitude
from tests.hardware.doubles import Port, on_port, well
from tests.snapshot import SNAPSHOT

CAPTURED = (
    bytes.fromhex("001816BD089FF4AEF7BDEF7DEFFBADFD452B5A0100000000006C"),
    bytes.fromhex("001816BD089FF4AAF7BDEF7DEFFBADFD452B5A01000000000094"),
)
COMMAND = bytes.fromhex("C80C32C8EC0A7001001E84802272")  # baud rate negotiation
LEFT = bytes([60, 60, 100, 10, 0, 4, 1, 60, 100, 10])


def channels_frame(*values: int) -> bytes:
    """A frame with these 11-bit values first, the others in the middle."""
    bits = 0
    for i, value in enumerate([*values, *[992] * (16 - len(values))]):
        bits |= value << 11 * i
    return crsf.frame(0x16, bits.to_bytes(22, "little"))


def fitted() -> tuple[Crsf, Port]:
    row = {"name": "transmitter", "chip": "crsf", "baud": 420000, "rate_hz": 100.0}
    made, port, _ = on_port(Crsf, port="/dev/ttyAMA3", polls=3, every_s=0.01, **row)
    poll(made, port, 0.03, crsf.frame(0x14, LEFT))
    return made, port


def poll(made: Crsf, port: Port, now_s: float, *frames: bytes) -> None:
    port.arrive(b"".join(frames))
    made.poll(now_s)


def shares(made: Crsf) -> list[float]:
    assert made.sample is not None
    return list(made.sample.channels)


def test_golden_frames_are_read_and_checksummed() -> None:
    reader = crsf.FrameReader()
    found = reader.feed(CAPTURED[0] + COMMAND + CAPTURED[1])
    assert [kind for kind, _ in found] == [0x16, 0x32, 0x16]
    assert reader.garbage == 0
    assert crsf.frame(0x32, COMMAND[3:-1]) == COMMAND


def test_the_captured_channels() -> None:
    """189, 993, 978 and 983 of 172 to 1811, by Betaflight's test."""
    made, port = fitted()
    poll(made, port, 0.1, CAPTURED[0])
    assert made.status(0.1).value is None, "nothing confirms it yet"
    poll(made, port, 0.1, CAPTURED[1])
    assert made.sample is not None
    expected = [(value - 992) / 819.5 for value in (189, 993, 978, 981)]
    assert made.sample.channels[:4] == pytest.approx(expected)
    assert len(made.sample.channels) == 16


@given(cut=st.integers(1, 25), noise=st.binary(max_size=40))
def test_a_frame_is_found_in_any_pieces_behind_noise(cut: int, noise: bytes) -> None:
    reader = crsf.FrameReader()
    data = noise + CAPTURED[0] * 4
    found = reader.feed(data[:cut]) + reader.feed(data[cut:])
    assert CAPTURED[0][3:-1] in [payload for _, payload in found]


def test_each_single_bit_error_is_found_out() -> None:
    frame = channels_frame(172, 1811, 400)
    for bit in range(8 * len(frame)):
        broken = bytearray(frame)
        broken[bit // 8] ^= 1 << bit % 8
        assert all(kind != 0x16 for kind, _ in crsf.FrameReader().feed(bytes(broken)))


def test_a_jump_counts_when_the_next_frame_confirms_it() -> None:
    made, port = fitted()
    rest = channels_frame(992)
    poll(made, port, 0.1, rest, rest)
    poll(made, port, 0.2, channels_frame(1811))
    assert made.sample is not None
    assert made.sample.t_s == 0.1
    poll(made, port, 0.21, rest, rest)
    assert shares(made) == [0.0] * 16
    poll(made, port, 0.3, channels_frame(1811), channels_frame(1811))
    assert made.sample.channels[0] == pytest.approx(1.0, abs=0.001)


def test_a_link_quality_of_0_is_a_lost_transmitter_whatever_the_channels_say() -> None:
    made, port = fitted()
    poll(made, port, 0.1, channels_frame(), channels_frame())
    lost = crsf.frame(0x14, LEFT[:2] + b"\0" + LEFT[3:])
    poll(made, port, 0.15, lost)
    assert shares(made) == [], "at once"
    poll(made, port, 0.2, channels_frame(), channels_frame())
    assert shares(made) == []
    assert well(made)
    assert made.error == "the receiver hears no transmitter"
    poll(made, port, 0.3, crsf.frame(0x14, LEFT), channels_frame())
    assert shares(made) == [], "what it heard before confirms nothing"
    poll(made, port, 0.31, channels_frame())
    assert shares(made) == [0.0] * 16


def test_a_receiver_that_repeats_its_last_frame_is_lost_a_second_after_its_statistics() -> None:
    made, port = fitted()
    for step in range(95):
        poll(made, port, 0.05 + 0.01 * step, channels_frame())
    assert shares(made) == [0.0] * 16
    for step in range(10):
        poll(made, port, 1.0 + 0.01 * step, channels_frame())
    assert shares(made) == []
    assert made.error.startswith("no link statistics for 1 s")
    assert well(made)
    poll(made, port, 1.2, crsf.frame(0x14, LEFT), channels_frame(), channels_frame())
    assert shares(made) == [0.0] * 16


def test_a_noisy_channel_keeps_what_it_had_and_the_others_count() -> None:
    """One that jumps for the first time may be a broken frame: nothing of that counts."""
    made, port = fitted()
    poll(made, port, 0.1, channels_frame(), channels_frame())
    for step in range(20):
        noise = 1811 if step % 2 else 172
        poll(made, port, 0.11 + 0.01 * step, channels_frame(noise, 992 + 40 * step))
        assert made.sample is not None
        assert made.sample.channels[0] == 0.0
        assert made.sample.doubted == ((1,) if step else ())
        expected = 40 * step / 819.5 if step else 0.0
        assert made.sample.channels[1] == pytest.approx(expected)
    poll(made, port, 0.4, channels_frame(1811, 172))
    assert shares(made)[1] == pytest.approx(760 / 819.5), "this one jumps as well"


@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=70),
            st.sampled_from([channels_frame(), channels_frame(1811), crsf.frame(0x14, LEFT)]),
            st.builds(crsf.frame, st.integers(0, 255), st.binary(max_size=60)),
        ),
        max_size=30,
    )
)
def test_whatever_bytes_come_a_sample_is_16_shares_or_none(pieces: list[bytes]) -> None:
    made, port = fitted()
    for step, data in enumerate(pieces):
        poll(made, port, 0.1 + 0.01 * step, data)
        if made.sample is not None:
            assert len(made.sample.channels) in (0, 16)
            assert all(-1.0 <= share <= 1.0 for share in made.sample.channels)


def test_silence_and_garbage_make_it_unhealthy_with_the_reason() -> None:
    made, port = fitted()
    poll(made, port, 0.1, channels_frame(), channels_frame())
    assert well(made)
    for step in range(60):
        poll(made, port, 0.11 + 0.01 * step, bytes(range(1, 20)))
        if not well(made):
            break
    assert not well(made)
    assert "bytes that cannot be read" in made.error
    assert "420000 baud" in made.error
    assert made.sample is not None
    assert made.sample.t_s == 0.1


SENT = msgspec.structs.replace(
    SNAPSHOT, mode="ALTHOLD", battery_v=3.3,
    attitude_rad=Attitude(roll=2.6092, pitch=1.1833, yaw=-3.1398),
)  # fmt: skip


def test_telemetry_goes_back_in_turn() -> None:
    """The fields are those of Betaflight's telemetry test: 3.3 V; 11833, 26092, -31398."""
    made, port = fitted()
    for _ in range(3):
        made.tell(SENT)
    battery, attitude, mode = crsf.FrameReader().feed(port.written)
    assert battery == (0x08, bytes.fromhex("0021 0000 000000 00"))
    assert attitude == (0x1E, bytes.fromhex("2E39 65EC 855A"))
    assert mode == (0x21, b"ALTHOLD\0")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"armed": False}, b"ALTHOLD*\0"),
        ({"failsafe": "link lost: holding"}, b"!ALTHOLD\0"),
        ({"killed": True}, b"KILLED\0"),
    ],
)
def test_the_mode_says_disarmed_failsafe_and_killed(
    changes: dict[str, object], text: bytes
) -> None:
    changed = msgspec.structs.replace(SENT, **changes)
    assert crsf.FrameReader().feed(crsf.flight_mode(changed)) == [(0x21, text)]
