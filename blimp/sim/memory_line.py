"""A serial port where there are no pseudo-terminals, as on Windows, for lockstep.

There pyserial opens ports in another way than by `os.open`, so a `serial` stands in for it, as one
for RPi.GPIO does: see `seam.py`.
"""

import os
from types import ModuleType
from typing import Any

ROOM_BYTES = 4000  # as of a pseudo-terminal: see `serial_line.py`


class MemoryLine:
    """One port: what the device sent, until it is read. Its interface is `PtyLine`'s."""

    path = os.devnull  # a true descriptor, so that its number is nobody else's

    def __init__(self, *, port: str, baud: int, **_: bool) -> None:
        self.port, self.baud = port, baud
        self.dropped_bytes = 0
        self._unread = bytearray()
        self._readers = 0
        self.device_number = os.stat(self.path).st_rdev

    def opened(self) -> None:
        if self._readers == 0:
            self.flush()
        self._readers += 1

    def released(self) -> None:
        self._readers = max(0, self._readers - 1)

    def flush(self) -> None:
        self._unread.clear()

    def deliver(self, data: bytes) -> None:
        """Let bytes from the device arrive."""
        room = ROOM_BYTES - len(self._unread) if self._readers else 0
        self._unread += data[:room]
        self.dropped_bytes += max(0, len(data) - room)

    def read(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def settle(self) -> None:
        """What has arrived can be read."""

    def close(self) -> None:
        self.flush()


def serial_module(lines: dict[str, Any]) -> ModuleType:
    """Return what stands in for pyserial. lines: the open ports, by path."""

    class Serial:
        def __init__(self, port: str, baudrate: int = 9600, **_: Any) -> None:
            self._file = os.open(port, os.O_RDWR)
            self._line, self._baud = lines[port], baudrate

        def fileno(self) -> int:
            return self._file

        def read(self, size: int = 1) -> bytes:
            data: bytes = self._line.read(size)
            if self._baud == self._line.baud:
                return data
            return bytes(byte * 167 + 13 & 0xFF for byte in data)  # as on a real line

        def close(self) -> None:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    module = ModuleType("serial")
    module.__dict__.update(Serial=Serial, SerialException=OSError)
    return module
