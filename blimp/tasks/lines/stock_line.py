"""A line on kombu's own Redis transport, with what stock.py adds to it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from blimp.tasks.broker.carrier import connect
from blimp.tasks.broker.urls import kombu_url, transport_options
from blimp.tasks.lines.line import InSteps
from blimp.tasks.lines.stock import StockDelivery, StockTransport, UnackedKeys, UnackedStore

if TYPE_CHECKING:
    from blimp.tasks.lines.line import LineOptions


class StockLine(InSteps):
    def __init__(self, options: LineOptions) -> None:
        self._options = options
        self._keys = UnackedKeys(app=options.app.name, worker=options.worker)
        self._store = UnackedStore(link=options.app.broker_link, keys=self._keys)
        self._connection: Any = None
        self._consumer: Any = None
        self._is_woken = False
        self._blocked_id: int | None = None  # the server's number of the blocked connection

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        import kombu

        app = self._options.app
        options = transport_options(timeout_s=app.timeout_s) | self._keys.transport_options()
        self._connection = kombu.Connection(kombu_url(app.broker), transport_options=options)
        self._connection.transport_cls = StockTransport
        connect(self._connection)
        channel = self._connection.channel()
        channel.on_poison = self._options.on_unreadable
        channel.limit_bytes = app.limit_bytes
        channel.stopping = self._is_called
        channel.qos.room = lambda: self._options.room() > 0
        self._blocked_id = channel.identify()
        self._consumer = kombu.Consumer(
            channel,
            queues=[kombu.Queue(name, no_declare=True) for name in self._options.queues],
            on_message=self._options.on_message,
            auto_declare=False,
        )
        self._consumer.consume()
        return self._store.restore(except_tags=held)

    def consume(self, queues: Sequence[str]) -> None:
        import kombu

        before, self._options.queues = self._options.queues, tuple(queues)
        for name in before:
            if name not in queues:
                self._consumer.cancel_by_queue(name)
        for name in queues:
            if name not in before:
                self._consumer.add_queue(kombu.Queue(name, no_declare=True))
        self._consumer.consume()

    def _is_called(self) -> bool:
        """Say whether a wait for messages is to end, though none has come."""
        was_woken, self._is_woken = self._is_woken, False
        return was_woken or self._options.is_stopping()

    def drain(self, timeout_s: float) -> None:
        self._connection.drain_events(timeout=timeout_s)

    def delivery(self, message: Any) -> StockDelivery:
        return StockDelivery(message=message, store=self._store)

    def wake(self) -> None:
        """Have the server answer the blocked connection now."""
        self._is_woken = True
        if self._blocked_id is not None:
            with self._options.app.broker_link.link():
                self._options.app.broker_link.client.client_unblock(self._blocked_id)

    def probe(self) -> None:
        with self._options.app.broker_link.link():
            self._options.app.broker_link.client.ping()

    def disconnect(self) -> None:
        self._blocked_id = None
        if self._connection is not None:
            # Reads the answer of a pending BRPOP, which may be a message: it is given back.
            with contextlib.suppress(Exception):  # the link is lost, or the broker is
                self._connection.release()
            self._connection = None

    def close(self) -> None:
        self.disconnect()
