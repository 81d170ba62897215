"""The scripts against a model: whatever happens in whatever order, nothing is lost or doubled.

Time is the server's, which a test cannot move. Instead it moves what the scripts compare with
it: a holder that stands still has its entries made idle (XCLAIM … IDLE), and what is scheduled
hours ahead is taken by a consumer that may have it so many hours early.
"""

from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from blimp.queue.brokers.streams.envelope import Claim, Envelope, Stamp
from blimp.queue.brokers.streams.store import DONE, StreamsOptions
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.redis.keys import GROUP, LEVELS, NOBODY
from tests.broker import EmbeddedBroker
from tests.queue.brokers.streams.completions import complete
from tests.queue.brokers.streams.queue_model import MOST, Message, QueueModel
from tests.queue.celery.kombu_transport.conftest import envelope, streams_url
from tests.queue.models import compare

HOLDERS = {"a": "a", "b": "b", "a's namesake": "a"}  # and the consumer name of each
LEASE_S = 1_000.0  # nothing expires by itself
HOUR_MS = 3_600_000

Delivery = tuple[str, Claim, int, int]  # holder, its claim, number and life of the message
any_holder = st.sampled_from(list(HOLDERS))
any_level = st.integers(0, 2)  # the first, emergencies, is not paused
any_tenant = st.sampled_from(("", "a", "b", "c"))


