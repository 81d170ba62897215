"""A kombu channel on streams."""

from __future__ import annotations

from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.transport.virtual.exchange import ExchangeType

from blimp.tasks.transport import wire
from blimp.tasks.transport.keys import QueueKeys
from blimp.tasks.transport.qos import QoS
from blimp.tasks.transport.stamps import DEFAULT_REMEMBER_S, Stamps

FANOUT = "fanout"
DEFAULT_BATCH = 32


class Channel(virtual.Channel):
    """Declares, routes, publishes and settles; its transport reads.

    Options, from `transport_options`:
    lazy_ack: acknowledge in batches, before the next read. A crash in between runs a task
        again that had ended; leave it off for early acknowledgement.
    batch: messages taken in one step, at most; a prefetch count lowers it.
    publish_once_s: how long the server remembers what was published last, so that a publish
        repeated after a lost answer puts nothing more; 0 for not at all. See stamps.py for
        the property `once`, by which a caller says what is a repetition.
    """

    QoS = QoS
    supports_fanout = True
    body_encoding = "utf-8"  # kombu's word for: leave it as it is
    from_transport_options = (
        *virtual.Channel.from_transport_options,
        "lazy_ack",
        "batch",
        "publish_once_s",
    )
    lazy_ack = False
    publish_once_s = DEFAULT_REMEMBER_S
    batch = DEFAULT_BATCH
    connection: Any
    _delivery_tags: Any

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.body_encoding = "utf-8"
        self._expires_ms: dict[str, int] = {}
        self._auto_delete: set[str] = set()
        self._no_ack: set[str] = set()
        self._stamps = Stamps(keys=connection.keys, remember_s=float(self.publish_once_s))

    # --- declarations ------------------------------------------------------------------------

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
        kind = self.typeof(exchange)
        if kind.type == FANOUT:
            self.connection.listen(queue, exchange)
            return
        row = kind.prepare_bind(queue, exchange, routing_key, arguments)
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
        kind = self.typeof(exchange)
        if kind.type == FANOUT:
            self.connection.stop_listening(queue, exchange)
            return
        row = kind.prepare_bind(queue, exchange, routing_key, arguments)
        self.connection.routes.unbind(exchange, row)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> None:
        """Delete `queue`, its bindings and what waits or is held in it. Dead letters stay."""
        if if_empty and self._size(queue):
            return
        if if_unused and queue in self.connection._callbacks:
            return
        self.connection.stop_listening(queue)
        self.connection.routes.unbind_queue(queue)
        self.connection.link.client.delete(*self._keys(queue).all())

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
        if expires_ms:
            self._expires_ms[queue] = int(expires_ms)
            self.keep_alive([queue])
        ttl_ms = (arguments or {}).get("x-message-ttl")
        if ttl_ms is not None:
            self.connection.link.client.set(self._keys(queue).ttl, int(ttl_ms), px=expires_ms)
        if auto_delete:
            self._auto_delete.add(queue)

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        """Return kombu's queue options as AMQP arguments: `expires` becomes `x-expires`, ms."""
        from kombu.transport.base import to_rabbitmq_queue_arguments

        return to_rabbitmq_queue_arguments(arguments or {}, **kwargs)

    def keep_alive(self, queues: list[str]) -> None:
        """Show that the queues among `queues` that may expire are in use."""
        mortal = [queue for queue in queues if queue in self._expires_ms]
        if not mortal:
            return
        pipe = self.connection.link.client.pipeline(transaction=False)
        for queue in mortal:
            keys, expires_ms = self._keys(queue), self._expires_ms[queue]
            pipe.set(keys.alive, "1", px=expires_ms)
            for key in (*keys.lanes, keys.bell, keys.later, keys.exchanges, keys.ttl):
                pipe.pexpire(key, expires_ms)
        pipe.execute()

    # --- publishing --------------------------------------------------------------------------

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        properties = properties or {}
        properties.setdefault("delivery_info", {})
        properties.setdefault("priority", priority or 0)
        self._stamps.stamp(properties)
        return {
            "body": body,
            "content-encoding": content_encoding,
            "content-type": content_type,
            "headers": headers or {},
            "properties": properties,
        }

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any
    ) -> None:
        stamp = self._stamps.read(message["properties"])
        self._inplace_augment_message(message, exchange, routing_key)
        parcel, store = wire.pack(message), self.connection.store
        if not exchange:
            store.publish([(self._keys(routing_key), False)], parcel, stamp=stamp)
            return
        if self.typeof(exchange).type == FANOUT:
            self.connection.broadcast(exchange, parcel.head, parcel.body)
            return
        while True:
            table = self.connection.routes.table(exchange)
            queues = [
                (self._keys(queue), queue in table.mortal)
                for queue in self._lookup(exchange, routing_key)
                if queue
            ]
            gone = store.publish(
                queues, parcel, stamp=stamp, exchange=exchange, version=table.version
            )
            if gone is not None:
                break
            self.connection.routes.forget(exchange)
        names = {keys.name for keys in gone}
        for row in table.rows:
            if row[2] in names:
                self.connection.routes.unbind(exchange, row)

    # --- consuming ---------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self._no_ack.add(queue)
        self.connection.begin(self, queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        self._no_ack.discard(queue)
        self.connection.end(self, queue)
        if queue in self._auto_delete:
            self.queue_delete(queue)

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        if multiple:
            for tag in list(self.qos._delivered):
                self.qos.ack(tag)
                if tag == delivery_tag:
                    return
        self.qos.ack(delivery_tag)

    def is_no_ack(self, queue: str) -> bool:
        return queue in self._no_ack

    def active_queues(self) -> list[str]:
        """Return the queues it consumes, without those of fanout exchanges."""
        return [one for one in self._active_queues if not self.connection.listens(one)]

    def room(self) -> int:
        """Return how many messages may be taken for this channel now."""
        if not self.qos.can_consume():
            return 0
        if "can_consume" in vars(self.qos):
            return 1  # Celery's worker_disable_prefetch asks for each
        estimate = self.qos.can_consume_max_estimate()
        return self.batch if estimate is None else min(self.batch, estimate)

    def rotate(self) -> None:
        """Have another queue be first next time."""
        self._active_queues.append(self._active_queues.pop(0))

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        raise NotImplementedError("the transport drains all its channels together")

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        payload = self.connection.get_one(queue)
        if payload is None:
            raise Empty
        found: dict[str, Any] = payload
        return found

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        message = super().basic_get(queue, no_ack=no_ack, **kwargs)
        if message is not None and no_ack:
            self.connection.leases.ack(message.delivery_tag)
        return message

    # --- whole queues ------------------------------------------------------------------------

    def _size(self, queue: str) -> int:
        counts = self.connection.store.counts(self._keys(queue))
        return int(counts.ready)

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        keys = self._keys(queue)
        return bool(self.connection.link.client.exists(*keys.all()))

    def _purge(self, queue: str) -> int:
        return int(self.connection.store.purge(self._keys(queue)))

    def after_fork(self) -> None:
        """What the parent consumes is not this child's to cancel, restore or delete."""
        self._consumers.clear()
        self._tag_to_queue.clear()
        self._active_queues.clear()
        self._auto_delete.clear()
        self.qos._delivered.clear()
        self.qos._dirty.clear()

    def close(self) -> None:
        transport = self.connection
        super().close()
        if transport is not None:
            transport.closed(self)

    def _keys(self, queue: str) -> QueueKeys:
        keys: QueueKeys = self.connection.keys.queue(queue)
        return keys
