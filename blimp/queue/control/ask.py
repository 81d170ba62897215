"""Asking workers, ours and Celery's, over the pidbox; and waiting for their answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import LinkError, MessageError
from blimp.queue.brokers.kombu_connection import guard_channel
from blimp.queue.control.pidbox import (
    EXCHANGE,
    REPLY_EXCHANGE,
    Command,
    ReplyTo,
    command_exchange,
    reply_exchange,
)
from blimp.queue.protocol.message import CONTENT_ENCODING, CONTENT_TYPE, to_json
from blimp.queue.redis.urls import link_error

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

REPLY_QUEUE_EXPIRES_S = 10.0  # kombu's
OnReply = Callable[[str, Any], None]  # the worker's name, what it says


def ask(
    app: TaskApp,
    method: str,
    arguments: dict[str, Any] | None = None,
    *,
    destination: Sequence[str] = (),
    timeout_s: float = 1.0,
    on_reply: OnReply = lambda *_: None,
) -> dict[str, Any]:
    """Return what each worker of `app` answers, by its name.

    Signed where the app has a key. Waits until all of `destination` have answered, or nobody
    has for `timeout_s`. Raises LinkError, and MessageError for arguments that JSON cannot hold.
    """
    key = str(uuid.uuid4())
    command = Command(
        method=method,
        arguments=arguments or {},
        destination=list(destination) or None,
        ticket=str(uuid.uuid4()),
        reply_to=ReplyTo(exchange=REPLY_EXCHANGE, routing_key=key),
        app=app.name,
        sent_s=app.broker_clock.now_s(),
    )
    if app.signer is not None:
        signature = app.signer.sign_document(command.signed_part(), place=EXCHANGE)
        command = msgspec.structs.replace(command, signature=signature)
    try:
        body = to_json(msgspec.to_builtins(command))
    except (TypeError, ValueError) as error:
        raise MessageError(f"{method}: JSON cannot hold its arguments: {error}") from None
    url = app.broker
    connection = app.broker_kind.open_connection(url, timeout_s=app.timeout_s)
    transport = connection.transport
    lost = (*transport.connection_errors, *transport.channel_errors, OSError)
    try:
        with connection:
            connection.ensure_connection(max_retries=0)
            return _Asking(connection, command, timeout_s=timeout_s, on_reply=on_reply).ask(body)
    except LinkError:
        raise
    except lost as error:
        raise link_error(url, error) from None


class _Asking:
    def __init__(
        self, connection: Any, command: Command, *, timeout_s: float, on_reply: OnReply
    ) -> None:
        self._connection = connection
        self._command = command
        self._timeout_s = timeout_s
        self._on_reply = on_reply
        self._replies: dict[str, Any] = {}

    def ask(self, body: bytes) -> dict[str, Any]:
        from kombu import Consumer, Producer, Queue

        assert self._command.reply_to is not None
        key = self._command.reply_to.routing_key
        queue = Queue(
            f"{key}.{REPLY_EXCHANGE}",
            exchange=reply_exchange(),
            routing_key=key,
            durable=False,
            exclusive=True,
            auto_delete=True,
            expires=REPLY_QUEUE_EXPIRES_S,
        )
        channel = self._connection.default_channel
        guard_channel(channel)
        with Consumer(channel, queues=[queue], on_message=self._hear, no_ack=True):
            Producer(channel, auto_declare=False).publish(
                body,
                exchange=command_exchange(),
                declare=[command_exchange()],
                headers={"clock": 1, "expires": time.time() + self._timeout_s},
                content_type=CONTENT_TYPE,
                content_encoding=CONTENT_ENCODING,
            )
            self._collect()
        return self._replies

    def _collect(self) -> None:
        wanted = set(self._command.destination or ())
        until_s = time.monotonic() + self._timeout_s
        while not wanted or not wanted <= self._replies.keys():
            before = len(self._replies)
            try:
                self._connection.drain_events(timeout=max(0.001, until_s - time.monotonic()))
            except TimeoutError:
                return
            if len(self._replies) > before:
                until_s = time.monotonic() + self._timeout_s

    def _hear(self, message: Any) -> None:
        if message.headers.get("ticket") not in (None, self._command.ticket):
            return
        try:
            reply = msgspec.json.decode(message.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # no worker's
        if isinstance(reply, dict):
            for name, said in reply.items():
                self._replies[name] = said
                self._on_reply(name, said)
