"""What coroutines ask of an app: threads wait for broker and results, the event loop never does.

One thread makes the calls, in the order in which they are asked for, over the app's own connection;
another waits for the results of all coroutines by one subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from blimp.closing import Closing
from blimp.errors import LinkError, ResultError
from blimp.queue.protocol.record import Record, State
from blimp.queue.redis.client import reset_after_fork

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.results.backend import GrowingWatch, ResultBackend

T = TypeVar("T")

LOOK_S = 60.0  # a watch returns that often although nothing came


class ResultApp(Protocol):
    """What results need of a TaskApp."""

    name: str
    clock: Clock

    @property
    def tasks(self) -> Mapping[str, Any]: ...  # Task, which knows of results

    @property
    def results(self) -> ResultBackend | None: ...

    @property
    def awaiting(self) -> Awaiting: ...

    @property
    def revoke(self) -> Callable[..., Any]: ...


class _Wait:
    """One coroutine that waits. Its loop hears of it from any thread, also after its end."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[Record | BaseException] = asyncio.Queue()
        self.is_over = False
        self._loop = asyncio.get_running_loop()

    def hear(self, found: Record | BaseException) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.news.put_nowait, found)


class Awaiting(Closing):
    """The threads of one app; they start on first use, and again after `close` or a fork."""

    def __init__(self, app: ResultApp) -> None:
        self._app = app
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Condition()
        self._calls: ThreadPoolExecutor | None = None
        self._waits: dict[str, list[_Wait]] = {}  # that have begun, by what they wait for
        self._open: set[_Wait] = set()
        self._watch: GrowingWatch | None = None
        self._thread: threading.Thread | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """Return what `function` does; it runs in the thread for calls, in this context.

        One that is cancelled before its turn never runs; one that has begun runs to its end.
        """
        with self._lock:
            if self._calls is None:
                self._calls = ThreadPoolExecutor(1, thread_name_prefix="queue calls")
            run = partial(contextvars.copy_context().run, function)
            called = asyncio.get_running_loop().run_in_executor(self._calls, run)
        return await called

    async def records(
        self, ids: Sequence[str], timeout: float | None = None
    ) -> AsyncIterator[Record]:
        """Yield the records of `ids` as they come, until each has ended.

        Raises TimeoutError after `timeout` seconds, LinkError, ResultError.
        """
        clock = self._app.clock
        deadline_s = None if timeout is None else clock.now_s() + timeout
        wait = _Wait()
        with self._lock:
            self._open.add(wait)
        left, last = set(ids), dict[str, Record]()
        beginning = asyncio.ensure_future(self._start(ids, wait))
        beginning.add_done_callback(lambda done: _tell_failure(done, wait))
        try:
            while left:
                left_s = None if deadline_s is None else max(0.0, deadline_s - clock.now_s())
                found = await asyncio.wait_for(wait.news.get(), left_s)
                if isinstance(found, BaseException):
                    raise found
                if found.id in left and last.get(found.id) != found:
                    last[found.id] = found
                    if found.final:
                        left.discard(found.id)
                    yield found
        finally:
            beginning.cancel()
            self._end(ids, wait)

    async def _start(self, ids: Sequence[str], wait: _Wait) -> None:
        if not wait.is_over:  # the app may be closed before a coroutine has its first turn
            await self.call(partial(self._begin, ids, wait))

    def _begin(self, ids: Sequence[str], wait: _Wait) -> None:
        """Have `wait` hear of `ids`; in the thread for calls. Raises LinkError, ResultError."""
        results = self._app.results
        assert results is not None
        left: list[str] = []
        for id in ids:  # before anything newer can be heard, so that reports stay in their order
            record = results.get(id)
            if record.state is not State.PENDING:
                wait.hear(record)
            if not record.final:
                left.append(id)
        if not left:
            return
        with self._lock:
            if wait.is_over:  # cancelled, or the app was closed
                return
            for id in left:
                self._waits.setdefault(id, []).append(wait)
            watch = self._watch
            self._lock.notify_all()
        if watch is None:
            if not self._take_watch(results.watch(*left), wait):
                return
        else:
            watch.add(*left)
        for id in left:  # the end may have come in between
            record = results.get(id)
            if record.final:
                wait.hear(record)

    def _take_watch(self, watch: GrowingWatch, wait: _Wait) -> bool:
        """Have `watch` served, unless `wait`, its only one, has ended meanwhile."""
        with self._lock:
            if not wait.is_over:
                self._watch = watch
                serve = partial(self._serve, watch)
                self._thread = threading.Thread(target=serve, name="queue results", daemon=True)
                self._thread.start()
                return True
        watch.close()
        return False

    def _end(self, ids: Sequence[str], wait: _Wait) -> None:
        ended: list[str] = []
        with self._lock:
            wait.is_over = True
            self._open.discard(wait)
            for id in ids:
                waits = self._waits.get(id, [])
                if wait in waits:
                    waits.remove(wait)
                    if not waits:
                        del self._waits[id]
                        ended.append(id)
            if self._watch is not None and self._calls is not None and ended:
                self._calls.submit(self._watch.discard, *ended)

    def _serve(self, watch: GrowingWatch) -> None:
        """Pass on what `watch` finds, until it fails or another takes its place."""
        while True:
            with self._lock:
                while not self._waits and self._watch is watch:
                    self._lock.wait()
                if self._watch is not watch:
                    return
            try:
                record = watch.next(timeout_s=LOOK_S)
            except ResultError as error:  # of one record, and no word of which
                with self._lock:
                    waits = set().union(*self._waits.values())
                self._tell(waits, error)
                continue
            except LinkError as error:
                with self._lock:
                    if self._watch is not watch:
                        return  # closed
                    self._watch = None
                    waits = set().union(*self._waits.values())
                watch.close()
                self._tell(waits, error)
                return
            if record is not None:
                with self._lock:
                    waits = set(self._waits.get(record.id, ()))
                self._tell(waits, record)

    @staticmethod
    def _tell(waits: set[_Wait], found: Record | BaseException) -> None:
        for wait in waits:
            wait.hear(found)

    def close(self) -> None:
        """End the threads; coroutines that wait for results get a LinkError.

        A call that has begun ends first, within its own time limit: the app's connections are
        closed next, and a thread that went on would open another.
        """
        with self._lock:
            watch, self._watch = self._watch, None
            thread, self._thread = self._thread, None
            calls, self._calls = self._calls, None
            waits = set(self._open)
            for wait in waits:
                wait.is_over = True
            self._lock.notify_all()
        if watch is not None:
            watch.close()
        self._tell(waits, LinkError("closed while waiting for results"))
        if calls is not None:
            calls.shutdown(cancel_futures=True)
        if thread is not None:
            thread.join()


def _tell_failure(done: asyncio.Future[None], wait: _Wait) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        wait.hear(error)