class Queue(RuleBasedStateMachine):
    """Every rule does one thing to the server and to the model, and compares the answers."""

    url = ""

    deliveries = Bundle("deliveries")  # every claim ever made; the old ones are zombies'

    @initialize()
    def begin(self) -> None:
        self.holders = {
            label: StreamsSession(
                url=self.url,
                options=StreamsOptions(consumer=name, lease_s=LEASE_S, max_deliveries=MOST),
            )
            for label, name in HOLDERS.items()
        }
        self.any = self.holders["a"]
        self.client: Any = self.any.link.client
        self.client.flushall()
        self.keys = self.any.keys.queue("q")
        for session in self.holders.values():
            assert session.store.begin([self.keys], known=()) == 0
        self.now_ms = self.client.time()[0] * 1000
        self.model = QueueModel()
        self.sent = 0
        self.results: set[str] = set()
        for level in (1, 2):
            for tenant in ("", "a", "b"):
                self.put(level=level, count=2, due=None, repeated=1, tenant=tenant)

    def teardown(self) -> None:
        for session in getattr(self, "holders", {}).values():
            session.close()

    # --- into the queue ----------------------------------------------------------------------

    @rule(
        level=any_level,
        count=st.integers(1, 4),
        due=st.none() | st.integers(1, 3),
        is_stale=st.sampled_from((False, False, False, True)),
        repeated=st.integers(1, 2),
        tenant=any_tenant,
    )
    def publish(self, *, is_stale: bool, tenant: str, **options: Any) -> None:
        self.put(is_stale=is_stale and not tenant, tenant=tenant, **options)

    def put(
        self,
        *,
        level: int,
        count: int,
        due: int | None,
        repeated: int,
        tenant: str,
        is_stale: bool = False,
    ) -> None:
        """`repeated`: the answer was lost, and it is published again."""
        store, numbers = self.any.store, range(self.sent, self.sent + count)
        puts = [
            envelope(
                level=level,
                head=str(number).encode(),
                due_ms=self.due_ms(due, number),
                ttl_ms=0 if is_stale else None,
                tenant=tenant,
            )
            for number in numbers
        ]
        if tenant:
            stamp = Stamp(self.any.keys.sender("many"), self.sent + 1, 60_000)
            for _ in range(repeated):
                store.put_many(["q"] * count, puts, stamp=stamp)
        for number, what in zip(numbers, puts, strict=True):
            stamp = Stamp(self.any.keys.sender("s"), number + 1, 60_000)
            for _ in range(0 if tenant else repeated):
                assert store.publish([(self.keys, False)], what, stamp=stamp) == []
            self.model.put(number, level, is_stale=is_stale, due=due, tenant=tenant)
        self.sent += count

    def due_ms(self, due: int | None, number: int) -> int:
        """No two at once: of those the server's order is by their bytes."""
        return 0 if due is None else self.now_ms + due * HOUR_MS + number

    # --- out of it ---------------------------------------------------------------------------

    @precondition(lambda self: self.model.scheduled() or any(self.model.levels))
    @rule(target=deliveries, label=any_holder, room=st.integers(1, 3), early=st.integers(0, 2))
    def deliver(self, label: str, room: int, early: int) -> Any:
        early_ms = early * HOUR_MS + HOUR_MS // 2 if early else 0
        taken = self.holders[label].store.take([self.keys], room=room, early_ms=early_ms)
        dead = len(self.model.dead)
        expected = self.model.deliver(HOLDERS[label], room, early=early)
        numbers = [int(fields[1]) for _, fields in taken.deliveries]
        claims = [claim for claim, _ in taken.deliveries]
        assert list(zip(numbers, (one.fence for one in claims), strict=True)) == expected
        died = [one.reason for one in self.model.dead[dead:]]
        assert taken.expired == died.count("expired")
        assert (taken.next_due_ms is not None) == bool(self.model.scheduled())
        lives = [self.model.messages[number].life for number in numbers]
        return multiple(*zip([label] * len(claims), claims, numbers, lives, strict=True))

    # --- the end of deliveries ---------------------------------------------------------------

    def judged(self, delivery: Delivery) -> tuple[Any, Claim, Message, int]:
        """Return the store, the claim, its message, and the answer that is right."""
        label, claim, number, life = delivery
        answer = self.model.answer(HOLDERS[label], number, claim.fence, life)
        return self.holders[label].store, claim, self.model.messages[number], answer

    def entry_of(self, number: int) -> str | None:
        level = self.keys.levels[self.model.messages[number].level]
        for id, fields in self.client.xrange(level):
            if int(fields[b"h"]) == number:
                return str(id.decode())
        return None

    @rule(delivery=deliveries)
    def renew(self, delivery: Delivery) -> None:
        store, claim, message, answer = self.judged(delivery)
        assert store.renew([claim]) == [answer]
        if answer == DONE:
            message.is_idle = False

    @rule(delivery=deliveries)
    def complete(self, delivery: Delivery) -> None:
        store, claim, message, answer = self.judged(delivery)
        assert store.ack([claim]) == [answer]
        if answer == DONE:
            self.model.finish(message)

    @rule(delivery=deliveries, level=any_level, due=st.none() | st.just(2), tenant=any_tenant)
    def complete_with_what_follows(
        self, delivery: Delivery, level: int, due: int | None, tenant: str
    ) -> None:
        """Result, next message and acknowledgement in one step, or none of them."""
        store, claim, message, answer = self.judged(delivery)
        number, key = self.sent, f"celery-task-meta-{claim.tag}"
        put = Envelope(
            level=level,
            due_ms=self.due_ms(due, number),
            head=str(number).encode(),
            body=b"",
            tenant=tenant,
        )
        record = b'{"status":"SUCCESS"}'
        end = {
            "claim": claim,
            "result": key,
            "record": record,
            "keep_s": 60,
            "puts": ((self.keys, put),),
        }
        assert complete(store, end) == [answer]
        if answer == DONE:
            self.sent += 1
            self.results.add(key)
            self.model.finish(message)
            self.model.put(number, level, is_stale=False, due=due, tenant=tenant)

    @rule(delivery=deliveries)
    def put_back(self, delivery: Delivery) -> None:
        store, claim, message, answer = self.judged(delivery)
        assert store.release([claim]) == [answer]
        if answer == DONE:
            message.requeue()

    @rule(delivery=consumes(deliveries))
    def put_back_unseen(self, delivery: Delivery) -> None:
        """Not by a zombie: who puts back unseen forgets the delivery."""
        store, claim, message, answer = self.judged(delivery)
        assert store.release([claim], seen=False) == [answer]
        if answer == DONE:
            message.requeue(seen=False)

    @rule(delivery=deliveries)
    def reject(self, delivery: Delivery) -> None:
        store, claim, message, answer = self.judged(delivery)
        assert store.dead_letter(claim, "rejected") == answer
        if answer == DONE:
            self.model.dead_letter(message, "rejected")

    # --- what goes wrong ---------------------------------------------------------------------

    @precondition(lambda self: any(one.session for one in self.model.messages.values()))
    @rule(label=any_holder)
    def stand_still(self, label: str) -> None:
        """A holder renewed nothing for longer than the lease."""
        name = HOLDERS[label]
        for level in self.keys.levels:
            ids = [
                one["message_id"]
                for one in self.client.xpending_range(level, GROUP, "-", "+", 1000, name)
            ]
            if ids:
                idle_ms = int(LEASE_S * 2000)
                self.client.xclaim(level, GROUP, name, 0, ids, idle=idle_ms, justid=True)
        for message in self.model.messages.values():
            message.is_idle |= message.session == name

    @rule(label=any_holder, data=st.data())
    def begin_again(self, label: str, data: st.DataObject) -> None:
        """A holder, or its namesake, begins to consume, knowing of some of what is its name's."""
        name = HOLDERS[label]
        held = [one for one in self.model.messages.values() if one.session == name]
        numbers = [one.number for one in held]
        known = data.draw(st.sets(st.sampled_from(numbers))) if held else set()
        store = self.holders[label].store
        claims = [
            store.claim(self.keys, one.level, str(self.entry_of(one.number)), one.count)
            for one in held
            if one.number in known
        ]
        assert store.begin([self.keys], known=claims) == len(held) - len(known)
        for one in held:
            if one.number not in known:
                one.requeue()

    # --- by hand -----------------------------------------------------------------------------

    @precondition(lambda self: self.model.dead)
    @rule(data=st.data())
    def requeue_dead(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model.dead) - 1))
        id = self.client.xrange(self.keys.dead)[place][0].decode()
        assert self.any.store.requeue_dead(self.keys, id)
        assert not self.any.store.requeue_dead(self.keys, id)
        self.model.requeue(self.model.dead[place])

    @rule(resume=st.booleans())
    def pause(self, resume: bool) -> None:
        is_new = self.model.is_paused == resume
        assert self.any.store.pause(self.keys, resume=resume) == is_new
        self.model.is_paused = not resume

    @precondition(lambda self: len(self.model.messages) > 20)
    @rule()
    def purge(self) -> None:
        assert self.any.store.purge(self.keys) == self.model.purge()

    # --- and always --------------------------------------------------------------------------

    @invariant()
    def the_server_agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        pipe = self.client.pipeline(transaction=False)
        for level in self.keys.levels:
            pipe.xrange(level)
            pipe.xpending_range(level, GROUP, "-", "+", 1000)
        pipe.xrange(self.keys.dead)
        pipe.zcard(self.keys.later)
        pipe.zrange(self.keys.turns, 0, -1)
        pipe.hgetall(self.keys.messages)
        pipe.exists(self.keys.tenants)
        pipe.keys("celery-task-meta-*")
        *levels, dead, scheduled, turns, messages, has_tenants, results = pipe.execute()
        assert bool(has_tenants) == bool(turns)  # a tenant with nothing that waits is forgotten
        assert messages.keys() == set(turns)
        waiting = [msgspec.msgpack.decode(messages[place]) for place in turns]
        for number in range(LEVELS):
            here = [int(fields[1]) for level, fields in waiting if level == number]
            assert here == [one.number for one in self.model.turns(number)]
        for number in range(LEVELS):
            self.level_agrees(number, entries=levels[2 * number], pending=levels[2 * number + 1])
        assert [
            (int(fields[b"h"]), fields[b"reason"].decode().partition(":")[0]) for _, fields in dead
        ] == [(one.number, one.reason) for one in self.model.dead]
        assert [int(fields[b"deliveries"]) for _, fields in dead] == [
            one.count for one in self.model.dead
        ]
        assert scheduled == len(self.model.scheduled())
        assert {key.decode() for key in results} == self.results
        states = [one.state for one in self.model.messages.values()]
        counts = self.any.store.counts(self.keys)
        assert (counts.in_flight, counts.dead) == (states.count("held"), states.count("dead"))
        ready = states.count("ready") + states.count("returned") + states.count("turn")
        assert counts.ready == ready
        assert counts.scheduled == states.count("scheduled")
        assert counts.paused == self.model.is_paused

    def level_agrees(self, level: int, *, entries: Any, pending: Any) -> None:
        number_of = {id: int(fields[b"h"]) for id, fields in entries}
        assert list(number_of.values()) == [one.number for one in self.model.levels[level]]
        there = {
            number_of[one["message_id"]]: (
                one["consumer"].decode(),
                one["times_delivered"],
                one["time_since_delivered"] >= LEASE_S * 1000,
            )
            for one in pending
        }
        assert there == {
            one.number: (one.session or NOBODY, one.count, one.is_idle or one.session is None)
            for one in self.model.levels[level]
            if one.state in ("held", "returned")
        }


def test_the_scripts_do_what_the_model_says(own_broker: EmbeddedBroker) -> None:
    machine = type("QueueOnServer", (Queue,), {"url": streams_url(own_broker)})
    compare(machine, examples=50)
