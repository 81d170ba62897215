"""Whatever comes is dead-lettered with its reason, counted, reported once; and work goes on."""

from typing import Any

import pytest
import redis

from blimp.errors import MessageError, ResultError, TaskFailed
from blimp.queue import GroupResult, State, TaskApp
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.message import TaskMessage
from tests.broker import EmbeddedBroker
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look

KEY, OLD_KEY, OTHER_KEY = "k" * 16, "o" * 32, "x" * 16


def dead(app: TaskApp) -> list[Any]:
    holder = StreamsSession(url=app.broker.replace("redis+socket", "unix").split("?")[0])
    try:
        return DeadLetters(store=holder.store, queue="tests").list()
    finally:
        holder.close()


def build(url: str, **options: Any) -> TaskApp:
    app = TaskApp("tests", broker=url, result_backend=url, unknown_task_wait_s=0.0, **options)
    app.task(name="add")(lambda a, b: a + b)
    return app


def body(args: str = "[1, 2]", kwargs: str = "{}") -> bytes:
    return f"[{args}, {kwargs}, {{}}]".encode()


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (envelope(task="nope", id="bad"), "unknown_task", "no task 'nope'"),
        (envelope(task="add", id="bad", body=b"\xff\xfe"), "unreadable", "body is not JSON"),
        (
            envelope(task="add", id="bad", body=body("[" + "9" * 200_000 + "]")),
            "unreadable",
            "the limit is 100000",
        ),
        (envelope(task="add", id="bad", blimp_version=2), "unreadable", "reads up to 1"),
    ],
)
def test_it_is_a_dead_letter_a_count_one_line_and_a_failure(
    url: str, look: Look, message: bytes, kind: str, reason: str
) -> None:
    log = Silence()
    with build(url, limit_bytes=100_000) as app:
        look.push("tests", message)
        with working(app, log=log) as worker:
            assert app.send_task("add", (1, 2)).get(DEADLINE_S) == 3
            record = app.result("bad").wait(DEADLINE_S)
            assert worker.counts[kind] == 1
            assert worker.counts["reconnects"] == 0
        assert record.state is State.FAILURE
        assert reason in record.reason
        (letter,) = dead(app)
        assert reason in letter.reason
        assert len(log.events(kind)) == 1


def test_a_bad_message_costs_no_other_while_the_results_are_unreachable(
    url: str, look: Look, own_broker: EmbeddedBroker
) -> None:
    ran: list[int] = []
    log = Silence()
    with TaskApp(
        "tests", broker=url, result_backend=own_broker.url, unknown_task_wait_s=0.0
    ) as app:
        app.task(name="note", ignore_result=True)(ran.append)
        own_broker.stop()
        look.push("tests", envelope(task="nope", id="bad"))
        look.push_raw("tests", b"no header at all")
        for number in range(10):
            app.send_task("note", (number,), ignore_result=True)
        with working(app, log=log, grace_s=0.1) as worker:
            wait_until(lambda: len(ran) == 10, "they do not run")
            wait_until(lambda: worker.counts["done"] == 10, "they do not end")
            assert worker.counts["reconnects"] == 0
        assert sorted(ran) == list(range(10))
        assert len(dead(app)) == 2
        assert [event["id"] for event in log.events("failure not stored")] == ["bad"]


# --- senders ----------------------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


NESTED = nested(10_000)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("x" * 2000, "'add' is 20.. bytes as JSON: the limit is 1500"),
        (float("nan"), "JSON cannot hold them"),
        ("\ud800", "JSON cannot hold them"),
        (NESTED, "JSON cannot hold them"),
        ({1, 2}, "JSON cannot hold them"),
    ],
)
def test_the_sender_gets_an_error(url: str, look: Look, argument: Any, reason: str) -> None:
    with build(url, limit_bytes=1500) as app:
        with pytest.raises(MessageError, match=reason):
            app.tasks["add"].delay(argument, 1)
        assert look.waiting() == 0


def test_headers_count_too(url: str) -> None:
    with build(url, limit_bytes=1500) as app:
        with pytest.raises(MessageError, match="the limit is 1500"):
            app.tasks["add"].apply_async((1, 2), headers={"blimp_note": "x" * 2000})
        with pytest.raises(MessageError, match="JSON cannot hold them"):
            app.tasks["add"].apply_async((1, 2), headers={"blimp_note": {1}})
        with pytest.raises(MessageError, match="broadcast of"):
            app.broadcast("stop", {"why": "x" * 2000})


