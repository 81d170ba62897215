"""Every key this transport keeps on the server, and the names inside them."""

from __future__ import annotations

import msgspec

LANES = 4  # emergency, high, normal, low
GROUP = "workers"
NOBODY = "-"  # the consumer whose pending messages may be taken by whoever comes


class QueueKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one queue.

    lanes: a stream per priority, first served first. bell: a stream that wakes one reader
    where a message came that no lane shows. later: sorted set of what is not due yet.
    dead: stream of dead letters. alive: there while a queue that may expire is in use.
    exchanges: set of the exchanges that it is bound to. ttl: how long a message may wait, ms.
    """

    name: str
    lanes: tuple[str, ...]
    bell: str
    later: str
    dead: str
    alive: str
    exchanges: str
    ttl: str

    def all(self) -> tuple[str, ...]:
        """Return what goes with the queue. Dead letters stay: somebody has to see them."""
        return (*self.lanes, self.bell, self.later, self.alive, self.exchanges, self.ttl)


class Keys:
    """All keys below one prefix."""

    def __init__(self, *, prefix: str = "blimp") -> None:
        self._prefix = prefix
        self._queues: dict[str, QueueKeys] = {}

    def queue(self, name: str) -> QueueKeys:
        found = self._queues.get(name)
        if found is None:
            base = f"{self._prefix}:queue:{name}"
            found = self._queues[name] = QueueKeys(
                name=name,
                lanes=tuple(f"{base}:lane:{lane}" for lane in range(LANES)),
                bell=f"{base}:bell",
                later=f"{base}:later",
                dead=f"{base}:dead",
                alive=f"{base}:alive",
                exchanges=f"{base}:exchanges",
                ttl=f"{base}:ttl",
            )
        return found

    def exchange(self, name: str) -> str:
        """Hash: `type`, `version`, and a field `b<binding>` for each binding."""
        return f"{self._prefix}:exchange:{name}"

    def fanout(self, name: str) -> str:
        """Stream of the latest messages of one fanout exchange."""
        return f"{self._prefix}:fanout:{name}"

    def once(self, tag: str) -> str:
        """Set where the delivery `tag`, acknowledged before it ran, has come to its end."""
        return f"{self._prefix}:ended:{tag}"

    def sender(self, name: str) -> str:
        """Hash: the numbers of what one sender published lately."""
        return f"{self._prefix}:sender:{name}"

    def published(self, text: str) -> str:
        """Hash: there while what was published under `text` is remembered."""
        return f"{self._prefix}:published:{text}"
