"""Commands from afar: taken off the listener's thread at once, and done in one of their own.

That thread begins with the first command, and ends when none has come for a while. What it
needs is loaded by it.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from blimp.queue.control.pidbox import MAX_COMMAND_BYTES
from blimp.queue.options import OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blimp.queue.app import TaskApp
    from blimp.queue.control.revoke import Revoking
    from blimp.queue.extensions import Extension
    from blimp.queue.protocol.lamport_clock import LamportClock
    from blimp.queue.worker.consumer_loop import ConsumerLoop
    from blimp.queue.worker.in_flight import InFlight
    from blimp.queue.worker.pools.pools import WorkerPools

MOST_WAITING = 128
IDLE_S = 15.0
PAUSE_S = 0.002  # after each: a flood may not have the interpreter to itself
CLOSE_S = 1.0


class WorkerHandle(msgspec.Struct, kw_only=True):
    """What a command may look at and change. clock: the worker's logical one."""

    app: TaskApp
    name: str
    consumer_loop: ConsumerLoop
    in_flight: InFlight
    pools: WorkerPools
    revoking: Revoking
    stop: Callable[[], None]
    extensions: Sequence[Extension]
    clock: LamportClock
    log: Any
    began_s: float


class ControlMessage(NamedTuple):
    """One message of the pidbox as it came. clock: its sender's, for ours."""

    url: str
    body: bytes | str
    content_type: str | None
    clock: object


class RemoteControl:
    """`hear` is any thread's. Close is idempotent.

    counts: what came, what was dropped in a flood, what could not be read, what was done.
    """

    def __init__(self, worker_handle: WorkerHandle) -> None:
        self._worker_handle = worker_handle
        self._changed = threading.Condition()
        self._letters: deque[ControlMessage] = deque()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._is_flooded = False
        self._tickets: OrderedDict[str, None] = OrderedDict()
        self.counts: Counter[str] = Counter()

    @property
    def is_on(self) -> bool:
        return self._worker_handle.app.remote_control != OFF

    def hear(self, url: str, message: Any) -> None:
        """Take kombu's `message`, heard at the broker `url`. Neither waits nor raises."""
        body = message.body if len(message.body) <= MAX_COMMAND_BYTES else b""  # it is none
        letter = ControlMessage(url, body, message.content_type, message.headers.get("clock"))
        with self._changed:
            self.counts["received"] += 1
            if len(self._letters) >= MOST_WAITING:
                self.counts["dropped"] += 1
                was_flooded, self._is_flooded = self._is_flooded, True
                if not was_flooded:
                    self._worker_handle.log.error("remote control flooded", waiting=MOST_WAITING)
                return
            self._letters.append(letter)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._serve, name="remote", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Do nothing more; what is under way ends."""
        self._closed.set()
        with self._changed:
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=CLOSE_S)

    def _serve(self) -> None:
        from blimp.queue.control.handler import CommandHandler

        with CommandHandler(
            worker_handle=self._worker_handle, tickets=self._tickets, counts=self.counts
        ) as handler:
            while (letter := self._next()) is not None:
                handler.handle(letter)
                self._closed.wait(PAUSE_S)

    def _next(self) -> ControlMessage | None:
        """Wait for a letter; None where the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._letters or self._closed.is_set(), timeout=IDLE_S)
            if self._letters and not self._closed.is_set():
                letter = self._letters.popleft()
                self._is_flooded = self._is_flooded and bool(self._letters)
                return letter
            self._thread = None
            return None
