"""A ship's place in the pool of those that can be dispatched: there while it can fly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from blimp.closing import Closing
from blimp.errors import LeaseError, LinkError
from blimp.tasks.authority import ships

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.server import RedisServer

AGAIN_S = 10.0  # who put it aside, or emptied the broker, did not know better
HEARD_S = 2.0  # a flight process silent for longer may have ended


class Membership(Closing):
    """Adds a ship to the pool of its broker, and again from time to time; takes it out at the end.

    snapshot_age_s: how long ago the flight process was heard, None before it was.
    Call `look` about once a second with whether the broker answers, as a worker's link
    watchers are. Never raises: a pool that cannot be reached is tried again.
    """

    def __init__(
        self,
        *,
        link: RedisServer,
        vehicle: str,
        snapshot_age_s: Callable[[], float | None],
        clock: Clock,
    ) -> None:
        self._link = link
        self._vehicle = vehicle
        self._snapshot_age_s = snapshot_age_s
        self._clock = clock
        self._added_s: float | None = None

    def look(self, alive: bool) -> None:
        """Be in the pool while the flight process is heard, and not otherwise."""
        if not alive:
            return
        age_s = self._snapshot_age_s()
        if age_s is None or age_s > HEARD_S:
            self._leave()
            return
        now_s = self._clock.now_s()
        if self._added_s is None or now_s - self._added_s >= AGAIN_S:
            with contextlib.suppress(LinkError, LeaseError):
                ships(self._link).add(self._vehicle)
                self._added_s = now_s

    def close(self) -> None:
        """Leave the pool; a ship in use leaves it when it is given back. Idempotent."""
        self._leave()

    def _leave(self) -> None:
        if self._added_s is not None:
            with contextlib.suppress(LinkError, LeaseError):
                ships(self._link).remove(self._vehicle)
                self._added_s = None
