"""Who has sent a datagram, as the flight process answers it: by address, or by a passed socket.

An address works for a client of the flight process's own user. A client of another one, as root
beside the units, could bind a socket that the flight process may not write to. It binds none: it
passes one end of a pair of sockets with each datagram, and reads from the other end.
"""

import os
import socket
import struct

from blimp.closing import Closing

_DESCRIPTOR = struct.Struct("i")
_ROOM_FOR_ONE = socket.CMSG_LEN(_DESCRIPTOR.size)  # the kernel closes what a datagram has beyond it


class Sender(Closing):
    """One sender. `key` is the same in all its datagrams, None if it cannot be answered.

    passed: the socket that it has passed; else it is answered through `channel`, at `address`.
    """

    def __init__(
        self, *, channel: socket.socket, address: str | None, passed: socket.socket | None = None
    ) -> None:
        self._channel = channel
        self._address = address
        self._passed = passed
        self.key: int | str | None = address or None
        if passed is not None:
            self.key = os.fstat(passed.fileno()).st_ino  # of the end, whatever its descriptor here

    def send(self, data: bytes) -> None:
        """Send `data` now. Raises BlockingIOError if there is no room, OSError if it has ended."""
        if self._passed is not None:
            self._passed.send(data, socket.MSG_DONTWAIT)  # whether it blocks is up to its client
        elif self._address is not None:
            self._channel.sendto(data, socket.MSG_DONTWAIT, self._address)

    def close(self) -> None:
        if self._passed is not None:
            self._passed.close()


def receive(channel: socket.socket, max_bytes: int) -> tuple[bytes, Sender]:
    """Return the next datagram and its sender, which is to be closed. Raises as recvmsg does."""
    data, extras, _, address = channel.recvmsg(max_bytes, _ROOM_FOR_ONE, socket.MSG_CMSG_CLOEXEC)
    passed = None
    for level, kind, content in extras:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            passed = _socket_of(*_DESCRIPTOR.unpack(content))
    return data, Sender(channel=channel, address=address, passed=passed)


def with_socket(passed: socket.socket) -> list[tuple[int, int, bytes]]:
    """Return what `sendmsg` takes beside the data to pass a socket on."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _DESCRIPTOR.pack(passed.fileno()))]


def _socket_of(descriptor: int) -> socket.socket | None:
    """Return the socket of a descriptor; close one that is no datagram socket of this machine."""
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return None
    if (found.family, found.type) != (socket.AF_UNIX, socket.SOCK_DGRAM):
        found.close()
        return None
    return found
