"""Whatever comes is dead-lettered with its reason, counted, reported once; and work goes on."""

import json
from typing import Any

import msgspec
import pytest
import redis

from blimp.errors import ConfigError, LinkError, MessageError, ResultError, TaskFailed
from blimp.queue import GroupResult, State, TaskApp, TaskContext
from blimp.queue.brokers.streams.store import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.message import TaskMessage, build_body, build_headers
from blimp.queue.protocol.signing import Signer
from blimp.tasks.client import VehicleClient
from tests.broker import EmbeddedBroker
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look

KEY, OLD_KEY, OTHER_KEY = "k" * 16, "o" * 32, "x" * 16


@pytest.fixture
def transport() -> str:
    """The default, which has dead letters."""
    return "streams"


def dead(app: TaskApp) -> list[Any]:
    holder = StreamsSession(
        url=app.broker.replace("redis+socket", "unix").split("?")[0], options={}
    )
    try:
        return DeadLetters(store=holder.store, queue="tests").list()
    finally:
        holder.close()


def build(url: str, **options: Any) -> TaskApp:
    app = TaskApp("tests", broker=url, result_backend=url, **options)
    app.task(name="add")(lambda a, b: a + b)
    return app


def body(args: str = "[1, 2]", kwargs: str = "{}") -> bytes:
    return f"[{args}, {kwargs}, {{}}]".encode()


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (envelope(task="nope", id="bad"), "unknown_task", "no task 'nope'"),
        (envelope(task="add", id="bad", body=body("[NaN, 1]")), "unreadable", "body is not JSON"),
        (envelope(task="add", id="bad", body=b"\xff\xfe"), "unreadable", "body is not JSON"),
        (envelope(task="add", id="bad", body=b"[" * 90_000), "unreadable", "body is not JSON"),
        (
            envelope(task="add", id="bad", body=body('["\\ud800", 1]')),
            "unreadable",
            "body is not JSON",
        ),
        (
            envelope(task="add", id="bad", body=body("[" + "9" * 200_000 + "]")),
            "unreadable",
            "the limit is 100000",
        ),
        (
            envelope(task="add", id="bad", content_type="application/x-python-serialize"),
            "unreadable",
            "content type 'application/x-python-serialize'",
        ),
        (
            envelope(task="add", id="bad", args=(1, 2), note="x" * 200_000),
            "unreadable",
            "the limit is 116384",
        ),
        (envelope(task="add", id="bad", blimp_version=2), "unreadable", "reads up to 1"),
        (envelope(task="add", id="bad", blimp_version="2"), "unreadable", "'blimp_version' is"),
        (envelope(task="add", id="bad", blimp_number=-1, blimp_coalesce="k"), "unreadable", ">= 0"),
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
    with TaskApp("tests", broker=url, result_backend=own_broker.url) as app:
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


def test_an_unknown_encoding_is_refused(url: str, look: Look) -> None:
    message = json.loads(envelope(task="add", id="bad", args=(1, 2)))
    message["content-encoding"] = "rot13"
    with build(url) as app:
        look.push("tests", json.dumps(message).encode())
        with working(app):
            assert "content encoding 'rot13'" in app.result("bad").wait(DEADLINE_S).reason


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
            wait_until(lambda: worker.counts["not_genuine"] == 2, "it was accepted")
            assert handle.state is State.PENDING
        assert "'blimp_signature' is wrong" in repr(log.lines)
        assert len(dead(app)) == 2
    text = repr(log.lines) + repr(app.signer)
    assert KEY not in text
    assert OLD_KEY not in text


@pytest.mark.parametrize(
    "change",
    [
        {"id": "other"},
        {"task": "other"},
        {"expires": "2099-01-01T00:00:00+00:00"},
        {"retries": 7},
        {"blimp_ttl_s": 1e6},
        {"blimp_vehicle": "other"},
        {"blimp_new": 1},
        {"root_id": "other"},
        {"group_index": 1},
        {"blimp_seal": "other-1"},
    ],
)
def test_what_decides_is_signed(change: dict[str, Any]) -> None:
    signer = Signer(KEY)
    message = TaskMessage(
        id="a",
        task="add",
        queue="q",
        ttl_s=1.0,
        issued_ms=1,
        headers={"blimp_vehicle": "twin", "blimp_seal": signer.seal()},
    )
    headers, raw = build_headers(message), build_body(message)
    headers["blimp_signature"] = signer.sign(headers, raw, queue="q")
    wire = msgspec.json.decode(msgspec.json.encode(headers))
    signer.check(wire | {"blimp_delivery": 3, "redelivered": True}, raw, queue="q")
    for headers, body, queue in (
        (wire | change, raw, "q"),
        (wire, raw + b" ", "q"),
        (wire, raw, "r"),
        (wire | {"blimp_signature": 3}, raw, "q"),
        (wire | {"blimp_signature": "\ud800"}, raw, "q"),
        (wire | {"eta": {1}}, raw, "q"),
    ):
        with pytest.raises(MessageError, match=r"is wrong|cannot be checked"):
            signer.check(headers, body, queue=queue)


