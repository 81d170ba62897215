"""What a worker and its child processes tell each other, and the channel they do it on.

Each child has a pair of sockets of its own, and every frame names the child it is to or from,
and the job: nothing that was meant for one can be taken for another's, whatever number the
kernel gives the descriptor.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

import msgspec

from blimp.queue.extensions import ChildExtension
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import TaskMessage, to_json
from blimp.queue.protocol.outcome import Outcome
from blimp.queue.protocol.record import Record

MAX_FRAME_BYTES = 256_000_000
_LENGTH = struct.Struct("!I")
_CHUNK_BYTES = 65_536


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is told on its command line; origins as `origin.locate` returns them."""

    child: int
    origins: tuple[str, ...]
    max_tasks: int | None
    max_memory_mb: float | None


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    child: int


# --- to a child ----------------------------------------------------------------------------


class Begin(Frame, frozen=True, kw_only=True, tag="begin"):
    """Run a task. broker_now_s: the broker's clock at this moment, if it is known.

    arguments: `[args, kwargs]` in kombu's JSON, which keeps their types; `message` has none.
    """

    job: int
    origin: str
    message: TaskMessage
    arguments: msgspec.Raw
    limit_bytes: int
    worker: str = ""
    previous: Record | None = None
    broker_now_s: float | None = None
    grant: dict[str, Any] | None = None
    extension: ChildExtension | None = None


def without_arguments(message: TaskMessage) -> tuple[TaskMessage, msgspec.Raw]:
    """Return `message` and its arguments as `Begin` takes them."""
    arguments = msgspec.Raw(to_json([message.args, message.kwargs]))
    return msgspec.structs.replace(message, args=(), kwargs={}), arguments


def with_arguments(begin: Begin) -> TaskMessage:
    """Return the message of `begin`, complete again."""
    args, kwargs = from_json(bytes(begin.arguments))
    return msgspec.structs.replace(begin.message, args=tuple(args), kwargs=kwargs)


class Interrupt(Frame, frozen=True, kw_only=True, tag="interrupt"):
    job: int


class Stopping(Frame, frozen=True, kw_only=True, tag="stopping"):
    pass


# --- from a child --------------------------------------------------------------------------


class Ready(Frame, frozen=True, kw_only=True, tag="ready"):
    pass


class Unfit(Frame, frozen=True, kw_only=True, tag="unfit"):
    """It cannot begin: it does not find what it is to run."""

    reason: str


class Progress(Frame, frozen=True, kw_only=True, tag="progress"):
    job: int
    fraction: float
    details: dict[str, Any]


class Done(Frame, frozen=True, kw_only=True, tag="done"):
    """A job has ended. worn: why the child should make way for a new one; "" for not yet."""

    job: int
    outcome: Outcome
    worn: str = ""


ToChild = Begin | Interrupt | Stopping
FromChild = Ready | Unfit | Progress | Done


class Channel:
    """Frames over one socket: any thread sends, one receives. Close is idempotent."""

    def __init__(self, end: socket.socket, *, receives: Any) -> None:
        self._socket = end
        self._decoder = msgspec.json.Decoder(receives)
        self._sending = threading.Lock()
        self._received = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, frame: Frame) -> None:
        """Raises OSError where the other end is gone."""
        data = msgspec.json.encode(frame)
        with self._sending:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def offer(self, frame: Frame) -> bool:
        """Send a short frame if that can be done at once; say whether it was."""
        data = msgspec.json.encode(frame)
        if not self._sending.acquire(blocking=False):
            return False
        try:
            sent = self._socket.send(_LENGTH.pack(len(data)) + data, socket.MSG_DONTWAIT)
            if 0 < sent < _LENGTH.size + len(data):
                self._socket.shutdown(socket.SHUT_WR)  # half a frame: the other end gives up
            return True
        except OSError:
            return False
        finally:
            self._sending.release()

    def read(self) -> bool:
        """Wait for bytes and take them; False where the other end is closed."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except ConnectionError:
            return False
        self._received += data
        return bool(data)

    def take(self) -> Any:
        """Return the next frame of what was read, None where it is not whole yet.

        Raises ValueError where it is no frame.
        """
        if len(self._received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._received)
        if length > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {length} bytes: the limit is {MAX_FRAME_BYTES}")
        end = _LENGTH.size + length
        if len(self._received) < end:
            return None
        data = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return self._decoder.decode(data)  # msgspec's errors are ValueErrors

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
