"""What must be true of a pool at every moment, checked from outside without the pool's code.

Two sources. A snapshot: all keys of the pool in one step, compared with each other. Claims: each
process writes into a key of its own until when it holds a resource, on the clock that all processes
of one machine share; no two claims may overlap.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.queue.resources.grant import Grant

CLAIMS = "campaign:claims"
OVERLAPS = "campaign:overlaps"

# KEYS  resources, free, due, holders    Returns all of them at one moment.
SNAPSHOT = """
return { redis.call('HGETALL', KEYS[1]), redis.call('ZRANGE', KEYS[2], 0, -1),
  redis.call('ZRANGE', KEYS[3], 0, -1), redis.call('HGETALL', KEYS[4]) }
"""
# KEYS  claims, overlaps    ARGV  resource, holder, until when, now
# Returns 1 if another claim is in force.
CLAIM = """
local found = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
local who, until_s = string.match(found or '', '(%S+) (%S+)')
if who and who ~= ARGV[2] and tonumber(until_s) > tonumber(ARGV[4]) then
  redis.call('RPUSH', KEYS[2], ARGV[1] .. ': ' .. found .. ' and ' .. ARGV[2] .. ' at ' .. ARGV[4])
  return 1
end
return 0
"""
# KEYS  claims    ARGV  resource, holder
UNCLAIM = """
if string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '%S+') == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
"""


class Claims:
    """What each process claims to hold."""

    def __init__(self, client: Any) -> None:
        self._claim = client.register_script(CLAIM)
        self._unclaim = client.register_script(UNCLAIM)

    def claim(self, grant: Grant) -> None:
        # The time is read first: a process that stands still in between claims less, never more.
        now_s = time.monotonic()
        until_s = now_s + grant.left_s
        self._claim(keys=[CLAIMS, OVERLAPS], args=[grant.resource, grant.holder, until_s, now_s])

    def unclaim(self, resource: str, who: str) -> None:
        self._unclaim(keys=[CLAIMS], args=[resource, who])


class Checker:
    """Compares snapshots with what was added to the pool. wrong: the faults found, as texts."""

    def __init__(self, client: Any, *, pool: str, resources: set[str]) -> None:
        self._snapshot = client.register_script(SNAPSHOT)
        self._keys = [f"blimp:pool:{{{pool}}}:{part}" for part in
                      ("resources", "free", "due", "holders")]  # fmt: skip
        self._client = client
        self._all = resources
        self._newest: dict[str, int] = {}
        self.looks = 0
        self.wrong: list[str] = []

    def look(self) -> None:
        self.looks += 1
        resources, free, due, holders = _text(self._snapshot(keys=self._keys))
        grants = dict(zip(resources[::2], resources[1::2], strict=True))
        held = {name: json.loads(grant) for name, grant in grants.items() if grant}
        self._same("lost, or not of the pool", set(grants), self._all)
        self._same("twice free", sorted(set(free)), sorted(free))
        self._same("free and not, or the other way", set(free), set(grants) - set(held))
        self._same("busy and not, or the other way", set(due), set(held))
        self._same("both free and busy", set(free) & set(due), set())
        of_holders = dict(zip(holders[::2], holders[1::2], strict=True))
        self._same("holders", of_holders, {one["holder"]: name for name, one in held.items()})
        tokens = [int(one["token"]) for one in held.values()]
        self._same("one token for two", len(set(tokens)), len(tokens))
        for name, one in held.items():
            newest = self._newest.get(name, 0)
            if int(one["token"]) < newest:
                self.wrong.append(f"{name}: token {one['token']} after {newest}")
            self._newest[name] = int(one["token"])

    def overlaps(self) -> list[str]:
        return list(_text(self._client.lrange(OVERLAPS, 0, -1)))

    def _same(self, what: str, found: object, right: object) -> None:
        if found != right:
            self.wrong.append(f"{what}: {found} is not {right}")


def _text(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_text(one) for one in answer]
    return answer.decode() if isinstance(answer, bytes) else answer
