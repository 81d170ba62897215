"""Hearing broadcasts and remote-control commands by kombu, on a broker that is not Redis.

Tested by test_control.py.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kombu import Consumer, Exchange, Queue
from kombu.exceptions import OperationalError
from kombu.pidbox import Mailbox

from blimp.errors import LinkError
from blimp.queue.broadcast.listener import NAMESPACE, Listener
from blimp.queue.celery.kombu_consumer import guard_channel
from blimp.queue.redis.urls import link_error

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.retry import Outage

FIRST_DRAIN_S = 0.001


class KombuListener(Listener):
    """By kombu. It has no probe.

    on_broadcast, on_command: called with kombu's message; no commands are consumed for None.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        url: str,
        worker: str,
        on_broadcast: Callable[[Any], None],
        on_command: Callable[[Any], None] | None,
        log: Any,
    ) -> None:
        super().__init__(app=app, url=url, log=log)
        self._worker = worker
        self._on_broadcast = on_broadcast
        self._on_command = on_command
        self._broker: Any = app.broker_kind  # a KombuBroker

    def _serve(self) -> None:
        outage = self._app.outage("emergency broadcasts lost", log=self._log, brokers=1)
        while not self._closed.is_set():
            try:
                self._consume(outage)
            except Exception as error:
                self.listening.clear()
                self._closed.wait(outage.failed(error))

    def _consume(self, outage: Outage) -> None:
        """Consume until the broker is lost."""
        made = self._broker.open_connection(self._url, timeout_s=self._app.timeout_s, beats=True)
        with connected(made, self._url) as connection, contextlib.ExitStack() as consuming:
            channel = connection.channel()
            guard_channel(channel)
            # Emergencies first: of much that waits, they are read before commands.
            for queue, on_message in self._queues():
                consuming.enter_context(
                    Consumer(channel, queues=[queue], on_message=on_message, no_ack=True)
                )
            self._drain(connection, timeout_s=FIRST_DRAIN_S)  # subscribes first
            self.listening.set()
            outage.over()
            while not self._closed.is_set():
                self._drain(connection, timeout_s=self._app.longest_wait_s)
                if connection.supports_heartbeats:
                    connection.heartbeat_check()
        self.listening.clear()

    def _queues(self) -> Iterator[tuple[Queue, Callable[[Any], None]]]:
        """Yield what to consume, the most urgent first.

        Names are fixed, so that a killed worker leaves no binding that its successor does not
        use. RabbitMQ deletes an exclusive queue with its connection, but may notice the end of
        that late: there each connection has names of its own.
        """
        exclusive = not self._app.capabilities.exclusive_names
        suffix = f".{uuid.uuid4().hex}" if exclusive else ""
        fanout = Exchange(self._app.emergency_exchange, type="fanout", durable=False)
        name = f"{fanout.name}.{self._worker}{suffix}"
        emergency = Queue(name, exchange=fanout, durable=False, exclusive=exclusive)

        yield emergency, self._on_broadcast
        if self._on_command is not None:
            mailbox: Any = Mailbox(NAMESPACE, type="fanout", queue_exclusive=exclusive)
            commands = mailbox.get_queue(self._worker)
            commands.name += suffix
            yield commands, self._on_command

    def _drain(self, connection: Any, *, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=timeout_s)


@contextlib.contextmanager
def connected(connection: Any, url: str) -> Iterator[Any]:
    """Yield a kombu connection, connected. Its errors inside are raised as LinkError."""
    transport = connection.transport
    try:
        with connection:
            connection.ensure_connection(max_retries=0)
            yield connection
    except LinkError:
        raise
    except (
        *transport.connection_errors,
        *transport.channel_errors,
        OperationalError,
        OSError,
    ) as error:
        raise link_error(url, error) from None
