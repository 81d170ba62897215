"""A kombu transport on Valkey or Redis streams that cannot lose a message.

    kombu.Connection("redis://localhost/0", transport="blimp.queue.kombu_transport:Transport")

A message is delivered and recorded as held in one step on the server. Its holder renews the
lease from a thread of its own; when it dies, others take its messages after `lease_s`, and
the same consumer name takes them at once. Each delivery has a fence; whoever lost the lease
can no longer acknowledge. See docs/decisions/0010-streams-transport.md.
"""

from blimp.queue.brokers.streams.dead_letters import DeadLetter, DeadLetters
from blimp.queue.brokers.streams.session import StreamsSession
from blimp.queue.brokers.streams.store import DONE, LOST, SETTLED, Claim, Counts
from blimp.queue.kombu_transport.transport import Transport

__all__ = [
    "DONE",
    "LOST",
    "SETTLED",
    "Claim",
    "Counts",
    "DeadLetter",
    "DeadLetters",
    "StreamsSession",
    "Transport",
]
