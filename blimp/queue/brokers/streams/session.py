"""Who holds messages: a consumer's name, its leases, and its way to the server.

A connection makes its own and ends it with itself. A program whose tasks go on while it
connects again makes one, keeps it, and passes it as the transport option `holder`.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from typing import Any

from blimp.queue.brokers.streams.store import Store
from blimp.queue.brokers.streams.visibility import Leases
from blimp.queue.redis.client import Link, reset_after_fork
from blimp.queue.redis.keys import Keys

DEFAULT_LEASE_S = 2.0
DEFAULT_MAX_DELIVERIES = 20
DEFAULT_MAX_DEAD = 10_000
DEFAULT_MAX_DEAD_BYTES = 64_000_000


class StreamsSession:
    """Close is idempotent. Connects on first use.

    Transport options:
    consumer: its name; a unique one by default. Whoever begins to consume under a name takes
        back at once what that name had in hand, so no two may have one at a time: the later
        wins, and the earlier is told that its leases are lost.
    lease_s: how long after its holder's last renewal a message may be taken by others.
    max_deliveries: after so many it is a dead letter. max_dead_letters, max_dead_letter_bytes: kept
        per queue; the oldest go.
    key_prefix: of every key on the server. global_keyprefix: kombu's, stands before it.
    on_lease_lost: called with the delivery tag, from any thread.
    resume: the last entry seen of each fanout exchange; the transport goes on from there.
    on_undecodable: called with the head of an entry that cannot be read, its queue, and why.
    """

    def __init__(self, *, url: str, options: dict[str, Any], ssl: Any = None) -> None:
        self.consumer = str(options.get("consumer") or _unique_name())
        self.lease_s = float(options.get("lease_s", DEFAULT_LEASE_S))
        self.link = Link(url=url, options=options, ssl=ssl)
        before, own = options.get("global_keyprefix") or "", options.get("key_prefix", "blimp")
        self.keys = Keys(prefix=f"{before}{own}")
        self.store = Store(
            link=self.link,
            keys=self.keys,
            consumer=self.consumer,
            lease_ms=int(self.lease_s * 1000),
            max_deliveries=int(options.get("max_deliveries", DEFAULT_MAX_DELIVERIES)),
            max_dead=int(options.get("max_dead_letters", DEFAULT_MAX_DEAD)),
            max_dead_bytes=int(options.get("max_dead_letter_bytes", DEFAULT_MAX_DEAD_BYTES)),
        )
        self.on_lease_lost: Callable[[str], None] = options.get("on_lease_lost") or _nothing
        self.on_undecodable: Callable[[bytes, str, Exception], None] = (
            options.get("on_undecodable") or _nothing
        )
        self.leases = Leases(
            store=self.store, lease_s=self.lease_s, on_lost=lambda tag: self.on_lease_lost(tag)
        )
        reset_after_fork(self)

    def after_fork(self) -> None:
        """A child is another consumer: what its parent holds is its parent's."""
        self.link.after_fork()
        self.leases.forget()
        self.consumer = self.store.consumer = f"{self.consumer}.{os.getpid()}"

    def close(self) -> None:
        """Stop renewing; what is still held goes to others when its lease ends."""
        self.leases.close()
        self.link.close()


def _unique_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def _nothing(*_: object) -> None:
    return None
