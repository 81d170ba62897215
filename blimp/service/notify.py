"""Readiness and heartbeat in systemd's protocol (sd_notify(3)): one datagram, one assignment.

The same call serves a unit of Type=notify and `blimp up`, which listens as systemd does.
"""

import os
import socket
import struct
from pathlib import Path

_UCRED = struct.Struct("3i")  # pid, uid, gid: unix(7), SCM_CREDENTIALS


READY = "READY=1"
READY_TO_ARM = "STATUS=ready to arm"
ALIVE = "WATCHDOG=1"  # sent from a completed cycle, see sd_watchdog_enabled(3)
BEATS_A_LIMIT = 6  # heartbeats within the supervisor's limit: five may be lost


def send(state: str, *, address: str | None) -> bool:
    """Send the supervisor at `address` one assignment, without waiting.

    Returns False if its queue is full and the caller should try again; True if it was sent, or
    if there is no supervisor.
    """
    if not address:
        return True
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), socket.MSG_DONTWAIT, address)
        except BlockingIOError:
            return False
        except OSError:
            return True  # the supervisor has ended
    return True


class NotifyListener:
    """The supervisor's end. The kernel adds the sender's process number."""

    def __init__(self, *, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def received(self) -> list[tuple[int, str]]:
        """Return (process number, assignment) of all datagrams since the last call."""
        received: list[tuple[int, str]] = []
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(256, socket.CMSG_SPACE(_UCRED.size))
            except BlockingIOError:
                return received
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                    pid, uid, _ = _UCRED.unpack(payload[: _UCRED.size])
                    if uid == os.getuid():
                        received += [
                            (pid, line) for line in data.decode("utf-8", "replace").split("\n")
                        ]

    def close(self) -> None:
        if self._socket.fileno() != -1:
            self._socket.close()
            self.path.unlink(missing_ok=True)
