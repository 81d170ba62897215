"""The queues of a connection that are bound to fanout exchanges, and how far each has read."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from blimp.queue.brokers.streams import envelope as wire
from blimp.queue.kombu_transport.connection import logger

if TYPE_CHECKING:
    from blimp.queue.brokers.streams.fetcher import Entry
    from blimp.queue.redis.client import Link
    from blimp.queue.redis.keys import Keys

Payload = tuple[str, dict[str, Any]]  # the queue, and kombu's message

FANOUT_TAG = "fanout/"  # of a copy of a broadcast: the server has no record of it
KEEP = 1000  # messages that a fanout exchange keeps for a listener that reconnects
KEEP_MS = 3_600_000
RESUME_MS = 10_000  # no sender waits longer; an older stop would reach a ship that flies again


class Listeners:
    """Which queue listens to which fanout exchange. One thread's.

    resume: the last entry of each exchange that an earlier connection has read. `add` goes on
        from there, and notes where it begins. The caller keeps it.
    """

    def __init__(self, *, link: Link, keys: Keys, resume: dict[str, str] | None = None) -> None:
        self._link = link
        self._keys = keys
        self._exchange_of: dict[str, str] = {}  # by queue
        self._resume: dict[str, str] = {} if resume is None else resume
        self._last: dict[str, str] = {}  # entry read of each exchange

    def __contains__(self, queue: str) -> bool:
        return queue in self._exchange_of

    def __bool__(self) -> bool:
        return bool(self._last)

    def add(self, queue: str, exchange: str) -> None:
        """Have `queue` get what is broadcast on `exchange` from now on, or since `resume`."""
        if exchange not in self._last:
            self._last[exchange] = self._resume[exchange] = self._begin(exchange)
        self._exchange_of[queue] = exchange

    def _begin(self, exchange: str) -> str:
        seen = self._resume.get(exchange)
        if seen is None:
            last: Any = self._link.client.xrevrange(self._keys.fanout(exchange), count=1)
            return last[0][0].decode() if last else "0-0"
        seconds, _ = self._link.client.time()
        oldest_ms = int(seconds) * 1000 - RESUME_MS
        return seen if int(seen.partition("-")[0]) >= oldest_ms else f"{oldest_ms}-0"

    def remove(self, queue: str, exchange: str | None = None) -> bool:
        """End that, for any exchange by default; return whether an exchange has no listener now."""
        if exchange not in (None, self._exchange_of.get(queue)):
            return False
        was = self._exchange_of.pop(queue, None)
        if was is None or was in self._exchange_of.values():
            return False
        self._last.pop(was, None)
        return True

    def after(self) -> dict[str, str]:
        """Return the streams to read, each with the last entry that was read."""
        return {self._keys.fanout(name): id for name, id in self._last.items()}

    def receive(self, entries: Iterable[Entry]) -> Iterator[Payload]:
        """Yield a copy of each entry for each of its listeners; what cannot be read is skipped."""
        names = {self._keys.fanout(name): name for name in self._last}
        for stream, id, fields in entries:
            exchange = names.get(stream)
            if exchange is None:
                continue
            self._last[exchange] = id
            for queue in [name for name, one in self._exchange_of.items() if one == exchange]:
                try:
                    payload = wire.unpack(fields)
                except ValueError as error:
                    logger.error("%s: broadcast %s is undecodable: %s", exchange, id, error)
                    break
                payload["properties"]["delivery_tag"] = f"{FANOUT_TAG}{uuid.uuid4().hex}"
                payload["properties"]["delivery_info"] |= {"queue": queue, "entry": id}
                yield queue, payload
