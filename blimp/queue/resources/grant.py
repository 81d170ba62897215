"""What a pool gives and tells: a grant, who holds what, what became of a release."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import LeaseError, LeaseLost
from blimp.queue.resources.pool_keys import check_name

if TYPE_CHECKING:
    from blimp.clock import Clock

MAX_TOKEN = 2**53  # above that the server's numbers have gaps


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What names a grant: all that giving it back needs, and nothing that lives.

    token: greater than that of every grant of this pool before it. A fence: whoever sees a
    greater one for the same executor refuses this.
    """

    pool: str
    executor: str
    token: int
    holder: str

    @classmethod
    def read(cls, given: object) -> Ticket:
        """Return `given`, a mapping of these four, as a ticket. Raises LeaseError."""
        if not isinstance(given, Mapping):
            raise LeaseError(
                f"a grant is a mapping of pool, executor, token, holder: {given!r:.60}"
            )
        try:
            ticket = msgspec.convert(dict(given), cls)
        except msgspec.ValidationError as error:
            raise LeaseError(f"grant {given!r:.200}: {error}") from None
        return ticket.checked()

    def checked(self) -> Ticket:
        """Return itself. Raises LeaseError, ConfigError where it can be no pool's."""
        check_name("executor", self.executor)
        check_name("holder", self.holder)
        if not 0 < self.token < MAX_TOKEN:
            raise LeaseError(f"token {self.token} of {self.executor}: must be 1 to 2**53")
        return self


class Grant:
    """An executor that is held. Thread-safe.

    executor, token, holder, pool: see Ticket. ttl_s: how long it lasts unless it is renewed.
    lost: set when it is known to be held no more, without having been released here: it was
        not renewed in time, or was taken away, or its holder took it anew elsewhere.
    It is renewed by `ExecutorPool.renew`; `lease`, `keep` and a worker do so in the background.
    """

    def __init__(self, *, ticket: Ticket, ttl_s: float, asked_s: float, clock: Clock) -> None:
        self.ticket = ticket
        self.ttl_s = ttl_s
        self.lost = threading.Event()
        self.reason = ""
        self._clock = clock
        self._until_s = asked_s + ttl_s
        self._lock = threading.Lock()
        self._watchers: list[Callable[[Grant], None]] = []
        self._is_ended = False

    @property
    def pool(self) -> str:
        return self.ticket.pool

    @property
    def executor(self) -> str:
        return self.ticket.executor

    @property
    def token(self) -> int:
        return self.ticket.token

    @property
    def holder(self) -> str:
        return self.ticket.holder

    @property
    def was_released(self) -> bool:
        """Whether it was given back here, or just is."""
        return self._is_ended

    @property
    def left_s(self) -> float:
        """Seconds for which it is certainly held, on this machine's clock; 0 where it is not."""
        return (
            0.0
            if self._is_ended or self.lost.is_set()
            else max(0.0, self._until_s - self._clock.now_s())
        )

    @property
    def is_lost(self) -> bool:
        """Whether it is held no more, or may be so: it was not renewed for as long as it lasts."""
        return self.left_s == 0.0

    def check(self) -> None:
        """Raise LeaseLost where it is lost: to be asked before each effect."""
        if self.is_lost:
            reason = self.reason or f"not renewed for {self.ttl_s:g} s"
            reason = "it was released" if self._is_ended else reason
            raise LeaseLost(f"{self.executor} of pool {self.pool!r} is lost: {reason}")

    def on_lost(self, watcher: Callable[[Grant], None]) -> None:
        """Have `watcher` called once, in any thread, when it is lost; at once where it is."""
        with self._lock:
            if not self.lost.is_set():  # one that was released is not lost any more
                self._watchers.append(watcher)
                return
        watcher(self)

    def as_dict(self) -> dict[str, Any]:
        """Return what names it, to be written into a message; see `Ticket.read`."""
        return msgspec.structs.asdict(self.ticket)

    def renewed(self, *, asked_s: float) -> None:
        """It lasts on from when that was asked for."""
        self._until_s = max(self._until_s, asked_s + self.ttl_s)

    def end_by(self, release: Callable[[], Release]) -> Release:
        """Return what `release` does. Meanwhile, and where it was released, it is not lost."""
        with self._lock:
            self._is_ended = True
        is_over = False
        try:
            found = release()
            is_over = found.released
        finally:
            self._is_ended = is_over
        if not is_over:
            self.lose(str(found.outcome))
        return found

    def lose(self, reason: str) -> None:
        """Tell whoever holds it, once."""
        with self._lock:
            if self._is_ended or self.lost.is_set():
                return
            self.reason = reason
            self.lost.set()
            watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher(self)

    def __repr__(self) -> str:
        return f"Grant({self.executor!r}, token={self.token}, holder={self.holder!r})"


class Outcome(StrEnum):
    """What a release found."""

    RELEASED = "released"
    ALREADY = "already released"
    EXPIRED = "expired"  # it had not been renewed in time, and the executor came back
    SUPERSEDED = "superseded"  # its holder took it anew, with a new token
    TAKEN_AWAY = "taken away"
    STALE = "stale"  # ended so long ago that nobody knows how
    FORGED = "forged"  # no grant of this pool was ever like that


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a release. Only RELEASED changed anything.

    held_by: who holds the executor now. releases: how often this grant was released so far;
    interval_s: since the first of them. is_double: the last one was less than a second ago.
    """

    outcome: Outcome
    ticket: Ticket
    held_by: str | None = None
    releases: int = 0
    interval_s: float = 0.0
    is_double: bool = False

    @property
    def released(self) -> bool:
        """Whether it is given back, now or by a release before."""
        return self.outcome in (Outcome.RELEASED, Outcome.ALREADY)

    def __str__(self) -> str:
        text = f"{self.ticket.executor}: {self.outcome.value}"
        if self.outcome is Outcome.ALREADY:
            text += f", {self.interval_s:.3f} s ago"
        return text if self.held_by is None else f"{text}; {self.held_by} holds it now"


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds an executor, since when, and how long unless he renews it.

    leaving: it leaves the pool when it is given back.
    """

    executor: str
    holder: str
    token: int
    held_s: float
    left_s: float
    leaving: bool = False


class PoolStats(msgspec.Struct, frozen=True, kw_only=True):
    """A pool at one moment, and counters since it was made.

    free: executors, in the order they will be given. waiting: holders, in order.
    token: the last that was given; before the first, the server's µs when the pool was made.
    acquired: grants. again: a holder asked for what it had. released: given back.
    double_released: releases of what was released. expired: grants that ended by themselves.
    refused: asked for and not given. stale, forged: releases of what had ended otherwise, of
    what never was. superseded, taken_away: grants that were ended for another. lost: renewals
    of a grant that was no more. gone: waiters that died. repaired: the pool's keys were
    damaged, and put right.
    """

    name: str
    free: tuple[str, ...]
    busy: tuple[Holding, ...]
    waiting: tuple[str, ...]
    token: int = 0
    acquired: int = 0
    again: int = 0
    renewed: int = 0
    released: int = 0
    double_released: int = 0
    expired: int = 0
    refused: int = 0
    stale: int = 0
    forged: int = 0
    superseded: int = 0
    taken_away: int = 0
    lost: int = 0
    gone: int = 0
    repaired: int = 0
    added: int = 0
    removed: int = 0

    @property
    def size(self) -> int:
        return len(self.free) + len(self.busy)


COUNTERS = frozenset(PoolStats.__struct_fields__) - {"name", "free", "busy", "waiting"}
