"""Exchanges on the server: bindings, and what is published on them, fanouts included.

Tested by test_declarations.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.brokers.streams.envelope import NONE, SEPARATOR
from blimp.queue.brokers.streams.store import SCRIPTS, StaleBindings

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.envelope import Envelope, Stamp
    from blimp.queue.brokers.streams.store import Store

KEEP = 1000  # messages that a fanout exchange keeps for a listener that reconnects
KEEP_MS = 3_600_000
NOTIFY_KEEP_MS = 60_000  # of events: Celery's `event_queue_expires`

Row = tuple[str, str | None, str]  # routing key, pattern, queue: as kombu's exchange types want


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange: its type ("" if unknown), its bindings, and the queues that may expire."""

    version: str
    type: str
    rows: tuple[Row, ...]
    mortal: frozenset[str]


class Exchanges:
    """All exchanges of one server, and what is published on them. Raises redis-py's errors.

    Direct and topic exchanges have bindings. Each program routes by its own copy. A message is put
    only if the copy is current: the server compares the version in the step that puts it, and
    refuses an old one. A fanout exchange has a channel and a stream, and no bindings.
    """

    def __init__(self, store: Store) -> None:
        self._link = store.link
        self._keys = store.keys
        self._store = store
        self._tables: dict[str, Table] = {}
        self._declared: dict[str, str] = {}  # type, by exchange

    def table(self, exchange: str) -> Table:
        """Return the copy of `exchange`; read it if there is none."""
        found = self._tables.get(exchange)
        if found is None:
            fields: Any = self._link.client.hgetall(self._keys.exchange(exchange))
            found = self.learn(exchange, fields)
        return found

    def forget(self, exchange: str) -> None:
        """Read the copy of `exchange` again when it is next needed."""
        self._tables.pop(exchange, None)

    def declare(self, exchange: str, type: str) -> None:
        if self._declared.get(exchange) != type:
            self._change(exchange, "type", type)
            self._declared[exchange] = type

    def bind(self, exchange: str, row: Row, *, mortal: bool) -> None:
        if mortal and exchange in self._declared:  # its type may have expired since
            self._change(exchange, "type", self._declared[exchange])
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
        self._declared.pop(exchange, None)

    def learn(self, exchange: str, fields: dict[bytes, bytes]) -> Table:
        """Make a copy of `exchange` from its hash on the server."""
        bindings = [json.loads(name[1:]) for name in fields if name[:1] == b"b"]
        table = self._tables[exchange] = Table(
            version=fields.get(b"version", b"0").decode(),
            type=fields.get(b"type", b"").decode(),
            rows=tuple((key, pattern, queue) for key, pattern, queue, _ in bindings),
            mortal=frozenset(queue for _, _, queue, alive in bindings if alive),
        )
        return table

    # --- publishing --------------------------------------------------------------------------

    def publish(
        self,
        exchange: str,
        envelope: Envelope,
        *,
        stamp: Stamp = NONE,
        route: Callable[[Sequence[Row]], Iterable[str]],
    ) -> None:
        """Put one message into the queues that `route` returns for the bindings."""
        while True:
            table = self.table(exchange)
            queues = [
                (self._keys.queue(queue), queue in table.mortal)
                for queue in route(table.rows)
                if queue
            ]
            try:
                gone = self._store.publish(
                    queues, envelope, stamp=stamp, exchange=exchange, version=table.version
                )
                break
            except StaleBindings as stale:
                self.learn(exchange, stale.fields)
        names = {keys.name for keys in gone}
        for row in table.rows:
            if row[2] in names:
                self.unbind(exchange, row)

    def broadcast(self, exchange: str, head: bytes, body: bytes) -> None:
        """Send to all that listen on the fanout `exchange`; one who reconnects in time gets it too.

        On two roads: it is published, which no full disk refuses and no key of the server can
        disturb, and it is kept in a stream for those who are cut off. One of them is enough.
        """
        database = int(self._link.client.connection_pool.connection_kwargs.get("db") or 0)
        script, key = SCRIPTS["broadcast"], self._keys.fanout(exchange)
        with self._link.client.pipeline(transaction=False) as pipe:
            channel = self._keys.channel(exchange, database=database)
            pipe.execute_command("PUBLISH", channel, head + SEPARATOR + body)
            pipe.execute_command("EVAL", script.text, 1, key, KEEP, KEEP_MS, head, body)
            published, kept = pipe.execute(raise_on_error=False)
        if isinstance(published, Exception) and isinstance(kept, Exception):
            raise kept

    def notify(self, exchange: str, head: bytes, body: bytes) -> None:
        """Send what may be lost, such as events: a full server refuses it."""
        args = [KEEP, NOTIFY_KEEP_MS, head, body]
        self._store.run("notify", [self._keys.fanout(exchange)], args)

    def fanout_ends(self, exchanges: Sequence[str]) -> tuple[int, list[str]]:
        """Return the server's ms, and the last id that each exchange's stream has given.

        What is no stream, or can take no more entries, is deleted: it is of no use to anybody.
        """
        keys = [self._keys.fanout(exchange) for exchange in exchanges]
        now_ms, ends = self._store.run("fanout_ends", keys, [])
        return int(now_ms), [end.decode() for end in ends]

    # --- the server's copy ----------------------------------------------------------------------

    def _change(self, exchange: str, verb: str, what: str, *, queue: str = "") -> None:
        if self._store.change_binding(exchange, verb, what, queue=queue):
            self.forget(exchange)

    def _binding(self, row: Row, *, mortal: bool) -> str:
        alive = self._keys.queue(row[2]).alive if mortal else ""
        return json.dumps([*row, alive], separators=(",", ":"))
