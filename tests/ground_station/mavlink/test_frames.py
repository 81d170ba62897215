"""Frames among noise: each good one is found once, however the bytes are cut."""

import random

from pymavlink.dialects.v20 import all as dialect

from ground_station.mavlink.frames import frames_in
from ground_station.mavlink.wire import decoded

HEADS = (
    b"\xfd\xff\0\0", b"\xfd", b"\xfe", b"\xfe\xff", b"\xfe\xff\0\1\1\0",
    b"\xfd\xff\0\0\0\xff\xbe\x4c\0\0", b"\xfd\x09\0\0\0\xff\xbe\xff\xff\xff",
    b"\xfd\x1e\1\0\0\xff\xbe\x4c\0\0",
)  # fmt: skip


def stops(count: int, *, version: int = 2) -> list[bytes]:
    mav = dialect.MAVLink(None, 255, 190)
    kind = dialect.MAVLink_command_long_message
    return [
        bytes(kind(1, 1, 400, n, 0.0, 21196.0, *[0.0] * 5).pack(mav, force_mavlink1=version == 1))
        for n in range(count)
    ]


def test_a_frame_is_found_behind_and_inside_whatever_begins_like_one() -> None:
    chance = random.Random(1)
    for version in (1, 2):
        sent = stops(200, version=version)
        stream = b"".join(
            chance.choice(HEADS) + chance.randbytes(chance.randrange(40)) + one for one in sent
        )
        found, rest = [], b""
        while stream:
            size = chance.choice((1, 7, 100, 1000))
            frames, rest = frames_in(rest + stream[:size], accept=lambda _: True)
            stream = stream[size:]
            found += [one.data for one in frames if one.is_stop]
            assert len(rest) < 300
        assert found == sent


def test_a_stop_is_there_with_its_last_byte() -> None:
    (stop,) = stops(1)
    for head in HEADS:
        assert frames_in(head + stop[:-1], accept=lambda _: True)[0] == []
        (found,) = frames_in(head + stop, accept=lambda _: True)[0]
        assert found.is_stop
        message = decoded(found.data)
        assert message is not None
        assert message.command == 400


def test_what_is_not_accepted_hides_nothing() -> None:
    """A frame with a right checksum and a wrong signature has a right one inside."""
    (stop,) = stops(1)
    outer = dialect.MAVLink_file_transfer_protocol_message(0, 1, 1, list(stop.ljust(251, b"\0")))
    data = bytes(outer.pack(dialect.MAVLink(None)))
    assert [one.number for one in frames_in(data, accept=lambda _: True)[0]] == [110]
    assert [one.number for one in frames_in(data, accept=lambda one: one.is_stop)[0]] == [76]
