"""Every key that the queue has on a Redis server, and the names inside them.

Results and chords have the keys that Celery uses. Tested by test_store_model.py.
"""

from __future__ import annotations

import hashlib

import msgspec

RESULT_PREFIX = "celery-task-meta-"
GROUP_PREFIX = "celery-taskset-meta-"
FAILED_RESULTS = "blimp:results:failed"  # sorted set of task ids; written by redis/results.lua
KEY_PREFIX = "blimp"
LEVELS = 4  # emergency, high, normal, low
GROUP = "workers"
NOBODY = "-"  # the consumer whose pending messages any other may take


class QueueKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one queue.

    levels: a stream per priority, first served first. bell: a stream that wakes one reader
    to a message that no priority stream shows. later: sorted set of what is not due yet.
    dead: stream of dead letters. alive: there while a queue that may expire is in use.
    exchanges: set of the exchanges that it is bound to. ttl: how long a message may wait, ms.
    clock: hash, the server's clock when it was last read for this queue; see redis/clock.py.
    turns: sorted set of the places of tenants' messages, by virtual start time. tenants: the same
    of each tenant's next message. messages: hash, the message at each place. aside: sorted set of
    the places of messages whose task no consumer so far has known. Scripts make these four names
    from `later`: see shared.lua. unique: hash, the claims of unique tasks; unique_ends: sorted set
    of those that end by time.
    """

    name: str
    levels: tuple[str, ...]
    bell: str
    later: str
    dead: str
    alive: str
    exchanges: str
    ttl: str
    clock: str
    turns: str
    tenants: str
    messages: str
    aside: str
    unique: str
    unique_ends: str

    def all(self) -> tuple[str, ...]:
        """Return what goes with the queue. Dead letters stay: a person has to see them."""
        rest = (self.bell, self.later, self.alive, self.exchanges, self.ttl, self.clock)
        turns = (self.turns, self.tenants, self.messages, self.aside)
        return (*self.levels, *rest, *turns, self.unique, self.unique_ends)


class Keys:
    """All keys below one prefix."""

    def __init__(self, *, prefix: str = KEY_PREFIX) -> None:
        self._prefix = prefix
        self._queues: dict[str, QueueKeys] = {}

    def queue(self, name: str) -> QueueKeys:
        if name not in self._queues:
            base = f"{self._prefix}:queue:{name}"
            self._queues[name] = QueueKeys(
                name=name,
                levels=tuple(f"{base}:level:{level}" for level in range(LEVELS)),
                **{part: f"{base}:{part}" for part in QueueKeys.__struct_fields__[2:]},
            )
        return self._queues[name]

    def exchange(self, name: str) -> str:
        """Hash: `type`, `version`, and a field `b<binding>` for each binding."""
        return f"{self._prefix}:exchange:{name}"

    def fanout(self, name: str) -> str:
        """Stream of the latest messages of one fanout exchange."""
        return f"{self._prefix}:fanout:{name}"

    def channel(self, name: str, *, database: int) -> str:
        """Channel of what is broadcast on one fanout exchange: it needs no write of the server.

        A channel belongs to all databases of a server, a stream to one.
        """
        return f"{self.fanout(name)}/{database}"

    def once(self, tag: str) -> str:
        """There if the delivery `tag`, acknowledged before it ran, is completed."""
        return f"{self._prefix}:ended:{tag}"

    def steps(self, id: str, nesting: int) -> str:
        """Hash: what the steps of task `id` returned, by name, as JSON. See `began_key`."""
        return f"{self._prefix}:steps:{id}" + (f"-{nesting}" if nesting else "")

    def paused(self, app: str) -> str:
        """Set: the tasks of an app whose schedules are paused."""
        return f"{self._prefix}:paused:{app}"

    def sender(self, name: str) -> str:
        """Hash: the numbers of what one sender published lately."""
        return f"{self._prefix}:sender:{name}"

    def published(self, text: str) -> str:
        """Hash: there while what was published under `text` is remembered."""
        return f"{self._prefix}:published:{text}"


class PoolKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one pool of resources, in the order in which its script takes them.

    resources: hash, all that belong to the pool: "" if free, else its grant as JSON.
    free: sorted set of the free ones by when they became so, µs; the longest free is first.
    due: sorted set of the busy ones by when their grants end, µs.
    holders: hash, the resource that each holder has.
    waiting: sorted set of holders that wait, by place. patience: the same by when the place
    lapses, µs. ended: sorted set of the latest grants that ended, by token.
    counts: hash of counters, and of the pool's clock and last token.
    """

    resources: str
    free: str
    due: str
    holders: str
    waiting: str
    patience: str
    ended: str
    counts: str

    def all(self) -> list[str]:
        return list(msgspec.structs.astuple(self))


def digest_of(text: str) -> str:
    """Return what stands for any text in a key."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def pool_keys(name: str) -> PoolKeys:
    """Return the keys of the pool `name`. They share a hash tag: in a cluster, one node."""
    return PoolKeys(**{part: pool_key(name, part) for part in PoolKeys.__struct_fields__})


def pool_key(name: str, part: str) -> str:
    return f"blimp:pool:{{{name}}}:{part}"


def pool_channels(name: str) -> str:
    """Return the prefix of the channels on which waiting holders are woken; a name follows."""
    return pool_key(name, "wake:")


def result_key(id: str) -> str:
    """Key and channel of a task's result."""
    return RESULT_PREFIX + id


def group_key(id: str) -> str:
    return GROUP_PREFIX + id


def chord_keys(group_id: str) -> tuple[str, ...]:
    """The five keys of one chord; see part.lua."""
    return tuple(f"{GROUP_PREFIX}{group_id}.{letter}" for letter in "jtsdc")


def chord_size_key(group_id: str) -> str:
    return chord_keys(group_id)[2]


def began_key(id: str, retries: int, nesting: int = 0) -> str:
    """Set when this try of this task has begun."""
    return f"blimp-began-{id}-{retries}" + (f"-{nesting}" if nesting else "")


def number_key(queue: str) -> str:
    """The last number of the messages of `queue` that coalesce."""
    return f"blimp:coalesce:{queue}:number"


def newest_key(queue: str, key: str) -> str:
    """The newest message of a coalescing key, as "number id"."""
    return f"blimp:coalesce:{queue}:newest:{key}"


def revoked_key(app: str) -> str:
    """The ids of revoked tasks."""
    return f"blimp:revoked:{app}"


def worker_key(app: str, worker: str) -> str:
    """Held by the live worker of that name."""
    return f"blimp.worker.{app}.{worker}"


def fleet_key(app: str) -> str:
    """Hash: what each worker consumes and knows, live or not; see fleet.py."""
    return f"blimp.fleet.{app}"
