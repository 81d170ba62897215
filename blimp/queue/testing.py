"""An app without a server: its tasks run here, one after another, on a clock that a test moves.

    def test_reading(blimp_queue):
        queue = blimp_queue(app)
        reading = read.apply_async(("EDDB",), countdown=60.0)
        assert queue.run() == 0
        queue.advance(60.0)
        assert reading.get(timeout=10.0) == 12.5

Each runs in the thread of who calls `run` or `advance`, or waits for a result: then time passes
until it is there. What sends, runs, retries and follows is what a worker is made of.
Time limits and resource pools are not, either, and a broadcast reaches nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from blimp.clock import ManualClock
from blimp.errors import ConfigError, ResultError
from blimp.queue.brokers.base import MOST_DELIVERIES, Capabilities, Found, Written
from blimp.queue.canvas.parts import Chords
from blimp.queue.extensions import Observers
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE, FAIR, TaskMessage
from blimp.queue.protocol.record import Record, decode
from blimp.queue.publish.publisher import Publisher
from blimp.queue.publish.taken_back import NUMBER, REMEMBER, Revocations
from blimp.queue.redis.clock import BrokerClock
from blimp.queue.redis.keys import chord_keys
from blimp.queue.results.backend import GrowingWatch, ResultBackend
from blimp.queue.scheduler import Timetable
from blimp.queue.worker.acker import Acker
from blimp.queue.worker.completions import FAILED, Completions
from blimp.queue.worker.decode import Decoder
from blimp.queue.worker.job import Job
from blimp.queue.worker.middleware import default_middleware
from blimp.queue.worker.middleware.requires import Leftovers, Requires
from blimp.queue.worker.pools.threads import drive, here
from blimp.queue.worker.runner import Runner
from blimp.queue.worker.time_limits import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Container

    from blimp.queue.app import TaskApp
    from blimp.queue.canvas.parts import ChordPart
    from blimp.queue.protocol.record import Outcome
    from blimp.queue.redis.scripts import Script
    from blimp.queue.worker.job import CallNext

T = TypeVar("T")

LOOK_S = 0.001  # between looks at what runs elsewhere
MOST = 10_000  # tasks in one call: what sends itself again without a delay never ends
ENDLESS = "tasks ran, and more are due: raise `most`, or does one send itself again?"
NO_POOLS = "resource pools need a server"
NAME = "in-process"
CAPABILITIES = Capabilities(
    title="in process", is_shared=False, has_dead_letters=True, counts_deliveries=True,
    schedules=True, finds_messages=True, keeps_stamps=True, shares_fairly=True,
)  # fmt: skip


@contextlib.contextmanager
def in_process(app: TaskApp, *, start: datetime | None = None) -> Iterator[InProcess]:
    """Have `app` need no server for the block: what it sends waits in the InProcess.

    start: what its clock shows, now by default. Raises ConfigError for one that is so already.
    """
    if isinstance(app.clock, _Clock):
        raise ConfigError(f"app {app.name!r} is in process already")
    with contextlib.ExitStack() as ends:
        ends.callback(_put_back, app, dict(vars(app)))
        queue = InProcess(app, start_s=(start or datetime.now(UTC)).timestamp())
        ends.callback(queue.close)
        yield queue


def _put_back(app: TaskApp, saved: dict[str, Any]) -> None:
    vars(app).clear()
    vars(app).update(saved)


class InProcess:
    """The queue of one app: what waits, and the worker that runs it when it is asked to.

    dead: the messages that are not delivered any more, with their reasons.
    """

    def __init__(self, app: TaskApp, *, start_s: float) -> None:
        self.app = app
        self.clock = _Clock(start_s=0.0, wall_offset_s=start_s)
        self.dead: list[tuple[TaskMessage, str]] = []
        self._numbers = itertools.count()
        self._lock = threading.RLock()  # of what waits: any thread may send
        self._ready: list[_Waiting] = []
        self._later: list[_Waiting] = []
        # Of each priority where tenants wait: the turn that is next, under "", and each tenant's.
        self._turns: dict[float, dict[str, int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps only weak references
        self.interruption: BaseException | None = None
        _take_over(app, self)
        self._log = app.make_log(level=app.log_level, worker=NAME)
        never = threading.Event()
        self._decoder = Decoder(app=app, worker=NAME, counts=Counter(), log=self._log)
        no_consumer: Any = None
        self._acker = Acker(
            app=app,
            consumer=no_consumer,
            abandoned=never,
            on_done=_nothing,
            on_ran=_nothing,
            observers=Observers(log=self._log),
            log=self._log,
        )
        self._runner = Runner(
            app=app,
            worker=NAME,
            stopping=never,
            abandoned=never,
            on_done=_nothing,
            acker=self._acker,
            completions=Completions(app=app, worker=NAME, log=self._log),
            limits=_NoLimits(),
            observers=Observers(log=self._log),
            log=self._log,
        )
        self._timetable = Timetable(app)
        now_s = self.clock.wall_s()
        self._ticked_s = {
            task.name: schedule.last_s(now_s) for task, schedule in self._timetable.tasks()
        }

    @property
    def time(self) -> datetime:
        """What its clock shows, in UTC."""
        return datetime.fromtimestamp(self.clock.wall_s(), UTC)

    @property
    def waiting(self) -> list[TaskMessage]:
        """What has not begun: what is due, in its order, then the rest by its time."""
        with self._lock:
            self._move_due()
            return [one.message for heap in (self._ready, self._later) for one in sorted(heap)]

    def run(self, *, most: int = MOST) -> int:
        """Run what is due, and what that sends; return how many ran.

        Raises RuntimeError if more than `most` do, or a coroutine is due in a running loop.
        """
        count = 0
        while self.step():
            count = _counted(count, most)
        return count

    async def arun(self, *, most: int = MOST) -> int:
        """Do what `run` does; coroutines run in the loop of the caller."""
        count = 0
        while await self.astep():
            count = _counted(count, most)
        return count

    def advance(self, by: float | timedelta, *, most: int = MOST) -> int:
        """Let time pass, seconds or a timedelta; run tasks, and ticks of schedules, at their time.

        Returns how many ran. Raises RuntimeError as `run` does, ValueError for a step back.
        """
        end_s = self._end_s(by)
        count = self.run(most=most)
        while self.pass_time(end_s):
            count = _counted(count + self.run(most=most) - 1, most)
        return count

    async def aadvance(self, by: float | timedelta, *, most: int = MOST) -> int:
        """Do what `advance` does; coroutines run in the loop of the caller."""
        end_s = self._end_s(by)
        count = await self.arun(most=most)
        while self.pass_time(end_s):
            count = _counted(count + await self.arun(most=most) - 1, most)
        return count

    def step(self) -> bool:
        """Run the first that is due; return False if none is."""
        one = self._take()
        if one is None:
            return False
        job = self._job(one)
        if job is None:
            return True
        if job.task.is_async and asyncio._get_running_loop() is not None:
            with self._lock:
                heapq.heappush(self._ready, one)
            raise RuntimeError(
                f"{job.task.name} is a coroutine, and a loop runs here: await arun(), aadvance() "
                "or aget()"
            )
        with self._within(one.number):
            if not job.task.is_async:
                drive(self._runner.run(job))
            else:
                self._loop = self._loop or asyncio.new_event_loop()
                self._loop.run_until_complete(self._runner.run(job))
            self._acker.wait_written()
        self._raise_interruption()
        return True

    async def astep(self) -> bool:
        """Do what `step` does; a coroutine runs in the loop of the caller, as a task of its own.

        One that is cancelled while it waits for that leaves it running.
        """
        one = self._take()
        if one is None:
            return False
        job = self._job(one)
        if job is None:
            return True
        if job.task.is_async:
            task = asyncio.ensure_future(self._run_here(job, one.number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.shield(task)
        else:
            with self._within(one.number), _without_loop():
                drive(self._runner.run(job))
                self._acker.wait_written()
        self._raise_interruption()
        return True

    async def _run_here(self, job: Job, number: int) -> None:
        with self._within(number):
            await self._runner.run(job)
            self._acker.wait_written()

    @contextlib.contextmanager
    def _within(self, number: int) -> Iterator[None]:
        before = _inside.set(_inside.get() | {number})
        self._running.add(number)
        try:
            yield
        finally:
            self._running.discard(number)
            _inside.reset(before)

    @property
    def runs_elsewhere(self) -> bool:
        """Whether something runs that the caller is not a part of."""
        return not self._running <= _inside.get()

    def _raise_interruption(self) -> None:
        error, self.interruption = self.interruption, None
        if error is not None:
            raise error

    def put(self, message: TaskMessage, headers: dict[str, Any], body: bytes) -> None:
        """Have it wait for its turn."""
        one = _Waiting(message.priority, 0, next(self._numbers), message, headers, body)
        with self._lock:
            if message.eta_s is None:
                self._push(one)
            else:
                heapq.heappush(self._later, one._replace(order=message.eta_s))

    def _push(self, one: _Waiting) -> None:
        """Have it wait for its turn: of a tenant, as place() of shared.lua does."""
        level, tenant = one.message.priority, one.message.headers.get(FAIR)
        turn = 0
        if tenant:
            notes = self._turns.setdefault(level, {"": 1})
            turn = max(notes[""], notes.get(tenant, 1))
            notes[tenant] = turn + 1
        heapq.heappush(self._ready, one._replace(order=level, turn=turn))

    def waits(self, id: str) -> bool:
        with self._lock:
            return any(one.message.id == id for one in (*self._ready, *self._later))

    @property
    def is_due(self) -> bool:
        """Whether a message is."""
        with self._lock:
            self._move_due()
            return bool(self._ready)

    @property
    def has_later(self) -> bool:
        return bool(self._later)

    def close(self) -> None:
        with contextlib.ExitStack() as ends:
            ends.callback(self.app.close_kept)
            if self._loop is not None:
                ends.callback(self._loop.close)
                ends.callback(self._loop.run_until_complete, _end_tasks())
                ends.callback(self._loop.run_until_complete, self.aclose())
            ends.callback(self._acker.close)

    async def aclose(self) -> None:
        """Close what was made once in this loop, by a dependency with per="worker"."""
        if "kept" in vars(self.app):
            await self.app.kept.aclose()

    def _take(self) -> _Waiting | None:
        with self._lock:
            self._move_due()
            if not self._ready:
                return None
            one = heapq.heappop(self._ready)
            if one.turn:
                self._forget_tenants(one.order)
            return one

    def _forget_tenants(self, level: float) -> None:
        """Forget those of a priority whose next message would have the turn that is next anyway."""
        if not self._ready or self._ready[0].order != level:
            del self._turns[level]
        elif (turn := self._ready[0].turn) > self._turns[level][""]:
            left = {tenant: own for tenant, own in self._turns[level].items() if own > turn}
            self._turns[level] = left | {"": turn}

    def _job(self, one: _Waiting) -> Job | None:
        """Return the job of a message; None if no worker would run it."""
        found = self._decoder.read(_Arrived(one), queue=one.message.queue)
        if isinstance(found, str):
            self.dead.append((one.message, found))
            return None
        message, task = found
        job = Job(message=message, task=task, delivery=_Delivery(self, message))
        job.in_thread = here
        job.call = _Call(self)
        return job

    def _move_due(self) -> None:
        while self._later and self._later[0].order <= self.clock.wall_s():
            self._push(heapq.heappop(self._later))

    def _end_s(self, by: float | timedelta) -> float:
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if not seconds >= 0.0:
            raise ValueError(f"a clock cannot go back: advance({seconds:g})")
        return self.clock.now_s() + seconds

    def pass_time(self, end_s: float) -> bool:
        """Set the clock to when something is due; False if nothing is until `end_s`: to that.

        It stays where it is if that is never.
        """
        offset_s = self.clock.wall_s() - self.clock.now_s()
        due_s = min([*(one.order for one in self._later[:1]), *self._ticks_s()], default=math.inf)
        if not due_s - offset_s <= end_s or math.isinf(due_s):
            if not math.isinf(end_s):
                self.clock.sleep_until(end_s)
            return False
        self.clock.sleep_until(due_s - offset_s)
        self._send_ticks(max(due_s, self.clock.wall_s()))  # of those missed the newest
        return True

    def _ticks_s(self) -> Iterator[float]:
        for task, schedule in self._timetable.tasks():
            yield schedule.next_s(self._ticked_s.setdefault(task.name, self.clock.wall_s()))

    def _send_ticks(self, now_s: float) -> None:
        for task, schedule in self._timetable.tasks():
            tick_s = schedule.last_s(now_s)
            if tick_s > self._ticked_s[task.name]:
                self._ticked_s[task.name] = tick_s
                if not self._timetable.is_paused(task.name):
                    self._timetable.send(task, schedule, tick_s=tick_s, now_s=now_s)


_inside: ContextVar[frozenset[int]] = ContextVar("blimp_inside", default=frozenset())


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


def _take_over(app: TaskApp, queue: InProcess) -> None:
    """Have `app` send to `queue`, and read from it."""
    clock, own = queue.clock, vars(app)
    for name in ("chords", "follow_ups", "awaiting", "kept", "pools"):
        own.pop(name, None)
    server: Any = _Server(clock)
    broker: Any = _Broker(queue)
    own |= {
        "clock": clock,
        "capabilities": CAPABILITIES,
        "shares_server": False,
        "broker_clock": BrokerClock(link=None, clock=clock),
        "revocations": Revocations(link=None, app=app.name, signer=app.signer),
        "publisher": Publisher(
            url=app.brokers,
            limit_bytes=app.limit_bytes,
            signer=app.signer,
            clock=clock,
            broker=broker,
        ),
        "on_sent": None,
        "awaiting": _Awaiting(queue),
    }
    if app.has_store:
        own |= {
            "_store": server,
            "chords": _Chords(link=server, keep_s=0, signer=app.signer),
        }
    if app.middleware is None:
        layers = default_middleware(app)
        kept = [one for one in layers if not isinstance(one, Requires | Leftovers)]
        own["middleware"] = (*kept, _NoPools())
    if app.results is not None:
        limit_bytes = app.result_options.result_limit_bytes or app.limit_bytes
        own["results"] = _Results(queue, limit_bytes=limit_bytes)


def _counted(count: int, most: int) -> int:
    if count >= most:
        raise RuntimeError(f"{most} {ENDLESS}")
    return count + 1


def _nothing(*_: object) -> None: ...


class _Clock(ManualClock):
    """What an app's is while it is in process."""


