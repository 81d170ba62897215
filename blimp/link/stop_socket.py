"""An emergency stop straight into the flight process on this machine: no broker, no worker."""

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.link.paths import emergency_socket
from blimp.link.sender import with_socket
from blimp.types import Command, Outcome, OutcomeState, Snapshot

REPEAT_S = 0.05  # a datagram may find the queue full; a loop of 20 Hz has answered by then
TRY_S = 5.0
MAX_DATAGRAM_BYTES = 65_536

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Outcome | Snapshot)


class StopSocket(Closing):
    """The road to the flight process whose mailbox is at `flight`, for who may write there.

    A user who may not, or who finds no process there, has lost nothing: the other roads go on.
    """

    def __init__(self, flight: Path, *, clock: Clock) -> None:
        self._path = str(emergency_socket(flight))
        self._clock = clock
        self._closed = False

    def fire(self, *, id: str, source: str, on_outcome: Callable[[Outcome], None]) -> None:
        """Send a stop now, in this thread; `on_outcome` has the answer, from another one."""
        command = Command(id=id, name="estop", source=source, sent_s=self._clock.now_s())
        data = _encoder.encode(command)
        ours, passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.settimeout(REPEAT_S)
        out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

        def send() -> None:
            with contextlib.suppress(OSError):  # absent, full, or not for this user
                out.sendmsg([data], with_socket(passed), socket.MSG_DONTWAIT, self._path)

        def wait() -> None:
            now_s = until_s = self._clock.now_s()
            until_s += TRY_S
            with ours, passed, out:
                while not self._closed and now_s < until_s:
                    if _is_answered(ours, id, on_outcome):
                        return
                    # Snapshots come all the time: they are no reason to wait for longer.
                    if self._clock.now_s() >= now_s + REPEAT_S:
                        now_s = self._clock.now_s()
                        send()

        send()
        threading.Thread(target=wait, name="stop-socket", daemon=True).start()

    def close(self) -> None:
        self._closed = True


def _is_answered(channel: socket.socket, id: str, on_outcome: Callable[[Outcome], None]) -> bool:
    """Say whether the next datagram, if one comes in time, is the outcome of command `id`."""
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _decoder.decode(channel.recv(MAX_DATAGRAM_BYTES))
        if isinstance(found, Outcome) and found.id == id and found.state is OutcomeState.DONE:
            on_outcome(found)
            return True
    return False
