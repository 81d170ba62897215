"""A broker in the memory of this process, on a clock that a test may move.

`blimp.queue.testing` sends to it and runs what it delivers. Tested by test_brokers.py.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.queue.brokers.base import (
    MOST_DELIVERIES,
    Capabilities,
    Found,
)
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE, FAIR
from blimp.queue.protocol.unique import UniqueClaim, claim_of

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.brokers.base import ConsumerOptions, Written
    from blimp.queue.protocol.message import TaskMessage


def _nothing(*_: object, **__: object) -> None: ...


class Waiting(NamedTuple):
    """order: the priority of one that is due, the time of another. turn: 0 without a tenant.

    deliveries: how many there were. mark: of one that was revoked.
    """

    order: float
    turn: int
    number: int
    written: Written
    deliveries: int = 0
    mark: bytes = b""


class InMemoryBroker:
    """Holds the messages itself, by queue, and is its own sender. Thread-safe.

    dead: messages with their reasons. ready: by queue. later: those whose time has not come.
    """

    name = "in-memory"
    capabilities = Capabilities(
        title="in process", is_shared=False, has_dead_letters=True, counts_deliveries=True,
        schedules=True, finds_messages=True, keeps_stamps=True, keeps_steps=True,
        shares_fairly=True,
    )  # fmt: skip

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.changed = threading.Condition()  # which one thread may enter again
        self.dead: list[tuple[TaskMessage, str]] = []
        self.ready: dict[str, list[Waiting]] = {}
        self.later: list[Waiting] = []
        self._numbers = itertools.count()
        self._stamps: set[Any] = set()
        self.steps: dict[tuple[str, int], dict[str, bytes]] = {}  # by id and nesting
        self._claims: dict[str, tuple[str, float]] = {}  # of unique tasks: id, and when they end
        # By queue and priority where tenants wait: the next turn, under "", and each tenant's.
        self._turns: dict[tuple[str, float], dict[str, int]] = {}

    check_url = connect = broadcast = notify = bind = close = _nothing  # nobody else listens

    def info(self, url: str, *, timeout_s: float) -> dict[str, Any]:  # noqa: ARG002
        return {"transport": self.name}

    def open_consumer(self, options: ConsumerOptions) -> InMemoryConsumer:
        return InMemoryConsumer(options, broker=self)

    def open_sender(self, *_: object, **__: object) -> InMemoryBroker:
        return self

    def stamp(self) -> object:
        return object()

    def release(self, stamp: Any) -> None:
        if type(stamp) is object:  # one of the caller's own outlives its publish
            self._stamps.discard(stamp)

    def send(self, messages: Sequence[Written], stamp: Any) -> None:
        with self.changed:
            if stamp is not None and stamp in self._stamps:
                return
            self._stamps.add(stamp)
            for written in messages:
                one = Waiting(written.message.priority, 0, next(self._numbers), written)
                if written.message.eta_s is None:
                    self._push(one)
                else:
                    heapq.heappush(self.later, one._replace(order=written.message.eta_s))
            self.changed.notify_all()

    def send_unique(self, message: Written, stamp: Any) -> str:
        claim, task_id = claim_of(message.headers), message.message.id
        assert claim is not None
        with self.changed:
            id, ends_s = self._claims.get(claim.digest, ("", 0.0))
            if ends_s > self._clock.wall_s():
                return id
            lasts_s = int(claim.lasts) / 1e3 if claim.lasts.isdigit() else float("inf")
            self._claims[claim.digest] = (task_id, self._clock.wall_s() + lasts_s)
            self.send([message], stamp)
        return task_id

    def free(self, claim: UniqueClaim | None, id: str) -> None:
        """Free the claim of a task that has begun or ended, if it is this task's."""
        with self.changed:
            if claim is not None and self._claims.get(claim.digest, ("",))[0] == id:
                del self._claims[claim.digest]

    def put_back(self, one: Waiting) -> None:
        """Have one that was taken be the first of its priority, or of its tenant's."""
        with self.changed:
            heapq.heappush(self.ready[one.written.message.queue], one)
            self.changed.notify_all()

    def _push(self, one: Waiting) -> None:
        """Have it wait for its turn: of a tenant, as place() of shared.lua does."""
        message, turn = one.written.message, 0
        if tenant := message.headers.get(FAIR):
            notes = self._turns.setdefault((message.queue, message.priority), {"": 1})
            turn = max(notes[""], notes.get(tenant, 1))
            notes[tenant] = turn + 1
        heap = self.ready.setdefault(message.queue, [])
        heapq.heappush(heap, one._replace(order=message.priority, turn=turn))

    def take(self, queues: Collection[str]) -> Waiting | None:
        """Return the first that is due in `queues`; None if none is."""
        with self.changed:
            self.move_due()
            heaps = [heap for queue in queues if (heap := self.ready.get(queue))]
            if not heaps:
                return None
            heap = min(heaps)
            one = heapq.heappop(heap)
            level = (one.written.message.queue, one.order)
            if heap and heap[0].order == one.order and level in self._turns:
                self._turns[level][""] = heap[0].turn
            else:
                self._turns.pop(level, None)
            return one

    def move_due(self) -> None:
        while self.later and self.later[0].order <= self._clock.wall_s():
            self._push(heapq.heappop(self.later))

    @property
    def is_due(self) -> bool:
        with self.changed:
            self.move_due()
            return any(self.ready.values())

    def due_in_s(self) -> float:
        """Return when the next scheduled message is due, in seconds from now."""
        return self.later[0].order - self._clock.wall_s() if self.later else float("inf")

    def waiting(self) -> list[TaskMessage]:
        """Return what waits: what is due, in its order, then the rest by its time."""
        with self.changed:
            self.move_due()
            due = sorted(itertools.chain.from_iterable(self.ready.values()))
            return [one.written.message for one in (*due, *sorted(self.later))]

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:
        with self.changed:
            for heap in (self.ready.get(queue, []), self.later):
                for place, one in enumerate(heap):
                    message = one.written.message
                    if (message.queue, message.id) == (queue, id):
                        heap[place] = one._replace(mark=mark)  # its order is the same
                        self.free(claim_of(one.written.headers), id)
                        return Found.MARKED
        return Found.ABSENT


