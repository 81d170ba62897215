"""What a stranger on the broker tries who has no key, but reads and writes what is signed.

He records a message and puts it there again, and changes what a worker or a client will read.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from blimp.clock import ManualClock
from blimp.errors import LinkError, Reject, TaskFailed
from blimp.queue import State, TaskApp, TaskContext, chord
from blimp.queue.brokers.streams.store import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.control.broadcast import BroadcastReceiver
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.message import TaskMessage, to_json
from blimp.queue.protocol.record import Record, encode
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.clock import BrokerClock
from blimp.queue.redis.keys import result_key
from blimp.queue.redis.urls import Brokers
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working

KEY = "k" * 16
STREAM = "blimp:queue:tests:level:2"


@pytest.fixture
def ran() -> list[Any]:
    return []


@pytest.fixture
def app(url: str, ran: list[Any]) -> Iterator[TaskApp]:
    with TaskApp("tests", broker=url, result_backend=url, signing_key=KEY) as app:

        @app.task(name="add")
        def add(*numbers: int) -> int:
            ran.append(numbers)
            return sum(numbers)

        yield app


@pytest.fixture
def transport() -> str:
    return "streams"


# --- messages ------------------------------------------------------------------------------------


def record(server: redis.Redis, stream: str = STREAM) -> dict[bytes, bytes]:
    """Return what waits in a stream, as a stranger reads it."""
    entries: Any = server.xrange(stream)
    (entry,) = entries
    fields: dict[bytes, bytes] = entry[1]
    return fields


def test_a_copied_message_does_not_run_and_the_first_keeps_its_result(
    app: TaskApp, server: redis.Redis, ran: list[Any]
) -> None:
    handle = app.tasks["add"].delay(1, 2)
    copy: Any = record(server)
    log = Silence()
    with working(app, log=log) as worker:
        assert handle.get(DEADLINE_S) == 3
        server.xadd(STREAM, copy)
        server.xadd("blimp:queue:tests:level:0", copy)  # in a stream where its entry is the first
        wait_until(lambda: worker.counts["copied"] == 2, "a copy was accepted")
        assert handle.get(DEADLINE_S) == 3
        assert app.tasks["add"].delay(2, 2).get(DEADLINE_S) == 4
    assert ran == [(1, 2), (2, 2)]
    assert "a copy: number 1 of its signer was accepted" in log.events("copied")[0]["reason"]


def test_a_copy_leaves_the_one_that_runs_alone(app: TaskApp, server: redis.Redis) -> None:
    begun, end = threading.Event(), threading.Event()

    @app.task(name="wait")
    def wait() -> str:
        begun.set()
        assert end.wait(DEADLINE_S)
        return "mine"

    handle = wait.delay()
    copy: Any = record(server)
    with working(app, sync_workers=2) as worker:
        assert begun.wait(DEADLINE_S)
        server.xadd(STREAM, copy)
        wait_until(lambda: worker.counts["copied"] == 1, "it was accepted")
        end.set()
        assert handle.get(DEADLINE_S) == "mine"


def test_an_unsigned_message_of_its_id_does_not_hide_the_true_result(
    app: TaskApp, url: str
) -> None:
    """The worker writes a FAILURE for the stranger, and a final result is final."""
    begun, end = threading.Event(), threading.Event()

    @app.task(name="wait")
    def wait() -> str:
        begun.set()
        assert end.wait(DEADLINE_S)
        return "mine"

    with working(app, sync_workers=2) as worker, TaskApp("tests", broker=url) as stranger:
        handle = wait.delay()
        assert begun.wait(DEADLINE_S)
        stranger.publisher.publish(TaskMessage(id=handle.id, task="wait", queue=app.queue))
        wait_until(lambda: worker.counts["not_genuine"] == 1, "it was accepted")
        end.set()
        assert handle.get(DEADLINE_S) == "mine"


def test_what_the_worker_sends_again_itself_is_accepted(app: TaskApp, ran: list[Any]) -> None:
    """Retries, requeued and postponed messages have seals or entries of their own."""

    @app.task(name="again", autoretry_for=(OSError,), retry_backoff=False)
    def again() -> str:
        ran.append("again")
        if ran.count("again") < 3:
            raise OSError
        return "retried"

    @app.task(name="back", bind=True)
    def back(context: TaskContext) -> int:
        if context.fence < 3:
            raise Reject("not yet", requeue=True)
        return context.fence

    with working(app) as worker:
        handles = [again.delay(), back.delay(), app.tasks["add"].apply_async((1,), countdown=0.01)]
        assert [one.get(DEADLINE_S) for one in handles] == ["retried", 3, 1]
        assert worker.counts["copied"] == worker.counts["not_genuine"] == 0


def test_a_restarted_worker_accepts_what_its_predecessor_had(
    app: TaskApp, url: str, server: redis.Redis
) -> None:
    """In one process: the window outlives the worker, as it does when only its link was lost."""
    handle = app.tasks["add"].delay(5)
    server.xgroup_create(STREAM, "workers", "0", mkstream=True)
    server.xreadgroup("workers", "worker", {STREAM: ">"})  # delivered to it, and it was killed
    with working(app) as worker:
        assert handle.get(DEADLINE_S) == 5
        assert worker.counts["copied"] == 0


def test_a_person_may_send_a_dead_letter_again(app: TaskApp) -> None:
    tries: list[int] = []

    @app.task(name="dies")
    def dies() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise Reject("not now")
        return "done"

    with working(app) as worker:
        handle = dies.delay()
        with pytest.raises(TaskFailed, match="not now"):
            handle.get(DEADLINE_S)
        session = StreamsSession(
            url=app.broker.replace("redis+socket", "unix").split("?")[0], options={}
        )
        try:
            letters = DeadLetters(store=session.store, queue="tests")
            wait_until(letters.list, "there is no dead letter")
            (letter,) = letters.list()
            handle.forget()
            assert letters.requeue(letter.id)
        finally:
            session.close()
        assert handle.get(DEADLINE_S) == "done"
        assert worker.counts["copied"] == 0


def test_what_cannot_be_opened_is_of_nobody_and_vouches_for_nothing(
    app: TaskApp, server: redis.Redis, ran: list[Any]
) -> None:
    """It is refused before its signature can be looked at, and may name the seal of another.

    The worker forgot that seal, so that a copy ran again, and signed a failure for any id.
    """
    handle = app.tasks["add"].delay(1, 2)
    copy: Any = record(server)
    head = msgspec.json.decode(copy[b"h"])
    del head["properties"]
    with working(app) as worker:
        assert handle.get(DEADLINE_S) == 3
        server.xadd(STREAM, {"h": to_json(head), "b": b""})
        head["headers"]["id"] = "mine"
        server.xadd(STREAM, {"h": to_json(head), "b": b""})
        wait_until(lambda: worker.counts["not_genuine"] == 2, "it was believed to be genuine")
        server.xadd(STREAM, copy)
        wait_until(lambda: worker.counts["copied"] == 1, "a copy was accepted")
        assert ran == [(1, 2)]
        assert app.result("mine").record.reason == "result of mine: it is not signed"


# --- broadcasts ----------------------------------------------------------------------------------

HOUR_S = 3600.0


def stops_of(app: TaskApp) -> list[str]:
    """Return the ids of the emergency stops that reach the ship from now on."""
    heard: list[str] = []

    @app.on_broadcast("estop")
    def estop(broadcast: Broadcast) -> dict[str, Any]:
        heard.append(broadcast.id)
        return {}

    return heard


def test_a_recorded_emergency_stop_does_nothing_after_a_restart(
    app: TaskApp, url: str, server: redis.Redis
) -> None:
    fanout = "blimp:fanout:tests.emergency"
    heard, log = stops_of(app), Silence()
    with working(app):
        app.broadcast("estop", id="recorded").get(DEADLINE_S)
        entries: Any = server.xrange(fanout)
    copies: Any = [fields for _, fields in entries]
    with TaskApp("tests", broker=url, result_backend=url, signing_key=KEY) as after:
        heard = stops_of(after)
        with working(after, log=log) as worker:
            for copy in copies:
                server.xadd(fanout, copy)
            after.broadcast("estop", id="genuine").get(DEADLINE_S)
            latest: Any = server.xrange(fanout)
            server.xadd(fanout, latest[-1][1])
            after.broadcast("estop", id="again").get(DEADLINE_S)
            wait_until(
                lambda: (
                    worker.counts["copied"] == 1 and worker.counts["not_genuine"] == len(copies)
                ),
                "the copies are not refused",
            )
    assert heard == ["genuine", "again"]
    reasons = [line["reason"] for line in log.events("broadcast unreadable")]
    assert reasons[0] == "it was sent before this worker started"
    assert reasons[-1].startswith("a copy: ")


class Server:
    """A Redis server whose clock is set, as BrokerClock asks it."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.ahead_s = 1e9
        self.questions = 0
        self.is_lost = False
        self.brokers = Brokers("redis://localhost:1/0")

    def ask(self, function: Callable[[Any], Any]) -> Any:
        if self.is_lost:
            raise LinkError("no answer")
        return function(self)

    def time(self) -> tuple[int, int]:
        self.questions += 1
        now_us = round((self._clock.now_s() + self.ahead_s) * 1e6)
        return now_us // 1_000_000, now_us % 1_000_000


