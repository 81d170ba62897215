"""Resources that are acquired, held for a while, and always come back; and an app's pools."""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blimp.clock import Clock, SystemClock
from blimp.errors import ConfigError, LeaseError, LeaseLost, LinkError, NoneFree
from blimp.queue.redis.keys import digest_of, pool_channels, pool_keys
from blimp.queue.resources.grant import (
    AGAIN_S,
    MAX_TOKEN,
    Grant,
    Release,
    ReleaseOutcome,
    Renewer,
    Ticket,
    check_name,
)
from blimp.queue.resources.pool_server import (
    Holding,
    Place,
    PoolServer,
    PoolStats,
    Wakeup,
    read_holdings,
    read_stats,
)

if TYPE_CHECKING:
    from redis import Redis

    from blimp.queue.redis.client import RedisServer

MAX_TTL_S = MAX_WAIT_S = 30 * 86_400.0
MIN_TTL_S = 0.01
DEFAULT_TTL_S = 600.0
PLACE_S = 3.0  # a waiting holder's place lasts so long after it last asked: it may be dead
LOOK_S = 1.0  # how often a waiting holder asks, should its wake-up be lost; renews its place
LIMIT_KEEP_S = 86_400
MOST_LIMITS = 1000  # whose objects a worker keeps
DOUBLE_S = 1.0  # two releases within it are a sign that link and link_error both fire

RELEASE_TASK = "blimp.release"

logger = logging.getLogger(__name__)


