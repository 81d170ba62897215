"""A worker's line to its queues: what differs between one kombu transport and another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from blimp.queue.brokers.choose import STREAMS

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.worker.job import Delivery, Ending

OnMessage = Callable[[Any], None]  # kombu's message
OnUnreadable = Callable[[bytes, str, Exception], None]  # what came, its queue, why
OnLost = Callable[[str], None]  # the delivery tag


class Consumer(Protocol):
    """Connected and drained by one thread; `wake` and `end` are any thread's.

    ends_at_once: a delivery's end is one step, `end`. Otherwise its result is written, what
        follows is published, and it is acknowledged then.
    """

    ends_at_once: bool

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        """Connect, consume, and put back what this name has left but does not hold now.

        Returns how many messages were put back, and how many were spoilt and dropped.
        """
        ...

    def drain(self, timeout_s: float) -> None:
        """Deliver one message. Raises TimeoutError where none comes in time."""
        ...

    def consume(self, queues: Sequence[str]) -> None:
        """Take from `queues` from now on, and from no others. What is held goes on."""
        ...

    def delivery(self, message: Any) -> Delivery: ...

    def end(self, endings: Sequence[Ending]) -> list[str]:
        """End deliveries, each in one step: its record, what follows, and its message gone.

        Only where `ends_at_once`. Returns why it was refused for each, "" where it was not:
        then nothing of it was written. Told again, it is not done again. Raises LinkError.
        """
        ...

    def wake(self) -> None:
        """Have `drain` return now. Raises LinkError."""
        ...

    def probe(self) -> None:
        """Ask the broker whether it is there. Any thread, every second; raises LinkError."""
        ...

    def disconnect(self) -> None:
        """End the connection, not what is held. Idempotent."""
        ...

    def close(self) -> None:
        """Let go for good. Idempotent."""
        ...


class StepwiseCompletion:
    """What a line is whose deliveries end step by step."""

    ends_at_once = False

    def end(self, endings: Sequence[Ending]) -> list[str]:
        raise NotImplementedError("this transport writes the result first, and acknowledges then")


class ConsumerOptions:
    """What every line is made of.

    room: how many more messages may be taken. limit: how many may be in hand at once, those
        included that wait for their time; waiting: how many those are.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        queues: Collection[str],
        room: Callable[[], int],
        limit: Callable[[], int],
        waiting: Callable[[], int],
        is_stopping: Callable[[], bool],
        on_message: OnMessage,
        on_unreadable: OnUnreadable,
        on_lost: OnLost,
        log: Any,
    ) -> None:
        self.app = app
        self.worker = worker
        self.queues = tuple(queues)
        self.room = room
        self.limit = limit
        self.waiting = waiting
        self.is_stopping = is_stopping
        self.on_message = on_message
        self.on_unreadable = on_unreadable
        self.on_lost = on_lost
        self.log = log


def open_consumer(options: ConsumerOptions) -> Consumer:
    """Return the line that the app's transport needs."""
    if options.app.transport == STREAMS:
        from blimp.queue.brokers.streams.consumer import StreamsConsumer

        return StreamsConsumer(options)
    from blimp.queue.brokers.kombu_consumer import KombuConsumer

    return KombuConsumer(options)
