"""What the live workers of an app consume and know. Each announces it with the lease of its name.

Tested by test_fleet.py.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.queue.redis.keys import fleet_key, worker_key
from blimp.queue.redis.scripts import Script
from blimp.reading import ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blimp.queue.redis.client import RedisServer

FRESH_S = 1.0  # as often as a worker announces a change

# KEYS: the fleet. ARGV: a worker, what it announces, then the workers that are dead. A full server
# allows it: or no worker could empty it.
_ANNOUNCE = Script("""#!lua flags=allow-oom
if ARGV[3] then
  redis.call('HDEL', KEYS[1], unpack(ARGV, 3))
end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
""")


@ready
class Member(msgspec.Struct, frozen=True):
    """One worker: its queues, and the version of each task that it knows."""

    queues: tuple[str, ...]
    tasks: dict[str, str]


class Fleet:
    """The workers of the app `app`. Thread-safe. Methods raise LinkError."""

    def __init__(self, *, link: RedisServer, app: str, clock: Any) -> None:
        self._link = link
        self._app = app
        self._clock = clock
        self._seen: tuple[float, dict[str, Member]] = (-FRESH_S, {})

    def members(self) -> dict[str, Member]:
        """Return the live workers, by name, but for those whose announcement cannot be read."""
        found: Any = self._link.ask(lambda client: client.hgetall(fleet_key(self._app)))
        names = [name.decode() for name in found]
        live = self._live(names)
        members = {}
        for name, data in zip(names, found.values(), strict=True):
            with contextlib.suppress(msgspec.MsgspecError):  # of another version, or damaged
                if name in live:
                    members[name] = msgspec.json.decode(data, type=Member)
        return members

    def can_run(self, task: str, *, queue: str, versions: Sequence[str] = ()) -> bool:
        """Return whether a live worker of `queue` knows `task` in none of `versions`.

        Yes may be FRESH_S old, no is not.
        """
        now_s, (seen_s, known) = self._clock.now_s(), self._seen
        for members in (known if now_s - seen_s < FRESH_S else {}, None):
            if members is None:
                members = self.members()
                self._seen = now_s, members
            for one in members.values():
                if queue in one.queues and one.tasks.get(task, "") not in ("", *versions):
                    return True
        return False

    def announce(self, worker: str, member: Member) -> None:
        """Write what `worker` knows, and forget those whose lease has ended."""
        key = fleet_key(self._app)
        known: Any = self._link.ask(lambda client: client.hkeys(key))
        names = [name.decode() for name in known]
        dead = {*names} - {worker} - self._live(names)
        self._link.run(_ANNOUNCE, [key], [worker, msgspec.json.encode(member), *dead])

    def _live(self, names: Sequence[str]) -> set[str]:
        if not names:
            return set()
        keys = [worker_key(self._app, name) for name in names]
        leases: Any = self._link.ask(lambda client: client.mget(keys))
        return {name for name, lease in zip(names, leases, strict=True) if lease is not None}
