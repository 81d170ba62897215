"""A kombu channel on streams, with its prefetch and its acknowledgements."""

from __future__ import annotations

from queue import Empty
from typing import Any

from kombu.transport import virtual

from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.brokers.streams.envelope import DEFAULT_REMEMBER_S, Stamps
from blimp.queue.celery.kombu_transport.declarations import FANOUT, FANOUT_TAG, Declarations

MOST_AT_ONCE = 32  # messages taken in one step; chosen; a prefetch count lowers it


class QoS(virtual.QoS):
    """Counts the unacknowledged messages of one channel.

    If the server refuses an acknowledgement because the lease was lost, nothing is raised, as
    kombu's programs expect; `on_lease_lost` was called.
    """

    def ack(self, delivery_tag: str) -> None:
        if not delivery_tag.startswith(FANOUT_TAG):
            self.channel.connection.leases.ack(delivery_tag)
        self.forget(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if delivery_tag.startswith(FANOUT_TAG):
            if requeue:  # a copy of a broadcast is this connection's alone
                message = self._delivered[delivery_tag]
                queue = message.delivery_info.get("queue", "")
                self.channel.connection.dispatcher.ready.append((queue, message._raw))
        elif requeue:
            self.channel.connection.leases.release([delivery_tag])
        else:
            self.channel.connection.leases.dead_letter(delivery_tag, "rejected")
        self.forget(delivery_tag)

    def forget(self, delivery_tag: str) -> None:
        """Count a delivery as ended. Any thread."""
        was_full = not self.can_consume()
        self._quick_ack(delivery_tag)
        transport = self.channel.connection
        if was_full and transport is not None:
            transport.wake()

    def restore_unacked(self) -> list[Any]:
        """Put back what is unacknowledged. Raises errors, and so returns none."""
        self._flush()
        tags = [tag for tag in self._delivered if not tag.startswith(FANOUT_TAG)]
        self._delivered.clear()
        transport = self.channel.connection
        if transport is not None:
            transport.leases.release(tags)
        return []


class Channel(Declarations, virtual.Channel):
    """Publishes, routes and acknowledges; its transport reads.

    An option, from `transport_options`:
    publish_once_s: how long the server remembers what was published last, so that a publish
        repeated after a lost answer adds nothing; 0: not at all. By the property `once` a
        caller says what is a repetition; see `Stamps` in envelope.py.
    """

    QoS = QoS
    supports_fanout = True
    body_encoding = "utf-8"  # kombu's name for: leave it as it is
    from_transport_options = (*virtual.Channel.from_transport_options, "publish_once_s")
    publish_once_s = DEFAULT_REMEMBER_S
    connection: Any
    _delivery_tags: Any

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.body_encoding = "utf-8"
        self._no_ack: set[str] = set()
        self._stamps = Stamps(keys=connection.keys, remember_s=float(self.publish_once_s))

    # --- publishing --------------------------------------------------------------------------

    def prepare_message(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        message: dict[str, Any] = super().prepare_message(*args, **kwargs)
        self._stamps.stamp(message["properties"])
        return message

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any
    ) -> None:
        stamp = self._stamps.read(message["properties"])
        self._inplace_augment_message(message, exchange, routing_key)
        envelope, exchanges = wire.pack(message), self.connection.exchanges
        if not exchange:
            self.connection.store.publish([(self._keys(routing_key), False)], envelope, stamp=stamp)
        elif self.typeof(exchange).type == FANOUT:
            exchanges.broadcast(exchange, envelope.head, envelope.body)
        else:
            exchanges.publish(
                exchange, envelope, stamp=stamp, route=lambda _: self._lookup(exchange, routing_key)
            )

    # --- consuming ---------------------------------------------------------------------------

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        if no_ack:
            self._no_ack.add(queue)
        self.connection.begin(self, queue)
        self.keep_alive([queue], now=True)  # it has streams now, which expire with it

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
        """Return the queues that it consumes, without those of fanout exchanges."""
        return [one for one in self._active_queues if one not in self.connection.listeners]

    def room(self) -> int:
        """Return how many messages may be taken for this channel now."""
        if not self.qos.can_consume():
            return 0
        if "can_consume" in vars(self.qos):
            return 1  # Celery's worker_disable_prefetch decides for each message
        estimate = self.qos.can_consume_max_estimate()
        return MOST_AT_ONCE if estimate is None else min(MOST_AT_ONCE, estimate)

    def rotate(self) -> None:
        """Let another queue be first next time."""
        self._active_queues.append(self._active_queues.pop(0))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        payload: dict[str, Any] | None = self.connection.dispatcher.get_one(self._keys(queue))
        self.keep_alive([queue], now=True)  # it was used, and may have streams now
        if payload is None:
            raise Empty
        return payload

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        message = super().basic_get(queue, no_ack=no_ack, **kwargs)
        if message is not None and no_ack:
            self.connection.leases.ack(message.delivery_tag)
        return message

    def after_fork(self) -> None:
        """Forget what the parent consumes: a child must not cancel, restore or delete it."""
        self._consumers.clear()
        self._tag_to_queue.clear()
        self._active_queues.clear()
        self._auto_delete.clear()
        self.qos._delivered.clear()
        self.qos._dirty.clear()
