"""The one interface of brokers: what each can do, how it delivers, and how a delivery ends.

`brokers/__init__.py` has the table of brokers. CONTRIBUTING.md has the recipe "add a broker".
Tested by test_brokers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from blimp.errors import LinkError
from blimp.queue.options import Options
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES, TaskMessage
from blimp.queue.protocol.unique import UniqueClaim
from blimp.queue.retry import Count

if TYPE_CHECKING:
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.redis.urls import Brokers

# After so many deliveries a task that its worker does not survive is given up.
MOST_DELIVERIES = 20
MOST_SEARCHED = 100_000  # messages of a queue, for one that is to be revoked
MARK_KEEP_S = 86_400  # a begun-mark outlives its message so long, for a copy of that

# The guarantee that is missing without each capability, as a worker says it at its start.
MISSING = {
    "is_shared": "messages end with this process, and no other process sees them",
    "leases": "no leases: a task that runs through an outage may run on another worker as well",
    "counts_deliveries": "deliveries are not counted, only the first is distinguished: a "
    "message that kills its worker comes again for ever",
    "keeps_steps": "durable steps of tasks, `context.step`, are refused",
    "exclusive_names": "two live workers of one name are not refused",
    "atomic_completion": "result and acknowledgement are two steps",
    "schedules": "tasks with an ETA wait in a worker's memory",
    "has_priorities": "no priorities",
    "has_dead_letters": "no dead letters that `dead` can show",
    "sets_aside": "a task that its worker does not know fails at once: in a rolling deploy use a "
    "new queue for new tasks",
    "keeps_broadcasts": "a broadcast sent during an outage is not received",
}
# The same for an app without a Redis server.
MISSING_STORE = (
    "no results",
    "ages are judged on this machine's clock",
    "tasks that need a note of what has begun, or is newest, are refused",
    "a task is revoked only if a worker listens at that moment",
)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of broker can do. Code asks for one of these, never for a broker's name.

    title: for people. on_redis: the broker is a Redis server, which stores more than messages.
    is_shared: other processes see its messages.
    atomic_completion: result, messages that follow and acknowledgement are one step.
    has_dead_letters: they can be listed and requeued. counts_deliveries: of each message.
    sets_aside: what a worker's code cannot run waits for a worker with other code.
    leases: a delivery belongs to its worker until its lease ends, whatever the connection does.
    schedules: the broker keeps a message until its ETA. has_priorities: it delivers by them.
    exclusive_names: of two live workers with one name the second is refused.
    keeps_broadcasts: a broadcast reaches a worker that was not connected at the moment.
    finds_messages: it finds a task's message that waits, and marks it as revoked.
    keeps_steps: what steps of a task returned is stored, by the holder of its delivery alone.
    keeps_stamps: a publish whose stamp was put, or a later one of its key, is not put again.
    shares_fairly: it takes the messages of tenants in turn; see `TaskOptions.fair_key`.
    local_prefetch: a changed prefetch costs no round trip.
    longest_wait_s: how long a consumer may block if there is no other broker to look at.
    notes: further limits, in the words of a worker's start line.
    """

    title: str
    on_redis: bool = False
    is_shared: bool = True
    atomic_completion: bool = False
    has_dead_letters: bool = False
    sets_aside: bool = False
    counts_deliveries: bool = False
    leases: bool = False
    schedules: bool = False
    has_priorities: bool = True
    exclusive_names: bool = False
    keeps_broadcasts: bool = False
    finds_messages: bool = False
    keeps_steps: bool = False
    keeps_stamps: bool = False
    shares_fairly: bool = False
    local_prefetch: bool = False
    longest_wait_s: float = 1.0
    notes: tuple[str, ...] = ()

    def missing(self, *, has_store: bool) -> tuple[str, ...]:
        """Return the guarantees that are missing; none on streams."""
        absent = tuple(words for name, words in MISSING.items() if not getattr(self, name))
        return absent + self.notes + (() if has_store else MISSING_STORE)


class Found(Enum):
    """What was found of a message that is to be revoked. NOT_SEARCHED: too many are before it."""

    MARKED = auto()  # it waited: no worker runs it
    IN_FLIGHT = auto()
    ABSENT = auto()
    NOT_SEARCHED = auto()


class Aside(msgspec.Struct, frozen=True):
    """Why a delivery waits for a worker with other code, and how long at most.

    versions: of the task, those that cannot run it; none if it is not known at all.
    """

    task: str
    versions: tuple[str, ...]
    wait_s: float


class BrokerLeft(LinkError):
    """The broker that has this delivery is unreachable, and another is in use."""


