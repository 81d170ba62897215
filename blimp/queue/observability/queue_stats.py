"""What is in the queues, read from the broker when a scraper asks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import BlimpError
from blimp.queue.brokers.streams.store import SCRIPTS
from blimp.queue.redis.client import Link, streams_options
from blimp.queue.redis.keys import GROUP, LEVELS, NOBODY, Keys
from blimp.queue.redis.urls import redis_url
from blimp.queue.resources.pool import ResourcePool

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.resources.pool_server import PoolStats

DEADLINE_S = 0.5
FRESH_S = 0.5  # the broker is asked no oftener, however many scrapers ask
PRIORITIES = ("emergency", "high", "normal", "low")  # a queue's streams, in order


class StreamStats(msgspec.Struct, frozen=True, kw_only=True):
    """One priority of a queue. None stands for what the broker cannot say."""

    queue: str
    priority: str
    ready: int | None = None
    in_flight: int | None = None
    oldest_age_s: float | None = None


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """scheduled, dead: messages by queue. asked_s: when it was asked, on the app's clock."""

    is_up: bool
    asked_s: float
    streams: tuple[StreamStats, ...] = ()
    scheduled: dict[str, int] = {}
    dead: dict[str, int] = {}


class QueueReader:
    """Reads queues on connections of its own. Thread-safe; never raises; close is idempotent.

    A broker that does not answer within DEADLINE_S is unreachable until the next question.
    """

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._last: tuple[tuple[str, ...], QueueStats] | None = None
        self._link: Any = None
        self._url = ""

    def read(self, queues: Sequence[str]) -> QueueStats:
        names = tuple(queues)
        with self._lock:
            now_s = self._app.clock.now_s()
            if self._last is not None:
                asked, stats = self._last
                if asked == names and now_s - stats.asked_s < FRESH_S:
                    return stats
            stats = self._read(names, now_s)
            self._last = (names, stats)
            return stats

    def pool(self, name: str) -> PoolStats:
        """Return the state of a resource pool. Raises LinkError, LeaseError."""
        with self._lock:
            link = self._link
            if link is None:  # not on streams: the pools are on the results' server
                return self._app.pools[name].stats()
            return ResourcePool(link.client, name, clock=self._app.clock).stats()

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _read(self, queues: tuple[str, ...], now_s: float) -> QueueStats:
        try:
            if self._app.capabilities.on_redis:
                return self._streams(queues, now_s)
            return self._kombu(queues, now_s)
        except Exception:  # of any broker's driver: the worker logs its own
            self._disconnect()
            return QueueStats(is_up=False, asked_s=now_s)

    def _streams(self, queues: tuple[str, ...], now_s: float) -> QueueStats:
        url = self._app.broker
        if self._link is None or self._url != url:
            self._disconnect()
            self._link = Link(url=redis_url(url), options=streams_options(timeout_s=DEADLINE_S))
            self._url = url
        keys = [Keys().queue(name) for name in queues]
        names = [key for one in keys for key in (*one.levels, one.later, one.dead)]
        _, *found = SCRIPTS["levels"].run(self._link.client, names, [GROUP, NOBODY, LEVELS])
        streams: list[StreamStats] = []
        scheduled: dict[str, int] = {}
        dead: dict[str, int] = {}
        for queue, (*each, scheduled_count, dead_count) in zip(queues, found, strict=True):
            for number, priority in enumerate(PRIORITIES):
                ready, in_flight, age_ms = each[3 * number : 3 * number + 3]
                if ready < 0:
                    continue  # not a stream
                streams.append(
                    StreamStats(
                        queue=queue,
                        priority=priority,
                        ready=ready,
                        in_flight=in_flight,
                        oldest_age_s=None if age_ms < 0 else age_ms / 1000.0,
                    )
                )
            scheduled |= {queue: scheduled_count} if scheduled_count >= 0 else {}
            dead |= {queue: dead_count} if dead_count >= 0 else {}
        return QueueStats(
            is_up=True, asked_s=now_s, streams=tuple(streams), scheduled=scheduled, dead=dead
        )

    def _kombu(self, queues: tuple[str, ...], now_s: float) -> QueueStats:
        """Ask what every broker can say: how many messages wait, of any priority."""
        streams = []
        connection = self._app.broker_kind.open_connection(self._app.broker, timeout_s=DEADLINE_S)
        try:
            connection.ensure_connection(max_retries=0, timeout=DEADLINE_S)
            for queue in queues:
                with contextlib.suppress(connection.channel_errors):  # not declared yet
                    channel = connection.channel()
                    ready = int(channel.queue_declare(queue, passive=True).message_count)
                    streams.append(StreamStats(queue=queue, priority="all", ready=ready))
        finally:
            connection.release()
        return QueueStats(is_up=True, asked_s=now_s, streams=tuple(streams))

    def _disconnect(self) -> None:
        if self._link is not None:
            with contextlib.suppress(BlimpError, OSError):
                self._link.close()
            self._link = None
