"""What stands on the server, seen from outside: who holds what, and what is left."""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import redis

from blimp.queue.protocol.record import Record, decode
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.keys import GROUP, RESULT_PREFIX, Keys, result_key

# Documented to stay (docs/faults.md): results and markers until they lapse, what an exchange
# and a queue are made of, a name's lease and what a sender sent last until they lapse.
KEPT = (
    RESULT_PREFIX,
    "celery-taskset-meta-",
    "blimp-began-",
    "blimp.fleet.",  # of a fleet that was killed
    "blimp:coalesce:",
    "blimp:exchange:",
    "blimp:fanout:",
    "blimp:results:failed",
    "blimp:revoked:",
    "blimp:sender:",
    "blimp:steps:",
    "blimp.worker.",
    "_kombu.",
)
KEPT_ENDS = (":bell", ":exchanges", ":clock")


class ServerSide:
    """A client of its own. Close is idempotent."""

    def __init__(self, url: str, *, queue: str) -> None:
        self.client: Any = open_redis(url, timeout_s=10.0)
        self._keys = Keys().queue(queue)

    def empty(self) -> None:
        """Delete all keys, and have no command of a connection that is open now come after it.

        A killed process's last command may lie unread in the server's socket, and would make
        its group again.
        """
        self.client.client_kill_filter(_type="normal", skipme=True)
        self.client.flushall()

    def held_by(self, consumer: str) -> set[str]:
        """Return the ids of the tasks that `consumer` holds."""
        ids = set()
        for level in self._keys.levels:
            try:
                pending = self.client.xpending_range(level, GROUP, "-", "+", 1000, consumer)
            except redis.ResponseError:
                continue  # no group yet
            for one in pending:
                for _, fields in self.client.xrange(level, one["message_id"], one["message_id"]):
                    ids.add(str(json.loads(fields[b"h"])["headers"]["id"]))
        return ids

    def records(self, ids: Iterable[str]) -> dict[str, Record]:
        """Return what stands for each id that has a record."""
        wanted = list(ids)
        found = {}
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            for id, data in zip(part, self.client.mget(map(result_key, part)), strict=True):
                if data is not None:
                    found[id] = decode(data)
        return found

    def messages_left(self) -> int:
        """Return how many messages wait, are held, are scheduled or are dead."""
        keys = self._keys
        # These first: one that comes due meanwhile is counted twice, and never missed.
        scheduled = int(self.client.zcard(keys.later))
        streams = sum(int(self.client.xlen(key)) for key in (*keys.levels, keys.dead))
        return scheduled + streams

    def dead_ids(self) -> list[str]:
        """Return the task id of each dead letter, "?" where it has none."""
        return [
            str(json.loads(fields[b"h"]).get("headers", {}).get("id", "?"))
            for _, fields in self.client.xrange(self._keys.dead)
        ]

    def strange_keys(self) -> list[str]:
        """Return the keys that are not documented to stay; levels stay when they are empty."""
        return sorted(
            key
            for key in (raw.decode() for raw in self.client.scan_iter(count=1000))
            if not key.startswith(KEPT)
            and not key.endswith(KEPT_ENDS)
            and key != self._keys.dead  # counted as messages
            and not (key in self._keys.levels and self.client.xlen(key) == 0)
        )

    def used_mb(self) -> float:
        """Return what the server itself says that it uses, without its allocator's rest."""
        return round(int(self.client.info("memory")["used_memory"]) / 1e6, 2)

    def close(self) -> None:
        self.client.close()


class Finals:
    """Counts, as they are published, the final records of each task, for one server's life."""

    def __init__(self, url: str) -> None:
        self.count: Counter[str] = Counter()
        self._client = open_redis(url, timeout_s=10.0)
        self._pubsub: Any = self._client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.psubscribe(RESULT_PREFIX + "*")
        self._pubsub.get_message(timeout=10.0)  # in force from here
        self.order: deque[str] = deque()  # of the ids, each time one became final
        self._thread = threading.Thread(target=self._listen, name="finals", daemon=True)
        self._closed = threading.Event()
        self._thread.start()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                heard = self._pubsub.get_message(timeout=0.2)
            except (redis.RedisError, OSError):
                return  # its server has ended, and the count with it
            if heard is not None:
                record = decode(heard["data"])
                self.count[record.id] += record.final
                if record.final:
                    self.order.append(record.id)

    def once_or_more(self) -> set[str]:
        """Return the ids that have become final; the count goes on meanwhile."""
        return {id for id, times in dict(self.count).items() if times}

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._pubsub.close()
        self._client.close()
