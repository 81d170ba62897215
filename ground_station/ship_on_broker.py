"""The way to a ship through its broker: `VehicleClient`, each call in a thread.

send    one thread: what is called first is sent first
wait    for replies, one thread a command
stop    emergency stops, connected before the press; they wait for no other thread. What was
        called before a stop and is not sent yet is refused, so that it is not issued after it
telemetry, heartbeat    one thread each, from the first use on
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from blimp.actions import START_TTL_S
from blimp.clock import SystemClock
from blimp.config import ground_config
from blimp.errors import (
    BlimpError,
    ConfigError,
    LinkError,
    NotAuthorised,
    OutcomeUnknown,
    TaskError,
)
from blimp.queue.protocol.message import HIGH, NORMAL
from blimp.tasks.client import TASK_PREFIX, user_name
from blimp.tasks.reply import Reply
from blimp.web.outcome import Outcome
from ground_station.discover import check_known
from ground_station.every_ship import EveryShip
from ground_station.following import AIRFRAME_S, OUTAGE_S, RETRY_S, SLICE_S, CommandListener, follow
from ground_station.report import Report
from ground_station.session import FOR_EVERYBODY, Options, Session
from ground_station.setpoints import Setpoints
from ground_station.stops import Stops
from ground_station.traced import root_span, traced

if TYPE_CHECKING:
    from blimp.airframe import Airframe
    from blimp.queue.resources import Grant
    from blimp.tasks.client import VehicleClient
    from blimp.tasks.reply import Pending
    from blimp.types import Snapshot

WAITING = 64  # commands of one ship that are awaited at once; what is beyond is sent, too
PRESSES = 16  # emergency stops at once: one that is not confirmed keeps its thread for seconds
TAKE_S = 1.0  # between two looks at whether control is still wanted
FRESH_S = 2.0  # a snapshot that is older says nothing of now

T = TypeVar("T")
log = logging.getLogger("ground_station")


def stop_all(*, broker: str | None, signing_key_file: Path | None) -> dict[str, Outcome]:
    """See `Ship.estop_all`; it waits."""
    session = _session(vehicle=None, broker=broker, signing_key_file=signing_key_file)
    with EveryShip(session, broker=session.configured_broker) as ships, Stops(ships) as stops:
        found = stops.press_all().result()
    if found["state"] != "SUCCESS":
        raise OutcomeUnknown(f"estop: {found['reason']}", id="")
    return {name: msgspec.convert(one, Outcome) for name, one in found["ships"].items()}


def _session(*, vehicle: str | None, broker: str | None, signing_key_file: Path | None) -> Session:
    options = Options(
        broker=broker, vehicle=vehicle, signing_key_file=signing_key_file, as_json=True, yes=True
    )
    report = _Logged(as_json=True)
    return Session(options=options, config=ground_config(), report=report, clock=SystemClock())


class _Logged(Report):
    """Messages for a person go to the program's log."""

    def say(self, text: str) -> None:
        log.warning("%s", text)


