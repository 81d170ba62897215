"""The ground's end: send a command to a vehicle, follow it, stop the ship.

Cheap to import, for `ground --help`: kombu and redis-py are loaded with the first command.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.closing import Closing
from blimp.errors import LinkError, ResultError
from blimp.queue.protocol.message import LOW, NORMAL, TaskMessage
from blimp.reading import ready
from blimp.system import user_id
from blimp.tasks.authority import HEADER
from blimp.tasks.reply import Pending, Progress, Reply, reply_of

if TYPE_CHECKING:
    from blimp.queue.extras.observability.tracing import Tracer
    from blimp.queue.protocol.signing import Key
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.results.redis_backend import PublishedWatch, RedisResults
    from blimp.tasks.stop import LocalRoad, StopSender


__all__ = ["Pending", "Progress", "Reply", "VehicleClient", "vehicle_queue"]

TASK_PREFIX = "blimp."
DEFAULT_TTL_S = 5.0
BOOT = "blimp_boot_id"  # header: the flight process that a command is for
MAX_BOOT_LETTERS = 64
HEARD_S = 2.0  # a ship whose last snapshot is older may have another boot by now
ANSWER_S = 30.0  # a question that waited for longer: who asked has asked again
STOP_S = 5.0  # in which a stop is confirmed, if it can be
SILENT_S = 1.0  # a ship that says nothing for so long may not be there
LOCAL_S = 0.5  # in which a flight process on this machine answers, whatever the broker says
STEP_S = 0.1  # between two looks at what has become of the roads
KEPT_WATCHES = 4  # open connections for reports that no command uses now
RECENT_S = 1.0  # for how long a stream's commands are for the boot that was heard last
_UNKNOWN = (
    "no command of this id is known: it has not begun, it is no longer kept, or the id is wrong"
)


class VehicleClient(Closing):
    """Commands one vehicle. Thread-safe; a context manager; connects on first use.

    broker: a URL, or several as TaskApp takes them; () if it only stops, by `stop_road` alone.
    signing_key: commands are signed with it.
    authority: the token of the pilot's grant, see `blimp.tasks.authority`.
    tracer: makes a span of each command that is sent.
    stop_road: the way to a flight process on this machine, for emergency stops.
    Every method raises LinkError, naming the broker, if none answers in `timeout_s`.
    """

    def __init__(
        self,
        broker: str | Sequence[str],
        vehicle: str,
        *,
        source: str = "",
        timeout_s: float = 2.0,
        clock: Clock | None = None,
        transport: str | None = None,
        signing_key: Key | Sequence[Key] | None = None,
        authority: int | None = None,
        tracer: Tracer | None = None,
        stop_road: LocalRoad | None = None,
    ) -> None:
        self._stop_road = stop_road
        self._stopper: StopSender | None = None
        self.tracer = tracer
        self.authority = authority
        self._transport = transport
        self._signing_key = signing_key
        self.broker = broker
        self.vehicle = vehicle
        self._source = source or f"{user_name()}:{os.getpid()}"
        self._timeout_s = timeout_s
        self.clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._results: RedisResults | None = None
        self._watches: WeakSet[PublishedWatch] = WeakSet()  # of commands under way, and kept
        self._kept: list[PublishedWatch] = []
        self._heard = ("", -inf)  # the newest boot, and when it was asked for

    def send(
        self,
        task: str,
        arguments: dict[str, Any] | None = None,
        *,
        ttl_s: float = DEFAULT_TTL_S,
        priority: int = NORMAL,
        id: str | None = None,
        coalesce: str | None = None,
        asked_s: float | None = None,
    ) -> Pending:
        """Queue a command and return the object that follows it.

        task: "takeoff" or "blimp.takeoff". ttl_s: it must begin within this many seconds,
        on the broker's clock. coalesce: of the waiting commands with this key only the newest
        begins. asked_s: when it was asked for, on this client's clock; None for now. It counts as
        issued then: a stop that came meanwhile is newer, however long the broker is blocked.
        Raises MessageError for arguments that JSON cannot hold.
        It is for the flight process that the ship's telemetry names: what moves a ship does
        nothing if it is restarted meanwhile. One that coalesces is one of a stream: it asks for
        that name, and the broker's time, once a second. If either has changed since, it is refused.
        """
        from blimp.queue.publish.coalescing import Coalescing

        id = id or str(uuid.uuid4())
        name = task if task.startswith(TASK_PREFIX) else TASK_PREFIX + task
        results = self._link()
        headers: dict[str, Any] = {"blimp_vehicle": self.vehicle, "blimp_source": self._source}
        if self.authority is not None:
            headers[HEADER] = self.authority
        is_stream = coalesce is not None
        clock_s = self.clock.now_s()
        now_s = self._broker_clock.recent_s() if is_stream else self._broker_clock.now_s()
        issued_s = now_s if asked_s is None else now_s - (self.clock.now_s() - asked_s)
        if not (is_stream and self._heard[0] and clock_s - self._heard[1] < RECENT_S):
            self._heard = self._boot_id(now_s), clock_s
        if boot_id := self._heard[0]:
            headers[BOOT] = boot_id
        message = TaskMessage(
            id=id,
            task=name,
            kwargs=dict(arguments or {}),
            queue=vehicle_queue(self.vehicle),
            priority=priority,
            issued_ms=int(issued_s * 1000),
            ttl_s=ttl_s,
            origin=self._source,
            headers=headers,
        )
        watch = self._watch(results, id)  # subscribe before sending: no report may be missed
        coalescing = None if coalesce is None else Coalescing(link=results.server)
        try:
            if coalescing is not None and coalesce is not None:
                number = coalescing.number(message.queue, coalesce)
                message = msgspec.structs.replace(
                    message, coalesce=coalesce, coalesce_number=number
                )
            with suppress(LinkError):  # it subscribes again, where the message goes
                watch.settle()
            sent_s = self.clock.now_s()
            if self.tracer is None:
                self._publisher.publish(message)
            else:
                with self.tracer.sending(message) as traced:
                    self._publisher.publish(traced)
        except BaseException:
            self._end(watch)
            raise
        if coalescing is not None:
            coalescing.remember(message)
        return Pending(
            id=id, task=name, watch=watch, sent_s=sent_s, clock=self.clock,
            on_close=partial(self._give_back, watch, id),
        )  # fmt: skip

    def _watch(self, results: RedisResults, id: str) -> PublishedWatch:
        """Return a watch of the reports of `id`: one that is kept, or a new one."""
        while self._kept:
            with suppress(IndexError, LinkError), ExitStack() as own:
                watch = self._kept.pop()
                own.callback(self._end, watch)
                if watch.is_usable:
                    watch.add(id)
                    own.pop_all()
                    return watch
        watch = results.watch(id)
        self._watches.add(watch)
        return watch

    def _give_back(self, watch: PublishedWatch, id: str) -> None:
        """Keep a watch for the next command, or close it."""
        if len(self._kept) < KEPT_WATCHES and watch.is_usable:
            watch.discard(id)
            self._kept.append(watch)
        else:
            self._end(watch)

    def _end(self, watch: PublishedWatch) -> None:
        self._watches.discard(watch)
        watch.close()

    def ask(self, task: str, arguments: dict[str, Any]) -> None:
        """Queue a question behind all that waits, whose answer is published, and no result.

        It moves nothing: it is for any flight process, and counts as issued at the broker's time
        of at most a second ago, so that it takes one round trip.
        """
        self._link()
        message = TaskMessage(
            id=str(uuid.uuid4()), task=TASK_PREFIX + task, kwargs=arguments,
            queue=vehicle_queue(self.vehicle), priority=LOW, origin=self._source,
            issued_ms=int(1e3 * self._broker_clock.recent_s()), ttl_s=ANSWER_S,
            ignore_result=True, headers={"blimp_vehicle": self.vehicle},
        )  # fmt: skip
        self._publisher.publish(message)

    def check_answer(self, data: bytes, *, place: str) -> None:
        """Raise NotGenuine if an answer is not signed for this place, where there is a key."""
        from blimp.queue.protocol.signing import Signer

        if self._signing_key is not None:
            Signer(self._signing_key).check_appended(data, place=place)

    def server(self) -> RedisServer:
        """Return the broker's server, for what is published beside results. Raises LinkError."""
        return self._link().server

    def ping(self, *, timeout_s: float = 2.0) -> Reply:
        """Ask the vehicle for a sign of life."""
        return self.send("ping", ttl_s=timeout_s).wait(timeout_s)

    def ready_to_stop(self) -> None:
        """Connect for the next emergency stop, and stay connected. Does not wait."""
        self._stops().warm()

    def estop(
        self,
        *,
        timeout_s: float | None = None,
        on_silence: Callable[[bool], None] = lambda _: None,
        hear_all_s: float = 0.0,
    ) -> Reply:
        """Stop every output now, by every road at once; repeat until it is confirmed.

        SUCCESS only if the vehicle has confirmed it, TIMEOUT otherwise.
        timeout_s: None for STOP_S, or longer on a slow link and while a broker does not answer.
        on_silence: called once if nothing was heard for SILENT_S, with whether the broker answers;
        the stop goes on meanwhile.
        hear_all_s: how long to wait for the other roads' confirmations, for `roads_ms`.
        Raises LinkError if no broker is there, and the ship has not confirmed it otherwise.
        """
        stops = self._stops()
        stop = stops.fire()
        pending = Pending(
            id=stop.id, task=TASK_PREFIX + "estop", watch=stop, sent_s=stop.pressed_s,
            clock=self.clock, on_close=stop.close,
        )  # fmt: skip
        try:
            is_silent = False
            while pending.reply is None:
                waited_s = self.clock.now_s() - stop.pressed_s
                wait_s = max(STOP_S, stops.patience_s()) if timeout_s is None else timeout_s
                left_s = wait_s - waited_s
                if left_s <= 0.0:
                    break
                if waited_s >= SILENT_S and not (is_silent or pending.is_heard):
                    is_silent = True
                    on_silence(stops.patience_s() < waited_s)
                if stops.closed or (waited_s >= LOCAL_S and stops.is_refused()):
                    break
                pending.wait(min(left_s, STEP_S))
            if pending.reply is None:
                if (trouble := stops.trouble(is_over=True)) is not None:
                    raise trouble
                return pending.timed_out(wait_s)
            stop.wait_roads(stops.road_count, within_s=hear_all_s)
            return msgspec.structs.replace(pending.reply, roads_ms=dict(stop.roads_ms))
        finally:
            stop.end()

    def _stops(self) -> StopSender:
        from blimp.queue.protocol.signing import Signer
        from blimp.queue.redis.urls import SCHEMES, Brokers
        from blimp.tasks.stop import StopSender

        with self._lock:
            if self._stopper is None:
                key = self._signing_key
                self._stopper = StopSender(
                    brokers=Brokers(self.broker, schemes=SCHEMES) if self.broker != () else None,
                    vehicle=self.vehicle,
                    queue=vehicle_queue(self.vehicle),
                    source=self._source,
                    signer=None if key is None else Signer(key),
                    clock=self.clock,
                    local=self._stop_road,
                )
            return self._stopper

    def broker_s(self) -> float:
        """Return the time of the broker's clock, never late. Raises LinkError."""
        self._link()
        return self._broker_clock.now_s()

    def result(self, id: str, *, task: str = "") -> Reply:
        """Return what is known of an earlier command; TIMEOUT if it is not known to have ended."""
        record = self._link().get(id)
        if record.final:
            return reply_of(record, task=task, latency_ms=None)
        if record.state.value == "PENDING":  # there is no record
            reason = record.reason or _UNKNOWN
        else:
            reason = f"the command is {record.state.value}: not known to have ended"
        return Reply(
            id=id, task=record.name or task, state="TIMEOUT", result=record.result, reason=reason
        )

    def _boot_id(self, now_s: float) -> str:
        """Return the boot of the flight process that is heard, "" if none is."""
        from blimp.queue.redis.client import type_checked

        results, key = self._link(), telemetry_key(self.vehicle)
        try:
            newest: Any = results.server.ask(
                lambda client: type_checked(lambda: client.xrevrange(key, count=1))
            )
            sent_s = int(newest[0][0].partition(b"-")[0]) / 1e3
        except (LinkError, ResultError, LookupError, ValueError):
            return ""  # no snapshot, or none that this user may read
        return named_boot(newest) if now_s - sent_s < HEARD_S else ""

    def forget(self, id: str, *others: str) -> None:
        """Delete what is kept of commands that have ended: nobody will ask for it."""
        self._link().forget(id, *others)

    def close(self) -> None:
        """Close the connections, also those of commands under way. Idempotent."""
        for watch in list(self._watches):
            self._end(watch)
        self._kept.clear()
        if self._stopper is not None:
            self._stopper.close()
            self._stopper = None
        if self._results is not None:
            self._publisher.close()
            self._results.close()
            self._results = None

    def _link(self) -> RedisResults:
        if (known := self._results) is not None:
            return known  # at once: a stream sends twenty times a second
        from blimp.queue.protocol.signing import Signer
        from blimp.queue.publish.publisher import Publisher
        from blimp.queue.redis.client import RedisServer
        from blimp.queue.redis.clock import BrokerClock
        from blimp.queue.redis.urls import SCHEMES, Brokers
        from blimp.queue.results.redis_backend import RedisResults

        with self._lock:
            if self._results is None:
                brokers = Brokers(self.broker, schemes=SCHEMES)
                signer = None if self._signing_key is None else Signer(self._signing_key)
                server = RedisServer(brokers, timeout_s=self._timeout_s)
                self._broker_clock = BrokerClock(link=server, clock=self.clock)
                self._publisher = Publisher(
                    url=brokers,
                    timeout_s=self._timeout_s,
                    transport=self._transport,
                    signer=signer,
                    clock=self.clock,
                    now_s=self._broker_clock.now_s,  # asks: it may step meanwhile
                    server=server,
                )
                self._publisher.connect()
                self._results = RedisResults(server=server, clock=self.clock, signer=signer)
            return self._results


