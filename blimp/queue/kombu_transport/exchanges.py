"""Exchanges, queues and bindings: on the server, and as a kombu channel declares them."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import msgspec
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.transport.virtual.exchange import ExchangeType

from blimp.queue.redis.keys import QueueKeys

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.store import Store
    from blimp.queue.redis.client import Link
    from blimp.queue.redis.keys import Keys

FANOUT = "fanout"
SIGNS_PER_LIFE = 4  # how often the life of a queue that expires is renewed while it is used

Row = tuple[str, str | None, str]  # routing key, pattern, queue: as kombu's exchange types want


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange: its type, its bindings, and the bound queues that may expire."""

    version: str
    type: str | None
    rows: tuple[Row, ...]
    mortal: frozenset[str]


class Exchanges:
    """The bindings of all exchanges, kept on the server. Raises redis-py's errors.

    Each program routes by its own copy. A message is put only if the copy is current: the
    server compares the version in the step that puts it, and refuses an old one.
    """

    def __init__(self, *, link: Link, keys: Keys, store: Store) -> None:
        self._link = link
        self._keys = keys
        self._store = store
        self._tables: dict[str, Table] = {}
        self._declared: set[tuple[str, str]] = set()

    def table(self, exchange: str) -> Table:
        """Return the copy of `exchange`; read it if there is none."""
        found = self._tables.get(exchange)
        return self._read(exchange) if found is None else found

    def forget(self, exchange: str) -> None:
        """Read the copy of `exchange` again when it is next needed."""
        self._tables.pop(exchange, None)

    def declare(self, exchange: str, type: str) -> None:
        if (exchange, type) not in self._declared:
            self._change(exchange, "type", type)
            self._declared.add((exchange, type))

    def bind(self, exchange: str, row: Row, *, mortal: bool) -> None:
        for type in [kind for name, kind in self._declared if mortal and name == exchange]:
            self._change(exchange, "type", type)  # which may have expired since
        self._change(exchange, "add", self._binding(row, mortal=mortal), queue=row[2])

    def unbind(self, exchange: str, row: Row) -> None:
        for mortal in (False, True):
            self._change(exchange, "remove", self._binding(row, mortal=mortal), queue=row[2])

    def delete_queue(self, queue: str) -> None:
        """Delete `queue` with all its bindings."""
        for exchange in self._store.delete(self._keys.queue(queue)):
            self.forget(exchange)

    def delete(self, exchange: str) -> None:
        self._link.client.delete(self._keys.exchange(exchange), self._keys.fanout(exchange))
        self.forget(exchange)
        self._declared = {one for one in self._declared if one[0] != exchange}

    def _read(self, exchange: str) -> Table:
        fields: Any = self._link.client.hgetall(self._keys.exchange(exchange))
        return self.learn(exchange, fields)

    def learn(self, exchange: str, fields: dict[bytes, bytes]) -> Table:
        """Make a copy of `exchange` from its hash on the server."""
        bindings = [json.loads(name[1:]) for name in fields if name[:1] == b"b"]
        type = fields.get(b"type")
        table = self._tables[exchange] = Table(
            version=fields.get(b"version", b"0").decode(),
            type=None if type is None else type.decode(),
            rows=tuple((key, pattern, queue) for key, pattern, queue, _ in bindings),
            mortal=frozenset(queue for _, _, queue, alive in bindings if alive),
        )
        return table

    def _change(self, exchange: str, verb: str, what: str, *, queue: str = "") -> None:
        if self._store.change_binding(exchange, verb, what, queue=queue):
            self.forget(exchange)

    def _binding(self, row: Row, *, mortal: bool) -> str:
        alive = self._keys.queue(row[2]).alive if mortal else ""
        return json.dumps([*row, alive], separators=(",", ":"))


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
            self.connection.exchanges.bind(exchange, row, mortal=queue in self._expires_ms)

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
            self.connection.exchanges.unbind(exchange, row)

    def _row(self, queue: str, exchange: str, routing_key: str, arguments: Any) -> Any:
        """Return a binding as its exchange's table has it; None for a fanout exchange."""
        kind = self.typeof(exchange)
        if kind.type == FANOUT:
            return None
        return kind.prepare_bind(queue, exchange, routing_key, arguments)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Delete `queue`, its bindings and its messages. Dead letters stay."""
        if if_empty and self._size(queue):
            return
        if if_unused and queue in self.connection._callbacks:
            return
        self.connection.stop_listening(queue)
        self.connection.exchanges.delete_queue(queue)
        self._alive_s.pop(queue, None)

    def get_table(self, exchange: str) -> list[tuple[str, str | None, str]]:
        return list(self.connection.exchanges.table(exchange).rows)

    def typeof(self, exchange: str, default: str = "direct") -> ExchangeType:
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