class Stopping:
    """A worker's receiver and a ground station on one broker whose clock steps."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(10.0)
        self.server = Server(self.clock)
        self.url = "redis://localhost:1/0"
        self.app = TaskApp("tests", broker=self.url, signing_key=KEY, clock=self.clock)
        self.heard = stops_of(self.app)
        self.log = Silence()
        self.start_ground()
        self.start_worker()

    def broker_clock(self) -> BrokerClock:
        link: Any = self.server
        return BrokerClock(link=link, clock=self.clock)

    def start_ground(self) -> None:
        self.ground, self.ground_clock = Signer(KEY), self.broker_clock()

    def start_worker(self) -> None:
        self.receiver = BroadcastReceiver(
            app=self.app, worker="w", on_revoke=lambda *_: None, log=self.log
        )
        self.receiver._clocks[self.url] = self.broker_clock()
        self.receiver._clocks[self.url].now_s()  # as it does before it subscribes

    def estop(self, id: str) -> bytes:
        """Return an emergency stop as the ground sends it."""
        document: dict[str, Any] = {"id": id, "name": "estop", "payload": {}}
        document |= {"seal": self.ground.seal(), "sent_s": self.ground_clock.now_s()}
        document["signature"] = self.ground.sign_document(document, place="tests.emergency")
        return to_json(document)

    def receive(self, body: bytes) -> bool:
        """Return whether the ship got it."""
        before = len(self.heard)
        self.receiver.receive(body, url=self.url)
        return len(self.heard) > before

    def passes(self, id: str) -> bool:
        """Return whether a stop gets through at once, or as the ground repeats it."""
        for _ in range(3):
            if self.receive(self.estop(id)):
                return True
            self.clock.advance(0.2)
        return False


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S, -40.0, 40.0])
@pytest.mark.parametrize("asked", ["nobody", "ground", "worker", "both"])
def test_a_genuine_emergency_stop_passes_whatever_the_clock_did(step_s: float, asked: str) -> None:
    both = Stopping()
    both.clock.advance(500.0)
    assert both.passes("before")
    both.server.ahead_s += step_s
    if asked in ("ground", "both"):
        both.ground_clock.now_s()
    if asked in ("worker", "both"):
        both.receiver._clocks[both.url].now_s()
    assert both.passes("after")
    both.start_ground()
    assert both.passes("from a ground that has just started")
    both.server.ahead_s -= step_s  # and back
    both.start_worker()
    both.clock.advance(0.2)
    assert both.passes("to a worker that has just started")
    both.clock.advance(10 * HOUR_S)  # the clocks drift
    both.server.ahead_s += 45.0
    assert both.passes("after ten hours")


def test_a_fresh_emergency_stop_asks_no_broker_and_a_flood_asks_it_seldom() -> None:
    both = Stopping()
    both.clock.advance(100.0)
    recorded = [both.estop("recorded") for _ in range(50)]
    fresh, before = both.estop("fresh"), both.server.questions
    assert both.receive(fresh)
    assert both.server.questions == before
    both.clock.advance(100.0)
    for body in recorded:
        assert not both.receive(body)
    assert both.server.questions == before + 1
    both.server.is_lost = True  # a recorded one is refused without it, a genuine one passes
    both.clock.advance(1.0)
    assert not both.receive(recorded[0])
    both.server.is_lost = False
    assert both.receive(both.estop("genuine"))
    assert "100 s old by the broker's clock: the limit is 30" in repr(both.log.lines)


def test_an_emergency_stop_is_accepted_once_and_not_after_a_restart() -> None:
    both = Stopping()
    both.clock.advance(100.0)
    recorded = both.estop("recorded")
    assert both.receive(recorded)
    assert not both.receive(recorded)
    both.clock.advance(1.0)
    both.start_worker()
    assert not both.receive(recorded)
    both.clock.advance(2.0)
    assert not both.receive(recorded)
    assert both.receive(both.estop("recorded"))  # the ground repeats it
    without = msgspec.json.decode(both.estop("x"))
    del without["sent_s"]
    assert not both.receive(to_json(without))


# --- results and chords --------------------------------------------------------------------------


def forged(id: str) -> bytes:
    return encode(Record(id=id, state=State.SUCCESS, result="forged"), limit_bytes=1000)


def test_who_may_only_publish_cannot_confirm_an_emergency_stop(
    url: str, server: redis.Redis
) -> None:
    """The ground went home with it, and repeated the stop no more."""
    calls: list[str] = []
    with TaskApp("blimp.twin", broker=url, result_backend=url, signing_key=KEY) as app:

        @app.on_broadcast("estop")
        def estop(broadcast: Broadcast) -> dict[str, Any] | None:
            calls.append(broadcast.id)
            for _ in range(50):
                server.publish(result_key(broadcast.id), forged(broadcast.id))
            return {"stopped": True} if len(calls) == 3 else None  # the ship is slow to act

        with working(app), VehicleClient(url, "twin", signing_key=KEY) as ground:
            reply = ground.estop(timeout_s=DEADLINE_S)
            assert (reply.state, reply.result) == ("SUCCESS", {"stopped": True})
            assert len(calls) >= 3  # more if it was repeated while its answer came
            reply = ground.estop(timeout_s=3.0)
            assert reply.state == "TIMEOUT"
            assert "reports were passed over: not signed with our key" in reply.reason


def test_a_forged_result_is_no_result_and_no_reason_to_skip_a_task(
    app: TaskApp, server: redis.Redis, ran: list[Any]
) -> None:
    with working(app):
        genuine = app.tasks["add"].delay(1, 2)
        assert genuine.get(DEADLINE_S) == 3
        server.set(result_key("mine"), forged("mine"))
        record = app.result("mine").record
        assert (record.state, record.reason) == (State.PENDING, "result of mine: it is not signed")
        taken: Any = server.get(result_key(genuine.id))
        server.set(result_key("other"), taken)  # of another task
        assert "signature is wrong" in app.result("other").record.reason
        app.publisher.publish(
            TaskMessage(id="mine", task="add", args=(7,), queue=app.queue, delivery=2)
        )
        wait_until(lambda: (7,) in ran, "it was believed to have ended")
        assert app.results is not None
        assert app.results.failures(limit=10) == []


def parts(app: TaskApp, gates: list[threading.Event]) -> None:
    @app.task(name="part")
    def part(number: int) -> int:
        assert gates[number].wait(DEADLINE_S)
        return number


@pytest.mark.parametrize("attack", ["value", "place", "size"])
def test_a_rewritten_part_of_a_chord_is_not_worked_on(
    app: TaskApp, server: redis.Redis, ran: list[Any], attack: str
) -> None:
    gates = [threading.Event(), threading.Event()]
    parts(app, gates)

    @app.task(name="body")
    def body(values: list[int]) -> list[int]:
        ran.append(values)
        return values

    with working(app, sync_workers=3):
        part = app.tasks["part"]
        handle = chord([part.s(0), part.s(1)])(app.tasks["body"].s())
        keys: Any = server.keys("celery-taskset-meta-*.s")
        (group,) = (key.decode()[:-2] for key in keys)
        if attack == "size":
            server.set(f"{group}.s", 1)
        gates[0].set()
        if attack != "size":
            wait_until(lambda: server.zcard(f"{group}.j") == 1, "it was not counted")
            entries: Any = server.zrange(f"{group}.j", 0, -1)
            (entry,) = entries
            if attack == "value":
                server.zrem(f"{group}.j", entry)
                entry = entry.replace(b'"SUCCESS",0', b'"SUCCESS",1000')
            server.zadd(f"{group}.j", {entry: 5 if attack == "place" else 0})
        gates[1].set()
        with pytest.raises(TaskFailed, match=r"signature is wrong|has 1 parts, and began with 2"):
            handle.get(DEADLINE_S)
        assert ran == []
        again = chord([part.s(0), part.s(1)])(app.tasks["body"].s())
        assert again.get(DEADLINE_S) == [0, 1]
