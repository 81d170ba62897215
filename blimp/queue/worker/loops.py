"""Threads with an asyncio loop each, for `async def` functions; a blocked loop is reported."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from blimp import errors
from blimp.queue.log import running_message

if TYPE_CHECKING:
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.worker.job import Alarms, Job, Run


LoopEnd = tuple[Callable[[], Coroutine[Any, Any, None]], float]  # and how long it may take
CLOSED_BY_S = 1.0  # of a loop with nothing to close
WAITERS = 4  # threads in which a loop's jobs wait for the broker


class SoftTimeLimitExceeded(errors.SoftTimeLimitExceeded, asyncio.CancelledError):
    """As raised in a coroutine: a cancellation too, so that task groups end what they started."""

    __module__ = errors.__name__


@types.coroutine
def guarded(
    coroutine: Coroutine[Any, Any, Any], *, instead: Callable[[], BaseException | None]
) -> Generator[Any, Any, Any]:
    """Await `coroutine`; if the task is cancelled, raise in it what `instead` returns.

    None leaves the cancellation as it is.
    """
    step: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            waits_for = step(argument)
        except StopIteration as end:
            return end.value
        try:
            argument = yield waits_for
            step = coroutine.send
        except asyncio.CancelledError as error:
            argument, step = instead() or error, coroutine.throw
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            argument, step = error, coroutine.throw


class LoopThread:
    """One thread with an asyncio loop, running up to `concurrency` jobs at once.

    context: each job runs in a copy of it. ends: run in the loop when it is closed, after its jobs.
    """

    def __init__(
        self,
        *,
        run: Run,
        concurrency: int,
        number: int,
        context: Context,
        ends: Sequence[LoopEnd],
        alarms: Alarms,
        log: Any,
    ) -> None:
        self._context = context
        self._run = run
        self._ends = ends
        self._log = log
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(concurrency)
        self._waiters = ThreadPoolExecutor(max_workers=WAITERS, thread_name_prefix="loop-io")
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitted = 0  # counted by the submitting thread
        self._ended = 0  # counted by the loop's thread: no two add to one number
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=f"loop-{number}", daemon=True)
        self._watch = LoopWatch(
            self._loop, thread=self._thread, load=lambda: self.load, alarms=alarms, log=log
        )
        self._thread.start()

    @property
    def load(self) -> int:
        return self._submitted - self._ended

    def submit(self, job: Job) -> None:
        self._submitted += 1
        job.in_thread = self._aside
        self._loop.call_soon_threadsafe(self._begin, job)

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run `coroutine` beside the jobs, in the context that they get copies of."""

        async def run() -> Any:
            return await self._loop.create_task(coroutine, context=self._context)

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=CLOSED_BY_S + sum(limit_s for _, limit_s in self._ends))
            self._waiters.shutdown(wait=False, cancel_futures=True)

    def _begin(self, job: Job) -> None:
        self._watch.begin()
        call = LoopCall(self._loop)
        job.call = call
        task = self._loop.create_task(self._limited(job), context=self._context.copy())
        call.task = task
        self._tasks.add(task)  # the loop keeps only weak references
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ended += 1

    async def _limited(self, job: Job) -> None:
        async with self._slots:
            await self._run(job)

    def _aside(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        return self._loop.run_in_executor(self._waiters, partial(function, *args))

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._closed:
                self._turn(self._loop.run_forever)
            for task in self._tasks:
                task.cancel()
            while self._tasks:
                ended = asyncio.gather(*self._tasks, return_exceptions=True)
                self._turn(partial(self._loop.run_until_complete, ended))
            for end, limit_s in self._ends:
                self._turn(partial(self._loop.run_until_complete, self._limited_end(end, limit_s)))
        finally:
            self._loop.close()

    async def _limited_end(
        self, end: Callable[[], Coroutine[Any, Any, None]], limit_s: float
    ) -> None:
        ended = asyncio.ensure_future(end())
        await asyncio.wait([ended], timeout=limit_s)
        if not ended.done():
            self._log.error("dependencies do not close", after_s=limit_s)
        elif not ended.cancelled() and (error := ended.exception()) is not None:
            self._log.error("dependency does not close", exc_info=error)

    def _turn(self, run: Callable[[], object]) -> None:
        """Run the loop. An exit in a part of one task, or in a callback, ends no other task."""
        try:
            run()
        except (SystemExit, KeyboardInterrupt):  # asyncio lets these two out
            self._log.exception("exit in a loop", loop=self._thread.name)


class LoopCall:
    """A coroutine function that runs in a loop. Only the function is cancelled, not its runner."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.task: asyncio.Task[None] | None = None
        self._running = False
        self._cancelled = False
        self._interruption: BaseException | None = None

    async def run(self, job: Job, arguments: Sequence[Any], *, interruptible: bool) -> Any:
        if self._cancelled:
            raise asyncio.CancelledError
        coroutine = job.task.run(*arguments, **job.message.kwargs)
        if interruptible:
            coroutine = guarded(coroutine, instead=self._take_interruption)
        self._running = True
        try:
            return await coroutine
        finally:
            self._running = False

    def interrupt(self) -> None:
        self._in_loop(self._interrupt)

    def cancel(self) -> bool:
        self._in_loop(self._cancel)
        return True

    def _in_loop(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and has cancelled its tasks
            self._loop.call_soon_threadsafe(function)

    def _interrupt(self) -> None:
        if self._running:
            self._interruption = SoftTimeLimitExceeded()
            if self.task is not None:
                self.task.cancel()

    def _cancel(self) -> None:
        self._cancelled = True  # it may not have begun yet
        if self._running and self.task is not None:
            self.task.cancel()

    def _take_interruption(self) -> BaseException | None:
        error, self._interruption = self._interruption, None
        if error is not None and self.task is not None:
            self.task.uncancel()
        return error


# --- a coroutine that blocks its loop, and so all others of that loop ----------------------------

LOOK_S = 0.5  # between two looks
LOOKS = 2  # without an answer; one may come late after a machine that slept


class LoopWatch:
    """Asks a loop that has jobs whether it turns, and has one line written if it does not.

    The worker's alarms keep the time: an idle loop is not asked, and wakes nobody.
    load: how many jobs the loop has, counted before `begin` is called.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        thread: threading.Thread,
        load: Callable[[], int],
        alarms: Alarms,
        log: Any,
    ) -> None:
        self._loop = loop
        self._thread = thread
        self._load = load
        self._alarms = alarms
        self._log = log
        self._lock = threading.Lock()
        self._is_on = False
        self._asked_s: float | None = None  # None: it has answered
        self._looks = 0
        self._reported: dict[str, Any] | None = None

    def begin(self) -> None:
        """Watch the loop while it has jobs. Any thread."""
        with self._lock:
            was_on, self._is_on = self._is_on, True
        if not was_on:
            self._ask()

    def _ask(self) -> None:
        self._asked_s, self._looks = self._alarms.clock.now_s(), 0
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            return  # it is closed
        self._alarms.set(LOOK_S, self._look)

    def _answer(self) -> None:
        asked_s, self._asked_s = self._asked_s, None
        reported, self._reported = self._reported, None
        if reported is not None and asked_s is not None:
            after_s = round(self._alarms.clock.now_s() - asked_s, 1)
            self._log.info("loop runs again", **reported, after_s=after_s)

    def _look(self) -> None:
        """Called by the alarms."""
        asked_s = self._asked_s
        if asked_s is None:
            self._is_on = False
            if self._load():  # what has begun before that is watched by this
                self.begin()
            return
        self._looks += 1
        if self._looks == LOOKS:
            self._report(self._alarms.clock.now_s() - asked_s)
        self._alarms.set(LOOK_S, self._look)

    def _report(self, for_s: float) -> None:
        frame = sys._current_frames().get(self._thread.ident or 0)
        message = None if frame is None else _message_in(frame)
        about = {"loop": self._thread.name} | ({} if message is None else {"id": message.id})
        named = {} if message is None else {"task": message.task}
        place = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._reported = about
        self._log.warning("loop blocked", **named, **about, for_s=round(for_s, 1), at=place)


def _message_in(frame: FrameType | None) -> TaskMessage | None:
    """Return the message whose task, or a part of it, runs in a loop's thread at `frame`.

    asyncio runs each step of a coroutine, and each callback, in a Handle's context.
    """
    while frame is not None:
        if frame.f_code is asyncio.Handle._run.__code__:
            context: Context = frame.f_locals["self"]._context
            return context.get(running_message)
        frame = frame.f_back
    return None
