"""Exchanges, queues and bindings as a kombu channel has them, and who listens to which fanout."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments

from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.celery.kombu_transport.connection import logger
from blimp.queue.redis.keys import QueueKeys

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.exchanges import Exchanges
    from blimp.queue.brokers.streams.fetcher import Entry
    from blimp.queue.redis.keys import Keys

FANOUT = "fanout"
FANOUT_TAG = "fanout/"  # of a copy of a broadcast: the server has no record of it
MISSED_MS = 10_000  # what a listener reads again of a stream that has gone back
SIGNS_PER_LIFE = 4  # how often the life of a queue that expires is renewed while it is used

Payload = tuple[str, dict[str, Any]]  # the queue, and kombu's message


class Listeners:
    """Which queue listens to which fanout exchange, and how far each was read. One thread's.

    on_change: called when other exchanges are to be read.
    """

    def __init__(
        self,
        *,
        exchanges: Exchanges,
        keys: Keys,
        on_change: Callable[[], None],
    ) -> None:
        self._exchanges = exchanges
        self._keys = keys
        self._on_change = on_change
        self._exchange_of: dict[str, str] = {}  # by queue
        self._last: dict[str, str] = {}  # entry read of each exchange

    def __contains__(self, queue: str) -> bool:
        return queue in self._exchange_of

    def __bool__(self) -> bool:
        return bool(self._last)

    def add(self, queue: str, exchange: str) -> None:
        """Have `queue` get what is broadcast on `exchange` from now on."""
        if exchange not in self._last:
            _, (self._last[exchange],) = self._exchanges.fanout_ends([exchange])
        self._exchange_of[queue] = exchange
        self._on_change()

    def check(self) -> None:
        """Compare how far each exchange was read with what its stream says of itself.

        A stream may have gone back: its server came back empty or with its clock put right, or
        somebody deleted an entry with an id that is still to come. What is added then lies before
        what was read last, and no XREAD returns it.
        """
        names = list(self._last)
        now_ms, ends = self._exchanges.fanout_ends(names)
        for name, end in zip(names, ends, strict=True):
            if _place(self._last[name]) > _place(end):
                logger.info("%s: read up to %s, goes back to %s", name, self._last[name], end)
                first = min(_place(end), (now_ms - MISSED_MS, 0))
                self._last[name] = f"{max(0, first[0])}-0"

    def remove(self, queue: str, exchange: str | None = None) -> None:
        """End that, for any exchange by default."""
        if exchange in (None, self._exchange_of.get(queue)):
            was = self._exchange_of.pop(queue, None)
            if was is not None and was not in self._exchange_of.values():
                self._last.pop(was, None)
                self._on_change()

    def after(self) -> dict[str, str]:
        """Return the streams to read, each with the last entry that was read."""
        return {self._keys.fanout(name): id for name, id in self._last.items()}

    def receive(self, entries: Iterable[Entry]) -> Iterator[Payload]:
        """Yield a copy of each entry for each of its listeners; what cannot be read is skipped."""
        names = {self._keys.fanout(name): name for name in self._last}
        for stream, id, fields in entries:
            exchange = names.get(stream)
            if exchange is None:
                continue
            self._last[exchange] = id
            for queue in [name for name, one in self._exchange_of.items() if one == exchange]:
                try:
                    payload = wire.unpack(fields)  # for each: what reads it may change it
                except ValueError as error:
                    logger.error("%s: broadcast %s is undecodable: %s", exchange, id, error)
                    break
                payload["properties"]["delivery_tag"] = f"{FANOUT_TAG}{uuid.uuid4().hex}"
                payload["properties"]["delivery_info"] |= {"queue": queue, "entry": id}
                yield queue, payload


def _place(id: str) -> tuple[int, int]:
    """Return an entry's id as Redis compares it."""
    ms, _, number = id.partition("-")
    return int(ms), int(number or 0)


