"""How a task ends, and what is stored and reported of it."""

import threading
from typing import Any

import pytest
import redis

from blimp.errors import (
    Interrupted,
    Refused,
    TaskError,
    TaskFailed,
    UnknownTask,
)
from blimp.queue import State, TaskApp, TaskContext
from blimp.queue.protocol.record import Record
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look


def test_a_task_that_raises_fails_with_kind_text_and_trace(app: TaskApp) -> None:
    @app.task(name="boom")
    def boom() -> None:
        raise ValueError("the valve is shut")

    @app.task(name="leave")
    def leave() -> None:
        raise SystemExit(3)

    with working(app):
        with pytest.raises(TaskFailed, match="ValueError: the valve is shut") as caught:
            boom.delay().get(DEADLINE_S)
        assert caught.value.kind == "ValueError"
        assert "in boom" in (caught.value.trace or "")
        with pytest.raises(TaskFailed, match="SystemExit"):
            leave.delay().get(DEADLINE_S)
        assert boom.delay().wait(DEADLINE_S).state is State.FAILURE  # it goes on


def test_a_refusal_is_a_state_of_its_own(app: TaskApp) -> None:
    @app.task(name="arm")
    def arm() -> None:
        raise Refused("the battery is at 6.1 V, 6.6 V is the least")

    with working(app):
        handle = arm.delay()
        with pytest.raises(Refused, match=r"6\.1 V"):
            handle.get(DEADLINE_S)
        assert handle.state is State.REFUSED


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((), {}, "missing 1 required positional argument: 'a'"),
        ((1, 2, 3), {}, "takes from 1 to 2 positional arguments but 3 were given"),
        ((1,), {"c": 1}, "got an unexpected keyword argument 'c'"),
    ],
)
def test_wrong_arguments_are_a_type_error_of_the_task_as_in_celery(
    app: TaskApp, args: tuple[int, ...], kwargs: dict[str, int], complaint: str
) -> None:
    """Sent by a program that knows its name alone; `delay` and `apply_async` send no such thing."""

    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    with working(app), pytest.raises(TaskFailed) as caught:
        app.send_task(add.name, args, kwargs).get(DEADLINE_S)
    assert caught.value.kind == "TypeError"
    assert complaint in str(caught.value)


def test_wrong_arguments_leave_no_dead_letter(app: TaskApp, look: Look) -> None:
    app.task(name="add")(lambda a: a)
    with working(app), pytest.raises(TaskFailed):
        app.send_task("add", (1, 2, 3)).get(DEADLINE_S)
    assert look.dead() == 0
    assert look.left_behind() == []


def test_a_task_that_fails_for_good_is_logged_at_error_with_its_traceback(app: TaskApp) -> None:
    @app.task(name="fails", autoretry_for=(OSError,), max_retries=1, retry_backoff=False)
    def fails() -> None:
        raise OSError("still shut")

    log = Silence()
    with working(app, log=log), pytest.raises(TaskFailed):
        fails.delay().get(DEADLINE_S)
    found_out = [(level, fields) for level, event, fields in log.lines if event == "task"]
    assert [(level, fields["state"]) for level, fields in found_out] == [
        ("info", "RETRY"),
        ("error", "FAILURE"),
    ]
    assert 'raise OSError("still shut")' in found_out[1][1]["traceback"]


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_a_result_that_json_cannot_hold_is_a_clear_failure(
    app: TaskApp, look: Look, value: object
) -> None:
    @app.task(name="odd")
    def odd() -> object:
        return value

    with working(app) as worker:
        with pytest.raises(TaskFailed, match="odd returned what JSON cannot hold"):
            odd.delay().get(DEADLINE_S)
        wait_until(lambda: worker.counts["done"] == 1, "not acknowledged")
    assert look.left_behind() == []


def test_a_task_without_result_leaves_none(app: TaskApp, server: redis.Redis) -> None:
    ran = threading.Event()

    @app.task(name="quiet", ignore_result=True)
    def quiet() -> int:
        ran.set()
        return 1

    with working(app) as worker:
        quiet.delay()
        assert ran.wait(DEADLINE_S)
        wait_until(lambda: worker.counts["done"] == 1, "not acknowledged")
    assert server.keys("celery-task-meta-*") == []


def test_progress_and_start_are_reported(app: TaskApp) -> None:
    go = threading.Event()

    @app.task(name="long", bind=True, track_started=True)
    def long(context: TaskContext) -> str:
        assert context.progress(0.4, leg=2)
        go.wait(DEADLINE_S)
        return context.id

    with working(app):
        assert app.results is not None
        with app.results.watch("the-id") as watch:
            handle = long.apply_async(task_id="the-id")
            found_out: dict[
                State, Record
            ] = {}  # what is stored is read first, and may be the later
            while not {State.STARTED, State.PROGRESS} <= found_out.keys():
                record = watch.next(timeout_s=DEADLINE_S)
                assert record is not None
                found_out[record.state] = record
            assert found_out[State.PROGRESS].result == {"fraction": 0.4, "leg": 2}
            go.set()
            assert handle.get(DEADLINE_S) == "the-id"


@pytest.mark.parametrize(
    ("raw", "kind", "reason"),
    [
        (envelope(task="nope", id="bad"), UnknownTask, "no task 'nope' in app 'tests'"),
        (envelope(task="add", id="bad", body=b"[[NaN, 1], {}, {}]"), None, "NaN and Infinity"),
        (envelope(task="add", id="bad", body=b"[[1, 2]]"), None, "the three of"),
        (
            envelope(task="add", id="bad", args="12"),
            None,
            "got `str` - at `$[0]`",
        ),
        (
            envelope(task="add", id="bad", kwargs=[1]),
            None,
            "got `array` - at `$[1]`",
        ),
        (envelope(task="add", id="bad", without=("task",)), None, "required field `task`"),
        (envelope(task="add", id="bad", retries="x"), None, "header 'retries' is 'x'"),
        (envelope(task="add", id="bad", blimp_ttl_s=1), None, "needs 'blimp_issued_ms'"),
        (envelope(task="add", id="bad", content_type="application/x-yaml"), None, "x-yaml"),
        (envelope(task="add", id="bad", body=b" " * 1_000_001), None, "the limit is 1000000"),
        (envelope(task="add", id="bad", body=b" " * 7_500_000), None, "the limit is 1000000"),
    ],
)
def test_the_sender_of_a_bad_message_hears_of_it(
    app: TaskApp,
    look: Look,
    server: redis.Redis,
    raw: bytes,
    kind: type[TaskError] | None,
    reason: str,
) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    own: Any = server.config_get("proto-max-bulk-len")
    server.config_set("proto-max-bulk-len", 2**29)  # as a server has it that is not ours
    try:
        look.push("tests", raw)
    finally:
        server.config_set("proto-max-bulk-len", own["proto-max-bulk-len"])
    with working(app) as worker:
        with pytest.raises(TaskFailed) as caught:
            app.result("bad").get(DEADLINE_S)
        assert reason in str(caught.value)
        assert caught.value.kind == (kind.__name__ if kind else "MessageError")
        assert add.delay(1, 2).get(DEADLINE_S) == 3
        assert worker.counts["unreadable"] + worker.counts["unknown_task"] == 1
    assert look.left_behind() == []


def test_a_task_may_end_as_interrupted(app: TaskApp) -> None:
    @app.task(name="cut")
    def cut() -> None:
        raise Interrupted("the flight process was restarted")

    with working(app), pytest.raises(Interrupted, match="was restarted"):
        cut.delay().get(DEADLINE_S)
