"""Dispatching: acquires a free ship of a broker and checks it before it flies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec

from blimp.closing import Closing
from blimp.errors import LinkError, NoneFree, NotAuthorised
from blimp.queue.redis.client import RedisServer
from blimp.queue.resources.grant import Grant
from blimp.tasks.authority import holder_of, pilot_of
from blimp.tasks.fleet import FLIGHT_TTL_S, ships
from ground_station.discover import ShipAddress
from ground_station.plain import Ship

if TYPE_CHECKING:
    from blimp.types import Snapshot
    from ground_station.session import Session

HEARD_S = 3.0  # after a longer silence the ship or its link is dead
PING_S = 2.0
ROUND_S = 1.0  # between two checks of ships that are free, but not ready to fly

Say = Callable[[str], None]


class Dispatched(msgspec.Struct, frozen=True):
    """An acquired ship, and the grant of control that its commands carry."""

    ship: ShipAddress
    grant: Grant


class Unfit(Exception):
    """A ship that cannot be dispatched just now; its text says why."""


class Dead(Unfit):
    """A ship that does not answer, so that waiting does not help."""


class Fleet(Closing):
    """The ships of `broker`. Raises LinkError if it does not answer."""

    def __init__(self, *, broker: str, session: Session) -> None:
        self._broker = broker
        self._session = session
        self._link = RedisServer(broker)
        self._pool = ships(self._link)

    @contextmanager
    def any_ship(self, *, pilot: str, wait_s: float) -> Iterator[Dispatched]:
        """Acquire a free ship that is ready to fly, and its control; release both at the end.

        Raises NotAuthorised with the holders if none is free within `wait_s`; LinkError if there is
        no ship.
        """
        until_s = self._session.clock.now_s() + wait_s
        while True:
            left_s = max(0.0, until_s - self._session.clock.now_s())
            reasons: dict[str, str] = {}
            with ExitStack() as held, ExitStack() as passed_over:
                found = self._look_around(
                    pilot, wait_s=left_s, reasons=reasons, held=held, passed_over=passed_over
                )
                passed_over.close()
                if found is not None:
                    yield found
                    return
            now_s = self._session.clock.now_s()
            if now_s >= until_s:
                raise self._none(reasons, wait_s=wait_s)
            self._session.clock.sleep_until(min(until_s, now_s + ROUND_S))

    @contextmanager
    def one_ship(self, vehicle: str, *, pilot: str, wait_s: float) -> Iterator[Dispatched]:
        """Take control of a certain ship that is fit to fly; release it with the block.

        Control that this user already has is used, and kept. Raises NotAuthorised if another
        pilot has it, LinkError if the ship does not answer.
        """
        with ExitStack() as held:
            try:
                control = self._take(vehicle, pilot=pilot, taken=held, wait_s=wait_s)
            except Dead as dead:
                raise LinkError(f"{vehicle} is not dispatched: {dead}") from None
            except Unfit as unfit:
                raise NotAuthorised(f"{vehicle} is not dispatched: {unfit}") from None
            yield Dispatched(ShipAddress(vehicle=vehicle, broker=self._broker), control)

    def close(self) -> None:
        self._link.close()

    # --- one look around ---------------------------------------------------------------------

    def _look_around(
        self,
        pilot: str,
        *,
        wait_s: float,
        reasons: dict[str, str],
        held: ExitStack,
        passed_over: ExitStack,
    ) -> Dispatched | None:
        """Return the first free ship that is ready; if there is none, None and the reason for each.

        held: releases the returned ship. passed_over: holds unfit ships meanwhile, so that they
        are not acquired again.
        """
        while True:
            try:
                # A holder has one ship at most, so each attempt uses a holder name of its own.
                grant = self._pool.acquire(holder_of(pilot), 0.0 if reasons else wait_s)
            except NoneFree:
                return None
            vehicle = grant.resource
            with ExitStack() as taken:
                taken.callback(self._pool.release_or_later, grant)
                try:
                    control = self._take(vehicle, pilot=pilot, taken=taken)
                except Dead as dead:
                    self._pool.remove(vehicle)  # takes effect when it is released
                    self._session.report.say(f"ground: {vehicle} is removed from the pool: {dead}")
                    reasons[vehicle] = str(dead)
                    continue
                except (Unfit, NotAuthorised) as unfit:
                    reasons[vehicle] = str(unfit)
                    passed_over.push(taken.pop_all())
                    continue
                self._pool.keep(grant)
                grant.on_lost(self._report_lost)
                held.push(taken.pop_all())
                return Dispatched(ShipAddress(vehicle=vehicle, broker=self._broker), control)

    def _take(
        self, vehicle: str, *, pilot: str, taken: ExitStack, wait_s: float | None = None
    ) -> Grant:
        """Return the control of a ship, after checking the ship.

        wait_s: how long to wait for another pilot; control that this user already has is then
        used, and kept. None to do neither.
        """
        ship = ShipAddress(vehicle=vehicle, broker=self._broker)
        self._check(ship)
        with ExitStack() as own:
            control = own.enter_context(self._session.of(ship).control())
            grant = None if wait_s is None else control.current()
            if grant is None:
                grant = control.acquire(pilot, ttl_s=FLIGHT_TTL_S, wait_s=wait_s or 0.0)
                own.callback(control.release_or_later, grant)
            _be_fit(self._snapshot(ship))  # nobody else commands it from here on
            own.enter_context(control.renewing(grant))
            taken.push(own.pop_all())
        return grant

    def _report_lost(self, grant: Grant) -> None:
        self._session.report.say(f"ground: {grant.resource} is no longer held by this flight")

    def _check(self, ship: ShipAddress) -> None:
        """Raise Unfit, or Dead, for a ship that must not be sent on a mission."""
        snapshot = self._snapshot(ship)
        with Ship.of(self._session.of(ship)) as client:
            reply = client.command("ping", {}, timeout_s=PING_S)
        if reply.state != "SUCCESS":
            raise Dead(f"it does not answer a ping within {PING_S:g} s ({reply.reason})")
        _be_fit(snapshot)

    def _snapshot(self, ship: ShipAddress) -> Snapshot:
        with self._session.reader(ship) as reader:
            found = reader.latest()
        if found is None or found[1] > HEARD_S:
            ago = "never" if found is None else f"{found[1]:.0f} s ago"
            raise Dead(f"last heard {ago}, the limit is {HEARD_S:g} s")
        return found[0]

    def _none(self, reasons: dict[str, str], *, wait_s: float) -> Exception:
        stats = self._pool.stats()
        for holding in stats.busy:
            reasons.setdefault(holding.resource, f"{pilot_of(holding.holder)} has it")
        if not stats.size:
            why_not = "".join(f"; {name}: {why}" for name, why in sorted(reasons.items()))
            return LinkError(f"no ship can be dispatched: none is in the pool{why_not}")
        within = f" within {wait_s:g} s" if wait_s else ""
        why_not = "; ".join(f"{name}: {why}" for name, why in sorted(reasons.items()))
        return NotAuthorised(f"no ship is free{within}: {why_not or 'just now'}")


def _be_fit(snapshot: Snapshot) -> None:
    """Raise Unfit for a ship that somebody flies, or that a person must look at first."""
    if snapshot.killed:
        raise Unfit("an emergency stop has stopped it: look at the ship, then arm it yourself")
    if snapshot.armed:
        raise Unfit("it is armed, so somebody may be flying it")
    if snapshot.failsafe:
        raise Unfit(f"its failsafe is in force ({snapshot.failsafe})")
