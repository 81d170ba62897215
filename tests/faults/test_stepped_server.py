"""The server's own clock steps: a Pi without a battery-backed clock, and then NTP.

The clocks of all but the last test are in lockstep: time passes as the test says, so the leases
are as long as real ones, and nothing waits.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from blimp.clock import SystemClock
from blimp.errors import NoneFree
from blimp.queue import ResourcePool, State, TaskApp, TaskContext
from blimp.queue.brokers.streams import store as store_module
from blimp.queue.brokers.streams.envelope import Claim
from blimp.queue.brokers.streams.store import DONE, Store, StreamsOptions
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.resources import pool_server as pool_module
from blimp.queue.worker import heartbeat as heartbeat_module
from blimp.queue.worker.heartbeat import NameInUse, NameLock
from tests.faults.stepped import SteppedServer, stepped_server
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working

HOUR_S = 3600.0
LEASE_S = 60.0  # in lockstep no holder renews by itself
LOOK_S = LEASE_S / 3


@pytest.fixture(scope="module")
def shared_server() -> Iterator[SteppedServer]:
    with stepped_server() as server:
        yield server


@pytest.fixture
def server(shared_server: SteppedServer) -> SteppedServer:
    shared_server.reset()
    return shared_server


class Consumers:
    """Consumers of one queue, in lockstep with the server's clock."""

    def __init__(self, server: SteppedServer) -> None:
        self.server = server
        self._sessions: dict[str, StreamsSession] = {}

    def __getitem__(self, name: str) -> Store:
        if name not in self._sessions:
            options = StreamsOptions(consumer=name, lease_s=LEASE_S)
            self._sessions[name] = StreamsSession(url=self.server.url, options=options)
        return self._sessions[name].store

    def put(self, count: int, *, due_s: float = 0.0) -> None:
        queue = self["sender"].keys.queue("q")
        due_ms = int((self.server.time_s() + due_s) * 1000) if due_s else 0
        for number in range(count):
            keys = [f"blimp:sender:{number}", queue.later, queue.clock, queue.bell]
            keys += queue.levels
            put = self.server.client.incr("puts")
            args = [put, 60_000, 0, 2, due_ms, f"head {put}", "body", ""]
            assert self["sender"].run("put_many", keys, args) == 1

    def take(self, name: str) -> list[Claim]:
        store = self[name]
        taken = store.take([store.keys.queue("q")], room=100)
        return [claim for claim, _ in taken.deliveries]

    def due_s(self, name: str) -> float | None:
        """Return when the next of the schedule is due, in s from now; it delivers nothing."""
        due_ms = self[name].take([self[name].keys.queue("q")], room=0).next_due_ms
        return None if due_ms is None else due_ms / 1000

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


@pytest.fixture
def consumers(server: SteppedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumers]:
    monkeypatch.setattr(store_module, "monotonic_words", server.words)
    consumers = Consumers(server)
    yield consumers
    consumers.close()


def begin(consumers: Consumers, *, count: int = 6) -> list[Claim]:
    """Return what consumer `a` holds; `b` looks for what it may take."""
    consumers.put(count)
    claims = consumers.take("a")
    assert len(claims) == count
    assert consumers.take("b") == []
    return claims


@pytest.mark.parametrize("step_s", [HOUR_S, LEASE_S + 10.0, 30 * 86_400.0])
def test_a_step_forward_takes_nothing_from_who_lives(
    server: SteppedServer, consumers: Consumers, step_s: float
) -> None:
    held = begin(consumers)
    server.step(step_s)
    assert consumers.take("b") == []
    for _ in range(4):  # longer than a lease
        assert consumers["a"].renew(held) == [DONE] * len(held)
        server.advance(LOOK_S)
        assert consumers.take("b") == []
    server.advance(LOOK_S)
    assert consumers.take("b") == []
    server.advance(LOOK_S + 1.0)
    assert len(consumers.take("b")) == len(held)  # not renewed any more


@pytest.mark.parametrize("step_s", [-10.0, -HOUR_S, -30 * 86_400.0])
def test_after_a_step_back_the_dead_are_found_and_the_living_left(
    server: SteppedServer, consumers: Consumers, step_s: float
) -> None:
    lost = begin(consumers)
    consumers.put(3)
    kept = consumers.take("c")
    consumers.put(1)
    back = consumers.take("c")
    consumers["c"].release(back)
    server.step(step_s)
    taken: list[str] = []
    for _ in range(3):
        assert len(consumers["c"].renew(kept)) == len(kept)
        taken += [claim.id for claim in consumers.take("b")]
        server.advance(LOOK_S)
    assert set(taken) <= {claim.id for claim in back}
    assert consumers["c"].renew(kept) == [DONE] * len(kept)
    server.advance(1.0 + min(-step_s, LEASE_S / 6))  # a short step is waited for
    taken += [claim.id for claim in consumers.take("b")]
    assert sorted(taken) == sorted(claim.id for claim in [*lost, *back])
    assert consumers["c"].renew(kept) == [DONE] * len(kept)