class _NoLimits(Limits):
    def __init__(self) -> None: ...

    def watch(self, *_: object, **__: object) -> AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


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


class _NoPools:
    """In the place of Requires. Of one key never more run at once: nothing does."""

    def wants(self, job: Job) -> bool:
        return job.task.options.requires is not None

    def __call__(self, job: Job, _: CallNext) -> Awaitable[Outcome]:
        raise ConfigError(f"{job.task.name} requires {job.task.options.requires!r}: {NO_POOLS}")


# --- the broker ----------------------------------------------------------------------------------


class _Waiting(NamedTuple):
    """order: the priority of one that is due, the time of another. turn: 0 without a tenant."""

    order: float
    turn: int
    number: int
    message: TaskMessage
    headers: dict[str, Any]
    body: bytes


class _Arrived:
    """A message as kombu has it."""

    content_type, content_encoding = CONTENT_TYPE, CONTENT_ENCODING

    def __init__(self, one: _Waiting) -> None:
        self.headers = one.headers
        self.body = one.body
        self.properties = {"priority": one.message.priority}


class _Delivery:
    def __init__(self, queue: InProcess, message: TaskMessage) -> None:
        self.tag = message.id
        self.queue = message.queue
        self._in, self._message = queue, message

    @property
    def over_delivery_limit(self) -> str:
        before = self._message.delivery - self._message.retries - 1
        return f"delivered {before} times" if before >= MOST_DELIVERIES else ""

    def ack(self) -> None: ...

    def requeue(self, *, seen: bool = True) -> None:
        delivery = self._message.delivery + seen
        self._in.app.publisher.publish(msgspec.structs.replace(self._message, delivery=delivery))

    def reject(self, reason: str) -> None:
        self._in.dead.append((self._message, reason))