def test_a_retry_is_signed_again(url: str) -> None:
    tries: list[int] = []
    with build(url, signing_key=KEY) as app, working(app):

        @app.task(name="again", autoretry_for=(OSError,), retry_backoff=False)
        def again() -> str:
            tries.append(1)
            if len(tries) < 3:
                raise OSError
            return "done"

        assert again.delay().get(DEADLINE_S) == "done"


def test_broadcasts_are_signed_too(url: str) -> None:
    heard: list[str] = []
    with build(url, signing_key=KEY) as app:

        @app.on_broadcast("estop")
        def estop(broadcast: Any) -> dict[str, Any]:
            heard.append(broadcast.id)
            return {}

        log = Silence()
        with working(app, log=log), build(url) as stranger:
            stranger.broadcast("estop", id="unsigned")
            app.broadcast("estop", id="signed")
            wait_until(lambda: "signed" in heard, "it was not heard")
            (refused,) = log.events("broadcast unreadable")
            assert "signature is missing" in refused["reason"]
            app.revoke("a")
            stranger.revoke("b")
            wait_until(lambda: len(log.events("broadcast unreadable")) == 2, "it was accepted")
    assert heard == ["signed"]


def test_the_ground_signs_what_it_sends(url: str) -> None:
    app = TaskApp("blimp.twin", broker=url, result_backend=url, signing_key=KEY)
    app.task(name="blimp.ping")(lambda: "pong")
    app.on_broadcast("estop")(lambda _: {"stopped": True})
    with app, working(app):
        with VehicleClient(url, "twin", signing_key=KEY) as ground:
            assert ground.ping(timeout_s=DEADLINE_S).state == "SUCCESS"
            assert ground.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        with VehicleClient(url, "twin") as stranger:
            reply = stranger.ping(timeout_s=DEADLINE_S)
            assert (reply.state, "is missing" in reply.reason) == ("FAILURE", True)


@pytest.mark.parametrize("key", ["short", b"", [], ["k" * 16, "short"]])
def test_a_key_that_is_none_is_named_but_not_shown(key: Any) -> None:
    with pytest.raises(ConfigError, match=r"^signing_key: ") as caught:
        Signer(key)
    assert "short" not in str(caught.value)


def test_a_publish_to_nobody_is_a_short_error(url: str) -> None:
    app = TaskApp("tests", broker="redis://localhost:1/0", timeout_s=0.5)
    with app, pytest.raises(LinkError, match=r"^no broker at redis://localhost:1/0") as caught:
        app.send_task("add")
    assert caught.value.__suppress_context__


def test_a_misspelt_option_of_a_message_is_refused(url: str) -> None:
    """`countdwon=60` would begin at once."""
    with build(url) as app, pytest.raises(ConfigError, match="'add': there is no option countdwon"):
        app.send_task("add", (1, 2), countdwon=60.0)  # type: ignore[call-arg]


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


def test_a_task_goes_on_that_cannot_tell_how_far_it_is(app: TaskApp, server: redis.Redis) -> None:
    reported: list[bool] = []

    @app.task(name="one", bind=True, track_started=True)
    def one(context: TaskContext) -> None:
        reported.append(context.progress(0.5))

    server.rpush("celery-task-meta-x", "forged")
    app.publisher.publish(TaskMessage(id="x", task="one", queue=app.queue))
    with working(app) as worker:
        wait_until(lambda: worker.counts["done"] == 1, "it does not end")
    assert reported == [False]


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


def test_who_sent_what_cannot_be_run_cannot_be_notified(
    app: TaskApp, server: redis.Redis, look: Look
) -> None:
    app.task(name="one")(lambda: 1)
    server.rpush("celery-task-meta-x", "forged")
    app.publisher.publish(TaskMessage(id="x", task="nobody.knows", queue=app.queue))
    with working(app) as worker:
        assert app.send_task("one").get(DEADLINE_S) == 1
        assert worker.counts["unknown_task"] == 1
    assert look.waiting() + look.in_flight() == 0


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
