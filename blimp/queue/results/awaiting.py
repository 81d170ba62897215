"""Who waits for results: threads and coroutines, all by one subscription of one thread.

A coroutine asks by another thread, which makes all calls in the order in which they are asked for:
its event loop never waits for the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from blimp.closing import Closing
from blimp.errors import LinkError, ResultError
from blimp.queue.protocol.record import Record, State
from blimp.queue.redis.forks import reset_after_fork

if TYPE_CHECKING:
    from blimp.queue.interface import App
    from blimp.queue.results.backend import GrowingWatch

T = TypeVar("T")

LOOK_S = 60.0  # a watch returns that often although nothing came


_News = Record | BaseException


class _Wait:
    """One that waits for `ids`. hear: takes news from any thread, also after its end."""

    def __init__(self, ids: Sequence[str], hear: Callable[[_News], object]) -> None:
        self.ids, self.hear = ids, hear
        self.left = set(ids)
        self.is_over = False
        self._last: dict[str, Record] = {}

    def take(self, found: _News) -> Record | None:
        """Return the record in `found` if it is news. Raises what it says."""
        if isinstance(found, BaseException):
            raise found
        if found.id not in self.left or self._last.get(found.id) == found:
            return None
        self._last[found.id] = found
        if found.final:
            self.left.discard(found.id)
        return found


class Awaiting(Closing):
    """The threads of one app; they start on first use, and again after `close` or a fork."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.after_fork()
        reset_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Condition()
        self._starting = threading.Lock()
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

    def wait(self, ids: Sequence[str], timeout: float | None = None) -> Iterator[Record]:
        """Yield the records of `ids` as they come, until each has ended.

        Raises TimeoutError after `timeout` seconds, LinkError, ResultError.
        """
        clock = self._app.clock
        deadline_s = None if timeout is None else clock.now_s() + timeout
        news: SimpleQueue[_News] = SimpleQueue()
        wait = self._opened(_Wait(ids, news.put))
        try:
            self._begin(wait)
            while wait.left:
                left_s = None if deadline_s is None else max(0.0, deadline_s - clock.now_s())
                if (record := wait.take(news.get(timeout=left_s))) is not None:
                    yield record
        except Empty:
            raise TimeoutError from None
        finally:
            if ended := self._end(wait):
                ended()

    async def records(
        self, ids: Sequence[str], timeout: float | None = None
    ) -> AsyncIterator[Record]:
        """Do what `wait` does, for a coroutine."""
        clock, loop = self._app.clock, asyncio.get_running_loop()
        deadline_s = None if timeout is None else clock.now_s() + timeout
        news: asyncio.Queue[_News] = asyncio.Queue()

        def hear(found: _News) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(news.put_nowait, found)

        wait = self._opened(_Wait(ids, hear))
        beginning = asyncio.ensure_future(self._start(wait))
        beginning.add_done_callback(lambda done: _tell_failure(done, wait))
        try:
            while wait.left:
                left_s = None if deadline_s is None else max(0.0, deadline_s - clock.now_s())
                if (record := wait.take(await asyncio.wait_for(news.get(), left_s))) is not None:
                    yield record
        finally:
            beginning.cancel()
            ended = self._end(wait)
            with self._lock:
                if ended and self._calls is not None:
                    self._calls.submit(ended)

    async def _start(self, wait: _Wait) -> None:
        if not wait.is_over:  # the app may be closed before a coroutine has its first turn
            await self.call(partial(self._begin, wait))

    def _opened(self, wait: _Wait) -> _Wait:
        with self._lock:
            self._open.add(wait)
        return wait

    def _begin(self, wait: _Wait) -> None:
        """Have `wait` hear of its ids. Raises LinkError, ResultError."""
        results = self._app.results
        assert results is not None
        left: list[str] = []
        # Before anything newer can be heard, so that reports stay in their order.
        for record in results.get_many(wait.ids):
            if record.state is not State.PENDING:
                wait.hear(record)
            if not record.final:
                left.append(record.id)
        if not left:
            return
        with self._lock:
            if wait.is_over:  # cancelled, or the app was closed
                return
            for id in left:
                self._waits.setdefault(id, []).append(wait)
            self._lock.notify_all()
        with self._starting:  # one watch for all, from which nobody takes an id meanwhile
            if (watch := self._watch) is None:
                self._take_watch(results.watch(*left), wait)
            else:
                watch.add(*left)

    def _take_watch(self, watch: GrowingWatch, wait: _Wait) -> None:
        """Have `watch` served, unless `wait`, its only one, has ended meanwhile."""
        with self._lock:
            if not wait.is_over:
                self._watch = watch
                serve = partial(self._serve, watch)
                self._thread = threading.Thread(target=serve, name="queue results", daemon=True)
                self._thread.start()
                return
        watch.close()

    def _end(self, wait: _Wait) -> Callable[[], None] | None:
        """Note that `wait` is over; return a call that ends its part of the watch."""
        ended: list[str] = []
        with self._lock:
            wait.is_over = True
            self._open.discard(wait)
            for id in wait.ids:
                waits = self._waits.get(id, [])
                if wait in waits:
                    waits.remove(wait)
                    if not waits:
                        del self._waits[id]
                        ended.append(id)
            watch = self._watch
        return partial(self._discard, watch, ended) if watch is not None and ended else None

    def _discard(self, watch: GrowingWatch, ids: Sequence[str]) -> None:
        with self._starting:
            with self._lock:
                gone = [id for id in ids if id not in self._waits]  # by another wait since
            if gone:
                watch.discard(*gone)

    def _serve(self, watch: GrowingWatch) -> None:
        """Pass on what `watch` finds until nobody waits any more, it fails, or it is closed.

        An idle one would not notice that its server has restarted.
        """
        while True:
            with self._lock:
                if self._watch is not watch or not self._waits:
                    self._watch = None if self._watch is watch else self._watch
                    break
            try:
                record = watch.next(timeout_s=LOOK_S)
            except ResultError as error:  # of one record, and no word of which
                with self._lock:
                    waits = set().union(*self._waits.values())
                self._tell(waits, error)
                continue
            except Exception as error:  # any: who waits must not wait for ever
                with self._lock:
                    if self._watch is not watch:
                        break  # closed
                    self._watch = None
                    waits = set().union(*self._waits.values())
                self._tell(waits, error)
                break
            if record is not None:
                with self._lock:
                    waits = set(self._waits.get(record.id, ()))
                self._tell(waits, record)
        watch.close()

    @staticmethod
    def _tell(waits: set[_Wait], found: Record | BaseException) -> None:
        for wait in waits:
            wait.hear(found)

    def close(self) -> None:
        """End the threads; who waits for results gets a LinkError.

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
