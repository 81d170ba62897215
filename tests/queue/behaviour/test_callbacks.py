"""What a task calls when it has ended: with its end or not at all, one of two kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blimp.errors import MessageError
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record, State
from tests.inbox import Inbox
from tests.queue.conftest import WorkerProcess, wait_until, working
from tests.queue.server_view import Look


class Called(Inbox[tuple[str, tuple[Any, ...]]]):
    """What was called back, in the order it came."""

    def __init__(self, app: TaskApp) -> None:
        super().__init__()
        app.task(name="good", ignore_result=True)(lambda *args: self.add(("good", args)))
        app.task(name="bad", ignore_result=True)(lambda *args: self.add(("bad", args)))

    def wait(self, count: int = 1) -> list[tuple[str, tuple[Any, ...]]]:
        self.wait_for(lambda: len(self.items) >= count)
        return sorted(self.items, key=repr)


@pytest.fixture
def heard(app: TaskApp) -> Called:
    return Called(app)


LINKS: dict[str, Any] = {
    "link": [{"task": "good", "args": [2]}, {"task": "good", "args": [3], "immutable": True}],
    "link_error": [{"task": "bad", "args": ["x"]}],
}


def test_the_worker_that_finds_the_result_sends_what_its_writer_did_not(url: str) -> None:
    """In memory, result and acknowledgement are two steps: a worker may die between them."""
    with TaskApp("tests", broker="memory://", result_backend=url) as app:
        heard, ran = Called(app), list[int]()
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
        (
            {"task": "t", "subtask_type": "chord", "kwargs": {"header": []}},
            "required field `body`",
        ),
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
