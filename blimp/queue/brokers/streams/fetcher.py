"""Fetching messages: in batches while there are some, and one blocking read while there are none.

Both connections that block, for messages and for fanout, have one command under way at most: a
connection that becomes readable has exactly one answer. The wait itself is a poll, which a pipe
ends from any thread.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import redis

from blimp.queue.brokers.streams.visibility import ERRORS
from blimp.queue.redis.keys import GROUP, LEVELS
from blimp.system import readable

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.envelope import Claim
    from blimp.queue.brokers.streams.store import Store, Taken
    from blimp.queue.brokers.streams.visibility import StreamsSession
    from blimp.queue.redis.client import Link
    from blimp.queue.redis.keys import QueueKeys

UNBLOCK_AGAIN_MS = 5
READ_BYTES = 65_536

Entry = tuple[str, str, list[bytes]]  # stream, entry id, fields
Streams = Mapping[str, tuple["QueueKeys", int]]  # queue and level of each stream


class Question:
    """A connection with at most one blocking command under way.

    Raises redis.TimeoutError if an answer takes longer than the server was asked to
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
        """Return how long the answer may still take; negative if it is late."""
        return self._late_s - time.monotonic()

    def answer(self) -> list[Entry]:
        """Read the answer. NOGROUP is raised as redis.ResponseError."""
        socket, parser = self._connection._sock, self._connection._parser
        if socket is not None:  # redis-py has six calls around this one
            parser._reader.feed(socket.recv(READ_BYTES))
        reply = parser.read_response()
        self.asked = False
        if isinstance(reply, redis.ResponseError):
            if str(reply).startswith("UNBLOCKED"):
                return []
            raise reply
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
                return  # reading the answer shows what happened

    def _is_over(self, *, wait_ms: int) -> bool:
        """Say whether there is something to read within `wait_ms`, or no connection any more."""
        if self.socket() is None:
            return True
        return bool(readable((self.socket().fileno(),), wait_ms / 1000.0))

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

    def ask_messages(self, about: Streams, *, consumer: str, block_ms: int) -> None:
        """Ask for the next message of `about`: delivered and recorded by the server at once."""
        command = (
            "XREADGROUP", "GROUP", GROUP, consumer, "COUNT", 1, "BLOCK", max(1, block_ms),
            "STREAMS", *about, *(">" for _ in about),
        )  # fmt: skip
        self.messages.ask(command, block_ms=block_ms, about=about)

    def ask_fanout(self, after: dict[str, str], *, block_ms: int) -> None:
        """Ask for what comes on each fanout stream after an entry id."""
        command = ("XREAD", "COUNT", 64, "BLOCK", block_ms, "STREAMS", *after, *after.values())
        self.fanout.ask(command, block_ms=block_ms)

    def wait(self, timeout_s: float) -> list[Question]:
        """Return the questions that are answered; none after `timeout_s` or a `wake`."""
        asked = [one for one in (self.messages, self.fanout) if one.asked]
        by_number = {one.socket().fileno(): one for one in asked}
        patience_s = min((timeout_s, *(one.patience_s() for one in asked)))
        ready = readable((self._wake_out, *by_number), max(0.0, patience_s))
        if not ready and self.is_overdue():
            raise redis.TimeoutError("the broker does not answer a blocking read in time")
        answered = []
        for number in ready:
            if number == self._wake_out:
                self.drain_wakes()
            else:
                answered.append(by_number[number])
        return answered

    def is_overdue(self) -> bool:
        """Say whether an answer is overdue."""
        late = [one for one in (self.messages, self.fanout) if one.asked and one.patience_s() < 0.0]
        if not late:
            return False
        here = readable(tuple(one.socket().fileno() for one in late), 0.0)
        return len(here) < len(late)  # it may be here, unread

    @property
    def wake_number(self) -> int:
        """The descriptor that becomes readable on `wake`."""
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


