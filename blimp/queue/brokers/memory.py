"""Messages in this process, on kombu's memory transport: for trying things out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.queue.brokers.base import Capabilities
from blimp.queue.brokers.kombu_sender import KombuSender

if TYPE_CHECKING:
    from kombu import Connection

    from blimp.queue.brokers.base import Consumer, ConsumerOptions, Sender

POLL_S = 0.05  # between looks: it has no socket to wait on


class MemoryBroker:
    name = "memory"
    capabilities = Capabilities(title="this process", is_shared=False, has_priorities=False)

    def check_url(self, url: str) -> None:
        """Nothing in it counts."""

    def open_connection(
        self,
        url: str,
        *,
        timeout_s: float,
        beats: bool = False,  # noqa: ARG002
        **options: Any,
    ) -> Connection:
        import kombu

        if url.endswith("://"):
            url += "localhost"  # kombu takes that without a warning
        options = {"polling_interval": POLL_S} | options
        return kombu.Connection(url, connect_timeout=timeout_s, transport_options=options)

    def open_consumer(self, options: ConsumerOptions) -> Consumer:
        from blimp.queue.brokers.kombu_consumer import KombuConsumer  # only in a worker

        return KombuConsumer(options, broker=self)

    def open_sender(self, url: str, *, timeout_s: float, on_lost: Callable[[str], None]) -> Sender:
        return KombuSender(self, url, timeout_s=timeout_s, on_lost=on_lost)
