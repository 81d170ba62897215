"""A receiver of events by kombu, as Celery's is one."""

import contextlib
import json
import threading
import uuid
from collections.abc import Callable
from typing import Any, Self

import kombu

from blimp.queue.brokers import broker_for
from blimp.queue.celery.kombu_transport import connect as connect_streams
from tests.inbox import Inbox
from tests.queue.conftest import DEADLINE_S

Event = dict[str, Any]


class Listener:
    """Receives while it is entered. bodies: as they came; events: one by one."""

    def __init__(self, url: str, *, transport: str, routing_key: str = "#") -> None:
        broker: Any = broker_for(url, name=transport)
        connect = connect_streams if transport == "streams" else broker.open_connection
        self._connection = connect(url, timeout_s=DEADLINE_S)
        kind = "fanout" if transport in ("streams", "redis") else "topic"
        self._queue = kombu.Queue(
            f"celeryev.{uuid.uuid4()}",
            kombu.Exchange("celeryev", type=kind),
            routing_key=routing_key,
            auto_delete=True,
            durable=False,
            message_ttl=5.0,
            expires=60.0,
        )
        self.bodies: list[tuple[str, Any]] = []  # with the routing key
        self._heard = Inbox[Event]()
        self.events = self._heard.items
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def of(self, uuid: str) -> list[Event]:
        """Return the events of one task."""
        return [event for event in list(self.events) if event.get("uuid") == uuid]

    def types(self, uuid: str) -> list[str]:
        return [event["type"] for event in self.of(uuid)]

    def wait(self, is_there: Callable[[], object]) -> None:
        assert self._heard.wait_for(is_there), self.events[-20:]

    def wait_type(self, kind: str) -> Event:
        self.wait(lambda: any(event["type"] == kind for event in self.events))
        return next(event for event in self.events if event["type"] == kind)

    def wait_types(self, uuid: str, *types: str) -> list[Event]:
        """Wait until these have come of a task; fail where others did, or in another order."""
        self.wait(lambda: len(self.of(uuid)) >= len(types))
        assert self.types(uuid) == list(types), self.of(uuid)
        return self.of(uuid)

    def _take(self, message: Any) -> None:
        body = json.loads(message.body)
        self.bodies.append((message.delivery_info["routing_key"], body))
        for event in body if isinstance(body, list) else [body]:
            self._heard.add(event)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                self._connection.drain_events(timeout=0.1)
            except TimeoutError:
                continue

    def __enter__(self) -> Self:
        consumer = kombu.Consumer(
            self._connection, queues=[self._queue], on_message=self._take, no_ack=True
        )
        consumer.consume()
        with contextlib.suppress(TimeoutError):  # stock kombu subscribes on its way in
            self._connection.drain_events(timeout=0.01)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(DEADLINE_S)
        self._connection.release()
