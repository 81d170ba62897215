"""What a stranger on the broker tries who has no key, but reads and writes what is signed.

He records a message and puts it there again, and changes what a worker or a client will read.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from blimp.errors import Reject, TaskFailed
from blimp.queue import TaskApp, TaskContext
from blimp.queue.brokers.streams.store import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
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
