"""A broker that is away: how long to wait for it, and what a log needs to know of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError
from blimp.queue.retry import ReconnectDelay

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.retry import RetryPolicy

FIRST_INTERVAL_S = 2.0
LONGEST_INTERVAL_S = 300.0

OnConnectionError = Callable[[BaseException, float], None]  # what, and when it is tried again


class Outage:
    """One part's outage of its broker. Thread-safe.

    It is logged when it begins, when its reason changes, then at intervals that double, and
    when it is over.
    on_error: called with each failure and the seconds until the next attempt.
    """

    def __init__(
        self,
        *,
        event: str,
        clock: Clock,
        log: Any,
        policy: RetryPolicy,
        brokers: int = 1,
        on_error: OnConnectionError | None = None,
    ) -> None:
        self._event = event
        self._clock = clock
        self._log = log
        self._on_error = on_error
        self._lock = threading.Lock()
        self._delay = ReconnectDelay(chance=random.Random(), policy=policy, brokers=brokers)
        self._reasons: set[str] = set()
        self._began_s: float | None = None
        self._told_s = 0.0
        self._interval_s = FIRST_INTERVAL_S

    def failed(self, error: BaseException, **fields: Any) -> float:
        """Note a failure; return the seconds to wait. Raises LinkError after the last try."""
        with self._lock:
            exhausted, tries = self._delay.exhausted, self._delay.attempt
            wait_s = self._delay.next_s()
            reason = f"{type(error).__name__}: {error}"
            if exhausted or self._is_news(reason):
                self._log.warning(self._event, reason=reason, again_in_s=round(wait_s, 3), **fields)
        if self._on_error is not None:
            try:
                self._on_error(error, wait_s)
            except Exception:  # what counts is that it is tried again
                self._log.exception("connection error callback")
        if exhausted:
            raise LinkError(f"given up after {tries} retries: {reason}") from None
        return wait_s

    def over(self) -> None:
        """It works again, or still."""
        if self._began_s is None:
            return  # asked with every message: nothing is to be locked for it
        with self._lock:
            self._delay.reset()
            self._reasons.clear()
            self._interval_s = FIRST_INTERVAL_S
            if self._began_s is not None:
                away_s = round(self._clock.now_s() - self._began_s, 3)
                self._began_s = None
                self._log.info(f"{self._event}: over", after_s=away_s)

    def _is_news(self, reason: str) -> bool:
        now_s = self._clock.now_s()
        if self._began_s is None:
            self._began_s = now_s
        if reason in self._reasons:
            if now_s - self._told_s < self._interval_s:
                return False
            self._interval_s = min(LONGEST_INTERVAL_S, self._interval_s * 2.0)
        self._reasons.add(reason)
        self._told_s = now_s
        return True