class Delivery(Protocol):
    """The broker's side of one message. Each method raises LinkError without a broker."""

    tag: str  # unique in this worker
    queue: str

    @property
    def over_delivery_limit(self) -> str:
        """Why it must not run any more, "" if it may."""
        ...

    def ack(self) -> None: ...

    def requeue(self, *, seen: bool = True, aside: Aside | None = None) -> None:
        """Put the message back at the head of its queue, its delivery count one higher.

        seen: False if it never began and this worker takes nothing more: then it does not
        count, if the broker counts deliveries.
        aside: only with `sets_aside`: have it wait instead, uncounted, for a worker to run it.
        """
        ...

    def free(self, claim: UniqueClaim, id: str) -> None:
        """Free the claim of task `id`, which begins. Only with `keeps_stamps`."""
        ...

    def step(
        self, message: TaskMessage, keep_s: int, name: str = "", result: bytes = b""
    ) -> dict[str, bytes] | None:
        """Return what the steps of a task returned, JSON by name; with a name, store one result.

        Returns None if another worker has the message, or it has ended: then nothing is stored.
        keep_s: from now on. Only with `keeps_steps`.
        """
        ...

    def reject(self, reason: str) -> None:
        """Give the message up: a dead letter, if the broker has them."""
        ...


class FollowUp(Protocol):
    """What a completion writes beside its record and its messages, of what the task is a part.

    is_silent: the messages that follow were sent when the result was written.
    records: results of tasks that can run no more, by id.
    """

    @property
    def is_silent(self) -> bool: ...
    @property
    def records(self) -> Sequence[tuple[str, bytes]]: ...

    def arguments(self, options: ConsumerOptions) -> tuple[list[str], list[Any]]:
        """Return keys and arguments for complete.lua. Raises ResultError if JSON cannot hold it."""
        ...


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker writes at the end of one delivery, in this order or in one step.

    message: what was delivered; its id names the result.
    record: the result as it is stored; empty for none.
    next: the messages that follow: the next try, callbacks, the rest of a chain.
    acks: False if the message was acknowledged before it ran.
    requeue: put the message back instead of acknowledging it.
    dead: make it a dead letter instead, for this reason.
    follow_up: None for most.
    frees: the claim of a unique task that is free then.
    mark: a key that expires MARK_KEEP_S after this end; it says that the task has begun, and
        does not expire while its message is pending, however long that lies.
    forgets_steps: what its steps returned is deleted.
    job: the worker's own; a broker does not look at it.
    """

    delivery: Delivery
    message: TaskMessage
    record: bytes = b""
    next: tuple[TaskMessage, ...] = ()
    acks: bool = True
    requeue: bool = False
    dead: str = ""
    follow_up: FollowUp | None = None
    frees: UniqueClaim | None = None
    mark: str = ""
    forgets_steps: bool = False
    job: Any = None


OnMessage = Callable[[Any], None]  # a message as kombu has it
OnUnreadable = Callable[[bytes, str, Exception], None]  # what came, its queue, why
OnLost = Callable[[str], None]  # the delivery tag
Join = Callable[[Completion, Sequence[int], Any], Completion]


class BrokerOptions(Options, frozen=True, kw_only=True):
    """How a broker is used, whichever it is.

    timeout_s: for each answer. limit_bytes: larger messages are refused.
    max_dead_letters, max_dead_letter_bytes: kept for each queue; the oldest go.
    """

    timeout_s: Annotated[float, msgspec.Meta(gt=0.0)] = 2.0
    limit_bytes: Annotated[int, msgspec.Meta(ge=1)] = MAX_MESSAGE_BYTES
    max_dead_letters: Count = 10_000
    max_dead_letter_bytes: Count = 64_000_000


class ConsumerOptions(msgspec.Struct, kw_only=True):
    """What every consumer is made of.

    name: unique among live workers. room: how many more messages may be taken.
    limit: how many may be in flight at once, those that wait for their time included;
    waiting: how many those are.
    knows: returns the version of each task that its worker knows.
    store_result: writes a result (id, record) apart from its completion; None without results.
    completes_results, completes_follow_ups: they are written in the completion's one step.
    join: adds what begins with these parts of a follow-up, by number: the last of theirs. The
        client is of the server that counts them.
    """

    name: str
    brokers: Brokers
    queues: tuple[str, ...]
    room: Callable[[], int]
    limit: Callable[[], int]
    waiting: Callable[[], int]
    is_stopping: Callable[[], bool]
    on_message: OnMessage
    on_unreadable: OnUnreadable
    on_lost: OnLost
    log: Any
    knows: Callable[[], Mapping[str, str]] = dict
    broker: BrokerOptions = BrokerOptions()
    signer: Signer | None = None
    store_result: Callable[[str, bytes], object] | None = None
    completes_results: bool = False
    completes_follow_ups: bool = False
    result_keep_s: int = 0
    follow_up_keep_s: int = 0
    join: Join | None = None


class Consumer(Protocol):
    """Connected and drained by one thread; `wake` is any thread's."""

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        """Connect, consume, and requeue what this name left, except the tags it holds now.

        Returns how many messages were put back, and how many were unreadable and dropped.
        """
        ...

    def drain(self, timeout_s: float) -> None:
        """Deliver messages. Raises TimeoutError if none comes in time."""
        ...

    def consume(self, queues: Sequence[str]) -> None:
        """Consume from `queues` from now on, and from no others. What is in flight goes on."""
        ...

    def delivery(self, message: Any) -> Delivery: ...

    def wake(self) -> None:
        """Have `drain` return now. Raises LinkError."""
        ...

    def probe(self) -> None:
        """Ask the broker whether it is there. Any thread, every second; raises LinkError."""
        ...

    def is_shared(self, queue: str) -> bool:
        """Return whether another consumer may take from `queue`. Raises LinkError."""
        ...

    def disconnect(self) -> None:
        """End the connection, not what is in flight. Idempotent."""
        ...

    def close(self) -> None:
        """Close for good. Idempotent."""
        ...


