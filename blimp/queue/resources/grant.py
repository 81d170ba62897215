"""A grant of a resource: what names it, how it is lost, released, and renewed in the background.

Tested by test_pool.py.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import BlimpError, ConfigError, LeaseError, LeaseLost, LinkError
from blimp.reading import ready

if TYPE_CHECKING:
    from blimp.clock import Clock

MAX_TOKEN = 2**53  # above it the server's numbers are not exact
MAX_NAME_LENGTH = 200
RENEWALS_PER_TTL = 3
LONGEST_S = 5.0  # between two renewals, so that a holder soon learns that it lost its resource
AGAIN_S = 0.5  # after a server that did not answer

logger = logging.getLogger(__name__)


def check_name(what: str, name: object) -> str:
    """Return `name`. Raises ConfigError if it is no text of 1 to MAX_NAME_LENGTH letters."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise ConfigError(f"{what} {name!r:.60}: must be a text of 1 to {MAX_NAME_LENGTH} letters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r:.60}: has letters that UTF-8 cannot write") from None
    return name


@ready
class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What names a grant: all that a release needs, as plain data.

    token: greater than that of every earlier grant of this pool. It is a fence: what acts on the
    resource refuses a token that is smaller than one it has seen.
    """

    pool: str
    resource: str
    token: int
    holder: str

    @classmethod
    def read(cls, given: object) -> Ticket:
        """Return `given`, a mapping of these four, as a ticket. Raises LeaseError."""
        if not isinstance(given, Mapping):
            raise LeaseError(
                f"a grant is a mapping of pool, resource, token, holder: {given!r:.60}"
            )
        try:
            return msgspec.convert(dict(given), cls).checked()
        except msgspec.ValidationError as error:
            raise LeaseError(f"grant {given!r:.200}: {error}") from None

    def checked(self) -> Ticket:
        """Return itself. Raises LeaseError, ConfigError if no pool can have granted it."""
        check_name("resource", self.resource)
        check_name("holder", self.holder)
        if not 0 < self.token < MAX_TOKEN:
            raise LeaseError(f"token {self.token} of {self.resource}: must be 1 to 2**53")
        return self


class ReleaseOutcome(StrEnum):
    """What a release found."""

    RELEASED = "released"
    ALREADY = "already released"
    EXPIRED = "expired"  # it was not renewed in time, and the resource returned by itself
    SUPERSEDED = "superseded"  # its holder acquired it again with a new token
    TAKEN_AWAY = "taken away"
    STALE = "stale"  # it ended so long ago that the server has forgotten how
    FORGED = "forged"  # this pool never made such a grant


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a release. Only RELEASED changed anything.

    held_by: who holds the resource now. releases: how often this grant was released so far;
    interval_s: since the first of them. is_double: the last one was less than a second ago.
    """

    outcome: ReleaseOutcome
    ticket: Ticket
    held_by: str | None = None
    releases: int = 0
    interval_s: float = 0.0
    is_double: bool = False

    @property
    def released(self) -> bool:
        """Whether its holder has returned it, now or by an earlier release."""
        return self.outcome in (ReleaseOutcome.RELEASED, ReleaseOutcome.ALREADY)

    def __str__(self) -> str:
        text = f"{self.ticket.resource}: {self.outcome.value}"
        if self.outcome is ReleaseOutcome.ALREADY:
            text += f", {self.interval_s:.3f} s ago"
        return text if self.held_by is None else f"{text}; {self.held_by} holds it now"


