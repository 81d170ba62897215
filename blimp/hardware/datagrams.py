"""A Unix socket on which another process of the ship tells something, as `bus.Datagrams` has it."""

import contextlib
import socket
from pathlib import Path

from blimp.errors import BusError
from blimp.hardware.bus import Datagrams

MAX_BYTES = 4096  # of one datagram; a longer one is cut, and so cannot be read
_MOST = 16  # a read: who floods the socket costs the loop no more


def in_directory(directory: Path, name: str) -> Datagrams:
    """Open the socket `name` of a runtime directory. Raises BusError naming it."""
    return UnixDatagrams(directory / name)


class UnixDatagrams:
    """A bound socket, that only processes of this user and its group may write to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            path.unlink(missing_ok=True)  # of a flight process that was killed
            self._socket.bind(str(path))
            path.chmod(0o660)
        except OSError as error:
            self._socket.close()
            raise BusError(f"{path}: {error}") from error

    def receive(self) -> list[bytes]:
        found: list[bytes] = []
        try:
            while len(found) < _MOST:
                found.append(self._socket.recv(MAX_BYTES))
        except BlockingIOError:
            return found
        except OSError as error:
            raise BusError(f"{self._path}: {error}") from error
        return found

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._socket.close()
            with contextlib.suppress(OSError):
                self._path.unlink()
