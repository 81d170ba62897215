"""An emergency stop on its way: fired by every road at once, and asked about afterwards.

    broadcast   published and kept on the ship's fanout exchange, at every broker; see
                blimp/queue/broadcast/listener.py
    queue       the task `blimp.estop` in the queue's emergency stream, with the same command id
    socket      the flight process's own socket, if it is on this machine

The first that arrives acts; the ship answers the others from the outcome that it has. On the way to
a broker nothing is asked before: a stop by a connection that is there takes half a round trip, by a
new one one and a half, with greeting and stop in one packet. It is repeated until it is confirmed,
and waits the longer, the slower the link is.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from blimp.closing import Closing
from blimp.errors import LinkError, NotAuthorised, NotGenuine, ResultError
from blimp.queue.brokers.streams.envelope import SEPARATOR, pack_broadcast, pack_task
from blimp.queue.protocol.message import EMERGENCY, TaskMessage, to_json, write_message
from blimp.queue.protocol.record import open_record
from blimp.queue.protocol.signing import sealed
from blimp.queue.redis.forks import reset_after_fork
from blimp.queue.redis.keys import Keys
from blimp.tasks.authority import STOP_ID
from blimp.tasks.broker_road import QUEUE, BrokerRoad, Stop

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.eager import Command
    from blimp.queue.redis.urls import Brokers
    from blimp.types import Outcome

KEPT_S = (
    10.0  # how long a stop may wait in a queue: an older one would reach a ship that flies again
)
STREAM_KEEPS = 1000  # entries, as other broadcasts
STREAM_KEEPS_MS = 3_600_000


class LocalRoad(Protocol):
    """A way to a flight process on this machine; see blimp/link/stop_socket.py."""

    def fire(self, *, id: str, source: str, on_outcome: Callable[[Outcome], None]) -> None: ...

    def close(self) -> None: ...


class StopSender(Closing):
    """Sends emergency stops to one ship, by all brokers at once. Thread-safe.

    brokers: None for no other road than `local`, that to a flight process on this machine.
    """

    def __init__(
        self,
        *,
        brokers: Brokers | None,
        vehicle: str,
        queue: str,
        source: str,
        signer: Signer | None,
        clock: Clock,
        local: LocalRoad | None = None,
    ) -> None:
        self._brokers = brokers
        self._vehicle, self._queue = vehicle, queue
        self._source, self._signer, self._clock = source, signer, clock
        self._local = local
        self._lock = threading.Lock()
        self._roads: list[BrokerRoad] = []
        self.closed = False
        reset_after_fork(self)

    def after_fork(self) -> None:
        """Have roads of its own: the parent's threads are not there."""
        self._lock, self._roads = threading.Lock(), []

    def warm(self) -> None:
        """Connect, and keep the connections: the next stop needs half a round trip."""
        for road in self._all_roads():
            road.start()

    def fire(self) -> Stop:
        """Send a stop by every road; return what follows it. Waits for nothing."""
        stop = Stop(id=str(uuid.uuid4()), clock=self._clock)
        for road in self._all_roads():
            road.fire(stop)
        if self._local is not None:
            with contextlib.suppress(OSError, RuntimeError):  # no descriptor, no thread to be had
                self._local.fire(id=stop.id, source=self._source, on_outcome=stop.outcome)
        return stop

    @property
    def road_count(self) -> int:
        return 2 * (self._brokers is not None) + (self._local is not None)

    def patience_s(self) -> float:
        """Return for how long after the press a stop may still be on its way."""
        return max((road.patience_s() for road in self._roads), default=0.0)

    def is_refused(self) -> bool:
        """Return whether no broker lets this user in: to wait cannot help."""
        refused = [isinstance(road.trouble, NotAuthorised) for road in self._roads]
        return bool(refused) and all(refused)

    def trouble(self, *, is_over: bool = False) -> Exception | None:
        """Return why no broker is there; None if one is, or if one may still answer.

        is_over: nobody waits any more, so that one which has not answered is not there.
        """
        troubles = [road.trouble or (road.silence() if is_over else None) for road in self._roads]
        return None if None in troubles or not troubles else troubles[-1]

    def _all_roads(self) -> list[BrokerRoad]:
        with self._lock:
            if self.closed:
                raise LinkError("the connections for emergency stops are closed")
            if not self._roads:
                urls = () if self._brokers is None else self._brokers.urls
                self._roads = [BrokerRoad(url, writer=self, clock=self._clock) for url in urls]
            return self._roads

    @property
    def exchange(self) -> str:
        """The fanout exchange on which the ship hears stops."""
        return f"{self._queue}.emergency"

    def broadcast(self, stop: Stop, *, now_s: float, database: int) -> list[Command]:
        """Return the commands of the road `broadcast`. now_s: the broker's time."""
        plain = {"id": stop.id, "name": "estop", "payload": {"source": self._source}}
        # Dated without a key, too: TCP delivers what it has whenever the link is back.
        document = {"sent_s": now_s}
        document |= sealed(plain, self._signer, exchange=self.exchange, now_s=lambda: now_s)
        body, keys = to_json(document), Keys()
        stream, channel = keys.fanout(self.exchange), keys.channel(self.exchange, database=database)
        head = pack_broadcast(body, exchange=self.exchange).head
        return [
            ("published", ("PUBLISH", channel, head + SEPARATOR + body)),
            ("kept", ("XADD", stream, "MAXLEN", "~", STREAM_KEEPS, "*", "h", head, "b", body)),
            ("kept", ("PEXPIRE", stream, STREAM_KEEPS_MS)),
        ]

    def task(self, stop: Stop, *, now_s: float) -> Command:
        """Return the command of the road `queue`. A queue keeps it: `now_s` must be no guess."""
        message = TaskMessage(
            id=stop.task_id,
            task="blimp.estop",
            queue=self._queue,
            priority=EMERGENCY,
            issued_ms=int(now_s * 1000),
            ttl_s=KEPT_S,
            origin=self._source,
            headers={
                "blimp_vehicle": self._vehicle, "blimp_source": self._source, STOP_ID: stop.id,
            },
        )  # fmt: skip
        headers, body = write_message(message, signer=self._signer)
        one = pack_task(body, headers=headers, queue=self._queue, priority=message.priority)
        level = Keys().queue(self._queue).levels[one.level]
        return (f"queued {stop.id}", ("XADD", level, "*", "h", one.head, "b", one.body))

    def read(self, stop: Stop, road: str, data: bytes) -> None:
        """Take a published or stored record of `stop`."""
        id = stop.task_id if road == QUEUE else stop.id
        try:
            record = open_record(id, data, signer=self._signer)
        except NotGenuine:
            stop.forged += 1
            return
        except ResultError:
            return
        stop.confirmed(road, msgspec.structs.replace(record, id=stop.id))

    def close(self) -> None:
        with self._lock:
            self.closed = True
            roads = self._roads
        for road in roads:
            road.close()
        if self._local is not None:
            self._local.close()
