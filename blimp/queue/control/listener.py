"""One thread that listens for broadcasts at one broker, whatever becomes of it."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.queue.brokers.kombu_connection import guard_channel
from blimp.queue.control.pidbox import EXCHANGE, command_queue

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.retry import Outage

CLOSE_S = 2.0


class BroadcastConnection:
    """Listens until closed, and connects again for ever. Close is idempotent.

    on_body: called with what came. on_unheard: called with why something could not be read.
    on_command: called with kombu's message of a remote-control command; None to hear none.
    listening: set while it hears.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        url: str,
        worker: str,
        on_body: Callable[[bytes | str], None],
        on_unheard: Callable[[Exception], None],
        on_command: Callable[[Any], None] | None,
        log: Any,
    ) -> None:
        self.url = url
        self._app = app
        self._worker = worker
        self._on_body = on_body
        self._on_unheard = on_unheard
        self._on_command = on_command
        self._log = log
        self._transport: Any = None
        self._seen: dict[str, str] = {}  # the last entry, where the broker keeps them
        self._closed = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="emergency", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Listen no more; `wait_closed` waits for the thread."""
        self._closed.set()
        transport = self._transport
        if transport is not None:
            transport.interrupt()

    def wait_closed(self) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_S)

    def _serve(self) -> None:
        outage = self._app.outage("emergency lane lost", log=self._log, brokers=1)
        while not self._closed.is_set():
            try:
                self._listen(outage)
            except Exception as error:  # whatever it was, deafness is worse
                self.listening.clear()
                self._closed.wait(outage.failed(error))

    def _listen(self, outage: Outage) -> None:
        """Listen until the broker is lost."""
        from kombu import Consumer, Exchange, Queue

        app, able = self._app, self._app.capabilities
        fanout = Exchange(self._app.emergency_exchange, type="fanout", durable=False)
        # One fixed name: a killed worker then leaves no binding that its successor does not use.
        # RabbitMQ ends a connection's own queue with it, but may notice late: a name each there.
        suffix = "" if able.exclusive_names else f".{uuid.uuid4().hex}"
        queue = Queue(
            f"{fanout.name}.{self._worker}{suffix}",
            exchange=fanout,
            durable=False,
            exclusive=bool(suffix),
        )
        options: dict[str, Any] = {}
        if able.keeps_broadcasts:
            options["resume"] = self._seen
            options["on_undecodable"] = lambda _, __, error: self._on_unheard(error)
        with app.broker_kind.open_connection(
            self.url, timeout_s=app.timeout_s, beats=True, **options
        ) as connection:
            connection.ensure_connection(max_retries=0)
            channel = connection.channel()
            guard_channel(channel)
            with contextlib.ExitStack() as hearing:
                # First: where much lies there, what is urgent is read before the rest.
                hearing.enter_context(
                    Consumer(channel, queues=[queue], on_message=self._hear, no_ack=True)
                )
                if self._on_command is not None:
                    commands = command_queue(self._worker, suffix=suffix)
                    hearing.enter_context(
                        Consumer(
                            channel, queues=[commands], on_message=self._hear_command, no_ack=True
                        )
                    )
                self._drain(connection, timeout_s=0.001)  # subscribes on its way in
                self._transport = connection.transport if able.keeps_broadcasts else None
                self.listening.set()
                outage.over()
                try:
                    while not self._closed.is_set():
                        self._drain(connection, timeout_s=app.longest_wait_s)
                        if connection.supports_heartbeats:
                            connection.heartbeat_check()
                finally:
                    self._transport = None
        self.listening.clear()

    def _hear(self, message: Any) -> None:
        entry = message.delivery_info.get("entry")
        if entry is not None:
            self._seen[self._app.emergency_exchange] = entry  # whatever becomes of it
        self._on_body(message.body)

    def _hear_command(self, message: Any) -> None:
        entry = message.delivery_info.get("entry")
        if entry is not None:
            self._seen[EXCHANGE] = entry
        assert self._on_command is not None
        self._on_command(message)

    def _drain(self, connection: Any, *, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=timeout_s)
