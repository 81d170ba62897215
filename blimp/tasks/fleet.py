"""The pool of the ships on a broker that can be dispatched, and a ship's place in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from blimp.closing import Closing
from blimp.errors import LeaseError, LinkError

if TYPE_CHECKING:
    from redis import Redis

    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.resources import ResourcePool

FLEET = "blimp.ships"
FLIGHT_TTL_S = 30.0  # a dispatch renews its grant; if it is killed, its ship is free after this
REJOIN_S = 10.0  # add the ship again, in case somebody removed it or emptied the broker
HEARD_S = 2.0  # a flight process that has been silent for longer may have ended


def ships(link: Redis | RedisServer, *, ttl_s: float = FLIGHT_TTL_S) -> ResourcePool:
    """Return the pool of the ships that fly on this broker."""
    from blimp.queue.resources import ResourcePool  # loads redis-py: not for `ground --help`

    return ResourcePool(link, FLEET, ttl_s)


class FleetMember(Closing):
    """Keeps a ship in the pool of its broker while its flight process is heard.

    snapshot_age_s: how long ago the flight process was heard, None before it was.
    Call `look` about once a second with whether the broker answers, as a worker's link
    watchers are called. It never raises: it tries again if the pool cannot be reached.
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
        """Add the ship to the pool if the flight process is heard, else remove it."""
        if not alive:
            return
        age_s = self._snapshot_age_s()
        if age_s is None or age_s > HEARD_S:
            self._leave()
            return
        now_s = self._clock.now_s()
        if self._added_s is None or now_s - self._added_s >= REJOIN_S:
            with contextlib.suppress(LinkError, LeaseError):
                ships(self._link).add(self._vehicle)
                self._added_s = now_s

    def close(self) -> None:
        """Leave the pool; a ship in use leaves it when it is released. Idempotent."""
        self._leave()

    def _leave(self) -> None:
        if self._added_s is not None:
            with contextlib.suppress(LinkError, LeaseError):
                ships(self._link).remove(self._vehicle)
                self._added_s = None
