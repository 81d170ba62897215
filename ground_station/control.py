"""Control of one ship: who has it, taking it, renewing it during a command."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from blimp.closing import Closing
from blimp.errors import BlimpError, NoneFree, NotAuthorised
from blimp.queue.redis.client import RedisServer
from blimp.queue.resources import Grant, Holding, Ticket
from blimp.tasks.authority import (
    CONTROL_TTL_S,
    held_by,
    holder_of,
    pilot_of,
    pilots,
    readable,
)
from blimp.tasks.client import user_name
from ground_station.kept import Kept, KeptControl

if TYPE_CHECKING:
    from blimp.clock import Clock
    from ground_station.discover import ShipAddress

MIN_TTL_S = 5.0
MAX_TTL_S = 600.0  # a pilot that disappears blocks other pilots for this long

Say = Callable[[str], None]


class Control(Closing):
    """This user's control of `ship`. Raises LinkError if its broker does not answer.

    state: the directory of this user's state. say: called with messages for the user.
    """

    def __init__(self, *, ship: ShipAddress, state: Path, clock: Clock, say: Say) -> None:
        self._ship = ship
        self._file = KeptControl(state=state, broker=ship.broker, vehicle=ship.vehicle)
        self._clock = clock
        self._say = say
        self._link = RedisServer(ship.broker)
        self._pool = pilots(self._link, ship.vehicle)

    def who(self) -> Holding | None:
        """Return who holds control, None if nobody does."""
        return self._pool.who(self._ship.vehicle)

    def is_mine(self, holding: Holding | None) -> bool:
        kept = self._file.load()
        return holding is not None and kept is not None and kept.token == holding.token

    def take(
        self, pilot: str | None, *, ttl_s: float = CONTROL_TTL_S, wait_s: float = 0.0
    ) -> Grant:
        """Take control or renew it, and store it for the next commands.

        pilot: None for the name of the present grant, or else this user's name. Raises
        NotAuthorised with the holder's name, even if this user holds it under another name.
        """
        grant = self.current()
        if grant is not None:
            if pilot not in (None, pilot_of(grant.holder)):
                raise NotAuthorised(held_by(self._ship.vehicle, grant.holder, grant.ttl_s))
            grant.ttl_s = ttl_s
            self._renew(grant)
            self._keep(grant)
            return grant
        grant = self.acquire(pilot or user_name(), ttl_s=ttl_s, wait_s=wait_s)
        try:
            self._keep(grant)
        except BaseException:  # without its token every pilot would be locked out
            self._pool.release_or_later(grant)
            raise
        return grant

    def acquire(self, pilot: str, *, ttl_s: float, wait_s: float = 0.0) -> Grant:
        """Return control for this process alone, not kept in a file. Raises NotAuthorised."""
        pool = pilots(self._link, self._ship.vehicle, ttl_s=ttl_s)
        pool.add(self._ship.vehicle)
        try:
            return pool.acquire(holder_of(pilot), wait_s)
        except NoneFree:
            holding = self.who()
            if holding is None:
                words = f"control of {self._ship.vehicle} is just changing: try again"
                raise NotAuthorised(words) from None
            words = held_by(self._ship.vehicle, holding.holder, holding.left_s)
            raise NotAuthorised(words) from None

    def take_away(self) -> None:
        """End the present pilot's control: the ship refuses that pilot's commands from now on."""
        self._pool.take_away(self._ship.vehicle)
        self._file.forget()

    def release(self) -> bool:
        """Release it; False if this user did not hold it. Raises NotAuthorised if another does."""
        kept = self._file.load()
        grant = None if kept is None else self._grant(kept)
        released = grant is not None and self._pool.release(grant).released
        self._file.forget()
        holding = None if released else self.who()
        if holding is not None:
            raise NotAuthorised(held_by(self._ship.vehicle, holding.holder, holding.left_s))
        return released

    def current(self) -> Grant | None:
        """Return the kept grant, renewed; None if there is none, or if it has ended."""
        kept = self._file.load()
        grant = None if kept is None else self._grant(kept)
        if grant is None:
            return None
        if not self._pool.renew(grant):
            self._file.forget()
            reason = readable(grant.reason)
            self._say(f"ground: control of {self._ship.vehicle} is no longer yours: {reason}")
            return None
        return grant

    @contextmanager
    def kept(self) -> Iterator[Grant | None]:
        """Renew the kept grant during the block; yield None if there is none."""
        grant = self.current()
        if grant is None:
            yield None
            return
        with self.renewing(grant):
            yield grant

    @contextmanager
    def renewing(self, grant: Grant) -> Iterator[None]:
        """Renew `grant` in the background during the block; print a message if it is lost."""
        vehicle = self._ship.vehicle

        def report(lost: Grant) -> None:
            self._say(f"ground: control of {vehicle} is lost: {readable(lost.reason)}")

        grant.on_lost(report)
        self._pool.keep(grant)
        try:
            yield
        finally:
            self._pool.let_lapse(grant)

    def release_or_later(self, grant: Grant) -> None:
        """Release `grant`; if the broker does not answer now, release it in the background."""
        self._pool.release_or_later(grant)

    def close(self) -> None:
        self._link.close()

    def _renew(self, grant: Grant) -> None:
        if not self._pool.renew(grant):
            reason = readable(grant.reason)
            raise NotAuthorised(f"control of {self._ship.vehicle} was lost a moment ago: {reason}")

    def _keep(self, grant: Grant) -> None:
        """Store `grant` for the commands that follow. Raises ConfigError if that fails."""
        ticket = grant.ticket
        self._file.save(
            Kept(
                pool=ticket.pool,
                resource=ticket.resource,
                token=ticket.token,
                holder=ticket.holder,
                ttl_s=grant.ttl_s,
            )
        )

    def _grant(self, kept: Kept) -> Grant | None:
        """Return the stored grant; None if it cannot belong to this ship."""
        try:
            ticket = Ticket(
                pool=kept.pool, resource=kept.resource, token=kept.token, holder=kept.holder
            ).checked()
        except BlimpError:
            return None
        is_sound = math.isfinite(kept.ttl_s) and MIN_TTL_S <= kept.ttl_s <= MAX_TTL_S
        if ticket.pool != self._pool.name or not is_sound:
            return None
        return Grant(
            ticket=ticket, ttl_s=kept.ttl_s, asked_s=self._clock.now_s(), clock=self._clock
        )