@pytest.mark.parametrize("step_s", [0.0, HOUR_S, -HOUR_S], ids=["no step", "forward", "back"])
def test_a_server_that_stood_still_after_a_step_lets_the_living_renew_first(
    server: SteppedServer, consumers: Consumers, step_s: float
) -> None:
    """As on a loaded machine: the step is seen, and then no process runs for a lease."""
    held = begin(consumers)
    server.step(step_s)
    assert consumers.take("b") == []
    server.advance(LEASE_S + 1.0)
    assert consumers.take("b") == []
    assert consumers["a"].renew(held) == [DONE] * len(held)
    server.advance(LOOK_S)
    assert consumers.take("b") == []


@pytest.mark.parametrize("step_s", [0.0, HOUR_S], ids=["no step", "step"])
def test_who_looks_seldom_is_served_in_the_end(
    server: SteppedServer, consumers: Consumers, step_s: float
) -> None:
    held = begin(consumers)
    server.step(step_s)
    looks = 0
    while not (taken := consumers.take("b")):
        server.advance(2 * LEASE_S)
        looks += 1
    assert len(taken) == len(held)
    assert looks <= 3


@pytest.mark.parametrize("step_s", [10.0, HOUR_S, -10.0, -HOUR_S, -30 * 86_400.0])
def test_a_schedule_keeps_its_time(
    server: SteppedServer, consumers: Consumers, step_s: float
) -> None:
    assert consumers.take("b") == []
    consumers.put(1, due_s=50.0)
    consumers.put(1, due_s=200.0)
    server.step(step_s)
    assert consumers.take("b") == []
    due_s = consumers.due_s("b")
    assert due_s == pytest.approx(50.0, abs=9.0)
    consumers.put(1, due_s=50.0)  # by who reads the clock as it is now
    server.advance(40.0)
    assert consumers.take("b") == []
    server.advance(11.0)
    assert len(consumers.take("b")) == 2
    server.advance(150.0)
    assert len(consumers.take("b")) == 1


def test_what_no_clock_proves_is_due_and_ends_no_lease(
    server: SteppedServer, consumers: Consumers
) -> None:
    held = begin(consumers)
    consumers.put(1, due_s=HOUR_S)
    server.machine = "b" * 32  # the worker's machine was restarted
    server.step(HOUR_S + 1.0)
    assert len(consumers.take("b")) == 1
    assert consumers["a"].renew(held) == [DONE] * len(held)


def test_a_request_long_on_its_way_is_no_step(server: SteppedServer, consumers: Consumers) -> None:
    begin(consumers, count=1)
    consumers.put(1, due_s=100.0)
    for _ in range(20):
        server.step(0.9)  # it was sent 0.9 s before the server ran it
        consumers.take("b")
        server.step(-0.9)
        server.advance(1.0)
        consumers.take("b")
    due_s = consumers.due_s("b")
    assert due_s is not None
    assert 65.0 < due_s < 81.0


def test_a_damaged_clock_starts_again(server: SteppedServer, consumers: Consumers) -> None:
    begin(consumers)
    key = consumers["a"].keys.queue("q").clock
    for field in list(server.client.hkeys(key)):
        server.client.hset(key, field, "x")
        assert consumers.take("b") == []
        server.client.hset(key, field, 2**62)
        assert consumers.take("b") == []
    consumers.put(1)
    assert len(consumers.take("b")) == 1


def scripts_run(server: SteppedServer) -> int:
    return int(server.client.info("commandstats")["cmdstat_evalsha"]["calls"])


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
def test_tasks_in_flight_run_once_under_real_workers(server: SteppedServer, step_s: float) -> None:
    began: list[str] = []
    busy, go = threading.Semaphore(0), threading.Event()
    with TaskApp("tests", broker=server.url, result_backend=server.url) as app:

        @app.task(name="long", bind=True)
        def long(context: TaskContext) -> None:
            began.append(context.id)
            busy.release()
            go.wait(DEADLINE_S)

        app.task(name="short")(lambda: None)
        with (
            working(app, name="a", sync_workers=6, log=Silence()) as first,
            working(app, name="b", sync_workers=6, log=Silence()) as second,
        ):
            handles = [app.send_task("long") for _ in range(6)]
            for _ in handles:
                assert busy.acquire(timeout=DEADLINE_S)
            handles.append(app.send_task("short", countdown=1.0))
            server.step(step_s)
            until = scripts_run(server) + 18  # five a second: looks and renewals of both
            wait_until(lambda: scripts_run(server) >= until, "nobody looks")
            go.set()
            handles.append(app.send_task("short"))
            assert {one.wait(2 * DEADLINE_S).state for one in handles} == {State.SUCCESS}
            assert first.counts["leases_lost"] == second.counts["leases_lost"] == 0
    assert len(began) == len(set(began)) == 6


