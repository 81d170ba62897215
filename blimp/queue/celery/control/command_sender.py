"""Asking workers: remote-control commands by kombu's pidbox, as Celery's clients send them.

Tested by test_extension_outage.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from kombu import Producer
from kombu.common import maybe_declare
from kombu.exceptions import SerializationError
from kombu.pidbox import Mailbox

from blimp.errors import MessageError
from blimp.queue.broadcast.listener import EXCHANGE, NAMESPACE
from blimp.queue.celery import kombu_transport
from blimp.queue.celery.control.command import Command, ReplyTo
from blimp.queue.celery.control.kombu_listener import connected
from blimp.queue.celery.kombu_broker import KombuBroker
from blimp.queue.celery.kombu_consumer import guard_channel
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE, to_json

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

REPLY_EXCHANGE = f"reply.{EXCHANGE}"

OnReply = Callable[[str, Any], None]  # the worker's name, its answer


class CommandMailbox(Mailbox):
    """kombu's, named as Celery names it; what it sends is signed if the app has a key."""

    def __init__(self, app: TaskApp) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            NAMESPACE, type="fanout", accept=["json"], serializer="json"
        )
        self._app = app

    def _publish(  # type: ignore[override]  # kombu's own waits for a lost broker for ever
        self,
        type: str,
        arguments: dict[str, Any],
        destination: list[str] | None = None,
        reply_ticket: str | None = None,
        channel: Any = None,
        timeout: float = 1.0,
        **_: Any,
    ) -> None:
        maybe_declare(self.reply_queue(channel))
        command = Command(
            method=type,
            arguments=arguments,
            destination=destination,
            ticket=reply_ticket,
            reply_to=ReplyTo(exchange=REPLY_EXCHANGE, routing_key=self.oid),
            app=self._app.name,
            sent_s=self._app.broker_clock.now_s(),
        )
        if self._app.signer is not None:
            signature = self._app.signer.sign_document(command.signed_part(), place=EXCHANGE)
            command = msgspec.structs.replace(command, signature=signature)
        try:
            body = to_json(msgspec.to_builtins(command))
        except (TypeError, ValueError) as error:
            raise MessageError(f"{type}: JSON cannot hold its arguments: {error}") from None
        Producer(channel, auto_declare=False).publish(
            body,
            exchange=self.exchange,
            declare=[self.exchange],
            headers={"clock": self.clock.forward(), "expires": time.time() + timeout},
            content_type=CONTENT_TYPE,
            content_encoding=CONTENT_ENCODING,
        )


def open_connection(app: TaskApp, url: str) -> Any:
    """Return a kombu connection to one of the app's brokers, not connected yet."""
    kind = app.broker_kind
    if isinstance(kind, KombuBroker):
        return kind.open_connection(url, timeout_s=app.timeout_s)
    return kombu_transport.connect(url, timeout_s=app.timeout_s)


def send_command(
    app: TaskApp,
    method: str,
    arguments: dict[str, Any] | None = None,
    *,
    destination: Sequence[str] = (),
    timeout_s: float = 1.0,
    on_reply: OnReply = lambda *_: None,
) -> dict[str, Any]:
    """Return the answer of each worker of `app`, by its name.

    Signed if the app has a key. Returns when all of `destination` have answered, or no worker
    has for `timeout_s`. Raises LinkError, and MessageError for arguments that JSON cannot hold.
    """
    url = app.broker
    replies: dict[str, Any] = {}

    def receive(reply: Any) -> None:
        if isinstance(reply, dict):
            for name, answer in reply.items():
                replies[name] = answer
                on_reply(name, answer)

    try:
        with connected(open_connection(app, url), url) as connection:
            channel = connection.default_channel
            guard_channel(channel)
            CommandMailbox(app)(connection)._broadcast(
                method,
                arguments or {},
                destination=list(destination) or None,
                reply=True,
                timeout=timeout_s,
                callback=receive,
                channel=channel,
            )
    except SerializationError as error:
        raise MessageError(f"{method}: an answer cannot be read: {error}") from None
    return replies
