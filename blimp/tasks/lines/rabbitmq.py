"""What is particular to RabbitMQ: its queues, its confirmations, its heartbeats.

Its priorities grow with urgency, ours fall: see `turn_priority`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

from amqp.exceptions import (
    FrameSyntaxError,
    NoConsumers,
    PreconditionFailed,
    RecoverableConnectionError,
)
from amqp.method_framing import frame_handler
from kombu import Producer, Queue
from kombu.pools import ProducerPool

from blimp.tasks.broker.urls import tcp_keepalive
from blimp.tasks.message import EMERGENCY, LOW

MAX_PRIORITY = LOW - EMERGENCY
DEAD_LIMIT = 10_000
CONTENT_HEADER, PROPERTIES_AT, NO_PROPERTIES = 2, 12, b"\0\0"  # AMQP 0-9-1, 4.2.6.1


def connection_options(*, timeout_s: float) -> dict[str, Any]:
    """Return transport options: publications are confirmed, and no call hangs."""
    settings: dict[int, int] = tcp_keepalive()
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        settings[socket.TCP_USER_TIMEOUT] = int(timeout_s * 1000)
    return {
        "confirm_publish": True,
        "read_timeout": timeout_s,
        "write_timeout": timeout_s,
        "socket_settings": settings,
        "frame_handler": forgiving_frames,
    }


def forgiving_frames(connection: Any, callback: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return py-amqp's frame handler, made to take a message whatever its properties are.

    One that cannot be read would be delivered again, and end every connection. It comes without
    properties instead, and is turned away for that.
    """
    on_frame = frame_handler(connection, callback)

    def on_any_frame(frame: tuple[int, int, bytes]) -> Any:
        try:
            return on_frame(frame)
        except (UnicodeDecodeError, FrameSyntaxError, struct.error):
            kind, channel, payload = frame
            if kind != CONTENT_HEADER:
                raise
            return on_frame((kind, channel, payload[:PROPERTIES_AT] + NO_PROPERTIES))

    return on_any_frame


def turn_priority(priority: int) -> int:
    """Return our priority as RabbitMQ's, and the other way."""
    return MAX_PRIORITY - min(max(priority, EMERGENCY), LOW)


def dead_queue(name: str) -> str:
    return f"{name}.dead"


def declare_queue(connection: Any, name: str) -> bool:
    """Declare queue `name`, durable, with priorities and dead letters.

    False where it exists and someone else has declared it otherwise: it is used as it is.
    """
    dead = Queue(dead_queue(name), queue_arguments={"x-max-length": DEAD_LIMIT})
    queue = Queue(
        name,
        max_priority=MAX_PRIORITY,
        queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name},
    )
    ours = True
    for each in (dead, queue):
        # A refusal closes its channel: one for each.
        with connection.channel() as channel:
            try:
                each(channel).queue_declare()
            except PreconditionFailed:
                ours = False
    return ours


class ConfirmedProducer(Producer):
    """Raises for a message that reached no queue; its queue is declared before the first."""

    def _publish(
        self,
        body: Any,
        priority: Any,
        content_type: Any,
        content_encoding: Any,
        headers: Any,
        properties: Any,
        routing_key: str,
        mandatory: bool,
        *rest: Any,
    ) -> Any:
        """Publish once; kombu calls it again on a new connection, and where it was returned."""
        established = self.channel.connection
        if established is None:  # lost since; kombu then makes another and calls again
            raise RecoverableConnectionError("connection closed")
        declared = self.connection.declared_entities  # emptied with each connection
        if mandatory and routing_key not in declared:
            declare_queue(established, routing_key)
            declared.add(routing_key)
        returned: list[Any] = []
        self.channel.events["basic_return"] = {lambda *told: returned.append(told)}
        message = (body, priority, content_type, content_encoding, headers, properties)
        result = super()._publish(  # type: ignore[no-untyped-call]
            *message, routing_key, mandatory, *rest
        )
        if returned:
            declared.clear()
            raise NoConsumers(f"queue {routing_key!r} is not there", (60, 40))
        return result


class ConfirmedPool(ProducerPool):
    Producer = ConfirmedProducer