@runtime_checkable
class AtomicConsumer(Consumer, Protocol):
    """A consumer of a broker with `atomic_completion`."""

    def complete(self, completions: Sequence[Completion]) -> list[str]:
        """Complete deliveries, each in one step: its record, what follows, its message gone.

        Returns why each was refused, "" if it was not: then nothing of it was written.
        Repeating it writes nothing twice. Any thread. Raises LinkError.
        """
        ...


class Broker(Protocol):
    """One kind of broker. Has no state: connections belong to what it opens."""

    name: str
    capabilities: Capabilities

    def check_url(self, url: str) -> None:
        """Raise ConfigError for a URL with an option that is unknown."""
        ...

    def info(self, url: str, *, timeout_s: float) -> dict[str, Any]:
        """Return what everybody may see of a connection, as kombu's `Connection.info`; JSON."""
        ...

    def open_consumer(self, options: ConsumerOptions) -> Consumer: ...

    def open_sender(
        self,
        url: str,
        *,
        timeout_s: float,
        on_lost: Callable[[str], None],
        server: RedisServer | None = None,
    ) -> Sender:
        """on_lost: called with the URL if this broker does not answer.

        server: has the connections that a sender to a Redis server shares with others.
        """
        ...


class Written(NamedTuple):
    """A message, and its headers and body as they are sent."""

    message: TaskMessage
    headers: dict[str, Any]
    body: bytes


class Exchange(NamedTuple):
    """type: "direct", "topic" or "fanout"."""

    name: str
    type: str
    durable: bool = True


class Sender(Protocol):
    """Publishes to one broker, from any thread. Connects on first use; close is idempotent.

    Methods raise LinkError if the broker does not answer, or does not take the message.
    """

    def connect(self) -> None: ...

    def stamp(self) -> Any:
        """Return what identifies a repeated publish; None if the broker cannot recognise one."""
        ...

    def release(self, stamp: Any) -> None:
        """The publish with this stamp has ended, and is not repeated any more."""
        ...

    def send(self, messages: Sequence[Written], stamp: Any) -> None:
        """Publish each to its queue. The same stamp again publishes nothing more.

        Several at once only with `keeps_stamps`: in one step, all or none.
        """
        ...

    def send_unique(self, message: Written, stamp: Any) -> str:
        """Publish `message` unless another task has the claim that its headers name.

        Returns the id of the task that has it now. Only with `keeps_stamps`.
        """
        ...

    def broadcast(self, exchange: str, body: bytes) -> None:
        """Send to all that listen on the fanout `exchange`."""
        ...

    def notify(
        self, exchange: Exchange, body: bytes, *, routing_key: str, headers: dict[str, Any]
    ) -> None:
        """Send once to all that listen on `exchange`: on streams a fanout or a direct one."""
        ...

    def bind(self, queue: str, exchange: Exchange, routing_key: str) -> None:
        """Have `queue` get what is published on `exchange`, direct or topic; declare that."""
        ...

    def revoke(self, queue: str, id: str, mark: bytes) -> Found:
        """Mark the message of task `id` as revoked if it waits; a worker gets `mark` with it.

        Only with `finds_messages`.
        """
        ...

    def close(self) -> None: ...