class _Broker:
    """As much of a Broker as a Publisher needs."""

    name = NAME
    capabilities = CAPABILITIES

    def __init__(self, queue: InProcess) -> None:
        self._queue = queue

    def open_sender(self, *_: object, **__: object) -> _Sender:
        return _Sender(self._queue)


class _Sender:
    def __init__(self, queue: InProcess) -> None:
        self._queue = queue
        self._stamps: set[Any] = set()

    def connect(self) -> None: ...

    def stamp(self) -> None: ...

    def release(self, stamp: Any) -> None: ...

    def send(self, messages: Sequence[Written], stamp: Any) -> None:
        if stamp is None or stamp not in self._stamps:
            self._stamps.add(stamp)
            for one in messages:
                self._queue.put(*one)

    def broadcast(self, exchange: str, body: bytes) -> None: ...

    def notify(self, *_: object, **__: object) -> None: ...

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:  # noqa: ARG002
        return Found.MARKED if self._queue.waits(id) else Found.ABSENT  # its turn ends it

    def close(self) -> None: ...


# --- what else a server keeps --------------------------------------------------------------------


class _Server:
    """What of a RedisServer is used for marks, coalescing and schedules: a client of itself."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._kept: dict[str, Any] = {}
        self._ends_s: dict[str, float] = {}
        self.parts: dict[str, dict[str, tuple[float, bytes]]] = {}  # of chords, by key and member
        self._scripts = {NUMBER.digest: self._number, REMEMBER.digest: self._remember}

    client = property(lambda self: self)

    def ask(self, function: Callable[[Any], T]) -> T:
        return function(self)

    def link(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None: ...

    def get(self, key: str) -> bytes | None:
        if self._ends_s.get(key, math.inf) <= self._clock.now_s():
            self.delete(key)
        found: bytes | None = self._kept.get(key)
        return found

    def set(
        self, key: str, value: Any, *, nx: bool = False, px: float = math.inf, get: bool = False
    ) -> Any:
        last = self.get(key)
        is_set = last is None or not nx
        if is_set:
            self._kept[key] = value if isinstance(value, bytes) else str(value).encode()
            self._ends_s[key] = self._clock.now_s() + px / 1e3
        return last if get else is_set

    def delete(self, key: str) -> None:
        self._kept.pop(key, None)

    def expire(self, key: str, seconds: float) -> None: ...

    @contextlib.contextmanager
    def pipeline(self, **_: object) -> Iterator[_Server]:
        yield self

    def execute(self) -> None: ...

    def sadd(self, key: str, member: str) -> None:
        self._kept.setdefault(key, set()).add(member)

    def srem(self, key: str, member: str) -> None:
        self._kept.get(key, set()).discard(member)

    def sismember(self, key: str, member: str) -> bool:
        return member in self._kept.get(key, ())

    def zrange(self, key: str, *_: object, **__: object) -> list[tuple[bytes, float]]:
        found = sorted(self.parts.get(key, {}).values())
        return [(entry, place) for place, entry in found]

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return self.execute_command("", script.digest, len(keys), *keys, *arguments)

    def execute_command(self, _: str, digest: str, keys: int, *words: Any) -> Any:
        if digest not in self._scripts:
            raise ConfigError(NO_POOLS)
        return self._scripts[digest](words[:keys], words[keys:])

    def _number(self, keys: Sequence[str], _: object) -> bytes:
        last = int(self.get(keys[0]) or 0)
        self.set(keys[0], max(int(self._clock.wall_s() * 1e6), last + 1))
        return self._kept[keys[0]]  # type: ignore[no-any-return]

    def _remember(self, keys: Sequence[str], words: Sequence[Any]) -> int:
        known = self.get(keys[0])
        if known is not None and int(known.split()[0]) >= int(words[0]):
            return 0
        self.set(keys[0], f"{words[0]} {words[1]}")
        return 1


class _Chords(Chords):
    """Counts as the scripts of results.lua do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sizes: dict[str, int] = {}
        self._starts: dict[str, str] = {}

    def begin(self, sizes: Sequence[tuple[str, int]]) -> None:
        for group_id, size in sizes:
            self._sizes.setdefault(group_id, size)

    def count(self, part: ChordPart) -> bool:
        member, place, entry = part.words(self.signer)
        group_id, server = part.group_id, self._server
        if self._starts.get(group_id, member) != member:
            return False
        parts = server.parts.setdefault(chord_keys(group_id)[0], {})
        parts.setdefault(member, (float(place), entry))
        if group_id not in self._sizes or len(parts) < self._sizes[group_id]:
            return False
        self._starts[group_id] = member
        return True

    def joined(self, part: ChordPart) -> None:
        self._starts[part.group_id] = "done"
        self._server.parts.pop(chord_keys(part.group_id)[0], None)

    @property
    def _server(self) -> _Server:
        server: Any = self.link
        return server  # type: ignore[no-any-return]