class ResourcePool:
    """The resources of one name on a server: each is free, or held by exactly one holder.

    client: a redis-py client, or a TaskApp's `broker_link`. ttl_s: how long a grant lasts
    unless it is renewed; then the resource returns by itself. The server's clock decides.
    size: of a pool that is only a limit: it has so many resources, "1" and on, without `add`, and
    is forgotten a day after its last use.
    A holder is a name: two programs with one name are one holder. It has one resource of a pool
    at most.

    Thread-safe. Every method raises LinkError if the server does not answer, and LeaseError if
    a key of the pool is not the pool's.
    """

    def __init__(
        self,
        client: Redis | RedisServer,
        name: str,
        ttl_s: float = DEFAULT_TTL_S,
        *,
        clock: Clock | None = None,
        size: int = 0,
    ) -> None:
        self.name = check_pool(name)
        self._size = size
        self.ttl_s = _seconds("ttl_s", ttl_s, least_s=MIN_TTL_S, most_s=MAX_TTL_S)
        self.keys = pool_keys(name)
        self._channels = pool_channels(name)
        self._server = PoolServer(client)
        self._clock = clock or SystemClock()
        self._renewer = Renewer(renew=self.renew, release=self._end, clock=self._clock)

    def add(self, resource: str) -> bool:
        """Add `resource` to the pool; False if it was there. Harmless to repeat."""
        return bool(self._run("add", check_name("resource", resource)))

    def remove(self, resource: str, *, now: bool = False) -> bool:
        """Remove `resource` from the pool; return whether it is gone.

        A busy one leaves when it is released; with `now` it is taken from its holder.
        """
        return bool(self._run("remove", check_name("resource", resource), int(now)) != "leaving")

    def acquire(self, holder: str, wait_s: float = 0.0, *, new_token: bool = False) -> Grant:
        """Return a grant of a resource to `holder`: first come, first served.

        Asked again by the same holder it is the same grant, renewed. new_token: then it gets a
        new token, and the old one is refused: for a holder that replaces an instance of itself
        that may still run. wait_s: how long to wait. Raises NoneFree naming the holders.
        """
        wait_s = _seconds("wait_s", wait_s, least_s=0.0, most_s=MAX_WAIT_S)
        check_name("holder", holder)
        if wait_s == 0.0:
            found = self.ask(holder, new_token=new_token)
        else:
            found = self._wait(holder, wait_s=wait_s, new_token=new_token)
        if isinstance(found, Grant):
            return found
        raise self._none_free(found, wait_s=wait_s)

    def ask(
        self, holder: str, *, place_s: float = 0.0, new_token: bool = False, rank: int = 0
    ) -> Grant | Place:
        """Return a grant, or the place among those that wait, without waiting.

        place_s: how long the place is kept until `holder` asks again; 0 gives it up.
        rank: orders the requests of one holder, such as the deliveries of a task. A request
        of a lower rank than that of the grant raises LeaseLost.
        """
        asked_s = self._clock.now_s()
        answer = self._acquire(holder, _us(place_s), int(new_token), rank)
        if answer[0] == 2:
            what = f"{answer[1]} of pool {self.name!r}"
            raise LeaseLost(f"{what} is held by a later {holder}: this is number {rank}")
        if not answer[0]:
            return Place(before=int(answer[1]), resources=int(answer[2]))
        ticket = Ticket(pool=self.name, resource=answer[1], token=int(answer[2]), holder=holder)
        return Grant(ticket=ticket, ttl_s=self.ttl_s, asked_s=asked_s, clock=self._clock)

    def leave(self, holder: str) -> None:
        """Give up the place of `holder`. What it holds is not touched."""
        self._acquire(check_name("holder", holder), -1, 0, 0)

    def renew(self, grant: Grant) -> bool:
        """Extend `grant` by its time to live from now; False, and `grant.lost`, if it ended."""
        self._check_mine(grant.ticket)
        asked_s = self._clock.now_s()
        ticket = grant.ticket
        answer = self._run("renew", ticket.resource, ticket.token, ticket.holder, _us(grant.ttl_s))
        if answer[0]:
            grant.renewed(asked_s=asked_s)
            return True
        _, how, held_by = answer
        grant.lose(f"{how}; {held_by} holds it now" if held_by else how)
        return False

    def release(self, grant: Grant | Ticket) -> Release:
        """Release the resource, once; harmless to repeat, from anywhere.

        A resource that is not held by exactly this grant is not touched; the answer says why.
        """
        if isinstance(grant, Ticket):
            return self._release(grant.checked())
        self._renewer.drop(grant)  # if the release fails, it ends with its time to live
        return self._end(grant)

    @contextlib.contextmanager
    def lease(
        self, holder: str, wait_s: float = 0.0, *, new_token: bool = False
    ) -> Iterator[Grant]:
        """Hold a resource for the block: renewed in the background, released at its end.

        It may be lost in between: look at `grant.lost`, or call `grant.check()`. If the server
        is unreachable at the end, it is released later, or ends with its time to live.
        """
        grant = self.acquire(holder, wait_s, new_token=new_token)
        try:
            self.keep(grant)
            yield grant
        finally:
            self.release_or_later(grant)

    def keep(self, grant: Grant) -> None:
        """Renew `grant` in the background until it is released or lost."""
        self._check_mine(grant.ticket)
        self._renewer.keep(grant)

    def let_lapse(self, grant: Grant) -> None:
        """Stop renewing `grant` in the background; it ends with its time. Idempotent."""
        self._renewer.drop(grant)

    def release_or_later(self, grant: Grant) -> Release | None:
        """Release `grant`, unless that was done here; later if the server is unreachable.

        None if nothing was asked, or no answer came.
        """
        self._renewer.drop(grant)
        if grant.was_released:
            return None
        try:
            return self.release(grant)
        except LinkError:
            self._renewer.release(grant, after_s=AGAIN_S)
            return None

    def release_soon(self, grant: Grant) -> None:
        """Release `grant` in the background, without waiting. Never raises."""
        self._renewer.release(grant)

    def dismiss(self, holder: str, *, rank: int = MAX_TOKEN) -> str | None:
        """Release whatever `holder` has, and give up its place; return the resource.

        A grant to a request of a higher rank stays; see `ask`.
        """
        return self._run("dismiss", check_name("holder", holder), rank) or None

    def take_away(self, resource: str) -> str | None:
        """End the grant of `resource`; return who held it, None for nobody.

        Its holder learns of it at its next renewal. Until then what acts on the resource must
        refuse its token.
        """
        return self._run("take_away", check_name("resource", resource)) or None

    def advance(self) -> int:
        """Raise the last token to at least the server's time, and return it.

        For a caller that has seen a greater token than the server knows: the server restarted
        without its last moments. Grants are not touched.
        """
        return int(self._run("advance"))

    def release_signature(self, grant: Grant, *, queue: str | None = None) -> dict[str, Any]:
        """Return a signature that releases `grant`: for `link` and for `link_error`, both.

        Any worker whose app has pools runs it. queue: where it is sent.
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

    def stats(self) -> PoolStats:
        """Return what is free and busy, who waits, and all counters."""
        return read_stats(self.name, self._run("look", 0, ""))

    def reap(self) -> PoolStats:
        """End everything that is past its time, rebuild the pool's indexes; return `stats`.

        Never needed: every operation does the first, and the second if the damage shows.
        """
        return read_stats(self.name, self._run("look", 1, ""))

    def holders(self) -> tuple[Holding, ...]:
        """Return who holds what."""
        return self.stats().busy

    def who(self, resource: str) -> Holding | None:
        """Return who holds `resource`, None if nobody does."""
        answer = self._run("look", 0, check_name("resource", resource))
        return next(iter(read_holdings(answer[2])), None)

    # --- inside ------------------------------------------------------------------------------

    def _wait(self, holder: str, *, wait_s: float, new_token: bool) -> Grant | Place:
        """Ask until it is granted or the time is over: when woken, or once a second."""
        until_s = self._clock.now_s() + wait_s
        found = self.ask(holder, place_s=PLACE_S, new_token=new_token)
        with Wakeup(server=self._server, channel=self._channels + holder) as wakeup:
            try:
                while not isinstance(found, Grant):
                    if (left_s := until_s - self._clock.now_s()) <= 0.0:
                        return self.ask(holder, new_token=new_token)
                    wakeup.listen()
                    found = self.ask(holder, place_s=PLACE_S, new_token=new_token)
                    if isinstance(found, Place):
                        wakeup.wait(min(LOOK_S, left_s))
            except BaseException:
                with contextlib.suppress(LinkError):
                    self.leave(holder)
                raise
        return found

    def _acquire(self, holder: str, place_us: int, new_token: int, rank: int) -> Any:
        words = (holder, _us(self.ttl_s), place_us, new_token, rank, self._size, LIMIT_KEEP_S)
        return self._run("acquire", *words)

    def _end(self, grant: Grant) -> Release:
        return grant.end_by(lambda: self._release(grant.ticket))

    def _release(self, ticket: Ticket) -> Release:
        self._check_mine(ticket)
        outcome, held_by, releases, first_us, last_us = self._run(
            "release", ticket.resource, ticket.token, ticket.holder, uuid.uuid4().hex
        )
        release = Release(
            outcome=ReleaseOutcome(outcome),
            ticket=ticket,
            held_by=held_by or None,
            releases=int(releases),
            interval_s=int(first_us) / 1e6,
            is_double=outcome == ReleaseOutcome.ALREADY and int(last_us) <= DOUBLE_S * 1e6,
        )
        if release.is_double:
            within = f"{release.releases} releases within {release.interval_s:.3f} s"
            logger.warning("possible double release of %s: %s", ticket.resource, within)
        elif release.outcome is ReleaseOutcome.FORGED:
            logger.warning("release refused: %s, token %d", release, ticket.token)
        return release

    def _none_free(self, place: Place, *, wait_s: float) -> NoneFree:
        if not place.resources:
            return NoneFree(f"pool {self.name!r} has no resources ({self.keys.resources} is empty)")
        within = f" within {wait_s:g} s" if wait_s else ""
        held = ", ".join(f"{one.resource} is held by {one.holder}" for one in self.holders())
        waits = f"; {place.before} wait before" if place.before else ""
        return NoneFree(f"pool {self.name!r}: none free{within}: {held or 'just now'}{waits}")

    def _check_mine(self, ticket: Ticket) -> None:
        if ticket.pool != self.name:
            raise LeaseError(f"{ticket.resource} is of pool {ticket.pool!r}, this is {self.name!r}")

    def _run(self, operation: str, *args: Any) -> Any:
        return self._server.run(self.keys.all(), [self._channels, operation, *args])


class Pools:
    """The pools of a TaskApp by name, on its `broker_link`. Thread-safe.

    `app.pools["ships"]` is that pool, declared or not; iteration yields only the names that
    were declared, or that a task requires. An app with one of these has the task
    `blimp.release`, too, which `ResourcePool.release_signature` calls.
    """

    def __init__(self, app: Any) -> None:  # a TaskApp, whose file imports this one
        self._app = app
        self._ttl_s: dict[str, float] = {}
        self._pools: dict[str, ResourcePool] = {}
        self._limits: dict[tuple[str, int], ResourcePool] = {}
        self._lock = threading.Lock()

    def declare(self, name: str, *, ttl_s: float = DEFAULT_TTL_S) -> None:
        """Set how long a grant of pool `name` lasts unless it is renewed.

        Raises ConfigError if the pool is in use with another time to live.
        """
        self.require(name)
        with self._lock:
            used = self._pools.get(name)
            if used is not None and used.ttl_s != ttl_s:
                raise ConfigError(
                    f"pool {name!r} of app {self._app.name!r} is in use with a time to live of "
                    f"{used.ttl_s:g} s: declare it before"
                )
            self._ttl_s[name] = ttl_s

    def require(self, name: str) -> None:
        """Make pool `name` known. Raises ConfigError for what cannot be a name."""
        check_pool(name)
        self.check_granted(f"the resource of {name!r} that it requires")
        with self._lock:
            self._ttl_s.setdefault(name, DEFAULT_TTL_S)
            is_new = RELEASE_TASK not in self._app.tasks
        if is_new:
            retried = {"autoretry_for": (LinkError,), "max_retries": None}
            self._app.task(name=RELEASE_TASK, **retried)(self._release)

    def check_granted(self, what: str) -> None:
        """Raise ConfigError if no middleware of the app grants anything."""
        layers = self._app.middleware  # None: the worker's default
        if layers is not None and not any(getattr(one, "grants", False) for one in layers):
            raise ConfigError(
                f"app {self._app.name!r}: its middleware has no Requires, so that a task would "
                f"run without {what}"
            )

    def limit(self, name: str, size: int) -> ResourcePool:
        """Return the pool that limits how many hold `name` at once; any text is one."""
        digest = digest_of(name)
        with self._lock:
            pool = self._limits.pop((digest, size), None)
            if pool is None:
                link, clock = self._app.broker_link, self._app.clock
                pool = ResourcePool(link, f"limit:{digest}", clock=clock, size=size)
            self._limits[digest, size] = pool  # the newest is the last
            if len(self._limits) > MOST_LIMITS:
                del self._limits[next(iter(self._limits))]
            return pool

    def __getitem__(self, name: str) -> ResourcePool:
        """Raises ConfigError if the app has no Redis server, or `name` cannot be a name."""
        with self._lock:
            if name not in self._pools:
                ttl_s, link = self._ttl_s.get(name, DEFAULT_TTL_S), self._app.broker_link
                self._pools[name] = ResourcePool(link, name, ttl_s, clock=self._app.clock)
            return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._ttl_s))

    def _release(self, *_results: Any, grant: Any) -> str:
        """Release `grant`, once, and return what was found.

        Results that a callback gets first are ignored. Raises LeaseError for what never was a
        grant.
        """
        ticket = Ticket.read(grant)
        found = self[ticket.pool].release(ticket)
        if found.outcome is ReleaseOutcome.FORGED:
            raise LeaseError(str(found))
        return str(found)


def check_pool(name: object) -> str:
    """Return `name`. Raises ConfigError if no pool can have it."""
    text = check_name("pool", name)
    if "{" in text or "}" in text:
        raise ConfigError(f"pool {name!r}: no braces, its keys share a hash tag")
    return text


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _seconds(what: str, value: float, *, least_s: float, most_s: float) -> float:
    """Return `value`. Raises ConfigError naming the limits."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least_s <= value <= most_s:
        raise ConfigError(f"{what} {value!r:.30}: must be {least_s:g} to {most_s:g} seconds")
    return float(value)
