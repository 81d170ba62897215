"""SPI through the kernel's /dev/spidevB.C: bytes out and in while the chip is selected.

Source: uapi/linux/spi/spidev.h. On a Pi `dtparam=spi=on` in config.txt makes bus 0 with two chip
selects, CE0 and CE1.
"""

import ctypes
import os
import re
import struct
from collections.abc import Callable

from blimp.errors import BusError
from blimp.system import fcntl

_NAME = re.compile(r"spi-(\d)\.(\d)")
_WRITE_MODE = 0x40016B01
_WRITE_MAX_SPEED_HZ = 0x40046B04
_MESSAGE = 0x40006B00  # with the size of its transfers in bits 29..16
_TRANSFER = struct.Struct("@QQIIHBBBBBB")  # out, in, length, speed, delay in µs, and defaults
_LONGEST = 4096


class SpidevDevice:
    """One chip on one bus. Implements `bus.SpiDevice`."""

    def __init__(self, *, name: str, mode: int, speed_hz: int, closed: Callable[[], None]) -> None:
        match = _NAME.fullmatch(name)
        if match is None:
            raise BusError(f"{name!r} is no SPI device: it must look like spi-0.0")
        self._name = name
        self._closed = closed
        self._speed_hz = speed_hz
        self._file = -1
        try:
            self._file = os.open(f"/dev/spidev{match[1]}.{match[2]}", os.O_RDWR | os.O_CLOEXEC)
            fcntl.ioctl(self._file, _WRITE_MODE, struct.pack("B", mode))
            fcntl.ioctl(self._file, _WRITE_MAX_SPEED_HZ, struct.pack("I", speed_hz))
        except OSError as error:
            self._let_go()
            raise BusError(f"{name}: {error}") from error

    @property
    def name(self) -> str:
        return self._name

    def exchange(self, out: bytes, length: int, *, pause_s: float = 0.0) -> bytes:
        """Send `out`, pause, read `length` bytes. Raises BusError; ValueError on a length."""
        if not 1 <= len(out) <= _LONGEST or not 0 <= length <= _LONGEST:
            raise ValueError(
                f"an SPI exchange has 1 to {_LONGEST} bytes out and 0 to {_LONGEST} in, "
                f"not {len(out)} and {length}"
            )
        if self._file < 0:
            raise BusError(f"{self._name} is closed")
        sent = ctypes.create_string_buffer(out, len(out))
        received = ctypes.create_string_buffer(max(length, 1))
        message = self._transfer(ctypes.addressof(sent), 0, len(out), pause_s)
        if length:
            message += self._transfer(0, ctypes.addressof(received), length, 0.0)
        try:
            fcntl.ioctl(self._file, _MESSAGE | len(message) << 16, message)
        except OSError as error:
            raise BusError(f"{self._name}: {error}") from error
        return received.raw[:length]

    def _transfer(self, out: int, into: int, length: int, pause_s: float) -> bytes:
        return _TRANSFER.pack(
            out, into, length, self._speed_hz, round(pause_s * 1e6), 0, 0, 0, 0, 0, 0
        )

    def close(self) -> None:
        if self._file >= 0:
            self._closed()
            self._let_go()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
