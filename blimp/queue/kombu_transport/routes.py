"""Exchanges and their bindings, kept on the server, so that every program sees the same.

Each program routes by its own copy. A message is put only where the copy is still current:
the server compares its version in the step that puts it, and refuses otherwise.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.store import Store
    from blimp.queue.redis.client import Link
    from blimp.queue.redis.keys import Keys

Row = tuple[str, str | None, str]  # routing key, pattern, queue: as kombu's exchange types want


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange: its type, its bindings, and the queues among them that may expire."""

    version: str
    type: str | None
    rows: tuple[Row, ...]
    mortal: frozenset[str]


class Routes:
    """The bindings of all exchanges. Raises redis-py's errors."""

    def __init__(self, *, link: Link, keys: Keys, store: Store) -> None:
        self._link = link
        self._keys = keys
        self._store = store
        self._tables: dict[str, Table] = {}
        self._declared: set[tuple[str, str]] = set()

    def table(self, exchange: str) -> Table:
        """Return the copy of `exchange`; read it where there is none."""
        found = self._tables.get(exchange)
        return self._read(exchange) if found is None else found

    def forget(self, exchange: str) -> None:
        """Have the copy of `exchange` read again when it is next needed."""
        self._tables.pop(exchange, None)

    def declare(self, exchange: str, type: str) -> None:
        if (exchange, type) not in self._declared:
            self._change(exchange, "type", type)
            self._declared.add((exchange, type))

    def bind(self, exchange: str, row: Row, *, mortal: bool) -> None:
        self._change(exchange, "add", _binding(row, mortal=mortal), queue=row[2])

    def unbind(self, exchange: str, row: Row) -> None:
        for mortal in (False, True):
            self._change(exchange, "remove", _binding(row, mortal=mortal), queue=row[2])

    def delete_queue(self, queue: str) -> None:
        """Delete `queue` with every binding of it."""
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
            mortal=frozenset(queue for _, _, queue, mortal in bindings if mortal),
        )
        return table

    def _change(self, exchange: str, verb: str, what: str, *, queue: str = "") -> None:
        if self._store.change_binding(exchange, verb, what, queue=queue):
            self.forget(exchange)


def _binding(row: Row, *, mortal: bool) -> str:
    return json.dumps([*row, mortal], separators=(",", ":"))
