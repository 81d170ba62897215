"""The broker's clock: all processes measure a message's age on it.

A Pi has no battery-backed clock, and a laptop's may be wrong; both can ask the broker.
"""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.errors import LinkError
from blimp.system import monotonic_ns

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer


RECENT_S = 1.0
ASKED_S = 0.1  # no more often is it asked, in a flood of what is too old
NO_STEP_S = 0.05
LONGEST_DOUBT_S = 60.0

# A Lua function: put before each script that judges a lease or a schedule. The server's clock may
# step; what a caller's monotonic clock proves is kept beside it, in the hash `key`, so that a
# jump is known from time that has passed. `caller` is `monotonic_words()`.
# trusts: whether to believe a gap that no clock of this caller's machine spans. A lease must not
# end by it; what is scheduled must not wait for ever.
# Returns µs: `steady`, which never goes back and does not jump; `before`, that at the reading
# before; `wall`, the server's clock; `elapsed` on that since; `excess`, how much of it is a jump.
# Each machine has what its clock is behind the steady one at least, so a request that was long on
# its way does no harm; it may grow by 1/1000, as clocks drift. 256 places hold the machines.
READ_CLOCK = """
local STEP_US, YEAR_US = 500000, 31536000000000
local function read_clock(key, caller, trusts)
  local machine, own = string.match(caller, '^(%x+) (%d+)$')
  local place = string.sub(machine, 1, 2)
  local time = redis.call('TIME')
  local wall = time[1] * 1000000 + time[2]
  local kept = redis.call('HMGET', key, 'wall', 'steady', place)
  local last, before = tonumber(kept[1]), tonumber(kept[2])
  if not last or not before or not (math.abs(before - wall) < 50 * YEAR_US) then
    last, before = wall, wall -- new, or damaged
  end
  local of, base = string.match(kept[3] or '', '^(%x+) (-?%d+)$')
  base = of == machine and tonumber(base)
  local elapsed = wall - last
  local proven = base and base + own
  local steady = before + math.max(0, math.min(elapsed, STEP_US))
  local excess = 0
  if elapsed > STEP_US then
    excess = before + elapsed - (proven or before)
    if proven and excess <= STEP_US + elapsed / 500 then
      excess = 0
    end
    if excess == 0 or trusts and not proven then
      steady = before + elapsed
    end
  end
  if proven and (elapsed < 0 or excess > 0) then
    steady = math.max(before, proven)
  elseif proven and proven - steady > STEP_US then
    steady = proven -- a request that was long on its way proved too little before this one
  end
  if trusts and excess > 0 and not proven then
    for _, field in ipairs(redis.call('HKEYS', key)) do
      if #field == 2 then
        redis.call('HDEL', key, field) -- of a machine that knew the steady clock as it was
      end
    end
  end
  base = math.min(steady - own, base and base + math.abs(elapsed) / 1000 or math.huge)
  redis.call('HSET', key, 'wall', string.format('%.0f', wall), 'steady',
    string.format('%.0f', steady), place, machine .. string.format(' %.0f', base))
  return { steady = steady, before = before, wall = wall, elapsed = elapsed, excess = excess }
end
"""


@cache
def _machine() -> str:
    """Return what names this machine since it was started: its monotonic clock began then."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # no Linux: the first use after a restart proves nothing
        boot = f"{uuid.getnode():012x}"
    return boot.strip().replace("-", "")


def monotonic_words() -> str:
    """Return this machine and its monotonic clock in µs, which counts while it sleeps."""
    return f"{_machine()} {monotonic_ns() // 1000}"


class Moment(NamedTuple):
    """One moment on two clocks: this machine's monotonic one, and the broker's."""

    ours_s: float
    theirs_s: float


class _Answer(NamedTuple):
    """By how much the broker's clock is ahead of our monotonic one, at least and at most."""

    came_s: float
    least_s: float
    most_s: float
    url: str = ""


