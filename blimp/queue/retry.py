"""How long to wait before trying again."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from blimp.errors import ConfigError, LinkError
from blimp.reading import ready

if TYPE_CHECKING:
    from blimp.clock import Clock

T = TypeVar("T")

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


Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0)]


@ready
class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a broker that does not answer is tried again. The names are Celery's.

    max_retries: after the first time; None: for ever. interval_start, interval_step,
    interval_max: seconds before the second time, what each further wait is longer, and the
    longest. jitter: the share of a wait that is drawn. timeout_s: no further try after it.
    """

    max_retries: Count | None = 3
    interval_start: Seconds = 0.0
    interval_step: Seconds = 0.2
    interval_max: Seconds = 0.2
    jitter: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.5
    timeout_s: Seconds | None = None

    def waits(self, *, chance: random.Random, brokers: int = 1) -> Iterator[float]:
        """Yield the seconds to wait before each further try.

        brokers: so many are tried one after the other without a wait.
        """
        for attempt in itertools.count(1):
            if self.max_retries is not None and attempt > self.max_retries:
                return
            steps = attempt // brokers - 1
            whole_s = min(self.interval_max, self.interval_start + steps * self.interval_step)
            yield 0.0 if attempt % brokers else whole_s * chance.uniform(1.0 - self.jitter, 1.0)

    def call(
        self,
        function: Callable[[], T],
        *,
        clock: Clock,
        chance: random.Random,
        brokers: int = 1,
        timeout_s: float | None = None,
    ) -> T:
        """Call `function` until it raises no LinkError; raise the last one.

        timeout_s: if the policy has none.
        brokers: so many are tried one after the other without a wait, however long they take.
        """
        began_s = clock.now_s()
        if self.timeout_s is not None:
            timeout_s = self.timeout_s
        waits: Iterator[float] | None = None
        for attempt in itertools.count(1):
            try:
                return function()
            except LinkError:
                waits = waits or self.waits(chance=chance, brokers=brokers)
                now_s, wait_s = clock.now_s(), next(waits, None)
                late = timeout_s is not None and now_s - began_s >= timeout_s
                if wait_s is None or (late and attempt >= brokers):
                    raise
                if wait_s > 0.0:
                    clock.sleep_until(now_s + wait_s)
        raise AssertionError("unreachable")


ONCE = RetryPolicy(max_retries=0)
PUBLISHING = RetryPolicy()
CONNECTING = RetryPolicy(
    max_retries=None, interval_start=0.05, interval_step=0.15, interval_max=1.0
)


def policy_of(given: RetryPolicy | dict[str, Any] | None, default: RetryPolicy) -> RetryPolicy:
    """Return `default` with what is `given`. Raises ConfigError naming what is wrong."""
    if given is None or isinstance(given, RetryPolicy):
        return given or default
    try:
        return msgspec.convert(msgspec.structs.asdict(default) | given, RetryPolicy)
    except msgspec.ValidationError as error:
        raise ConfigError(f"retry policy {given!r:.200}: {error}") from None


def give_up(error: BaseException) -> None:
    """Mark what a task raises after its last try: it is not tried again by itself either."""
    error.__dict__["_blimp_given_up"] = True


def is_given_up(error: BaseException) -> bool:
    return "_blimp_given_up" in error.__dict__


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
        self._policy = policy
        self._brokers = brokers
        self._waits = policy.waits(chance=random.Random(), brokers=brokers)
        self._reasons: set[str] = set()
        self._began_s: float | None = None
        self._logged_s = 0.0
        self._interval_s = FIRST_INTERVAL_S

    def failed(self, error: BaseException, **fields: Any) -> float:
        """Note a failure; return the seconds to wait. Raises LinkError after the last try."""
        with self._lock:
            again_s = next(self._waits, None)
            wait_s = again_s or 0.0
            reason = f"{type(error).__name__}: {error}"
            if self._is_news(reason) or again_s is None:
                self._log.warning(self._event, reason=reason, again_in_s=round(wait_s, 3), **fields)
        if self._on_error is not None:
            try:
                self._on_error(error, wait_s)
            except Exception:  # what counts is that it is tried again
                self._log.exception("connection error callback")
        if again_s is None:
            tries = self._policy.max_retries
            raise LinkError(f"given up after {tries} retries: {reason}") from None
        return wait_s

    def over(self) -> None:
        """It works again, or still."""
        if self._began_s is None:
            return  # asked with every message: nothing is to be locked for it
        with self._lock:
            self._waits = self._policy.waits(chance=random.Random(), brokers=self._brokers)
            self._reasons.clear()
            self._interval_s = FIRST_INTERVAL_S
            if self._began_s is not None:
                down_s = round(self._clock.now_s() - self._began_s, 3)
                self._began_s = None
                self._log.info(f"{self._event}: over", after_s=down_s)

    def _is_news(self, reason: str) -> bool:
        now_s = self._clock.now_s()
        if self._began_s is None:
            self._began_s = now_s
        if reason in self._reasons:
            if now_s - self._logged_s < self._interval_s:
                return False
            self._interval_s = min(LONGEST_INTERVAL_S, self._interval_s * 2.0)
        self._reasons.add(reason)
        self._logged_s = now_s
        return True