class Grant:
    """A resource that is held. Thread-safe.

    pool, resource, token, holder: see Ticket. ttl_s: how long it lasts unless it is renewed.
    was_released: it was released here, or is being released.
    lost: set when it has ended without a release here: it was not renewed in time, was
        taken away, or its holder acquired it again elsewhere. reason: why.
    `ResourcePool.renew` renews it; `lease`, `keep` and a worker do so in the background.
    """

    def __init__(self, *, ticket: Ticket, ttl_s: float, asked_s: float, clock: Clock) -> None:
        self.ticket = ticket
        self.pool, self.resource = ticket.pool, ticket.resource
        self.token, self.holder = ticket.token, ticket.holder
        self.ttl_s = ttl_s
        self.was_released = False
        self.lost = threading.Event()
        self.reason = ""
        self._clock = clock
        self._until_s = asked_s + ttl_s
        self._lock = threading.Lock()
        self._watchers: list[Callable[[Grant], None]] = []

    @property
    def left_s(self) -> float:
        """Seconds for which it is certainly held, on this machine's clock; 0 if it is not."""
        if self.was_released or self.lost.is_set():
            return 0.0
        return max(0.0, self._until_s - self._clock.now_s())

    @property
    def is_lost(self) -> bool:
        """Whether it has ended, or may have: it was not renewed for its time to live."""
        return self.left_s == 0.0

    def check(self) -> None:
        """Raise LeaseLost if it is lost. Call it before each effect."""
        if self.is_lost:
            reason = "it was released" if self.was_released else self.reason
            reason = reason or f"not renewed for {self.ttl_s:g} s"
            raise LeaseLost(f"{self.resource} of pool {self.pool!r} is lost: {reason}")

    def on_lost(self, watcher: Callable[[Grant], None]) -> None:
        """Call `watcher` once, in any thread, when it is lost; at once if it is."""
        with self._lock:
            if not self.lost.is_set():  # a released grant is never lost
                self._watchers.append(watcher)
                return
        watcher(self)

    def as_dict(self) -> dict[str, Any]:
        """Return what names it, to be written into a message; see `Ticket.read`."""
        return msgspec.structs.asdict(self.ticket)

    def renewed(self, *, asked_s: float) -> None:
        """Note that the server extended it, when asked at `asked_s`."""
        self._until_s = max(self._until_s, asked_s + self.ttl_s)

    def end_by(self, release: Callable[[], Release]) -> Release:
        """Return what `release` does. It is not lost meanwhile, nor after a release."""
        with self._lock:
            self.was_released = True
        is_over = False
        try:
            found = release()
            is_over = found.released
        finally:
            self.was_released = is_over
        if not is_over:
            self.lose(str(found.outcome))
        return found

    def lose(self, reason: str) -> None:
        """Note that it is lost and call the watchers, once."""
        with self._lock:
            if self.was_released or self.lost.is_set():
                return
            self.reason = reason
            self.lost.set()
            watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher(self)

    def __repr__(self) -> str:
        return f"Grant({self.resource!r}, token={self.token}, holder={self.holder!r})"


class _Kept(msgspec.Struct, kw_only=True):
    grant: Grant
    due_s: float
    to_release: bool = False


class Renewer:
    """Renews the grants of one pool, and releases those whose server was unreachable.

    One thread for all grants of a process, which runs only while there are some.
    renew: returns whether the grant is still held. release: releases one. Both raise LinkError.
    """

    def __init__(
        self,
        *,
        renew: Callable[[Grant], bool],
        release: Callable[[Grant], object],
        clock: Clock,
    ) -> None:
        self._renew = renew
        self._release = release
        self._clock = clock
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._kept: dict[int, _Kept] = {}  # by the grant's identity
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def keep(self, grant: Grant) -> None:
        """Renew `grant` until it is dropped or lost."""
        self._add(grant, after_s=period_s(grant.ttl_s))

    def release(self, grant: Grant, *, after_s: float = 0.0) -> None:
        """Release `grant` as soon as the server answers, as long as it lasts."""
        self._add(grant, after_s=after_s, to_release=True)

    def drop(self, grant: Grant) -> None:
        """Stop renewing `grant`. Idempotent."""
        with self._changed:
            self._kept.pop(id(grant), None)
            self._changed.notify()

    def _add(self, grant: Grant, *, after_s: float, to_release: bool = False) -> None:
        if self._process != os.getpid():
            self._start()  # after a fork: the parent's grants are the parent's
        due_s = self._clock.now_s() + after_s
        with self._changed:
            self._kept[id(grant)] = _Kept(grant=grant, due_s=due_s, to_release=to_release)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="grants", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _serve(self) -> None:
        while (kept := self._next()) is not None:
            try:
                again_s = self._handle(kept)
            except Exception:  # a watcher's, most likely: the other grants are renewed all the same
                logger.exception("cannot renew %r", kept.grant)
                again_s = None
            with self._changed:
                if again_s is not None:
                    kept.due_s = self._clock.now_s() + again_s
                elif self._kept.get(id(kept.grant)) is kept:
                    del self._kept[id(kept.grant)]

    def _next(self) -> _Kept | None:
        """Wait until one is due; None, which ends the thread, once none is kept."""
        with self._changed:
            while self._kept:
                kept = min(self._kept.values(), key=lambda one: one.due_s)
                left_s = kept.due_s - self._clock.now_s()
                if left_s <= 0.0:
                    return kept
                self._changed.wait(timeout=left_s)
            self._thread = None
        return None

    def _handle(self, kept: _Kept) -> float | None:
        """Renew or release one; return the seconds until it is due again, None for never."""
        grant = kept.grant
        again_s = period_s(grant.ttl_s)
        try:
            if not kept.to_release:
                return again_s if self._renew(grant) else None
            self._release(grant)
        except LinkError as error:
            if not grant.is_lost:
                return min(AGAIN_S, again_s)
            grant.lose(f"not renewed for {grant.ttl_s:g} s: {error}")
        except BlimpError as error:
            grant.lose(str(error))
        return None


def period_s(ttl_s: float) -> float:
    """Return how long to wait before a grant that lasts `ttl_s` is renewed."""
    return min(LONGEST_S, ttl_s / RENEWALS_PER_TTL)
