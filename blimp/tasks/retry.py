"""How long to wait before trying again."""

from __future__ import annotations

import random

import msgspec

_MAX_DOUBLINGS = 60  # 2 ** 60 seconds is past any cap; more would only overflow


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential back-off: `first_s`, doubled each time, never above `cap_s`.

    Full jitter draws from zero to that value, so that many who failed together do not come
    back together ("Exponential Backoff and Jitter", AWS Architecture Blog, 2015). Without
    it the value itself is returned.
    """

    first_s: float = 1.0
    cap_s: float = 600.0
    full_jitter: bool = True

    def delay_s(self, attempt: int, *, chance: random.Random) -> float:
        """Return the seconds to wait after failed attempt number `attempt`, from 0."""
        longest_s: float = min(self.cap_s, self.first_s * 2.0 ** min(attempt, _MAX_DOUBLINGS))
        return chance.uniform(0.0, longest_s) if self.full_jitter else longest_s


class ReconnectDelay:
    """Bounded, jittered waits between attempts to reach a broker that is away."""

    def __init__(self, *, chance: random.Random, first_s: float = 0.05, cap_s: float = 1.0) -> None:
        self._backoff = Backoff(first_s=first_s, cap_s=cap_s, full_jitter=False)
        self._chance = chance
        self._attempt = 0

    def next_s(self) -> float:
        """Return the next wait: between half and the whole of a doubling, capped interval."""
        whole_s = self._backoff.delay_s(self._attempt, chance=self._chance)
        self._attempt += 1
        return whole_s * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._attempt = 0