@pytest.mark.parametrize(
    "result",
    [float("nan"), float("inf"), {1}, "\ud800", NESTED, object(), "x" * 2000],
    ids=["nan", "inf", "set", "surrogate", "nested", "object", "large"],
)
def test_a_result_that_cannot_be_kept_is_a_failure_and_is_acknowledged(
    url: str, look: Look, result: Any
) -> None:
    with build(url, limit_bytes=1500) as app, working(app):
        odd = app.task(name="odd")(lambda: result)
        with pytest.raises(TaskFailed, match=r"ResultError: odd returned"):
            odd.delay().get(DEADLINE_S)
        wait_until(lambda: look.in_flight() == 0, "it was not acknowledged")
        assert dead(app) == []


# --- signatures -------------------------------------------------------------------------------


def test_signed_messages_pass_and_others_do_not(url: str, look: Look) -> None:
    log = Silence()
    with build(url, signing_key=[KEY, OLD_KEY]) as app, working(app, log=log) as worker:
        assert app.tasks["add"].delay(1, 2).get(DEADLINE_S) == 3
        with build(url, signing_key=OLD_KEY) as sender:
            assert sender.tasks["add"].delay(2, 2).get(DEADLINE_S) == 4
        with build(url) as sender:
            handle = sender.tasks["add"].delay(3, 3)
            with pytest.raises(TaskFailed, match="'blimp_signature' is missing"):
                handle.get(DEADLINE_S)
        with build(url, signing_key=OTHER_KEY) as sender:
            handle = sender.tasks["add"].delay(3, 3)  # it believes no answer
            wait_until(lambda: len(dead(app)) == 2, "it was accepted")
            assert handle.state is State.PENDING
        assert worker.counts["not_genuine"] == 2
        assert "'blimp_signature' is wrong" in repr(log.lines)
    text = repr(log.lines) + repr(app.signer)
    assert KEY not in text
    assert OLD_KEY not in text


@pytest.mark.parametrize("key", ["celery-task-meta-x", "blimp-began-x-0"])
def test_what_an_earlier_delivery_left_is_of_a_wrong_type(
    app: TaskApp, server: redis.Redis, look: Look, key: str
) -> None:
    """It stays so: else a caller would wait for ever."""
    app.task(name="one", idempotent=False)(lambda: 1)
    server.rpush(key, "forged")
    app.publisher.publish(TaskMessage(id="x", task="one", queue=app.queue, delivery=2))
    with working(app) as worker:
        wait_until(lambda: worker.counts["done"] == 1, "it is in flight for ever")
    assert look.waiting() + look.in_flight() == 0


def test_who_is_heard_and_cannot_be_answered_is_heard_again(
    app: TaskApp, server: redis.Redis
) -> None:
    """The emergency level lives on."""
    heard: list[str] = []

    @app.on_broadcast("stop")
    def stop(broadcast: Broadcast) -> dict[str, object]:
        heard.append(broadcast.id)
        return {}

    server.rpush("celery-task-meta-x", "forged")
    with working(app):
        app.broadcast("stop", id="x")
        wait_until(lambda: heard == ["x"], "it is not heard")
        assert app.broadcast("stop", id="y").wait(DEADLINE_S).state is State.SUCCESS
    assert heard == ["x", "y"]


def test_a_result_whose_key_is_of_a_wrong_type_is_an_error(
    app: TaskApp, server: redis.Redis
) -> None:
    server.rpush("celery-task-meta-x", "forged")
    server.rpush("celery-taskset-meta-x", "forged")
    with pytest.raises(ResultError, match="WRONGTYPE"):
        app.result("x").get(timeout=DEADLINE_S)
    with pytest.raises(ResultError, match="WRONGTYPE"):
        GroupResult.restore("x", app=app)
    server.delete("celery-taskset-meta-x")
    server.set("celery-taskset-meta-x", b"[" * 3000)
    with pytest.raises(ResultError, match="cannot be read"):
        GroupResult.restore("x", app=app)
