"""Redis or Valkey streams as a broker: loses nothing, and completes a delivery in one step.

Tested by test_brokers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.queue.brokers.base import Capabilities
from blimp.queue.redis.urls import public_parts

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Consumer, ConsumerOptions, Sender
    from blimp.queue.redis.client import RedisServer


class StreamsBroker:
    name = "streams"
    capabilities = Capabilities(
        title="streams",
        on_redis=True,
        atomic_completion=True,
        keeps_stamps=True,
        keeps_steps=True,
        shares_fairly=True,
        has_dead_letters=True,
        sets_aside=True,
        counts_deliveries=True,
        leases=True,
        schedules=True,
        exclusive_names=True,
        keeps_broadcasts=True,
        finds_messages=True,
        local_prefetch=True,
        longest_wait_s=5.0,
    )

    def check_url(self, url: str) -> None:
        """A Redis URL was checked by `Brokers`."""

    def info(self, url: str, *, timeout_s: float) -> dict[str, Any]:
        return public_parts(url) | {
            "transport": self.name, "connect_timeout": timeout_s, "ssl": url.startswith("rediss:"),
            "insist": False, "login_method": None, "uri_prefix": None, "heartbeat": 0,
        }  # fmt: skip

    def open_consumer(self, options: ConsumerOptions) -> Consumer:
        from blimp.queue.brokers.streams.consumer import StreamsConsumer  # only in a worker

        return StreamsConsumer(options)

    def open_sender(
        self,
        url: str,
        *,
        timeout_s: float,
        on_lost: Callable[[str], None],
        server: RedisServer | None = None,
    ) -> Sender:
        from blimp.queue.brokers.streams.streams_sender import StreamsSender  # only to publish

        return StreamsSender(url, timeout_s=timeout_s, on_lost=on_lost, server=server)