# --- results -------------------------------------------------------------------------------------


class _Results(ResultBackend):
    def __init__(self, queue: InProcess, *, limit_bytes: int) -> None:
        super().__init__(keep_s=0, limit_bytes=limit_bytes, clock=queue.clock)
        self._queue = queue
        self._records: dict[str, bytes] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        self.watches: list[_Watch] = []
        self._lock = threading.Lock()

    def write(self, id: str, data: bytes) -> bool:
        with self._lock:
            if id in self._records and decode(self._records[id]).final:
                return False
            self._records.pop(id, None)  # the newest is the last
            self._records[id] = data
            for watch in self.watches:
                watch.hear(id, data)
            return True

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        return [self.write(id, data) for id, data in records]

    def read(self, id: str) -> bytes | None:
        return self._records.get(id)

    def failures(self, *, limit: int, names: Container[str] | None = None) -> list[Record]:
        newest = map(decode, reversed(self._records.values()))
        failed = (one for one in newest if one.state in FAILED)
        found = (one for one in failed if names is None or one.name is None or one.name in names)
        return list(itertools.islice(found, limit))

    def forget(self, id: str) -> None:
        self._records.pop(id, None)

    def watch(self, *ids: str) -> _Watch:
        return _Watch(self._queue, self, ids)

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        self._groups[id] = document

    def group(self, id: str) -> dict[str, Any] | None:
        return self._groups.get(id)

    def forget_group(self, id: str) -> None:
        self._groups.pop(id, None)

    def close(self) -> None: ...