class _Asked(CommandListener):
    """A question to a ship that may not be there."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def silent(self) -> None:
        check_known(self._session.ship, some=True)


class _Stopped(Exception):
    """An emergency stop came between the call of a command and its turn to be sent."""


class _Control:
    """Control that is taken, or asked for, and how many blocks rely on it: the last one ends it."""

    def __init__(self, taking: Future[bool], given_up: threading.Event) -> None:
        self.taking = taking
        self.given_up = given_up
        self.blocks = 0


class BrokerTransport:
    """See `ground_station.ship.Transport`. Made by `open`."""

    def __init__(
        self,
        session: Session,
        client: VehicleClient,
        *,
        outage_s: float,
        present: Callable[[], bool],
        grant: Grant | None,
    ) -> None:
        self._session = session
        self._clock = session.clock
        self._client = client
        self._outage_s = outage_s
        self._present = present
        self._dispatched = grant
        self._closing = threading.Event()
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="ship send")
        self._waiting = ThreadPoolExecutor(WAITING, thread_name_prefix="ship wait")
        self._stopping = ThreadPoolExecutor(PRESSES, thread_name_prefix="ship stop")
        self._stops = 0  # asked for so far; written by the event loop only
        self._next_stop: tuple[Future[Reply], asyncio.Future[Reply]] | None = None
        self._setpoints = Setpoints(client)
        self._pilot: ExitStack | None = None  # heartbeat and control, from the first command on
        self._token: int | None = None  # of the control that this user has kept, since then
        self._control: _Control | None = None  # used from the event loop alone
        self._telemetry = Telemetry(session)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *,
        vehicle: str | None,
        broker: str | None,
        signing_key_file: Path | None,
        outage_s: float,
        present: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[Self]:
        """Connect as `Ship.connect` does. present: see `Session.heartbeat`."""
        session = _session(vehicle=vehicle, broker=broker, signing_key_file=signing_key_file)
        await _through(asyncio.to_thread(session.check_there))
        async with cls.of(session, outage_s=outage_s, present=present) as transport:
            transport.ready_to_stop()
            yield transport

    @classmethod
    @asynccontextmanager
    async def of(
        cls,
        session: Session,
        *,
        outage_s: float = OUTAGE_S,
        present: Callable[[], bool],
        grant: Grant | None = None,
    ) -> AsyncIterator[Self]:
        """See `Ship.of`."""
        with ExitStack() as own:

            def connect() -> VehicleClient:
                ship = session.ship
                tracer = own.enter_context(traced(report=session.report))
                return own.enter_context(session.client(ship, tracer=tracer))

            client = await _through(asyncio.to_thread(connect))
            transport = cls(session, client, outage_s=outage_s, present=present, grant=grant)
            try:
                yield transport
            finally:
                transport._closing.set()
                transport._telemetry.close()
                await _through(asyncio.to_thread(transport._close))
                await _through(asyncio.to_thread(own.close))

    @property
    def vehicle(self) -> str:
        return self._session.ship.vehicle

    # --- commands -------------------------------------------------------------------------

    async def command(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        coalesce: str | None = None,
        listener: CommandListener | None = None,
    ) -> Reply:
        try:
            with root_span(self._client.tracer, f"ground {name}"):
                return await self._followed(
                    name,
                    self._sender(name, arguments, timeout_s, coalesce),
                    lambda sent, given_up: self._follow(name, sent, timeout_s, given_up, listener),
                )
        except _Stopped as error:
            return _refused(name, error)

    async def send(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> str:
        with root_span(self._client.tracer, f"ground {name}"):
            send = self._sender(name, arguments, timeout_s, None)
            return await self._followed(name, send, lambda sent, _: sent.id)

    def _sender(
        self, name: str, arguments: dict[str, Any], timeout_s: float, coalesce: str | None
    ) -> Callable[[], Pending]:
        asked_s = self._client.clock.now_s()

        def send() -> Pending:
            return self._client.send(
                name,
                arguments,
                ttl_s=min(START_TTL_S, timeout_s),
                priority=NORMAL if coalesce is None else HIGH,
                coalesce=coalesce,
                asked_s=asked_s,
            )

        return send

    async def push(
        self, key: str, arguments: dict[str, Any], *, ttl_s: float, task: str = "velocity"
    ) -> Reply | None:
        asked_s = self._client.clock.now_s()

        def send() -> Pending:
            return self._setpoints.send(key, task, arguments, ttl_s=ttl_s, asked_s=asked_s)

        try:
            return await self._followed(
                task, send, lambda sent, _: self._setpoints.refusal(sent, within_s=ttl_s)
            )
        except _Stopped as error:
            return _refused(task, error)

    def ready_to_stop(self) -> None:
        self._started(self._stopping, self._client.ready_to_stop)

    def estop(self) -> asyncio.Future[Reply]:
        """Press by the call itself. One that no thread has begun yet is the same press."""
        self._stops += 1
        if self._next_stop is None or self._next_stop[0].running() or self._next_stop[0].done():
            pressed = self._started(self._stopping, self._client.estop)
            self._next_stop = pressed, _wrapped(pressed)
        return asyncio.shield(self._next_stop[1])

    async def result(self, id: str) -> Reply:
        return await self._looked(self._client.result, id)

    async def airframe(self, *, timeout_s: float = AIRFRAME_S) -> Airframe:
        reply = await self.command(
            "airframe", {}, timeout_s=timeout_s, listener=_Asked(self._session)
        )
        if reply.state == "TIMEOUT":
            raise LinkError(f"{self.vehicle} does not answer within {timeout_s:g} s")
        if reply.state != "SUCCESS":
            error = NotAuthorised if reply.kind == NotAuthorised.__name__ else TaskError
            raise error(f"{self.vehicle}: {reply.reason}")
        from blimp.airframe import from_table

        await self._looked(self._client.forget, reply.id)
        try:
            return from_table(reply.result)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"the airframe of {self.vehicle} is one of another version of blimp: {error}"
            ) from None

    async def _looked(self, call: Callable[..., T], *arguments: object) -> T:
        """Return what a question says, unless its turn comes after the end."""

        def ask() -> T:
            self._check_open()
            return call(*arguments)

        return await _wrapped(self._started(self._waiting, ask))

    async def _followed(
        self,
        name: str,
        send: Callable[[], Pending],
        follow: Callable[[Pending, threading.Event], T],
    ) -> T:
        """Send in the order of the calls, and wait beside. If it is cancelled, it is sent, too.

        Raises _Stopped for what a stop came before.
        """
        given_up = threading.Event()
        stops = self._stops

        def in_turn() -> Pending:
            if self._stops == stops:
                self._be_pilot(name)  # it may wait for the broker
            if self._stops != stops and name not in FOR_EVERYBODY:
                raise _Stopped("asked for before an emergency stop, and not sent: ask again")
            return send()

        sent = self._started(self._sending, in_turn)
        waiting = self._started(self._waiting, lambda: _with(sent.result(), follow, given_up))
        try:
            return await asyncio.shield(_wrapped(waiting))
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _started(
        self, threads: ThreadPoolExecutor, call: Callable[..., T], *arguments: object
    ) -> Future[T]:
        self._check_open()
        here = contextvars.copy_context()  # of a trace
        return threads.submit(lambda: here.run(call, *arguments))

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise LinkError(f"the connection to {self.vehicle} is closed")

    def _follow(
        self,
        name: str,
        sent: Pending,
        timeout_s: float,
        given_up: threading.Event,
        listener: CommandListener | None,
    ) -> Reply:
        if listener is not None:
            listener.sent(sent.id)

        def is_wanted() -> bool:
            if self._closing.is_set():
                raise OutcomeUnknown(f"{name}: the connection was closed meanwhile", id=sent.id)
            return not given_up.is_set()

        return follow(
            sent, client=self._client, clock=self._clock, within_s=timeout_s,
            outage_s=self._outage_s, is_wanted=is_wanted, listener=listener,
        )  # fmt: skip

    # --- who flies ------------------------------------------------------------------------

    def _be_pilot(self, name: str) -> None:
        """Have the ship miss this program from its first command on; in the sending thread.

        Control that this user has kept is used, and renewed; also if it is taken, or given back,
        meanwhile.
        """
        if name in FOR_EVERYBODY:
            return
        is_given = self._dispatched is not None or self._control is not None
        token = None if is_given else self._session.control_token()
        if self._pilot is not None and (is_given or token == self._token):
            return
        with ExitStack() as own:
            grant = self._dispatched or own.enter_context(self._session.kept_control())
            self._become(grant, own)
            self._token = token

    def _become(self, grant: Grant | None, own: ExitStack) -> None:
        """Send heartbeats and commands under `grant` until `own`, which is taken, is closed."""
        own.enter_context(self._session.heartbeat(grant, present=self._present))
        self._step_back()
        self._client.authority = None if grant is None else grant.token
        self._pilot = own.pop_all()

    def _step_back(self) -> None:
        """Say goodbye, and end control if it was taken here; in the sending thread."""
        pilot, self._pilot = self._pilot, None
        self._client.authority = None
        if pilot is not None:
            pilot.close()

    @asynccontextmanager
    async def control(
        self, *, pilot: str | None, ttl_s: float, wait_s: float
    ) -> AsyncIterator[None]:
        if self._control is None:  # else this program is the pilot already
            self._control = self._take_control(pilot or user_name(), ttl_s, wait_s)
        control = self._control
        control.blocks += 1
        try:
            await asyncio.shield(_wrapped(control.taking))
            yield
        finally:
            control.blocks -= 1
            if not control.blocks:
                self._control = None
                control.given_up.set()
                await _through(_wrapped(self._waiting.submit(self._release, control.taking)))

    def _take_control(self, pilot: str, ttl_s: float, wait_s: float) -> _Control:
        given_up = threading.Event()

        def take() -> bool:
            with ExitStack() as own:
                grant = own.enter_context(self._taken(pilot, ttl_s, wait_s, given_up))
                if not given_up.is_set():
                    self._sending.submit(self._become, grant, own).result()
                    return True
            return False

        return _Control(self._started(self._waiting, take), given_up)

    def _release(self, taking: Future[bool]) -> None:
        with suppress(BlimpError):  # it was raised where control was asked for
            if taking.result():
                self._sending.submit(self._step_back).result()

    @contextmanager
    def _taken(
        self, pilot: str, ttl_s: float, wait_s: float, given_up: threading.Event
    ) -> Iterator[Grant]:
        """Hold control during the block. Raises NotAuthorised after `wait_s`, and if given up."""
        with self._session.control() as control, ExitStack() as own:
            until_s = self._clock.now_s() + wait_s
            grant = control.current()
            while grant is None:
                left_s = until_s - self._clock.now_s()
                try:
                    grant = control.acquire(
                        pilot, ttl_s=ttl_s, wait_s=max(0.0, min(left_s, TAKE_S))
                    )
                    own.callback(control.release_or_later, grant)
                except NotAuthorised:
                    if left_s <= TAKE_S or given_up.is_set() or self._closing.is_set():
                        raise
            with control.renewing(grant):
                yield grant

    # --- looking, and time ----------------------------------------------------------------

    async def snapshot(self, after: Snapshot | None) -> Snapshot | None:
        return await self._telemetry.next(after)

    def now_s(self) -> float:
        return self._clock.now_s()

    async def broker_s(self) -> float:
        """Return the time of the broker's clock, never late. Raises LinkError."""
        return await self._looked(self._client.broker_s)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    def _close(self) -> None:
        """End in order; a stop that is under way is waited for.

        No call is cancelled: one whose turn has not come ends by itself, with its reason.
        """
        self._waiting.shutdown()
        self._sending.submit(self._step_back)
        self._sending.shutdown()
        self._stopping.shutdown()
        self._telemetry.join()


