"""Looking into the queues from outside."""

import base64
import json
from typing import Any

import redis

from blimp.queue.brokers.streams.store import SCRIPTS
from blimp.queue.redis.keys import GROUP, LEVELS, NOBODY, Keys


class Look:
    """What stands on the server, and a way to put there what no client of ours would."""

    def __init__(self, *, server: redis.Redis) -> None:
        self.server: Any = server
        self._keys = Keys()

    def in_flight(self, *, app: str = "tests", queue: str = "") -> int:
        """Return how many messages are delivered and not acknowledged."""
        return self._counts(queue or app)[1]

    def waiting(self, queue: str = "tests") -> int:
        """Return how many messages wait in `queue`, the scheduled included."""
        ready, _, scheduled, _ = self._counts(queue)
        return ready + scheduled

    def dead(self, queue: str = "tests") -> int:
        return self._counts(queue)[3]

    def dead_reasons(self, queue: str = "tests") -> list[str]:
        """Return why each dead letter is one."""
        found = self.server.xrange(self._keys.queue(queue).dead)
        return [fields[b"reason"].decode() for _, fields in found]

    def push(self, queue: str, envelope: bytes) -> None:
        """Put kombu's envelope into `queue` as a stranger would."""
        message = json.loads(envelope)
        body = base64.b64decode(message.pop("body"))
        message["properties"].pop("body_encoding")
        self.push_raw(queue, json.dumps(message).encode(), body)

    def push_raw(self, queue: str, head: bytes, body: bytes = b"") -> None:
        self.server.xadd(self._keys.queue(queue).levels[2], {"h": head, "b": body})

    def left_behind(self) -> list[bytes]:
        """Return the keys of messages that are still queued or unacknowledged.

        Streams stay when they are empty, and are left out then; so are dead letters, the marks
        of what was acknowledged early, and what senders, revocations and newest commands are
        remembered by.
        """
        kept = (
            b"celery-task-meta-",
            b"_kombu.",
            b"blimp:exchange:",
            b"blimp:fanout:",
            b"blimp:ended:",
            b"blimp:sender:",
            b"blimp:revoked:",
            b"blimp:results:failed",
            b"blimp:coalesce:",
        )
        keys = [key for key in self.server.keys("*") if not key.startswith(kept)]
        return sorted(
            key
            for key in keys
            if not key.endswith((b":bell", b":dead", b":exchanges", b":clock"))
            and not (b":level:" in key and self.server.xlen(key) == 0)
        )

    def _counts(self, queue: str) -> tuple[int, int, int, int]:
        """Return how many are ready, in flight, scheduled and dead."""
        keys = self._keys.queue(queue)
        _, (*levels, scheduled, dead, _) = SCRIPTS["levels"].run(
            self.server, [*keys.levels, keys.later, keys.dead, keys.clock], [GROUP, NOBODY, LEVELS]
        )
        return sum(levels[::3]), sum(levels[1::3]), scheduled, dead