class _Watch(GrowingWatch):
    """Waits by letting time pass: what is due meanwhile runs."""

    def __init__(self, queue: InProcess, results: _Results, ids: Sequence[str]) -> None:
        self._queue, self._results = queue, results
        self._ids = set(ids)
        self._news: deque[bytes] = deque()
        results.watches.append(self)
        for id in ids:
            if (data := results.read(id)) is not None:
                self._news.append(data)

    def hear(self, id: str, data: bytes) -> None:
        if id in self._ids:
            self._news.append(data)

    def add(self, *ids: str) -> None:
        self._ids.update(ids)

    def discard(self, *ids: str) -> None:
        self._ids.difference_update(ids)

    def next(self, *, timeout_s: float) -> Record | None:
        end_s = self._queue.clock.now_s() + timeout_s
        for _ in range(MOST):
            while not self._news and not self._queue.step() and self._queue.runs_elsewhere:
                time.sleep(LOOK_S)
            if self._news:
                return decode(self._news.popleft())
            if not self._goes_on(end_s):
                return None
        raise RuntimeError(f"{MOST} {ENDLESS}")

    async def anext(self, end_s: float) -> Record | None:
        for _ in range(MOST):
            while not self._news and not await self._queue.astep() and self._queue.runs_elsewhere:
                await asyncio.sleep(LOOK_S)
            if self._news:
                return decode(self._news.popleft())
            if not self._goes_on(end_s):
                return None
        raise RuntimeError(f"{MOST} {ENDLESS}")

    def _goes_on(self, end_s: float) -> bool:
        """Let time pass; False if nothing comes until then. Raises TimeoutError if never."""
        if self._queue.is_due:
            return True
        if math.isinf(end_s) and not self._queue.has_later:
            raise TimeoutError("there is no result, and nothing waits in the queue")
        return self._queue.pass_time(end_s)

    def close(self) -> None:
        self._ids.clear()
        with contextlib.suppress(ValueError):
            self._results.watches.remove(self)


class _Awaiting:
    """What coroutines ask of an app: they run what is due themselves."""

    def __init__(self, queue: InProcess) -> None:
        self._queue = queue

    async def call(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(function)

    async def records(
        self, ids: Sequence[str], timeout: float | None = None
    ) -> AsyncIterator[Record]:
        results: Any = self._queue.app.results
        end_s = self._queue.clock.now_s() + (math.inf if timeout is None else timeout)
        left = set(ids)
        with results.watch(*ids) as watch:
            while left:
                record = await watch.anext(end_s)
                if record is None:
                    raise TimeoutError
                if record.final:
                    left.discard(record.id)
                yield record

    def close(self) -> None: ...
