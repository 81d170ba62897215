"""Waiting for the server: one connection blocks for messages, one for fanout, none polls.

Both only ever have one command under way, so a connection that becomes readable has exactly
one answer. The waiting itself is a select, which a pipe can cut short from any thread.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import redis

from blimp.queue.redis.keys import GROUP

if TYPE_CHECKING:
    from blimp.queue.redis.client import Link
    from blimp.queue.redis.keys import QueueKeys

UNBLOCK_AGAIN_MS = 5

Entry = tuple[str, str, list[bytes]]  # stream, entry id, fields


class Question:
    """A connection with at most one blocking command under way.

    Raises redis.TimeoutError where an answer stays out longer than the server was told to
    wait and the link's timeout: a half-open socket, or a server that stands still.
    """

    def __init__(self, link: Link, on_close: Callable[[int], None]) -> None:
        self._link = link
        self._on_close = on_close
        self._connection: Any = None
        self._client_id = 0
        self._late_s = 0.0
        self.asked = False
        self.about: object = None

    def ask(self, command: Sequence[object], *, block_ms: int, about: object = None) -> None:
        """Send a command that the server answers within `block_ms`."""
        if self._connection is None:
            self._connection = self._link.connection()
            self._connection.send_command("CLIENT", "ID")
            self._client_id = int(self._connection.read_response())
        self._connection.send_command(*command)
        self._late_s = time.monotonic() + block_ms / 1000.0 + self._link.timeout_s
        self.asked, self.about = True, about

    def socket(self) -> Any:
        return self._connection._sock

    def patience_s(self) -> float:
        """Return how long the answer may still stay out; negative where it is late."""
        return self._late_s - time.monotonic()

    def answer(self) -> list[Entry]:
        """Read the answer. NOGROUP is raised as redis.ResponseError."""
        try:
            reply = self._connection.read_response()
        except redis.ResponseError as error:
            self.asked = False
            if str(error).startswith("UNBLOCKED"):
                return []
            raise
        self.asked = False
        return [
            (stream.decode(), id.decode(), fields)
            for stream, entries in reply or ()
            for id, fields in entries
        ]

    def withdraw(self) -> list[Entry]:
        """Have the server answer now, and return what it had to say; then close."""
        try:
            if not self.asked:
                return []
            self._unblock()
            return self.answer()
        finally:
            self.close()

    def _unblock(self) -> None:
        """Have the server answer now: again and again, it may not have come to the question yet."""
        until_s = time.monotonic() + self._link.timeout_s
        while not self._link.client.client_unblock(self._client_id):
            if self._is_over(wait_ms=UNBLOCK_AGAIN_MS) or time.monotonic() >= until_s:
                return  # whatever it is, reading the answer tells

    def _is_over(self, *, wait_ms: int) -> bool:
        """Say whether there is something to read within `wait_ms`, or no connection any more."""
        if self.socket() is None:
            return True
        poll = select.poll()
        poll.register(self.socket().fileno(), select.POLLIN)
        return bool(poll.poll(wait_ms))

    def close(self) -> None:
        if self._connection is not None:
            if self._connection._sock is not None:
                self._on_close(self._connection._sock.fileno())
            with contextlib.suppress(Exception):  # it may be half gone; nothing is in it
                self._link.give_up(self._connection)
        self._connection, self.asked = None, False


class Reader:
    """Both questions and the pipe. One thread's, but for `wake`. Close is idempotent.

    on_close: called with the number of a socket that is about to be closed.
    """

    def __init__(self, link: Link) -> None:
        self.on_close: Callable[[int], None] = lambda _: None
        self.messages = Question(link, lambda number: self.on_close(number))
        self.fanout = Question(link, lambda number: self.on_close(number))
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._closed = False

    def ask_messages(self, queues: Sequence[QueueKeys], *, consumer: str, block_ms: int) -> None:
        """Ask for the next message of `queues`: delivered and recorded by the server at once."""
        streams = [stream for queue in queues for stream in (*queue.lanes, queue.bell)]
        command = (
            "XREADGROUP", "GROUP", GROUP, consumer, "COUNT", 1, "BLOCK", max(1, block_ms),
            "STREAMS", *streams, *(">" for _ in streams),
        )  # fmt: skip
        about = {
            stream: (queue, lane)
            for queue in queues
            for lane, stream in enumerate((*queue.lanes, queue.bell))
        }
        self.messages.ask(command, block_ms=block_ms, about=about)

    def ask_fanout(self, after: dict[str, str], *, block_ms: int) -> None:
        """Ask for what comes on each fanout stream after an entry id."""
        command = ("XREAD", "COUNT", 64, "BLOCK", block_ms, "STREAMS", *after, *after.values())
        self.fanout.ask(command, block_ms=block_ms)

    def wait(self, timeout_s: float) -> list[Question]:
        """Return the questions that are answered; none after `timeout_s` or a `wake`."""
        asked = [one for one in (self.messages, self.fanout) if one.asked]
        poll = select.poll()
        poll.register(self._wake_out, select.POLLIN)
        by_number = {}
        for one in asked:
            number = one.socket().fileno()
            by_number[number] = one
            poll.register(number, select.POLLIN)
        patience_s = min((timeout_s, *(one.patience_s() for one in asked)))
        ready = poll.poll(math.ceil(max(0.0, patience_s) * 1000.0))
        if not ready and self.is_overdue():
            raise redis.TimeoutError("the broker does not answer a blocking read in time")
        answered = []
        for number, _ in ready:
            if number == self._wake_out:
                self.drain_wakes()
            else:
                answered.append(by_number[number])
        return answered

    def is_overdue(self) -> bool:
        """Say whether an answer is still out after the server was told to give it."""
        late = [one for one in (self.messages, self.fanout) if one.asked and one.patience_s() < 0.0]
        if not late:
            return False
        poll = select.poll()
        for one in late:
            poll.register(one.socket().fileno(), select.POLLIN)
        return len(poll.poll(0)) < len(late)  # it may lie here, and nobody has looked

    @property
    def wake_number(self) -> int:
        """The descriptor that becomes readable when somebody wakes."""
        return self._wake_out

    def drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_out, 1024)

    def wake(self) -> None:
        """End a `wait` now. Any thread, and signal handlers."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_in, b"w")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.messages.close()
        self.fanout.close()
        os.close(self._wake_in)
        os.close(self._wake_out)
