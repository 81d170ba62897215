"""What a stranger on the broker tries who has no key, but reads and writes what is signed.

He records a message and puts it there again, and changes what a worker or a client will read.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis

from blimp.errors import Reject
from blimp.queue import State, TaskApp, TaskContext
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.message import TaskMessage, to_json
from blimp.queue.protocol.record import Record, encode
from blimp.queue.redis.keys import result_key
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S, Held, Silence, wait_until, working

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


def test_an_unsigned_message_of_its_id_does_not_hide_the_true_result(
    app: TaskApp, url: str
) -> None:
    """The worker writes a FAILURE for the stranger, and a final result is final."""
    held = Held()
    wait = app.task(name="wait")(held.run)
    with working(app, sync_workers=2) as worker, TaskApp("tests", broker=url) as stranger:
        handle = wait.delay("mine")
        assert held.began.wait(DEADLINE_S)
        stranger.publisher.publish(TaskMessage(id=handle.id, task="wait", queue=app.queue))
        wait_until(lambda: worker.counts["not_genuine"] == 1, "it was accepted")
        held.go.set()
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
