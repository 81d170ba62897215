"""/dev/spidevB.C of the simulated Pi: what the kernel makes of its requests.

Source: uapi/linux/spi/spidev.h. Not simulated: clock, mode and the pauses between transfers.
"""

import errno
import os
import re
import struct
from ctypes import memmove, string_at
from typing import Any

from blimp.sim.electrical import Electrical

_PATH = re.compile(r"/dev/spidev(\d)\.(\d)")
_TRANSFER = struct.Struct("@QQIIHBBBBBB")
_MESSAGE = 0x6B00
_SETTINGS = frozenset(range(0x6B01, 0x6B06))  # mode, bit order, bits a word, speed, mode32
_LONGEST = 4096  # bufsiz of the kernel's module


class SpiFile:
    """One open file."""

    def __init__(self, electrical: Electrical, bus: int, select: int) -> None:
        self._electrical = electrical
        self._where = (bus, select)

    @classmethod
    def opened(cls, path: str, electrical: Electrical) -> "SpiFile | None":
        """Return the file at `path`; None if this ship has none there."""
        match = _PATH.fullmatch(path)
        if match is None or (int(match[1]), int(match[2])) not in electrical.spi_devices():
            return None
        return cls(electrical, int(match[1]), int(match[2]))

    def ioctl(self, request: int, argument: Any) -> int:
        if request & 0xFFFF in _SETTINGS:
            return 0
        size = request >> 16 & 0x3FFF
        if request & 0xFFFF != _MESSAGE or not size or size % _TRANSFER.size:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        transfers = list(_TRANSFER.iter_unpack(bytes(memoryview(argument)[:size])))
        if sum(transfer[2] for transfer in transfers) > _LONGEST:
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        # The chip stays selected from the first transfer to the last.
        sent = b"".join(
            string_at(out, length) if out else bytes(length) for out, _, length, *_ in transfers
        )
        received = self._electrical.spi(*self._where, sent)
        at = 0
        for _, into, length, *_ in transfers:
            if into:
                memmove(into, received[at : at + length], length)
            at += length
        return len(sent)