class Telemetry:
    """The newest snapshot of one ship. Used from one event loop; the thread outlives an outage."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._newest: tuple[Snapshot, float] | None = None  # and when it held
        self._news = asyncio.Event()
        self._ended = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None

    async def next(self, after: Snapshot | None) -> Snapshot | None:
        """Return the newest one, once there is another than `after`; None at the end."""
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()
        while not self._ended.is_set():
            if self._newest is not None and self._newest[0] is not after:
                snapshot, held_s = self._newest
                if self._session.clock.now_s() - held_s <= FRESH_S:
                    return snapshot
            await self._news.wait()
        return None

    def close(self) -> None:
        self._ended.set()
        self._tell()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _take(self, snapshot: Snapshot, age_s: float) -> None:
        known = None if self._newest is None else self._newest[0]
        if known is None or (known.boot_id, known.t_s) != (snapshot.boot_id, snapshot.t_s):
            self._newest = snapshot, self._session.clock.now_s() - age_s
            self._tell()

    def _run(self) -> None:
        said = ""
        while not self._ended.is_set():
            try:
                with self._session.reader(self._session.ship) as reader:
                    for found in reader.follow(poll_s=SLICE_S):
                        said = ""
                        if self._ended.is_set():
                            return
                        if found is not None:
                            self._loop.call_soon_threadsafe(self._take, *found)
            except BlimpError as error:
                if not said:  # once an outage
                    said = str(error)
                    log.warning("telemetry of %s: %s", self._session.ship.vehicle, said)
            self._ended.wait(RETRY_S)


def _with(
    sent: Pending, follow: Callable[[Pending, threading.Event], T], given_up: threading.Event
) -> T:
    with sent:
        return follow(sent, given_up)


def _refused(name: str, error: _Stopped) -> Reply:
    return Reply(id="", task=TASK_PREFIX + name, state="REFUSED", reason=f"{name}: {error}")


def _wrapped(future: Future[T]) -> asyncio.Future[T]:
    """Return a thread's future for a coroutine; what nobody waits for any more is no error."""
    wrapped = asyncio.wrap_future(future)
    wrapped.add_done_callback(lambda done: done.cancelled() or done.exception())
    return wrapped


async def _through(awaitable: Awaitable[T]) -> T:
    """Wait for what must end, also if this task is cancelled; it is cancelled after that."""
    ending = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait([ending])
        raise
