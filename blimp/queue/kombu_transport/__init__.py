"""A kombu transport on Valkey or Redis streams that cannot lose a message.

    kombu.Connection("redis://localhost/0", transport="blimp.queue.kombu_transport:Transport")

The server delivers a message and records its consumer in one step. A thread of the consumer
renews the lease. If the consumer dies, others take its messages after `lease_s`; a consumer of
the same name takes them at once. Each delivery has a fence: after a lost lease, its
acknowledgement is refused. Messages, streams and scripts are those of blimp/queue/brokers/streams.
See docs/celery.md and docs/decisions/0010-streams-transport.md.
"""

from blimp.queue.kombu_transport.transport import Transport

__all__ = ["Transport"]