# --- the age of messages -------------------------------------------------------------------------


class PassingClock(SystemClock):
    """A clock on which time passes as a test has it."""

    passed_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.passed_s


@pytest.mark.parametrize("step_s", [10.0, HOUR_S, -4.0, -HOUR_S])
def test_what_is_stale_is_not_fresh_again(server: SteppedServer, step_s: float) -> None:
    """A command waits for 5 s with 2 s to live, and the server's clock steps meanwhile."""
    ran: list[str] = []
    clock = PassingClock()
    with TaskApp("tests", broker=server.url, result_backend=server.url, clock=clock) as app:
        app.task(name="act", bind=True)(lambda context: ran.append(context.id))
        app.broker_clock.now_s()
        stale = app.send_task("act", ttl_s=2.0)
        server.step(5.0 + step_s)
        clock.passed_s += 5.0
        with working(app, log=Silence()):
            assert stale.wait(DEADLINE_S).state is State.EXPIRED
            clock.passed_s += 10.0  # what is sent after the doubt is over
            server.step(10.0)
            fresh = app.send_task("act", ttl_s=30.0)
            assert fresh.wait(DEADLINE_S).state is State.SUCCESS
    assert ran == [fresh.id]


# --- names of workers -----------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [HOUR_S, 10.0, -HOUR_S])
def test_a_name_has_one_worker_and_a_dead_one_leaves_it(
    server: SteppedServer, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    monkeypatch.setattr(heartbeat_module, "monotonic_words", server.words)
    monkeypatch.setattr(heartbeat_module, "LEASE_MS", 60_000)
    monkeypatch.setattr(heartbeat_module, "_lives", lambda _: None)  # on two machines
    with TaskApp("tests", broker=server.url) as app:
        first, second = (NameLock(app=app, worker="w") for _ in range(2))
        first.take()
        server.step(step_s)
        with pytest.raises(NameInUse):
            second.take()
        if step_s > 0.0:  # else its key would stay for as long again
            first.take()
        server.advance(40.0)
        with pytest.raises(NameInUse):
            second.take()
        server.advance(21.0)
        second.take()
        first.leave()  # not its own any more
        with pytest.raises(NameInUse):
            first.take()
        second.leave()
        first.take()


# --- resource pools ------------------------------------------------------------------------------

TTL_S = 300.0


@pytest.fixture
def pool(server: SteppedServer, monkeypatch: pytest.MonkeyPatch) -> ResourcePool:
    monkeypatch.setattr(pool_module, "monotonic_words", server.words)
    pool = ResourcePool(server.client, "ships", ttl_s=TTL_S)
    pool.add("twin")
    return pool


@pytest.mark.parametrize("step_s", [10.0, HOUR_S, 30 * 86_400.0, -10.0, -HOUR_S])
def test_a_pool_has_one_holder_whatever_its_server_believes(
    server: SteppedServer, pool: ResourcePool, step_s: float
) -> None:
    first = pool.acquire("alice")
    for _ in range(3):
        server.step(step_s)
        server.advance(5.0)
        with pytest.raises(NoneFree, match="alice"):
            pool.acquire("bob")
    assert pool.renew(first)
    server.advance(TTL_S - 60.0)
    with pytest.raises(NoneFree, match="alice"):
        pool.acquire("bob")
    server.advance(61.0)
    assert pool.acquire("bob").token > first.token


def test_a_grant_that_nobody_asked_about_for_long_ends_in_time(
    server: SteppedServer, pool: ResourcePool
) -> None:
    pool.acquire("alice")
    server.advance(TTL_S + 1.0)  # of which this machine's clock knows
    assert pool.acquire("bob").holder == "bob"


def test_a_machine_that_knows_no_time_waits_for_its_own(
    server: SteppedServer, pool: ResourcePool
) -> None:
    pool.acquire("alice")
    server.machine = "b" * 32
    server.step(HOUR_S)
    with pytest.raises(NoneFree, match="alice"):
        pool.acquire("bob")
    server.advance(TTL_S)
    assert pool.acquire("bob").holder == "bob"


@pytest.mark.parametrize("forged", [2**53 - 1, 2**53, 2**60])
def test_a_token_of_a_time_to_come_locks_nobody_out(
    server: SteppedServer, pool: ResourcePool, forged: int
) -> None:
    first = pool.acquire("alice")
    pool.release(first)
    server.client.hset(pool.keys.counts, "token", forged)
    second = pool.acquire("alice")
    assert first.token < second.token < first.token + HOUR_S * 1e6
    stored = json.loads(server.client.hget(pool.keys.resources, "twin"))
    stored["token"] = str(min(forged, 2**53 - 1))
    server.client.hset(pool.keys.resources, "twin", json.dumps(stored))
    server.client.zadd(pool.keys.due, {"twin": 2**52})
    third = pool.acquire("bob")
    assert second.token < third.token < first.token + HOUR_S * 1e6
