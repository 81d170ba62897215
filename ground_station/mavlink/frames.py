"""Frames of MAVLink 1 and 2 in bytes, at whatever offset they begin.

What looks like a head may be noise, and what follows it the stop of a person: a frame that is whole
and good is taken out of the body of one that is not, or not yet.
"""

import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from blimp.actions import FORCE
from ground_station.mavlink.wire import checksum

V1, V2 = 0xFE, 0xFD
SIGNED = 1  # of a head's flags
SIGNATURE_BYTES = 13
_MAGIC = re.compile(b"[\xfd\xfe]")
_HEAD = struct.Struct("<xBBxxBBHB")  # length, flags, system, component, number
_COMMANDS = (75, 76)  # COMMAND_INT and COMMAND_LONG, alike in what is read here
_COMMAND = struct.Struct("<ff20xH")  # parameters 1 and 2, command


class Frame(NamedTuple):
    data: bytes
    number: int
    system: int
    component: int
    payload: bytes

    @property
    def is_signed(self) -> bool:
        return self.data[0] == V2 and bool(self.data[2] & SIGNED)

    @property
    def is_stop(self) -> bool:
        """Whether it is an emergency stop, of whatever ship."""
        if self.number not in _COMMANDS:
            return False
        payload = self.payload.ljust(_COMMAND.size, b"\0")
        first, second, command = _COMMAND.unpack_from(payload)
        return means_stop(command, first, second)


def means_stop(command: int, first: float, second: float) -> bool:
    """Whether a command with these parameters 1 and 2 is an emergency stop.

    A forced disarm is what QGroundControl's emergency button and MAVSDK's kill send; 185 is
    DO_FLIGHTTERMINATION.
    """
    return (command == 185 and first > 0.5) or (command == 400 and first == 0.0 and second == FORCE)


def frames_in(data: bytes, *, accept: Callable[[Frame], bool]) -> tuple[list[Frame], bytes]:
    """Return the good frames, and the rest from where one may begin that is not whole yet.

    The rest is shorter than a frame. accept: whether a frame with a right checksum is good.
    """
    found: list[Frame] = []
    at, begins = 0, len(data)
    while (match := _MAGIC.search(data, at)) is not None:
        at = match.start()
        length, one = _at(data, at)
        if one is not None and accept(one):
            found.append(one)
            at, begins = at + length, len(data)
            continue
        if at + length > len(data):
            begins = min(begins, at)
        at += 1
    return found, data[begins:]


def _at(data: bytes, at: int) -> tuple[int, Frame | None]:
    """Return the length of a frame that begins there, 0 for none, and the frame if it is whole."""
    left = len(data) - at
    if data[at] == V2:
        if left >= 3 and data[at + 2] & ~SIGNED:
            return 0, None
        if left < _HEAD.size:
            return _HEAD.size, None
        size, flags, system, component, low, high = _HEAD.unpack_from(data, at)
        number, head = high << 16 | low, _HEAD.size
        length = head + size + 2 + SIGNATURE_BYTES * (flags & SIGNED)
    else:
        if left < 6:
            return 6, None
        size, _, system, component, number = data[at + 1 : at + 6]
        head, length = 6, 8 + size
    end = at + head + size
    wanted = checksum(number, data[at + 1 : end] if left >= length else b"")
    if wanted is None:
        return 0, None
    if left < length:
        return length, None
    if wanted != int.from_bytes(data[end : end + 2], "little"):
        return 0, None
    return length, Frame(data[at : at + length], number, system, component, data[at + head : end])