class InMemoryDelivery:
    """A message as kombu has it, and its delivery. revoked: the mark of one that was revoked."""

    content_type, content_encoding = CONTENT_TYPE, CONTENT_ENCODING

    def __init__(self, one: Waiting, broker: InMemoryBroker) -> None:
        (message, headers, self.body), before = one.written, one.deliveries
        self.tag, self.queue, self.revoked = f"{one.number}/{before}", message.queue, one.mark
        self.headers, self.properties = dict(headers), {"priority": message.priority}
        if before:
            self.headers["blimp_delivery"] = (headers.get("blimp_delivery") or 0) + before
        self._one, self._broker = one, broker

    @property
    def over_delivery_limit(self) -> str:
        before = self._one.deliveries
        return f"delivered {before} times" if before >= MOST_DELIVERIES else ""

    ack = _nothing  # what was taken is in no queue

    def requeue(self, *, seen: bool = True, aside: Any = None) -> None:  # noqa: ARG002
        self._broker.put_back(self._one._replace(deliveries=self._one.deliveries + seen))

    def free(self, claim: UniqueClaim, id: str) -> None:
        self._broker.free(claim, id)

    def step(self, message: TaskMessage, _: int, name: str = "", result: bytes = b"") -> Any:
        stored = self._broker.steps.setdefault((message.id, message.nesting), {})
        if name:
            stored[name] = result
        return dict(stored)

    def reject(self, reason: str) -> None:
        message = self._one.written.message
        self._broker.dead.append((message, reason))
        self._broker.free(claim_of(self.headers), message.id)


class InMemoryConsumer:
    """What it took and did not end is lost with it: its process has ended as well."""

    def __init__(self, options: ConsumerOptions, *, broker: InMemoryBroker) -> None:
        self._options, self._broker = options, broker
        self._is_woken = False

    probe = disconnect = close = _nothing

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:  # noqa: ARG002
        return 0, 0

    def drain(self, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        broker = self._broker
        with broker.changed:
            while (one := broker.take(self._options.queues)) is None:
                left_s = until_s - time.monotonic()
                if left_s <= 0.0 or self._is_woken:
                    self._is_woken = False
                    raise TimeoutError
                broker.changed.wait(min(left_s, broker.due_in_s()))
        self._options.on_message(InMemoryDelivery(one, broker))

    def consume(self, queues: Sequence[str]) -> None:
        self._options.queues = queues  # type: ignore[assignment]  # may be a view

    def delivery(self, message: Any) -> InMemoryDelivery:
        delivery: InMemoryDelivery = message
        return delivery

    def wake(self) -> None:
        with self._broker.changed:
            self._is_woken = True
            self._broker.changed.notify_all()

    def is_shared(self, queue: str) -> bool:  # noqa: ARG002
        return False
