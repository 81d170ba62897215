"""What stands in the queues, read from the broker when somebody asks, and not for long."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import BlimpError

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.resources.pool_server import PoolStats

DEADLINE_S = 0.5
FRESH_S = 0.5  # however many ask, the broker is asked no oftener
LANE_NAMES = ("emergency", "high", "normal", "low")


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """None stands for what the broker cannot tell."""

    queue: str
    lane: str
    ready: int | None = None
    in_flight: int | None = None
    oldest_age_s: float | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """scheduled, dead: by queue. now_s: the broker's clock, `asked_s` ours at that moment."""

    is_up: bool
    lanes: tuple[Lane, ...] = ()
    scheduled: dict[str, int] = {}
    dead: dict[str, int] = {}
    asked_s: float = 0.0
    now_s: float | None = None


class Queues:
    """Reads queues on connections of its own. Thread-safe; never raises; close is idempotent.

    A broker that does not answer in DEADLINE_S is away, and given up until it is asked again.
    """

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._last: tuple[tuple[str, ...], Figures] | None = None
        self._link: Any = None
        self._url = ""

    def read(self, queues: Sequence[str]) -> Figures:
        names = tuple(queues)
        with self._lock:
            now_s = self._app.clock.now_s()
            if self._last is not None:
                asked, figures = self._last
                if asked == names and now_s - figures.asked_s < FRESH_S:
                    return figures
            figures = self._read(names, now_s)
            self._last = (names, figures)
            return figures

    def pool(self, name: str) -> PoolStats:
        """Return how a pool stands. Raises LinkError, LeaseError."""
        from blimp.queue.resources.pool import ResourcePool

        with self._lock:
            link = self._link
            if link is None:  # no streams: the pools are where the results are
                return self._app.pools[name].stats()
            return ResourcePool(link.client, name, clock=self._app.clock).stats()

    def close(self) -> None:
        with self._lock:
            self._give_up()

    def _read(self, queues: tuple[str, ...], now_s: float) -> Figures:
        try:
            if self._app.capabilities.on_redis:
                return self._streams(queues, now_s)
            return self._kombu(queues)
        except Exception:  # of any broker's driver: what it says is in the worker's log
            self._give_up()
            return Figures(is_up=False, asked_s=now_s)

    def _streams(self, queues: tuple[str, ...], now_s: float) -> Figures:
        from blimp.queue.brokers.streams.broker import streams_options
        from blimp.queue.brokers.streams.store import SCRIPTS
        from blimp.queue.redis.client import Link
        from blimp.queue.redis.keys import GROUP, LANES, NOBODY, Keys
        from blimp.queue.redis.urls import redis_url

        url = self._app.broker
        if self._link is None or self._url != url:
            self._give_up()
            self._link = Link(url=redis_url(url), options=streams_options(timeout_s=DEADLINE_S))
            self._url = url
        keys = Keys()
        names = [
            key
            for name in queues
            for key in (*keys.queue(name).lanes, keys.queue(name).later, keys.queue(name).dead)
        ]
        answer = SCRIPTS["lanes"].run(self._link.client, names, [GROUP, NOBODY, LANES])
        (seconds, microseconds), *found = answer
        lanes: list[Lane] = []
        scheduled: dict[str, int] = {}
        dead: dict[str, int] = {}
        for queue, figures in zip(queues, found, strict=True):
            *each, later, letters = figures
            for number, lane in enumerate(LANE_NAMES):
                ready, in_flight, age_ms = each[3 * number : 3 * number + 3]
                if ready >= 0:
                    age_s = None if age_ms < 0 else age_ms / 1000.0
                    lanes.append(
                        Lane(
                            queue=queue,
                            lane=lane,
                            ready=ready,
                            in_flight=in_flight,
                            oldest_age_s=age_s,
                        )
                    )
            scheduled |= {queue: later} if later >= 0 else {}
            dead |= {queue: letters} if letters >= 0 else {}
        return Figures(
            is_up=True,
            lanes=tuple(lanes),
            scheduled=scheduled,
            dead=dead,
            asked_s=now_s,
            now_s=seconds + microseconds / 1e6,
        )

    def _kombu(self, queues: tuple[str, ...]) -> Figures:
        """Ask what every broker can tell: how many wait, whatever their lane."""
        lanes = []
        connection = self._app.broker_kind.open_connection(self._app.broker, timeout_s=DEADLINE_S)
        try:
            connection.ensure_connection(max_retries=0, timeout=DEADLINE_S)
            for queue in queues:
                with contextlib.suppress(connection.channel_errors):  # not declared yet
                    channel = connection.channel()
                    found = channel.queue_declare(queue, passive=True)
                    lanes.append(Lane(queue=queue, lane="all", ready=int(found.message_count)))
        finally:
            connection.release()
        asked_s = self._app.clock.now_s()
        theirs_s = self._app.broker_clock.now_s()  # that of the results, or this machine's
        return Figures(is_up=True, lanes=tuple(lanes), asked_s=asked_s, now_s=theirs_s)

    def _give_up(self) -> None:
        if self._link is not None:
            with contextlib.suppress(BlimpError, OSError):
                self._link.close()
            self._link = None