class Declarations(virtual.Channel):
    """The half of a channel that declares, binds, counts and deletes. See Channel."""

    connection: Any

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._expires_ms: dict[str, int] = {}
        self._alive_s: dict[str, float] = {}  # when its life was last renewed, by queue
        self._auto_delete: set[str] = set()

    # --- exchanges and bindings --------------------------------------------------------------

    def exchange_declare(
        self, exchange: str | None = None, type: str = "direct", *args: Any, **kwargs: Any
    ) -> None:
        super().exchange_declare(exchange, type, *args, **kwargs)
        if not kwargs.get("passive"):
            type = type or "direct"
            self.connection.exchanges.declare(exchange or f"amq.{type}", type)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        if if_unused and self.get_table(exchange):
            return
        self.connection.exchanges.delete(exchange)
        self.state.exchanges.pop(exchange, None)

    def queue_bind(self, *binding: Any, **named: Any) -> None:
        queue, exchange, row = self._row(*binding, **named)
        if row is None:
            self.connection.listeners.add(queue, exchange)
        else:
            self.connection.exchanges.bind(exchange, row, mortal=queue in self._expires_ms)

    def queue_unbind(self, *binding: Any, **named: Any) -> None:
        queue, exchange, row = self._row(*binding, **named)
        if row is None:
            self.connection.listeners.remove(queue, exchange)
        else:
            self.connection.exchanges.unbind(exchange, row)

    def _row(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **_: Any,
    ) -> tuple[str, str, Any]:
        """Return queue, exchange and the binding in its table; None for a fanout exchange."""
        exchange = exchange or "amq.direct"
        kind = self.typeof(exchange)
        if kind.type == FANOUT:
            return queue, exchange, None
        return queue, exchange, kind.prepare_bind(queue, exchange, routing_key, arguments)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Delete `queue`, its bindings and its messages. Dead letters stay."""
        if if_empty and self._size(queue):
            return
        if if_unused and queue in self.connection._callbacks:
            return
        self.connection.listeners.remove(queue)
        self.connection.exchanges.delete_queue(queue)
        self._alive_s.pop(queue, None)

    def get_table(self, exchange: str) -> list[tuple[str, str | None, str]]:
        return list(self.connection.exchanges.table(exchange).rows)

    def typeof(self, exchange: str, default: str = "direct") -> Any:  # kombu's ExchangeType
        declared = self.state.exchanges.get(exchange)
        kind = declared["type"] if declared else self.connection.exchanges.table(exchange).type
        return self.exchange_types[kind or default]

    def _new_queue(
        self, queue: str, auto_delete: bool = False, arguments: Any = None, **kwargs: Any
    ) -> None:
        expires_ms = (arguments or {}).get("x-expires")
        ttl_ms = (arguments or {}).get("x-message-ttl")
        if ttl_ms is not None:
            self.connection.link.client.set(self._keys(queue).ttl, int(ttl_ms))
        if expires_ms:
            self._expires_ms[queue] = int(expires_ms)
            self.keep_alive([queue], now=True)
        if auto_delete:
            self._auto_delete.add(queue)

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        """Return kombu's queue options as AMQP arguments: `expires` becomes `x-expires`, ms."""
        return to_rabbitmq_queue_arguments(arguments or {}, **kwargs)

    def keep_alive(self, queues: list[str], *, now: bool = False) -> None:
        """Renew the life of those of `queues` that expire if they are not used."""
        now_s = time.monotonic()
        for queue in queues:
            expires_ms = self._expires_ms.get(queue)
            if expires_ms is None:
                continue
            renewed_s = self._alive_s.get(queue, -math.inf)
            if now or now_s - renewed_s > expires_ms / 1000.0 / SIGNS_PER_LIFE:
                self._alive_s[queue] = now_s
                self.connection.store.keep(self._keys(queue), expires_ms=expires_ms)

    # --- whole queues ------------------------------------------------------------------------

    def _size(self, queue: str) -> int:
        return int(self.connection.store.counts(self._keys(queue)).ready)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return bool(self.connection.link.client.exists(*self._keys(queue).all()))

    def _purge(self, queue: str) -> int:
        return int(self.connection.store.purge(self._keys(queue)))

    def _keys(self, queue: str) -> QueueKeys:
        keys: QueueKeys = self.connection.keys.queue(queue)
        return keys
