"""Exchanges, queues and bindings, as a kombu channel declares them."""

from __future__ import annotations

import math
import time
from typing import Any

from kombu.transport import virtual
from kombu.transport.virtual.exchange import ExchangeType

from blimp.queue.redis.keys import QueueKeys

FANOUT = "fanout"
SIGNS_PER_LIFE = 4  # of a queue that expires when it is not used


class Declarations(virtual.Channel):
    """The half of a channel that makes, binds, counts and deletes. See Channel."""

    connection: Any

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._expires_ms: dict[str, int] = {}
        self._alive_s: dict[str, float] = {}  # when a sign of life was last given, by queue
        self._auto_delete: set[str] = set()

    # --- exchanges and bindings --------------------------------------------------------------

    def exchange_declare(
        self, exchange: str | None = None, type: str = "direct", *args: Any, **kwargs: Any
    ) -> None:
        super().exchange_declare(exchange, type, *args, **kwargs)
        if not kwargs.get("passive"):
            self.connection.routes.declare(exchange or f"amq.{type or 'direct'}", type or "direct")

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        if if_unused and self.get_table(exchange):
            return
        self.connection.routes.delete(exchange)
        self.state.exchanges.pop(exchange, None)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        row = self._row(queue, exchange, routing_key, arguments)
        if row is None:
            self.connection.listen(queue, exchange)
        else:
            self.connection.routes.bind(exchange, row, mortal=queue in self._expires_ms)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        exchange = exchange or "amq.direct"
        row = self._row(queue, exchange, routing_key, arguments)
        if row is None:
            self.connection.stop_listening(queue, exchange)
        else:
            self.connection.routes.unbind(exchange, row)

    def _row(self, queue: str, exchange: str, routing_key: str, arguments: Any) -> Any:
        """Return a binding as its exchange's table has it; None where it is a fanout's."""
        kind = self.typeof(exchange)
        if kind.type == FANOUT:
            return None
        return kind.prepare_bind(queue, exchange, routing_key, arguments)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Delete `queue`, its bindings and what waits or is held in it. Dead letters stay."""
        if if_empty and self._size(queue):
            return
        if if_unused and queue in self.connection._callbacks:
            return
        self.connection.stop_listening(queue)
        self.connection.routes.delete_queue(queue)
        self._alive_s.pop(queue, None)

    def get_table(self, exchange: str) -> list[tuple[str, str | None, str]]:
        return list(self.connection.routes.table(exchange).rows)

    def typeof(self, exchange: str, default: str = "direct") -> ExchangeType:
        declared = self.state.exchanges.get(exchange)
        kind = declared["type"] if declared else self.connection.routes.table(exchange).type
        return self.exchange_types[kind or default]

    def list_bindings(self) -> list[tuple[str, str, str]]:
        return [
            (queue, exchange, key)
            for exchange in self.state.exchanges
            for key, _, queue in self.get_table(exchange)
        ]

    def _new_queue(
        self, queue: str, auto_delete: bool = False, arguments: Any = None, **kwargs: Any
    ) -> None:
        expires_ms = (arguments or {}).get("x-expires")
        ttl_ms = (arguments or {}).get("x-message-ttl")
        pipe = self.connection.link.client.pipeline(transaction=False)
        if ttl_ms is not None:
            pipe.set(self._keys(queue).ttl, int(ttl_ms))
        if expires_ms:
            self._expires_ms[queue] = int(expires_ms)
            self._show_alive(pipe, queue)
        if len(pipe):
            pipe.execute()
        if auto_delete:
            self._auto_delete.add(queue)

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        """Return kombu's queue options as AMQP arguments: `expires` becomes `x-expires`, ms."""
        from kombu.transport.base import to_rabbitmq_queue_arguments

        return to_rabbitmq_queue_arguments(arguments or {}, **kwargs)

    def keep_alive(self, queues: list[str]) -> None:
        """Show that the queues among `queues` that may expire are in use."""
        now_s = time.monotonic()
        mortal = [
            queue
            for queue in queues
            if queue in self._expires_ms
            and now_s - self._alive_s.get(queue, -math.inf)
            > self._expires_ms[queue] / 1000.0 / SIGNS_PER_LIFE
        ]
        if mortal:
            pipe = self.connection.link.client.pipeline(transaction=False)
            for queue in mortal:
                self._show_alive(pipe, queue)
            pipe.execute()

    def _show_alive(self, pipe: Any, queue: str) -> None:
        keys, expires_ms = self._keys(queue), self._expires_ms[queue]
        self._alive_s[queue] = time.monotonic()
        pipe.set(keys.alive, "1", px=expires_ms)
        for key in keys.all():
            if key != keys.alive:
                pipe.pexpire(key, expires_ms)

    # --- whole queues ------------------------------------------------------------------------

    def _size(self, queue: str) -> int:
        counts = self.connection.store.counts(self._keys(queue))
        return int(counts.ready)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        keys = self._keys(queue)
        return bool(self.connection.link.client.exists(*keys.all()))

    def _purge(self, queue: str) -> int:
        return int(self.connection.store.purge(self._keys(queue)))

    def _keys(self, queue: str) -> QueueKeys:
        keys: QueueKeys = self.connection.keys.queue(queue)
        return keys
