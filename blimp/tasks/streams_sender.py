"""Task messages straight into streams. A kombu producer would write the same, at twice the price.

What it writes is `wire.pack`'s, as by the transport's own channel: other kombu programs read it.
"""

from __future__ import annotations

import threading
from typing import Any

from blimp.tasks.carrier import streams_options
from blimp.tasks.posting import pack_task
from blimp.tasks.transport.holder import Holder
from blimp.tasks.transport.stamps import Stamp
from blimp.tasks.urls import redis_url


class StreamsSender:
    """Sends to one broker, from any thread. Connects on first use; close is idempotent.

    Raises redis-py's errors, and ConfigError for a server that is too old.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self._holder = Holder(url=redis_url(url), options=streams_options(timeout_s=timeout_s))
        self._checking = threading.Lock()
        self._is_checked = False

    def connect(self) -> None:
        """Have a connection ready, to a server that knows what the scripts use."""
        with self._checking:
            if not self._is_checked:
                self._holder.link.check_version()
                self._is_checked = True

    def send(
        self,
        body: bytes,
        *,
        headers: dict[str, Any],
        queue: str,
        priority: int,
        stamp: Stamp,
    ) -> None:
        """Put one message into `queue`; the same `stamp` again puts nothing more."""
        if not self._is_checked:
            self.connect()
        parcel = pack_task(body, headers=headers, queue=queue, priority=priority)
        keys = self._holder.keys.queue(queue)
        self._holder.store.publish([(keys, False)], parcel, stamp=stamp)

    def close(self) -> None:
        self._holder.close()
