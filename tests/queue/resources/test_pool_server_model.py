"""The scripts against a model: whatever is asked in whatever order, nothing is lost or doubled.

Time is the pool's: the server's, and what a test has it add to that.
"""

from typing import Any

import hypothesis.strategies as st
import redis
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from blimp.queue.resources import Grant, ResourcePool, Ticket
from blimp.queue.resources.pool_server import COUNTERS
from tests.queue.models import compare
from tests.queue.resources.conftest import pass_time
from tests.queue.resources.pool_model import PLACE_S, TTL_S, PoolModel

any_resource = st.sampled_from(["a", "b", "c"])
any_holder = st.sampled_from(["p", "q", "r", "s"])


class Pool(RuleBasedStateMachine):
    """Every rule does one thing to the server and to the model, and compares the answers."""

    client: Any = None

    grants = Bundle("grants")  # every grant ever made; most of them have ended

    @initialize()
    def begin(self) -> None:
        self.client.flushall()
        self.pool = ResourcePool(self.client, "ships", ttl_s=TTL_S)
        self.model = PoolModel()
        for name in ("a", "b"):
            self.add(name)
        self.newest = self.pool.stats().token

    # --- who belongs -------------------------------------------------------------------------

    def add(self, name: str) -> None:
        assert self.pool.add(name) is self.model.add(name)

    @rule(name=any_resource)
    def adds(self, name: str) -> None:
        self.add(name)

    @rule(name=any_resource, now=st.booleans())
    def remove(self, name: str, now: bool) -> None:
        assert self.pool.remove(name, now=now) is self.model.remove(name, now=now)

    @rule(name=any_resource)
    def take_away(self, name: str) -> None:
        assert self.pool.take_away(name) == self.model.take_away(name)

    # --- who has what ------------------------------------------------------------------------

    @rule(target=grants, holder=any_holder, waits=st.booleans(), new_token=st.booleans())
    def ask(self, holder: str, waits: bool, new_token: bool) -> Any:
        place_s = PLACE_S if waits else 0.0
        found = self.pool.ask(holder, place_s=place_s, new_token=new_token)
        expected = self.model.ask(holder, place_s=place_s, new_token=new_token)
        if isinstance(expected, int):
            assert not isinstance(found, Grant)
            assert found.before == expected
            assert found.resources == len(self.model.free) + len(self.model.busy)
            return multiple()
        assert isinstance(found, Grant)
        name, token = expected
        assert found.resource == name
        if token is None:
            assert found.token > self.newest, "a token that does not grow"
            self.newest = self.model.busy[name].token = found.token
        else:
            assert found.token == token
        return found.ticket

    @rule(holder=any_holder)
    def leave(self, holder: str) -> None:
        self.pool.leave(holder)
        self.model.heal()
        self.model.leave_line(holder)

    @rule(ticket=grants)
    def renew(self, ticket: Ticket) -> None:
        grant = Grant(ticket=ticket, ttl_s=TTL_S, asked_s=0.0, clock=self.pool._clock)
        expected = self.model.renew(ticket.resource, ticket.token, ticket.holder)
        assert self.pool.renew(grant) is expected
        assert grant.lost.is_set() is not expected

    @rule(ticket=grants)
    def release(self, ticket: Ticket) -> None:
        self.compare_release(ticket)

    @rule(
        ticket=grants,
        name=any_resource,
        holder=any_holder,
        step=st.sampled_from([-1, 0, 0, 1, 10**9]),
    )
    def forge(self, ticket: Ticket, name: str, holder: str, step: int) -> None:
        token = ticket.token + step
        self.compare_release(Ticket(pool="ships", resource=name, token=token, holder=holder))

    def compare_release(self, ticket: Ticket) -> None:
        found = self.pool.release(ticket)
        assert found.outcome == self.model.release(ticket.resource, ticket.token, ticket.holder)
        held = self.model.busy.get(ticket.resource)
        assert found.held_by == (None if held is None else held.holder)

    @rule(holder=any_holder)
    def dismiss(self, holder: str) -> None:
        assert self.pool.dismiss(holder) == self.model.dismiss(holder)

    @rule()
    def advance(self) -> None:
        newest = self.pool.advance()
        assert newest >= self.newest
        self.newest = newest
        self.model.heal()

    # --- time --------------------------------------------------------------------------------

    @rule(thousands=st.sampled_from([3, 6, 36, 102]))
    def time_passes(self, thousands: int) -> None:
        """Never to a moment at which something ends: the server's own time goes on too."""
        pass_time(self.client, "ships", thousands * 1000.0)
        self.model.now_s += thousands * 1000.0

    @rule()
    def the_servers_clock_goes_back(self) -> None:
        self.look()
        pass_time(self.client, "ships", -50_000.0)
        self.look()

    # --- what holds always -------------------------------------------------------------------

    @invariant()
    def look(self) -> None:
        stats, model = self.pool.stats(), self.model
        model.heal()
        assert stats.free == model.free_in_order()
        assert {one.resource: (one.holder, one.token, one.leaving) for one in stats.busy} == {
            name: (held.holder, held.token, held.leaving) for name, held in model.busy.items()
        }
        assert stats.waiting == tuple(model.waiting)
        assert stats.token == self.newest
        counters = COUNTERS - {"token"}
        assert {name: getattr(stats, name) for name in counters} == {
            name: model.counts[name] for name in counters
        }


def test_the_scripts_do_as_the_model(server: redis.Redis) -> None:
    machine = type("PoolOnServer", (Pool,), {"client": server})
    compare(machine, examples=25)