class BrokerClock:
    """Asks the server (TIME) each time; of several, the one in use. Thread-safe.

    Without a server it is this machine's clock.

    While all are unreachable it continues from the last answer on this machine's monotonic
    clock, so that the age of a message in flight is still known.

    An answer is as old as its way back took, which is unknown. A sender uses the earliest time
    that it can be now, and the judge of an age the latest: no message is ever judged younger
    than it is.

    The broker's clock may go back. What is dated with a time that it then has for a second time
    may be of the first: see `doubt_s`.
    """

    def __init__(self, *, link: RedisServer | None, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._last: _Answer | None = None
        self._went_back = (0.0, 0.0)  # what it had come to, and by how much it went back

    def doubt_s(self, issued_s: float) -> float:
        """Return by how much older what was issued then may be, after `latest` was asked.

        After a longer step back than LONGEST_DOUBT_S it is not doubted: what is older than that
        is dated in the future, unless it waited for as long.
        """
        until_s, back_s = self._went_back
        return back_s if issued_s <= until_s else 0.0

    def recent_s(self) -> float:
        """Return `now_s` without asking a broker that answered within the last second.

        For senders: if this machine slept in between it is early, never late, so what is
        sent expires too soon rather than too late.
        """
        return self.known_s() or self.now_s()

    def known_s(self) -> float | None:
        """Return `recent_s` if no broker needs to be asked."""
        last = self._last
        if last is not None and self._link is not None and last.url == self._link.brokers.current:
            now_s = self._clock.now_s()
            if now_s - last.came_s < RECENT_S:
                return now_s + last.least_s
        return None

    def now_s(self) -> float:
        """Return seconds since the epoch on the broker's clock, never late.

        Raises LinkError if the server does not answer and never has.
        """
        return self._ask().least_s + self._clock.now_s()

    def latest_s(self) -> float:
        """Return the same, never early: what an age is measured with. Raises LinkError."""
        return self.latest().theirs_s

    def latest(self) -> Moment:
        """Return now, on the broker's clock as late as it can be. Raises LinkError."""
        answer = self._ask()
        now_s = self._clock.now_s()
        return Moment(now_s, now_s + answer.most_s)

    def age_s(self, sent_s: float, *, limit_s: float) -> float:
        """Return the age of what was sent at `sent_s`, negative if that is still to come.

        By the last answer if that says that it is within `limit_s` of now; else the server is
        asked. So what is fresh waits for no server, and a step of its clock makes nothing old
        that was sent before or after it. Raises LinkError.
        """
        last, now_s = self._last, self._clock.now_s()
        if last is not None and self._link is not None:
            age_s = now_s + last.most_s - sent_s
            if abs(age_s) <= limit_s or now_s - last.came_s < ASKED_S:
                return age_s
        return self.latest_s() - sent_s

    def _ask(self) -> _Answer:
        """Return the newest answer. Raises LinkError."""
        if self._link is None:
            now_s = self._clock.now_s()
            ahead_s = self._clock.wall_s() - now_s
            return _Answer(now_s, ahead_s, ahead_s)
        sent: list[float] = []  # of several servers, or of two tries, the last one answered

        def ask(client: Any) -> Any:
            sent.append(self._clock.now_s())
            return client.time()

        try:
            seconds, microseconds = self._link.ask(ask)
        except LinkError:
            if self._last is None:
                raise
            return self._last
        return self.learn(int(seconds) + int(microseconds) / 1e6, sent_s=sent[-1])

    def learn(self, theirs_s: float, *, sent_s: float) -> _Answer:
        """Note what the broker in use has just answered to a question of `sent_s`."""
        came_s = self._clock.now_s()
        url = "" if self._link is None else self._link.brokers.current
        last, answer = self._last, _Answer(came_s, theirs_s - came_s, theirs_s - sent_s, url)
        if last is not None and last.url == url:
            drift_s = NO_STEP_S + (came_s - last.came_s) / 1000.0
            back_s = last.most_s - answer.least_s
            if last.least_s - answer.most_s > drift_s and back_s <= LONGEST_DOUBT_S:
                self._went_back = (came_s + last.most_s, back_s)
        self._last = answer
        return answer
