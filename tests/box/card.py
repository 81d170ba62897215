"""An SD card: a disk of which a power cut loses what was not flushed, block by block, by chance.

Kill -9 of QEMU alone loses less than a Pi that is unplugged: what the guest has written, flushed
or not, is in the host's page cache by then. So the disk is served over NBD, from here. A block
that the guest has not flushed is kept in this process, and a cut lets each of them survive or not.
"""

import os
import random
import socket
import struct
import subprocess
import threading
from pathlib import Path
from typing import Self

from blimp.closing import Closing

BLOCK = 4096  # of ext4; a flash page is no smaller
_GREETING = b"NBDMAGICIHAVEOPT"
_FIXED, _NO_ZEROES = 1, 2
_OPTION_GO, _OPTION_ABORT = 7, 2
_ACK, _INFO, _UNSUPPORTED = 1, 3, 0x80000001
_READ, _WRITE, _DISCONNECT, _FLUSH = 0, 1, 2, 3
_FUA = 1
_HAS_FLAGS, _SENDS_FLUSH, _SENDS_FUA = 1, 4, 8
_EIO, _EINVAL = 5, 22


# A write at an offset, a flush, or a line that the computer has said meanwhile.
Event = tuple[int, bytes] | None | str


class Flash(Closing):
    """What a card holds: the file `image`, and the blocks that a cut may lose. A context manager.

    events: all that is written and flushed is added to it.
    """

    def __init__(self, image: Path, events: list[Event] | None = None) -> None:
        self.events = events
        self.bytes = image.stat().st_size
        self._image = image
        self._file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        self._unflushed: dict[int, bytearray] = {}

    def copy(self, image: Path) -> Self:
        """Return another one that holds the same."""
        copy = ["cp", "--reflink=auto", os.fspath(self._image), os.fspath(image)]
        subprocess.run(copy, check=True)
        other = type(self)(image)
        other._unflushed = {block: bytearray(data) for block, data in self._unflushed.items()}
        return other

    def cut(self, chance: random.Random) -> tuple[int, int]:
        """Lose the power: return how many unflushed blocks there were, and how many are lost.

        One cut in four loses all, and one in four none.
        """
        share = chance.choice((0.0, 1.0, chance.random(), chance.random()))
        lost = [block for block in self._unflushed if chance.random() < share]
        count = len(self._unflushed)
        for block in lost:
            del self._unflushed[block]
        self.flush()
        return count, len(lost)

    def read(self, offset: int, length: int) -> bytes:
        data = bytearray(os.pread(self._file, length, offset))
        for block in range(offset // BLOCK, (offset + length - 1) // BLOCK + 1):
            kept = self._unflushed.get(block)
            if kept is not None:
                first, last = max(offset, block * BLOCK), min(offset + length, (block + 1) * BLOCK)
                start = block * BLOCK
                data[first - offset : last - offset] = kept[first - start : last - start]
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        if self.events is not None:
            self.events.append((offset, data))
        at = 0
        while at < len(data):
            block, inside = divmod(offset + at, BLOCK)
            some = data[at : at + BLOCK - inside]
            if block not in self._unflushed:
                self._unflushed[block] = bytearray(
                    some if len(some) == BLOCK else os.pread(self._file, BLOCK, block * BLOCK)
                )
            self._unflushed[block][inside : inside + len(some)] = some
            at += len(some)

    def flush(self) -> None:
        if self.events is not None:
            self.events.append(None)
        for block, data in self._unflushed.items():
            os.pwrite(self._file, data, block * BLOCK)
        self._unflushed.clear()

    def close(self) -> None:
        if self._file >= 0:
            self.flush()
            os.close(self._file)
            self._file = -1


class Card(Closing):
    """Serves `image` at a Unix socket, one computer at a time. A context manager.

    https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, newstyle, simple replies.
    events: of its `Flash`.
    """

    def __init__(
        self, image: Path, socket_path: Path, *, events: list[Event] | None = None
    ) -> None:
        self.socket_path = socket_path
        self._failing: tuple[int, ...] = ()
        self._flash = Flash(image, events)
        self._lock = threading.Lock()
        socket_path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(socket_path))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve, name="card", daemon=True)
        self._thread.start()

    def fail(self, *, reads: bool) -> None:
        """Answer EIO from now on: to writes and flushes, and to reads too if `reads`."""
        self._failing = (_WRITE, _FLUSH, _READ) if reads else (_WRITE, _FLUSH)

    def cut(self, chance: random.Random) -> tuple[int, int]:
        """As `Flash.cut`. The computer must be dead by now."""
        with self._lock:
            return self._flash.cut(chance)

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.socket_path.unlink(missing_ok=True)
        self._thread.join(10.0)
        with self._lock:
            self._flash.close()

    # --- the protocol -------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            with connection:
                try:
                    if self._greet(connection):
                        self._answer(connection)
                except (OSError, EOFError):
                    pass  # killed; `cut` says what is lost

    def _greet(self, connection: socket.socket) -> bool:
        connection.sendall(_GREETING + struct.pack(">H", _FIXED | _NO_ZEROES))
        _exactly(connection, 4)
        while True:
            _, option, length = struct.unpack(">8sII", _exactly(connection, 16))
            _exactly(connection, length)

            def reply(kind: int, data: bytes = b"", option: int = option) -> None:
                head = struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data))
                connection.sendall(head + data)

            if option == _OPTION_GO:
                flags = _HAS_FLAGS | _SENDS_FLUSH | _SENDS_FUA
                reply(_INFO, struct.pack(">HQH", 0, self._flash.bytes, flags))
                reply(_ACK)
                return True
            if option == _OPTION_ABORT:
                reply(_ACK)
                return False
            reply(_UNSUPPORTED)

    def _answer(self, connection: socket.socket) -> None:
        while True:
            request = struct.unpack(">IHHQQI", _exactly(connection, 28))
            _, flags, kind, cookie, offset, length = request
            data, status = b"", 0
            written = _exactly(connection, length) if kind == _WRITE else b""
            with self._lock:
                if kind == _DISCONNECT:
                    return
                if kind in self._failing:
                    status = _EIO
                elif offset + length > self._flash.bytes:
                    status = _EINVAL
                elif kind == _READ:
                    data = self._flash.read(offset, length)
                elif kind == _WRITE:
                    self._flash.write(offset, written)
                elif kind != _FLUSH:
                    status = _EINVAL
                if not status and (kind == _FLUSH or flags & _FUA):
                    self._flash.flush()
            connection.sendall(struct.pack(">IIQ", 0x67446698, status, cookie) + data)


def _exactly(connection: socket.socket, count: int) -> bytes:
    """Return the next `count` bytes. Raises EOFError where the computer has hung up."""
    data = bytearray()
    while len(data) < count:
        some = connection.recv(count - len(data))
        if not some:
            raise EOFError
        data += some
    return bytes(data)