@ready
class _Heard(msgspec.Struct, frozen=True):
    boot_id: str = ""


def named_boot(newest: Any) -> str:
    """Return the boot that a ship's newest snapshot names, "" if none can be read.

    newest: the answer to XREVRANGE. The boot is only looked at, not checked: a forged one has
    commands and heartbeats refused, and moves nothing.
    """
    try:
        snapshot = newest[0][1][b"snapshot"]
        return msgspec.json.decode(snapshot, type=_Heard).boot_id[:MAX_BOOT_LETTERS]
    except (LookupError, ValueError, RecursionError):
        return ""


def telemetry_key(vehicle: str) -> str:
    """Return the stream of a ship's snapshots."""
    return f"blimp:telemetry:{vehicle}"


def photo_channel(vehicle: str, nonce: str) -> str:
    """Return the channel on which a ship sends pieces of photographs to who asks for them."""
    return f"blimp:photo:{vehicle}:{nonce}"


def photo_place(vehicle: str, nonce: str, number: int) -> str:
    """Return what the signature of an answer about photographs is for: one question."""
    return f"photographs of {vehicle}, {number} for {nonce}"


def photo_turn(vehicle: str) -> str:
    """Return the pool whose only resource is a ship's turn to send: to one ground at a time."""
    return f"blimp.photo.{vehicle}"


def vehicle_queue(vehicle: str) -> str:
    """Return the queue, and the app's name, of one vehicle."""
    return f"blimp.{vehicle}"


def user_name() -> str:
    """Return this user at this machine."""
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # ImportError: on Windows
        user = str(user_id())
    return f"{user}@{socket.gethostname()}"