AT_ONCE_S = 0.001


class Fetcher:
    """Fetches in batches, and blocks only if there is nothing. One thread's, except `wake`.

    Everything it returns is held, and its lease renewed. Raises redis-py's errors and
    OSError; close and make another then. A consumer calls `take`; an event loop that waits for
    more than one thing calls `look`, `ask` and, once the reader has an answer, `read`.

    early_ms: how long before it is due a scheduled message may be taken.
    expired: how many the last look found too old. idle_until_s: when it is time for another.
    knows: see `Store.take`; called if something is set aside.
    """

    def __init__(
        self,
        *,
        session: StreamsSession,
        queues: Sequence[str] = (),
        knows: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._session = session
        self._knows = knows
        self._has_aside = False
        self._queues = [session.keys.queue(name) for name in queues]
        self._about = streams_of(self._queues)
        self.reader = Reader(session.link)
        self._question = self.reader.messages
        self._asked = Asked(lease_s=session.lease_s)
        self.early_ms = self.expired = 0
        self.idle_until_s = 0.0
        self._interrupted = False
        self.warnings: tuple[str, ...] = ()  # about the server's settings

    def begin(self) -> int:
        """Take back what this name left in the queues; return how much that was.

        Raises ConfigError if the server is too old, or evicts messages.
        """
        self.warnings = self._session.link.check_server()
        if not self._queues:
            return 0
        return self._session.store.begin(self._queues, known=self._session.leases.claims())

    def take(self, *, room: int, timeout_s: float) -> list[Delivered]:
        """Return about `room` messages, level by level; none after `timeout_s` or `interrupt`.

        In a level the queues take turns to be first.
        If it had to wait, it returns at most one message of a level: call it again.
        """
        if not self._queues:
            self.reader.wait(timeout_s)
            self._interrupted = False
            return []
        if not self._question.asked:
            if time.monotonic() >= self.idle_until_s:
                found = self.look(self._queues, room=room)
                if found:
                    return found
            if timeout_s <= 0.0:
                return []
            self.ask(self._about, until_s=self.idle_until_s)
        if self._interrupted:
            self._interrupted = False
            return []
        return self.read() if self._question in self.reader.wait(timeout_s) else []

    def look(self, queues: list[QueueKeys], *, room: int) -> list[Delivered]:
        """Take what is there: new, due, put back or left by the dead."""
        self._asked.now()
        options: dict[str, Any] = {"room": room, "early_ms": self.early_ms}
        while True:
            had_aside, knows = self._has_aside, self._knows() if self._has_aside else {}
            taken = take_good(self._session.store, queues, knows=knows, **options)
            self._has_aside = taken.has_aside
            if taken.deliveries or had_aside or not taken.has_aside:
                break
        self.expired = taken.expired
        until_s = self._asked.at_s + idle_s(taken, lease_s=self._session.lease_s)
        # Less than was asked for is all there is: what comes next is waited for.
        self.idle_until_s = until_s if len(taken.deliveries) < room else 0.0
        if len(taken.deliveries) >= room:
            queues.append(queues.pop(0))  # or the first could have all of each
        return self._hold(taken.deliveries)

    def ask(self, about: Streams, *, until_s: float) -> None:
        """Have the server say when something comes, up to when it is time to look again."""
        block_s = max(0.001, until_s - time.monotonic())
        self._asked.now(block_s=block_s)
        block_ms = math.ceil(block_s * 1000)
        self.reader.ask_messages(about, consumer=self._session.consumer, block_ms=block_ms)

    def read(self) -> list[Delivered]:
        """Return what the server answered; none if it had lost the queues, which are made."""
        about: Any = self._question.about
        try:
            entries = self._question.answer()
        except redis.ResponseError as error:
            make_groups(self._session.store, {queue for queue, _ in about.values()}, error)
            self.idle_until_s = 0.0
            return []
        found = claimed(self._session.store, entries, about)
        if len(found) < len(entries) or time.monotonic() - self._asked.at_s < AT_ONCE_S:
            self.idle_until_s = 0.0  # the bell rang, or there was something before it was asked for
        return self._hold(found)

    def withdraw(self) -> list[Delivered]:
        """End an open question; return what it brought."""
        if not self._question.asked:
            return []
        about: Any = self._question.about
        return self._hold(claimed(self._session.store, self._question.withdraw(), about))

    def interrupt(self) -> None:
        """Have a `take` that waits return now. Any thread."""
        self._interrupted = True
        self.reader.wake()

    def close(self) -> None:
        """Put back what an open question brings, and let the connection go. Idempotent."""
        with contextlib.suppress(*ERRORS, ValueError):
            unseen = self.withdraw()
            self._session.leases.release([claim.tag for claim, _ in unseen], seen=False)
        self.reader.close()

    def _hold(self, deliveries: list[Delivered]) -> list[Delivered]:
        """Renew from now on; return those that are still ours."""
        if not deliveries:
            return deliveries
        leases = self._session.leases
        leases.hold([claim for claim, _ in deliveries])
        if self._asked.is_late():  # not renewed since: other consumers may have some by now
            leases.renew([claim for claim, _ in deliveries])
            return [one for one in deliveries if one[0].tag in leases]
        return deliveries


SWEEPS_PER_LEASE = 3  # while idle: looks for the dead and the due this often

Delivered = tuple["Claim", list[bytes]]  # and the fields of its entry


class Asked:
    """When the server was asked, and for how long it may have waited with its answer."""

    def __init__(self, *, lease_s: float) -> None:
        self._patience_s = lease_s / SWEEPS_PER_LEASE
        self._block_s = 0.0
        self.at_s = 0.0  # on time.monotonic()

    def now(self, *, block_s: float = 0.0) -> None:
        self.at_s, self._block_s = time.monotonic(), block_s

    def is_late(self) -> bool:
        """Say whether an answer lay unread for so long that its leases may have ended."""
        return time.monotonic() - self.at_s - self._block_s > self._patience_s


def take_good(store: Store, queues: Sequence[QueueKeys], **options: Any) -> Taken:
    """Do what `Store.take` does; `expired` counts all that were found too old on the way."""
    taken = store.take(queues, **options)
    expired = taken.expired
    while taken.expired and not taken.deliveries:  # more of them may hide what is good
        taken = store.take(queues, **options)
        expired += taken.expired
    return taken if expired == taken.expired else msgspec.structs.replace(taken, expired=expired)


def idle_s(taken: Taken, *, lease_s: float) -> float:
    """Return for how long only an answer of the server can bring something."""
    wait_s = lease_s / SWEEPS_PER_LEASE
    if taken.next_due_ms is None:
        return wait_s
    # The next one due is waited for, its server's milliseconds rounded up.
    return min(wait_s, (taken.next_due_ms + 1) / 1000.0)


def streams_of(queues: Iterable[QueueKeys]) -> Streams:
    return {
        stream: (queue, level)
        for queue in queues
        for level, stream in enumerate((*queue.levels, queue.bell))
    }


def claimed(store: Store, entries: Iterable[Entry], about: Streams) -> list[Delivered]:
    """Return an answer's messages, level by level."""
    found: list[Delivered] = []
    for stream, id, fields in entries:
        queue, level = about[stream]
        if level < LEVELS:  # else the bell: it only wakes
            found.append((store.claim(queue, level, id, 1), fields))
    found.sort(key=lambda one: one[0].level)
    return found


def make_groups(store: Store, queues: Iterable[QueueKeys], error: redis.ResponseError) -> None:
    """Have the groups again whose absence is `error`; raise any other."""
    if not str(error).startswith("NOGROUP"):
        raise error
    for queue in queues:  # the server was emptied, or the queue deleted
        store.make_group(queue)
