"""The scripts against a model: whatever happens in whatever order, nothing is lost or doubled.

Time is the server's, which a test cannot move: a holder that dies has its entries made old
(XCLAIM … IDLE) instead, which is all that the scripts see of time.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from blimp.tasks.transport.holder import Holder
from blimp.tasks.transport.keys import GROUP, NOBODY
from blimp.tasks.transport.store import DONE, LOST, SETTLED, Claim
from tests.broker import EmbeddedBroker
from tests.tasks.transport.conftest import streams_url

NAMES = ("a", "b")
LEASE_S = 1_000.0  # nothing expires by itself
MOST = 4


class Message:
    """What the model knows of one message."""

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.state = "ready"  # held, returned, done, dead
        self.holder: str | None = None
        self.count = 0
        self.expired = False


class Queue(RuleBasedStateMachine):
    """deliver, renew, complete, put back, reject, expire, steal, restart, revive a zombie."""

    url = ""

    deliveries = Bundle("deliveries")  # every claim ever made; the old ones are zombies'

    @initialize()
    def begin(self) -> None:
        self.holders = {
            name: Holder(
                url=self.url,
                options={"consumer": name, "lease_s": LEASE_S, "max_deliveries": MOST},
            )
            for name in NAMES
        }
        self.any = self.holders["a"]
        self.any.link.client.flushall()
        self.keys = self.any.keys.queue("q")
        self.any.store.make_group(self.keys)
        self.messages: dict[str, Message] = {}  # by entry id and lane
        self.sent = 0

    def teardown(self) -> None:
        for holder in getattr(self, "holders", {}).values():
            holder.close()

    def of(self, claim: Claim) -> Message:
        return self.messages[f"{claim.lane} {claim.id}"]

    def expect(self, name: str, claim: Claim) -> int:
        """Return how the scripts must answer `name` about `claim`."""
        message = self.of(claim)
        if message.state in ("done", "dead"):
            return SETTLED
        if message.state == "held" and (message.holder, message.count) == (name, claim.fence):
            return DONE
        return LOST

    @rule(lane=st.integers(1, 2))
    def publish(self, lane: int) -> None:
        client: Any = self.any.link.client
        id = client.xadd(self.keys.lanes[lane], {"h": str(self.sent), "b": ""}).decode()
        self.messages[f"{lane} {id}"] = Message(lane)
        self.sent += 1

    @rule(target=deliveries, name=st.sampled_from(NAMES), room=st.integers(1, 3))
    def deliver(self, name: str, room: int) -> Any:
        expected, dying, left = [], [], room
        for lane in range(4):
            ours = sorted(
                ((key, one) for key, one in self.messages.items() if one.lane == lane),
                key=lambda pair: [int(part) for part in pair[0].split()[1].split("-")],
            )
            free = [
                (key, one)
                for key, one in ours
                if one.state == "returned"
                or (one.state == "held" and one.expired and one.holder != name)
            ]
            for key, one in free + [(key, one) for key, one in ours if one.state == "ready"]:
                if left == 0:
                    break
                if one.count >= MOST:
                    dying.append(one)
                    continue
                expected.append((key, one.count + 1))
                left -= 1
        taken = self.holders[name].store.take([self.keys], room=room)
        claims = [claim for claim, _ in taken.deliveries]
        assert [(f"{one.lane} {one.id}", one.fence) for one in claims] == expected
        for one in dying:
            one.state = "dead"
        for claim in claims:
            message = self.of(claim)
            message.state, message.holder, message.count = "held", name, claim.fence
            message.expired = False
        return multiple(*((name, claim) for claim in claims))

    @rule(delivery=deliveries)
    def renew(self, delivery: tuple[str, Claim]) -> None:
        name, claim = delivery
        expected = self.expect(name, claim)
        assert self.holders[name].store.renew([claim]) == [expected]
        if expected == DONE:
            self.of(claim).expired = False

    @rule(delivery=deliveries)
    def complete(self, delivery: tuple[str, Claim]) -> None:
        name, claim = delivery
        expected = self.expect(name, claim)
        assert self.holders[name].store.ack([claim]) == [expected]
        if expected == DONE:
            self.of(claim).state = "done"

    @rule(delivery=deliveries)
    def put_back(self, delivery: tuple[str, Claim]) -> None:
        name, claim = delivery
        expected = self.expect(name, claim)
        assert self.holders[name].store.release([claim]) == [expected]
        if expected == DONE:
            self.of(claim).state = "returned"

    @rule(delivery=consumes(deliveries))
    def put_back_unseen(self, delivery: tuple[str, Claim]) -> None:
        """Not by a zombie: who puts back unseen forgets the delivery."""
        name, claim = delivery
        expected = self.expect(name, claim)
        assert self.holders[name].store.release([claim], seen=False) == [expected]
        if expected == DONE:
            self.of(claim).state = "returned"
            self.of(claim).count -= 1

    @rule(delivery=deliveries)
    def reject(self, delivery: tuple[str, Claim]) -> None:
        name, claim = delivery
        expected = self.expect(name, claim)
        assert self.holders[name].store.bury(claim, "rejected") == expected
        if expected == DONE:
            self.of(claim).state = "dead"

    @rule(delivery=deliveries)
    def expire(self, delivery: tuple[str, Claim]) -> None:
        """Its holder stood still for longer than the lease."""
        name, claim = delivery
        if self.expect(name, claim) != DONE:
            return
        client: Any = self.any.link.client
        client.xclaim(
            claim.stream, GROUP, name, 0, [claim.id], idle=int(LEASE_S * 2000), justid=True
        )
        self.of(claim).expired = True

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def restart(self, name: str, data: st.DataObject) -> None:
        """The name begins again, knowing of some of what it holds."""
        held = [
            (key, one)
            for key, one in self.messages.items()
            if one.state == "held" and one.holder == name
        ]
        known = data.draw(st.sets(st.sampled_from([key for key, _ in held]))) if held else set()
        claims = [
            self.any.store.claim(self.keys, int(lane), id, 1)
            for lane, id in (key.split() for key in known)
        ]
        back = self.holders[name].store.begin([self.keys], known=claims)
        assert back == len(held) - len(known)
        for key, one in held:
            if key not in known:
                one.state, one.holder = "returned", None

    @invariant()
    def the_server_agrees(self) -> None:
        if not hasattr(self, "keys"):
            return
        states = [one.state for one in self.messages.values()]
        counts = self.any.store.counts(self.keys)
        assert counts.in_flight == states.count("held")
        assert counts.ready == states.count("ready") + states.count("returned")
        assert counts.dead == states.count("dead")
        client: Any = self.any.link.client
        for lane, stream in enumerate(self.keys.lanes):
            there = {f"{lane} {id.decode()}" for id, _ in client.xrange(stream)}
            alive = {
                key
                for key, one in self.messages.items()
                if one.lane == lane and one.state not in ("done", "dead")
            }
            assert there == alive
            for one in client.xpending_range(stream, GROUP, "-", "+", 100):
                message = self.messages[f"{lane} {one['message_id'].decode()}"]
                holder = NOBODY if message.state == "returned" else message.holder
                assert (one["consumer"].decode(), one["times_delivered"]) == (
                    holder,
                    message.count,
                )


def test_the_scripts_do_what_the_model_says() -> None:
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))
    try:
        with EmbeddedBroker(directory=directory / "b") as broker:
            machine = type("QueueOnServer", (Queue,), {"url": streams_url(broker)})
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=int(os.environ.get("MODEL_EXAMPLES", "100")),
                    stateful_step_count=40,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
