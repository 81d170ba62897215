"""A worker on streams: a lost lease reaches its task, and a bad message is a dead letter."""

import asyncio
import threading
from typing import Any

import pytest
import redis

from blimp.queue import State, TaskApp, TaskContext
from blimp.queue.brokers.streams.store import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.protocol.record import Record
from blimp.queue.redis.keys import GROUP
from tests.queue.celery_messages import CELERY_MESSAGE, envelope
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look


def steal(session: StreamsSession) -> None:
    """Give what is in flight to another consumer, as after an expired lease."""
    stream = session.keys.queue("tests").levels[2]
    client: Any = session.link.client
    for one in client.xpending_range(stream, GROUP, "-", "+", 10):
        client.xclaim(stream, GROUP, "thief", 0, [one["message_id"]])


def dead(session: StreamsSession) -> Any:
    return DeadLetters(store=session.store, queue="tests").list()


def test_a_lost_lease_cancels_an_async_task_and_refuses_its_result(
    app: TaskApp, session: StreamsSession
) -> None:
    busy, cancelled = threading.Event(), threading.Event()

    @app.task(name="long")
    async def long() -> str:
        busy.set()
        try:
            await asyncio.sleep(DEADLINE_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "late"

    with working(app) as worker:
        handle = long.delay()
        assert busy.wait(DEADLINE_S)
        steal(session)
        assert cancelled.wait(DEADLINE_S)
        wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
        assert worker.counts["leases_lost"] == 1
        assert handle.state is State.PENDING


def test_a_plain_task_sees_that_its_lease_is_lost(app: TaskApp, session: StreamsSession) -> None:
    busy = threading.Event()
    saw: list[bool] = []

    @app.task(name="long", bind=True)
    def long(context: TaskContext) -> str:
        busy.set()
        saw.append(context.lost.wait(DEADLINE_S))
        return "late"

    log = Silence()
    with working(app, log=log) as worker:
        handle = long.delay()
        assert busy.wait(DEADLINE_S)
        steal(session)
        wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
        assert saw == [True]
        assert handle.state is State.PENDING
    assert log.events("result refused")


def test_a_result_is_refused_in_the_step_that_would_write_it(
    app: TaskApp, session: StreamsSession
) -> None:
    """Stolen just before the end, when no renewal could notice it."""

    @app.task(name="quick")
    def quick() -> str:
        steal(session)
        return "late"

    log = Silence()
    with working(app, log=log) as worker:
        handle = quick.delay()
        wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
        assert handle.state is State.PENDING
    assert log.events("result refused")
    assert Look(server=session.link.client).in_flight() == 1


def test_a_final_result_stands_and_the_message_goes(app: TaskApp, look: Look) -> None:
    assert app.results is not None

    @app.task(name="quick")
    def quick() -> str:
        assert app.results is not None
        app.results.store(Record(id="q", state=State.SUCCESS, result="first"))
        return "second"

    with working(app) as worker:
        quick.apply_async(task_id="q")
        wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
    assert app.result("q").get(DEADLINE_S) == "first"
    assert look.left_behind() == []


def test_without_a_common_server_the_result_is_written_first(
    url: str, transport: str, look: Look
) -> None:
    with TaskApp(
        "tests", broker=url, result_backend=url.replace("host=0", "host=1"), transport=transport
    ) as app:
        assert not app.completes_at_once
        app.task(name="add")(lambda: 3)
        with working(app):
            assert app.send_task("add").get(DEADLINE_S) == 3
    assert look.left_behind() == []


@pytest.mark.parametrize(
    ("raw", "kind", "reason"),
    [
        (envelope(task="nope", id="bad"), "unknown_task", "no task 'nope' in app 'tests'"),
        (CELERY_MESSAGE, "unknown_task", "no task 'weather.read'"),
        (envelope(task="add", id="bad", body=b"[[1, 2]]"), "unreadable", "the three of"),
        (envelope(task="add", id="bad", retries="x"), "unreadable", "header 'retries' is 'x'"),
        (
            envelope(task="add", id="b", content_type="x/yaml"),
            "unreadable",
            "content type 'x/yaml'",
        ),
    ],
)
def test_a_bad_message_is_a_dead_letter(
    app: TaskApp, look: Look, session: StreamsSession, raw: bytes, kind: str, reason: str
) -> None:
    app.task(name="add")(lambda a, b: a + b)
    look.push("tests", raw)
    with working(app) as worker:
        assert app.send_task("add", (1, 2)).get(DEADLINE_S) == 3
        assert worker.counts[kind] == 1
    (letter,) = dead(session)
    assert reason in letter.reason
    assert letter.body is not None


@pytest.mark.parametrize("head", [b"", b"not json", b"\xff\xfe", b"[" * 200_000, b"[]", b"{}"])
def test_an_unreadable_entry_is_a_dead_letter_named_and_counted(
    app: TaskApp, look: Look, session: StreamsSession, head: bytes
) -> None:
    app.task(name="add")(lambda a, b: a + b)
    look.push_raw("tests", head)
    log = Silence()
    with working(app, log=log) as worker:
        assert app.send_task("add", (1, 2)).get(DEADLINE_S) == 3
        assert worker.counts["unreadable"] == 1
        assert worker.counts["reconnects"] == 0
    (letter,) = dead(session)
    assert letter.reason.startswith("undecodable: ")
    assert [fields["queue"] for fields in log.events("unreadable")] == ["tests"]


def test_a_delivery_lost_with_its_connection_is_run(
    app: TaskApp, server: redis.Redis, session: StreamsSession
) -> None:
    """The server has recorded it for this worker, and the worker never read it."""
    app.task(name="add")(lambda: 3)
    app.send_task("add", task_id="warm")
    with working(app):
        app.result("warm").get(DEADLINE_S)
    handle = app.send_task("add")
    server.xreadgroup(GROUP, "tests.worker", {session.keys.queue("tests").levels[2]: ">"})
    with working(app) as worker:
        assert handle.get(DEADLINE_S) == 3
        assert worker.counts["restored"] == 1
