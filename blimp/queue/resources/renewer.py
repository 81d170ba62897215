"""Grants kept alive in the background, and given back where the server was away."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from blimp.errors import BlimpError, LinkError

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.resources.grant import Grant

RENEWALS_PER_TTL = 3
LONGEST_S = 5.0  # between two renewals, so that whoever lost an executor soon hears of it
AGAIN_S = 0.5  # after a server that did not answer

logger = logging.getLogger(__name__)


class _Kept(msgspec.Struct, kw_only=True):
    grant: Grant
    due_s: float
    is_owed: bool = False


class Renewer:
    """One thread for all grants of a pool in this process; there only while there are some.

    renew: says whether the grant is still held, and tells it where not. release: gives one
    back. Both raise LinkError.
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
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._kept: dict[int, _Kept] = {}  # by the grant's identity
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def keep(self, grant: Grant) -> None:
        """Renew `grant` until it is dropped or lost."""
        self._add(_Kept(grant=grant, due_s=self._clock.now_s() + period_s(grant.ttl_s)))

    def drop(self, grant: Grant) -> None:
        """Renew `grant` no more. Idempotent."""
        with self._changed:
            self._kept.pop(id(grant), None)
            self._changed.notify()

    def owe(self, grant: Grant, *, after_s: float = 0.0) -> None:
        """Give `grant` back as soon as the server answers, for as long as it lasts."""
        due_s = self._clock.now_s() + after_s
        self._add(_Kept(grant=grant, due_s=due_s, is_owed=True))

    def _add(self, kept: _Kept) -> None:
        if self._process != os.getpid():
            self._begin()  # forked: what the parent holds is the parent's
        with self._changed:
            self._kept[id(kept.grant)] = kept
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="grants", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _serve(self) -> None:
        while (kept := self._next()) is not None:
            try:
                self._turn(kept)
            except Exception:  # a watcher's, most likely: the other grants must live on
                logger.exception("renewing %r", kept.grant)
                self.drop(kept.grant)

    def _next(self) -> _Kept | None:
        """Wait until something is due; None, and the thread ends, once nothing is kept."""
        with self._changed:
            while self._kept:
                kept = min(self._kept.values(), key=lambda one: one.due_s)
                left_s = kept.due_s - self._clock.now_s()
                if left_s <= 0.0:
                    return kept
                self._changed.wait(timeout=left_s)
            self._thread = None
        return None

    def _turn(self, kept: _Kept) -> None:
        grant = kept.grant
        try:
            if kept.is_owed:
                self._release(grant)
            is_done = kept.is_owed or not self._renew(grant)
            again_s = period_s(grant.ttl_s)
        except LinkError as error:
            is_done, again_s = grant.is_lost, min(AGAIN_S, period_s(grant.ttl_s))
            if is_done:
                grant.lose(f"not renewed for {grant.ttl_s:g} s: {error}")
        except BlimpError as error:
            is_done, again_s = True, 0.0
            grant.lose(str(error))
        with self._changed:
            if is_done and self._kept.get(id(grant)) is kept:
                del self._kept[id(grant)]
            kept.due_s = self._clock.now_s() + again_s


def period_s(ttl_s: float) -> float:
    """Return how long to wait before a grant that lasts `ttl_s` is renewed."""
    return min(LONGEST_S, ttl_s / RENEWALS_PER_TTL)
