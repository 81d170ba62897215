"""What a task calls when it has ended: with its end or not at all, one of two kinds."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blimp.errors import MessageError
from blimp.queue import TaskApp, TaskContext
from blimp.queue.protocol.embed import MOST_CALLBACKS
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record, State
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working
from tests.queue.server_view import Look


class Heard:
    """What was called back, in the order it came."""

    def __init__(self, app: TaskApp) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self._came = threading.Condition()
        app.task(name="good", ignore_result=True)(lambda *args: self._hear("good", args))
        app.task(name="bad", ignore_result=True)(lambda *args: self._hear("bad", args))

    def _hear(self, name: str, args: tuple[Any, ...]) -> None:
        with self._came:
            self.calls.append((name, args))
            self._came.notify_all()

    def wait(self, count: int = 1) -> list[tuple[str, tuple[Any, ...]]]:
        with self._came:
            self._came.wait_for(lambda: len(self.calls) >= count, timeout=DEADLINE_S)
        return sorted(self.calls, key=repr)


@pytest.fixture
def heard(app: TaskApp) -> Heard:
    return Heard(app)


LINKS: dict[str, Any] = {
    "link": [{"task": "good", "args": [2]}, {"task": "good", "args": [3], "immutable": True}],
    "link_error": [{"task": "bad", "args": ["x"]}],
}


@pytest.mark.parametrize("ignore_result", [False, True])
@pytest.mark.parametrize("acks_late", [False, True])
def test_a_success_calls_its_callbacks(
    app: TaskApp, heard: Heard, look: Look, acks_late: bool, ignore_result: bool
) -> None:
    app.task(name="one", acks_late=acks_late, ignore_result=ignore_result)(lambda: 1)
    with working(app) as worker:
        app.send_task("one", **LINKS)
        assert heard.wait(2) == [("good", (1, 2)), ("good", (3,))]
        wait_until(lambda: worker.counts["done"] == 3, "something is still in flight")
    assert look.left_behind() == []


def test_a_failure_calls_its_errbacks(app: TaskApp, heard: Heard, look: Look) -> None:
    @app.task(name="fail")
    def fail() -> None:
        raise ValueError("no")

    with working(app) as worker:
        handle = app.send_task("fail", **LINKS)
        assert heard.wait() == [("bad", (handle.id, "x"))]
        wait_until(lambda: worker.counts["done"] == 2, "something is still in flight")
    assert look.left_behind() == []


def test_a_revoked_task_calls_its_errbacks(app: TaskApp, heard: Heard) -> None:
    app.task(name="one")(lambda: 1)
    handle = app.send_task("one", **LINKS)
    handle.revoke()
    with working(app):
        assert heard.wait() == [("bad", (handle.id, "x"))]
    assert handle.state is State.REVOKED


def test_a_value_that_no_callback_can_be_given_is_a_failure(app: TaskApp, heard: Heard) -> None:
    app.task(name="odd", ignore_result=True)(lambda: {1, 2})
    with working(app):
        handle = app.send_task("odd", **LINKS)
        assert heard.wait() == [("bad", (handle.id, "x"))]


def test_a_retry_calls_nobody_until_its_end(app: TaskApp, heard: Heard) -> None:
    @app.task(name="again", bind=True, max_retries=2)
    def again(context: TaskContext) -> int:
        if context.message.retries < 2:
            context.retry(countdown=0.0)
        return context.message.retries

    with working(app):
        app.send_task("again", **LINKS)
        assert heard.wait(2) == [("good", (2, 2)), ("good", (3,))]


def test_the_worker_that_finds_the_result_sends_what_its_writer_did_not(url: str) -> None:
    """In memory, result and acknowledgement are two steps: a worker may die between them."""
    with TaskApp("tests", broker="memory://", result_backend=url) as app:
        heard, ran = Heard(app), list[int]()
        app.task(name="one")(lambda: ran.append(1))
        assert app.results is not None
        app.results.store(Record(id="cut", state=State.SUCCESS, result=7))
        message = TaskMessage(
            id="cut", task="one", queue=app.queue, delivery=2, callbacks=tuple(LINKS["link"])
        )
        app.publisher.publish(message)
        with working(app):
            assert heard.wait(2) == [("good", (3,)), ("good", (7, 2))]
    assert ran == []


@pytest.mark.parametrize(
    ("signature", "complaint"),
    [
        (3, r"link\[0\] is no signature: Expected `object`, got `int`"),
        ({}, r"link\[0\] is no signature: .* missing required field `task`"),
        ({"task": "x" * 256}, r"length <= 255 - at `\$.task`"),
        (
            {"task": "t", "subtask_type": "chord", "kwargs": {"header": []}},
            "required field `body`",
        ),
        ({"task": "t", "args": "ab"}, r"Expected `array \| null`, got `str` - at `\$.args`"),
        ({"task": "t", "kwargs": [1]}, r"`object \| null`, got `array` - at `\$.kwargs`"),
        ({"task": "t", "options": 1}, r"got `int` - at `\$.options`"),
        ({"task": "t", "options": {"queue": 1}}, r"got `int` - at `\$.options.queue`"),
        (
            {"task": "t", "options": {"link": [{"task": 1}]}},
            r"link\[0\].link\[0\] is no signature",
        ),
    ],
)
def test_a_wrong_signature_is_named(app: TaskApp, signature: object, complaint: str) -> None:
    with pytest.raises(MessageError, match=complaint):
        app.send_task("one", link=[signature])  # type: ignore[list-item]


def test_a_wrong_signature_of_another_sender_is_a_failure_with_its_reason(
    app: TaskApp, heard: Heard, look: Look
) -> None:
    app.task(name="one")(lambda: 1)
    many = ({"task": "good"},) * (MOST_CALLBACKS + 1)
    app.publisher.publish(TaskMessage(id="m", task="one", queue=app.queue, callbacks=many))
    with working(app):
        record = app.result("m").wait(DEADLINE_S)
    assert record.state is State.FAILURE
    assert record.fault is not None
    assert f"at most {MOST_CALLBACKS} signatures" in record.fault.text
    assert heard.calls == []


def test_exactly_one_of_the_two_follows_if_workers_are_killed(
    url: str, start_worker: Callable[..., WorkerProcess], tmp_path: Path, look: Look
) -> None:
    count = 150
    followed = tmp_path / "followed"

    def lines() -> list[str]:
        return followed.read_text().splitlines() if followed.exists() else []

    with TaskApp("killed", broker=url, result_backend=url) as sender:
        for number in range(count):
            sender.send_task(
                "link.parent",
                (number,),
                link=[{"task": "link.good", "args": [number]}],
                link_error=[{"task": "link.bad", "args": [number]}],
            )
    for least in (10, 50, 90):
        worker = start_worker(url)
        wait_until(lambda least=least: len(lines()) >= least, "nothing follows")
        worker.kill()
    start_worker(url)
    wait_until(
        lambda: look.waiting("killed") + look.in_flight(app="killed") == 0, "not all is done"
    )
    expected = {("bad" if number % 2 else "good", str(number)) for number in range(count)}
    seen = {tuple(line.split()) for line in lines()}  # one that was cut off may write twice
    assert {one[:2] for one in seen} == expected
    assert len(seen) == count, "one task was followed by two"
