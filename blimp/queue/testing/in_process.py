"""The queue of one app in process: what waits in its broker, and the worker that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from blimp.queue.scheduler import Timetable
from blimp.queue.steps import here
from blimp.queue.worker.pools import drive
from blimp.queue.worker.worker import Worker

if TYPE_CHECKING:
    from blimp.clock import ManualClock
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.in_memory import InMemoryBroker
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.worker.job import Job

MOST = 10_000  # tasks in one call: what sends itself again without a delay never ends
ENDLESS = "tasks ran, and more are due: raise `most`, or does one send itself again?"
NAME = "in-process"


class InProcess:
    """The queue of one app: what waits, and the worker that runs it when it is asked to.

    dead: the messages that are not delivered any more, with their reasons.
    """

    def __init__(self, app: TaskApp, *, broker: InMemoryBroker, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self.dead = broker.dead
        self.interruption: BaseException | None = None
        self._broker = broker
        self._arrived: deque[Job] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps only weak references
        extensions, app.extensions = app.extensions, []
        # Nothing runs in a child process: what is said of the app's path is not used.
        self._worker = Worker(app=app, name=NAME, app_path=NAME)
        app.extensions = extensions
        self._worker._alarms.close()  # no time limit ends
        self._worker.consumer_loop.submit = self._arrived.append
        self._consumer = self._worker.consumer_loop.consumer
        queues: Any = broker.ready.keys()  # a view: also of those to come
        self._consumer.consume(queues)
        self._timetable = Timetable(app)
        now_s = clock.wall_s()
        self._ticked_s = {row.name: row.schedule.last_s(now_s) for row in self._timetable.rows()}

    @property
    def time(self) -> datetime:
        """What its clock shows, in UTC."""
        return datetime.fromtimestamp(self.clock.wall_s(), UTC)

    @property
    def waiting(self) -> list[TaskMessage]:
        """What has not begun: what is due, in its order, then the rest by its time."""
        return self._broker.waiting()

    def run(self, *, most: int = MOST) -> int:
        """Run what is due, and what that sends; return how many ran.

        Raises RuntimeError if more than `most` do, or a coroutine is due in a running loop.
        """
        count: int = drive(self._run_due(most, awaits=False))
        return count

    async def arun(self, *, most: int = MOST) -> int:
        """Do what `run` does; coroutines run in the loop of the caller."""
        return await self._run_due(most, awaits=True)

    async def _run_due(self, most: int, *, awaits: bool) -> int:
        count = 0
        while await self.step_in(awaits=awaits):
            count = _counted(count, most)
        return count

    def advance(self, by: float | timedelta, *, most: int = MOST) -> int:
        """Let time pass, seconds or a timedelta; run tasks, and ticks of schedules, at their time.

        Returns how many ran. Raises RuntimeError as `run` does, ValueError for a step back.
        """
        count: int = drive(self._advance(by, most, awaits=False))
        return count

    async def aadvance(self, by: float | timedelta, *, most: int = MOST) -> int:
        """Do what `advance` does; coroutines run in the loop of the caller."""
        return await self._advance(by, most, awaits=True)

    async def _advance(self, by: float | timedelta, most: int, *, awaits: bool) -> int:
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if not seconds >= 0.0:
            raise ValueError(f"a clock cannot go back: advance({seconds:g})")
        end_s = self.clock.now_s() + seconds
        count = await self._run_due(most, awaits=awaits)
        while self.pass_time(end_s):
            count = _counted(count + await self._run_due(most, awaits=awaits) - 1, most)
        return count

    def step(self) -> bool:
        """Run the first that is due; return False if none is."""
        ran: bool = drive(self.step_in(awaits=False))
        return ran

    async def step_in(self, *, awaits: bool) -> bool:
        """Do what `step` does. awaits: a coroutine runs in the loop of the caller, as a task.

        One that is cancelled while it waits for that leaves it running. Without, nothing here
        waits: a coroutine runs to its end in a loop of the queue.
        """
        try:
            self._consumer.drain(0.0)
        except TimeoutError:
            return False
        if not self._arrived:
            return True  # no worker would run it
        job = self._arrived.popleft()
        job.in_thread = here
        job.call = _Call(self)
        if not job.task.is_async:
            with _without_loop():
                copy_context().run(drive, self._run(job))
        elif awaits:
            task = asyncio.ensure_future(self._run(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.shield(task)
        elif asyncio._get_running_loop() is not None:
            self._worker.consumer_loop.requeue_waiting()
            raise RuntimeError(
                f"{job.task.name} is a coroutine, and a loop runs here: await arun(), aadvance() "
                "or aget()"
            )
        else:
            self._loop = self._loop or asyncio.new_event_loop()
            self._loop.run_until_complete(self._run(job))
        error, self.interruption = self.interruption, None
        if error is not None:
            raise error
        return True

    async def _run(self, job: Job) -> None:
        tag = job.delivery.tag
        before = _inside.set(_inside.get() | {tag})
        self._running.add(tag)
        try:
            await self._worker.runner.run(job)
            self._worker._acker.wait_written()
        finally:
            self._running.discard(tag)
            _inside.reset(before)

    @property
    def runs_elsewhere(self) -> bool:
        """Whether something runs that the caller is not a part of."""
        return not self._running <= _inside.get()

    @property
    def is_due(self) -> bool:
        """Whether a message is."""
        return self._broker.is_due

    @property
    def has_later(self) -> bool:
        return bool(self._broker.later)

    def close(self) -> None:
        with contextlib.ExitStack() as ends:
            ends.callback(self.app.close_kept)
            if self._loop is not None:
                ends.callback(self._loop.close)
                ends.callback(self._loop.run_until_complete, _end_tasks())
                ends.callback(self._loop.run_until_complete, self.aclose())
            ends.callback(self._worker._acker.close)

    async def aclose(self) -> None:
        """Close what was made once in this loop, by a dependency with per="worker"."""
        if "kept" in vars(self.app):
            await self.app.kept.aclose()

    def pass_time(self, end_s: float) -> bool:
        """Set the clock to when something is due; False if nothing is until `end_s`: to that.

        It stays where it is if that is never.
        """
        now_s = self.clock.wall_s()
        due_s = min([now_s + self._broker.due_in_s(), *self._ticks_s()], default=math.inf)
        offset_s = now_s - self.clock.now_s()
        if not due_s - offset_s <= end_s or math.isinf(due_s):
            if not math.isinf(end_s):
                self.clock.sleep_until(end_s)
            return False
        self.clock.sleep_until(due_s - offset_s)
        self._send_ticks(max(due_s, self.clock.wall_s()))  # of those missed the newest
        return True

    def _ticks_s(self) -> Iterator[float]:
        for name, _, schedule in self._timetable.rows():
            yield schedule.next_s(self._ticked_s.setdefault(name, self.clock.wall_s()))

    def _send_ticks(self, now_s: float) -> None:
        for row in self._timetable.rows():
            tick_s = row.schedule.last_s(now_s)
            if tick_s > self._ticked_s[row.name]:
                self._ticked_s[row.name] = tick_s
                if not self._timetable.is_paused(row):
                    self._timetable.send(row, tick_s=tick_s, now_s=now_s)


_inside: ContextVar[frozenset[str]] = ContextVar("blimp_inside", default=frozenset())


@contextlib.contextmanager
def _without_loop() -> Iterator[None]:
    """Have plain code see no running loop: in a worker it would be in a thread of its own."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


async def _end_tasks() -> None:
    """Cancel what tasks have left running in this loop, and wait for its end."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _counted(count: int, most: int) -> int:
    if count >= most:
        raise RuntimeError(f"{most} {ENDLESS}")
    return count + 1


class _Call:
    def __init__(self, queue: InProcess) -> None:
        self._queue = queue

    async def run(self, job: Job, arguments: Sequence[Any], *, interruptible: bool) -> Any:  # noqa: ARG002
        try:
            result = job.task.run(*arguments, **job.message.kwargs)
            return await result if job.task.is_async else result
        except (Exception, SystemExit, GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException as error:  # Ctrl-C, or pytest's: it is not for the task
            self._queue.interruption = error
            raise

    def interrupt(self) -> None: ...

    def cancel(self) -> bool:
        return False
