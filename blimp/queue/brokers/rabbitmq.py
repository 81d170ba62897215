"""RabbitMQ's URLs: `amqp://user:password@host:port/vhost`, and `amqps://` over TLS.

What is particular to RabbitMQ: its queues, its confirmations, its heartbeats.

Its priorities grow with urgency, ours fall: see `turn_priority`.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from amqp.exceptions import (
    FrameSyntaxError,
    NoConsumers,
    PreconditionFailed,
    RecoverableConnectionError,
)
from amqp.method_framing import frame_handler
from kombu import Producer, Queue
from kombu.pools import ProducerPool

from blimp.errors import ConfigError
from blimp.queue.brokers.base import Capabilities
from blimp.queue.brokers.kombu_sender import KombuSender
from blimp.queue.protocol.message import EMERGENCY, LOW
from blimp.queue.redis.urls import hide_password, tcp_keepalive

if TYPE_CHECKING:
    from kombu import Connection

    from blimp.queue.brokers.base import Consumer, ConsumerOptions, Sender

HEARTBEAT_S = 5
CHECKS = {"required": ssl.CERT_REQUIRED, "none": ssl.CERT_NONE}


def part_tls(url: str) -> tuple[str, dict[str, Any]]:
    """Return `url` without its TLS options, and those as py-amqp takes them; none for `amqp://`.

    They are written as for `rediss://`: ssl_ca_certs, ssl_certfile, ssl_keyfile. The server's
    certificate is checked, which py-amqp would not do, unless ssl_cert_reqs=none.
    Raises ConfigError for another option.
    """
    parts = urlsplit(url)
    if parts.scheme != "amqps":
        return url, {}
    tls: dict[str, Any] = {"server_hostname": parts.hostname, "cert_reqs": ssl.CERT_REQUIRED}
    for name, value in parse_qsl(parts.query):
        if name == "ssl_cert_reqs" and value in CHECKS:
            tls["cert_reqs"] = CHECKS[value]
        elif name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile"):
            tls[name.removeprefix("ssl_")] = value
        else:
            raise ConfigError(
                f"broker URL {hide_password(url)!r}: option {name}={value} is unknown"
            )
    if tls["cert_reqs"] == ssl.CERT_NONE:
        del tls["server_hostname"]
    return urlunsplit(parts._replace(query="")), tls


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
    """Return py-amqp's frame handler that accepts a message with any properties.

    A message that cannot be read would be delivered again, and end every connection. It is
    delivered without properties instead, and refused for that.
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

    Returns False if it exists with other arguments: it is used as it is.
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
        """Publish once; kombu calls it again on a new connection, or if it was returned."""
        established = self.channel.connection
        if established is None:  # lost since; kombu then makes another and calls again
            raise RecoverableConnectionError("connection closed")
        declared = self.connection.declared_entities  # emptied with each connection
        if mandatory and routing_key not in declared:
            declare_queue(established, routing_key)
            declared.add(routing_key)
        returned: list[Any] = []
        self.channel.events["basic_return"] = {lambda *reply: returned.append(reply)}
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


class RabbitBroker:
    name = "amqp"
    capabilities = Capabilities(
        title="RabbitMQ",
        has_dead_letters=False,
        notes=("dead letters are in QUEUE.dead, which `dead` does not show",),
    )

    def check_url(self, url: str) -> None:
        part_tls(url)

    def open_connection(
        self, url: str, *, timeout_s: float, beats: bool = False, **options: Any
    ) -> Connection:
        import kombu

        plain, tls = part_tls(url)
        return kombu.Connection(
            plain,
            transport="pyamqp",  # not librabbitmq, which kombu prefers if it is installed
            ssl=tls or False,
            connect_timeout=timeout_s,
            heartbeat=HEARTBEAT_S if beats else 0,
            transport_options=connection_options(timeout_s=timeout_s) | options,
        )

    def open_consumer(self, options: ConsumerOptions) -> Consumer:
        from blimp.queue.brokers.kombu_consumer import KombuConsumer  # only in a worker

        return KombuConsumer(
            options, broker=self, turn_priority=turn_priority, declare_queue=declare_queue
        )

    def open_sender(self, url: str, *, timeout_s: float, on_lost: Callable[[str], None]) -> Sender:
        return KombuSender(
            self,
            url,
            timeout_s=timeout_s,
            on_lost=on_lost,
            turn_priority=turn_priority,
            pool=ConfirmedPool,
            mandatory=True,
        )
