"""ExecutorPool: executors that are taken, held for a while, and always come back."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.errors import ConfigError, LeaseError, LeaseLost, LinkError, NoneFree
from blimp.queue.resources.grant import (
    COUNTERS,
    MAX_TOKEN,
    Grant,
    Holding,
    Outcome,
    PoolStats,
    Release,
    Ticket,
)
from blimp.queue.resources.pool_keys import bell_channels, check_name, pool_keys
from blimp.queue.resources.renewer import AGAIN_S, Renewer
from blimp.queue.resources.server import Server
from blimp.queue.resources.wakeup import Wakeup

if TYPE_CHECKING:
    from redis import Redis

    from blimp.queue.redis.server import RedisServer

MAX_TTL_S = MAX_WAIT_S = 30 * 86_400.0
MIN_TTL_S = 0.01
PLACE_S = 3.0  # a waiter's place lasts so long after he last asked: he may be dead
LOOK_S = 1.0  # how often a waiter asks himself, should the bell be lost; it renews his place
DOUBLE_S = 1.0  # two releases within are a sign that link and link_error both fire

RELEASE_TASK = "blimp.release"

logger = logging.getLogger(__name__)


class ResourcePool:
    """The executors of one name on a server: each is free, or held by exactly one holder.

    client: a redis-py client, or a TaskApp's `broker_link`. ttl_s: how long a grant lasts
    unless it is renewed; then the executor goes back by itself. The server's clock decides.
    A holder is a name: whoever says it holds what it holds, one executor of a pool at most.

    Thread-safe. Every method raises LinkError where the server does not answer, and
    LeaseError where a key of the pool is not the pool's.
    """

    def __init__(
        self,
        client: Redis | RedisServer,
        name: str,
        ttl_s: float = 600,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.ttl_s = _seconds("ttl_s", ttl_s, least_s=MIN_TTL_S, most_s=MAX_TTL_S)
        self.keys = pool_keys(name)
        self._bells = bell_channels(name)
        self._server = Server(client)
        self._clock = clock or SystemClock()
        self._renewer = Renewer(renew=self.renew, release=self._end, clock=self._clock)

    # --- what belongs to it ------------------------------------------------------------------

    def add(self, executor: str) -> bool:
        """Have `executor` belong to the pool; False where it did. Harmless to repeat."""
        return bool(self._run("add", check_name("executor", executor)))

    def remove(self, executor: str, *, now: bool = False) -> bool:
        """Have `executor` belong to it no more; say whether it is gone.

        A busy one goes when it is given back; with `now` it is taken from its holder.
        """
        answer = self._run("remove", check_name("executor", executor), int(now))
        return bool(answer != "leaving")

    # --- taking and giving back --------------------------------------------------------------

    def acquire(self, holder: str, wait_s: float = 0.0, *, anew: bool = False) -> Grant:
        """Return an executor that `holder` now holds: first come, first served.

        Asked again by the same holder it is the same grant, renewed. anew: then it has a new
        token, and the old one is worth nothing: for whoever takes over from a self that may
        still run. wait_s: how long to wait for one. Raises NoneFree saying who has them.
        """
        wait_s = _seconds("wait_s", wait_s, least_s=0.0, most_s=MAX_WAIT_S)
        check_name("holder", holder)
        if wait_s == 0.0:
            found = self.ask(holder, anew=anew)
        else:
            found = self._wait(holder, wait_s=wait_s, anew=anew)
        if isinstance(found, Grant):
            return found
        raise self._none_free(found, wait_s=wait_s)

    def ask(
        self, holder: str, *, place_s: float = 0.0, anew: bool = False, rank: int = 0
    ) -> Grant | Place:
        """Return a grant, or the place in the line, without waiting.

        place_s: how long the place is kept for whoever asks again; 0 leaves the line.
        rank: of two of one name the higher is the later: an earlier one that wakes takes nothing
        anew from it. Raises LeaseLost then.
        """
        asked_s = self._clock.now_s()
        answer = self._run("acquire", holder, _us(self.ttl_s), _us(place_s), int(anew), rank)
        if answer[0] == 2:
            what = f"{answer[1]} of pool {self.name!r}"
            raise LeaseLost(f"{what} is held by a later {holder}: this is number {rank}")
        if not answer[0]:
            return Place(before=int(answer[1]), executors=int(answer[2]))
        ticket = Ticket(pool=self.name, executor=answer[1], token=int(answer[2]), holder=holder)
        return Grant(ticket=ticket, ttl_s=self.ttl_s, asked_s=asked_s, clock=self._clock)

    def leave(self, holder: str) -> None:
        """Have `holder` wait no more. What it holds is not touched."""
        self._run("acquire", check_name("holder", holder), _us(self.ttl_s), -1, 0, 0)

    def renew(self, grant: Grant) -> bool:
        """Have `grant` last on from now; False, and the grant is told, where it is lost."""
        self._check_mine(grant.ticket)
        asked_s = self._clock.now_s()
        ticket = grant.ticket
        answer = self._run("renew", ticket.executor, ticket.token, ticket.holder, _us(grant.ttl_s))
        if answer[0]:
            grant.renewed(asked_s=asked_s)
            return True
        _, how, held_by = answer
        grant.lose(f"{how}; {held_by} holds it now" if held_by else how)
        return False

    def release(self, grant: Grant | Ticket) -> Release:
        """Give the executor back, once; harmless to repeat, from anywhere.

        What is not held by exactly this grant is not touched; the answer says why.
        """
        if isinstance(grant, Ticket):
            return self._release(grant.checked())
        self._renewer.drop(grant)  # whatever comes of it: it ends with its time at the latest
        return self._end(grant)

    @contextlib.contextmanager
    def lease(self, holder: str, wait_s: float = 0.0, *, anew: bool = False) -> Iterator[Grant]:
        """Hold an executor for the block: renewed in the background, given back at its end.

        It may be lost in between: look at `grant.lost`, or ask `grant.check()`. Where the
        server is away at the end, it is given back later, or ends by itself.
        """
        grant = self.acquire(holder, wait_s, anew=anew)
        try:
            self.keep(grant)
            yield grant
        finally:
            self.requeue(grant)

    def keep(self, grant: Grant) -> None:
        """Renew `grant` in the background until it is released or lost."""
        self._check_mine(grant.ticket)
        self._renewer.keep(grant)

    def let_lapse(self, grant: Grant) -> None:
        """Renew `grant` in the background no more: it lasts for as long as it does. Idempotent."""
        self._renewer.drop(grant)

    def requeue(self, grant: Grant) -> Release | None:
        """Release `grant`, unless that was done here; where the server is away, later.

        None where nothing was asked, or no answer came.
        """
        self._renewer.drop(grant)
        if grant.was_released:
            return None
        try:
            return self.release(grant)
        except LinkError:
            self._renewer.owe(grant, after_s=AGAIN_S)
            return None

    def give_back_soon(self, grant: Grant) -> None:
        """Have `grant` released in the background, without waiting. Never raises."""
        self._renewer.owe(grant)

    def dismiss(self, holder: str, *, rank: int = MAX_TOKEN) -> str | None:
        """Give back whatever `holder` has, and have it wait no more; return the executor.

        rank: what one of a higher rank has it keeps, see `ask`.
        """
        return self._run("dismiss", check_name("holder", holder), rank) or None

    def take_away(self, executor: str) -> str | None:
        """End whatever grant `executor` is under; return who held it, None for nobody.

        Its holder is told when it next renews; until then its token must be refused by
        whoever does what it asks for.
        """
        return self._run("take_away", check_name("executor", executor)) or None

    def advance(self) -> int:
        """Have the last token be at least the server's time, and return it.

        For whoever has seen a greater one than the server knows of: it came back without its
        last moments. What is held is not touched.
        """
        return int(self._run("advance"))

    def release_signature(self, grant: Grant, *, queue: str | None = None) -> dict[str, Any]:
        """Return a signature that gives `grant` back: for `link` and for `link_error`, both.

        It is run by any worker whose app has pools. queue: where it goes.
        """
        self._check_mine(grant.ticket)
        return {
            "task": RELEASE_TASK,
            "args": [],
            "kwargs": {"grant": grant.as_dict()},
            "options": {} if queue is None else {"queue": queue},
            "subtask_type": None,
            "immutable": True,
        }

    # --- looking at it -----------------------------------------------------------------------

    def stats(self) -> PoolStats:
        """Return what is free and busy, who waits, and all counters."""
        return self._look()

    def reap(self) -> PoolStats:
        """Have everything that is past its time end, and all keys agree, now.

        Nobody needs to: whoever comes next does the first, and the second where it shows.
        """
        return self._look(repair=True)

    def holders(self) -> tuple[Holding, ...]:
        """Return who holds what, as of now."""
        return self.stats().busy

    def who(self, executor: str) -> Holding | None:
        """Return who holds `executor`, None where nobody does."""
        answer = self._run("look", 0, check_name("executor", executor))
        return next(iter(_holdings(answer[2])), None)

    # --- inside ------------------------------------------------------------------------------

    def _wait(self, holder: str, *, wait_s: float, anew: bool) -> Grant | Place:
        """Ask until it is granted or the time is over; rung for, or once a second."""
        until_s = self._clock.now_s() + wait_s
        found = self.ask(holder, place_s=PLACE_S, anew=anew)
        if isinstance(found, Grant):
            return found
        with Wakeup(server=self._server, channel=self._bells + holder) as bell:
            try:
                while (left_s := until_s - self._clock.now_s()) > 0.0:
                    bell.listen()
                    found = self.ask(holder, place_s=PLACE_S, anew=anew)
                    if isinstance(found, Grant):
                        return found
                    bell.wait(min(LOOK_S, left_s))
            except BaseException:
                with contextlib.suppress(LinkError):
                    self.leave(holder)
                raise
        return self.ask(holder, anew=anew)

    def _end(self, grant: Grant) -> Release:
        return grant.end_by(lambda: self._release(grant.ticket))

    def _release(self, ticket: Ticket) -> Release:
        self._check_mine(ticket)
        how, held_by, releases, first_us, last_us = self._run(
            "release", ticket.executor, ticket.token, ticket.holder, uuid.uuid4().hex
        )
        release = Release(
            outcome=Outcome(how),
            ticket=ticket,
            held_by=held_by or None,
            releases=int(releases),
            interval_s=int(first_us) / 1e6,
            is_double=how == Outcome.ALREADY and int(last_us) <= DOUBLE_S * 1e6,
        )
        if release.is_double:
            logger.warning(
                "possible double release of %s: %d releases within %.3f s",
                ticket.executor,
                release.releases,
                release.interval_s,
            )
        elif release.outcome is Outcome.FORGED:
            logger.warning("release refused: %s, token %d", release, ticket.token)
        return release

    def _none_free(self, place: Place, *, wait_s: float) -> NoneFree:
        if not place.executors:
            return NoneFree(f"pool {self.name!r} has no executors ({self.keys.executors} is empty)")
        within = f" within {wait_s:g} s" if wait_s else ""
        held = ", ".join(f"{one.executor} is held by {one.holder}" for one in self.holders())
        waits = f"; {place.before} wait before" if place.before else ""
        return NoneFree(f"pool {self.name!r}: none free{within}: {held or 'just now'}{waits}")

    def _look(self, *, repair: bool = False) -> PoolStats:
        counters, free, busy, waiting = self._run("look", int(repair), "")
        numbers = dict(zip(counters[::2], counters[1::2], strict=True))
        return PoolStats(
            name=self.name,
            free=tuple(free),
            busy=_holdings(busy),
            waiting=tuple(waiting),
            **{name: _count(numbers[name]) for name in COUNTERS & numbers.keys()},
        )

    def _check_mine(self, ticket: Ticket) -> None:
        if ticket.pool != self.name:
            raise LeaseError(f"{ticket.executor} is of pool {ticket.pool!r}, this is {self.name!r}")

    def _run(self, script: str, *args: Any) -> Any:
        return self._server.run(script, self.keys.all(), [self._bells, *args])


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where in the line someone stands: how many are before, of how many executors."""

    before: int
    executors: int


def _holdings(rows: list[list[str]]) -> tuple[Holding, ...]:
    return tuple(
        Holding(
            executor=executor,
            holder=holder,
            token=int(token),
            held_s=int(held_us) / 1e6,
            left_s=max(0.0, int(left_us) / 1e6),
            leaving=leaving == "1",
        )
        for executor, holder, token, held_us, left_us, leaving in rows
    )


def _count(text: str) -> int:
    """Return a counter; 0 for what is none: it begins anew when it next counts."""
    return int(text) if text.isascii() and text.isdecimal() else 0


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _seconds(what: str, value: float, *, least_s: float, most_s: float) -> float:
    """Return `value`. Raises ConfigError naming the limits."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (least_s <= value <= most_s)
    ):
        raise ConfigError(f"{what} {value!r:.30}: must be {least_s:g} to {most_s:g} seconds")
    return float(value)
