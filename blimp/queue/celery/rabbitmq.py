"""RabbitMQ: its URLs, queues, confirmations and heartbeats.

`amqp://user:password@host:port/vhost`, and `amqps://` over TLS. Tested by test_guarantees.py.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

import kombu
from amqp.exceptions import (
    FrameSyntaxError,
    NoConsumers,
    PreconditionFailed,
    RecoverableConnectionError,
)
from amqp.method_framing import frame_handler
from kombu import Producer, Queue
from kombu.pools import ProducerPool

from blimp.queue.brokers.base import Capabilities
from blimp.queue.celery.kombu_broker import KombuBroker
from blimp.queue.protocol.message import EMERGENCY, LOW
from blimp.queue.redis.address import RABBIT_SCHEMES, Address
from blimp.queue.redis.urls import address_of, tcp_keepalive

HEARTBEAT_S = 5
MAX_PRIORITY = LOW - EMERGENCY
DEAD_LIMIT = 10_000
CONTENT_HEADER, PROPERTIES_AT, NO_PROPERTIES = 2, 12, b"\0\0"  # AMQP 0-9-1, 4.2.6.1


def tls_options(address: Address) -> dict[str, Any]:
    """Return the TLS options of a URL as py-amqp takes them; none for `amqp://`.

    They are written as for `rediss://`: ssl_ca_certs, ssl_certfile, ssl_keyfile. The server's
    certificate is checked, which py-amqp would not do, unless ssl_cert_reqs=none.
    """
    if not address.is_tls:
        return {}
    ((host, _),) = address.hosts
    tls = {name.removeprefix("ssl_"): value for name, value in address.options.items()}
    if address.checks_certificate:
        return tls | {"server_hostname": host, "cert_reqs": ssl.CERT_REQUIRED}
    return tls | {"cert_reqs": ssl.CERT_NONE}


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


def declare_queue(connection: Any, name: str) -> bool:
    """Declare queue `name`, durable, with priorities and dead letters.

    Returns False if it exists with other arguments: it is used as it is.
    """
    dead = Queue(f"{name}.dead", queue_arguments={"x-max-length": DEAD_LIMIT})
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

    def _publish(self, *args: Any) -> Any:
        """Publish once; kombu calls it again on a new connection, or if it was returned."""
        routing_key, mandatory = args[6:8]
        established = self.channel.connection
        if established is None:  # lost since; kombu then makes another and calls again
            raise RecoverableConnectionError("connection closed")
        declared = self.connection.declared_entities  # emptied with each connection
        if mandatory and routing_key not in declared:
            declare_queue(established, routing_key)
            declared.add(routing_key)
        returned: list[Any] = []
        self.channel.events["basic_return"] = {lambda *reply: returned.append(reply)}
        result = super()._publish(*args)  # type: ignore[no-untyped-call]
        if returned:
            declared.clear()
            raise NoConsumers(f"queue {routing_key!r} does not exist", (60, 40))
        return result


class ConfirmedPool(ProducerPool):
    Producer = ConfirmedProducer


class RabbitBroker(KombuBroker):
    name = "amqp"
    capabilities = Capabilities(
        title="RabbitMQ", notes=("dead letters are in QUEUE.dead, which `dead` does not show",)
    )
    producers = ConfirmedPool
    declare_queue = staticmethod(declare_queue)

    def check_url(self, url: str) -> None:
        address_of(url, schemes=RABBIT_SCHEMES)

    @staticmethod
    def turn_priority(priority: int) -> int:
        """Return our priority as RabbitMQ's, which grow with urgency, and the other way."""
        return MAX_PRIORITY - min(max(priority, EMERGENCY), LOW)

    def open_connection(
        self, url: str, *, timeout_s: float, beats: bool = False, **options: Any
    ) -> kombu.Connection:
        """Publications are confirmed, and no call hangs."""
        address = address_of(url, schemes=RABBIT_SCHEMES)
        ((host, port),) = address.hosts
        settings = tcp_keepalive()
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            settings[socket.TCP_USER_TIMEOUT] = int(timeout_s * 1000)
        defaults: dict[str, Any] = {
            "confirm_publish": True,
            "read_timeout": timeout_s,
            "write_timeout": timeout_s,
            "socket_settings": settings,
            "frame_handler": forgiving_frames,
        }
        return kombu.Connection(
            host,
            userid=address.username,
            password=address.password,
            port=port,
            virtual_host=address.virtual_host,
            transport="pyamqp",  # not librabbitmq, which kombu prefers if it is installed
            ssl=tls_options(address) or False,
            connect_timeout=timeout_s,
            heartbeat=HEARTBEAT_S if beats else 0,
            transport_options=defaults | options,
        )
