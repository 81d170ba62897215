"""The order of the steps at the end of a delivery, where they are several."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.errors import LinkError, ResultError
from blimp.queue import State, TaskApp
from blimp.queue.brokers.base import Completion
from blimp.queue.extensions import Observers
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record
from blimp.queue.worker.acker import MOST_AT_ONCE, Acker
from blimp.queue.worker.job import Job
from tests.queue.conftest import Silence, wait_until, working
from tests.queue.server_view import Look

NOWHERE = "redis+socket:///nowhere?virtual_host=0"


class Steps:
    """A broker with several steps and a result backend, which note what is asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, results: str | None = NOWHERE) -> None:
        self.app = TaskApp("ship", broker="memory://", result_backend=results)
        self.task = self.app.task(name="t")(lambda: None)
        self.done: list[str] = []
        self.released: list[Job] = []
        self.answers: list[Any] = []  # of the result backend; True if there is none
        self.fails: dict[str, list[Exception]] = {}
        self.abandoned = SimpleNamespace(wait=lambda _: False, is_set=lambda: False)
        if self.app.results is not None:
            monkeypatch.setattr(self.app.results, "write_many", self.store)
        monkeypatch.setattr(self.app.publisher, "publish", lambda one: self.step(f"send {one.id}"))

    def step(self, name: str) -> None:
        if self.fails.get(name):
            raise self.fails[name].pop()
        self.done.append(name)

    def store(self, records: list[tuple[str, bytes]]) -> list[Any]:
        self.step("store " + " ".join(id for id, _ in records))
        return [self.answers.pop(0) if self.answers else True for _ in records]

    def completion(self, id: str = "a", **fields: Any) -> Completion:
        delivery: Any = SimpleNamespace(
            tag=id,
            ack=lambda: self.step(f"ack {id}"),
            requeue=lambda: self.step(f"requeue {id}"),
            reject=lambda reason: self.step(f"reject {id}: {reason}"),
        )
        message = TaskMessage(id=id, task="t")
        job = Job(message=message, task=self.task, delivery=delivery)
        return Completion(delivery=delivery, message=message, job=job, **fields)

    def write(self, *completions: Completion) -> list[str]:
        """Have them written in one batch; return what was done, in order."""
        abandoned: Any = self.abandoned
        acker = Acker(
            app=self.app,
            consumer=SimpleNamespace(),  # it completes nothing in one step
            abandoned=abandoned,
            on_done=lambda *jobs: self.released.extend(jobs),
            on_ran=lambda _: None,
            observers=Observers(log=Silence()),
            log=Silence(),
        )
        acker._finish(completions)
        acker.close()
        return self.done


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    steps = Steps(monkeypatch)
    with contextlib.closing(steps.app):
        yield steps


FOLLOWS = (TaskMessage(id="b", task="t"), TaskMessage(id="c", task="t"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"record": b"{}"}, ["store a", "ack a"]),
        ({"record": b"{}", "next": FOLLOWS}, ["store a", "send b", "send c", "ack a"]),
        ({"record": b"{}", "dead": "no"}, ["store a", "reject a: no"]),
        ({"next": FOLLOWS[:1], "acks": False}, ["send b"]),
        ({"dead": "no", "acks": False}, []),
        ({"requeue": True}, ["requeue a"]),
    ],
)
def test_the_acknowledgement_is_last(
    steps: Steps, fields: dict[str, Any], expected: list[str]
) -> None:
    one = steps.completion(**fields)
    assert steps.write(one) == expected
    assert steps.released == [one.job]


def test_each_step_is_repeated_until_it_is_done(steps: Steps) -> None:
    for name in ("store a", "send b", "ack a"):
        steps.fails[name] = [LinkError("unreachable"), LinkError("unreachable")]
    one = steps.completion(record=b"{}", next=FOLLOWS[:1])
    assert steps.write(one) == ["store a", "send b", "ack a"]


def test_an_abandoned_worker_acknowledges_nothing_whose_result_is_not_stored(steps: Steps) -> None:
    steps.fails["store a"] = [LinkError("unreachable")]
    steps.abandoned.wait = lambda _: True
    assert steps.write(steps.completion(record=b"{}"), steps.completion("b")) == ["ack b"]


def test_after_a_lost_lease_nothing_is_written(steps: Steps) -> None:
    lost = steps.completion(record=b"{}", next=FOLLOWS)
    lost.job.lose()
    assert steps.write(lost) == []
    assert steps.released == [lost.job]


def test_a_result_that_can_never_be_stored_makes_a_dead_letter_and_spoils_no_other(
    steps: Steps,
) -> None:
    steps.answers = [ResultError("too long"), True]
    both = steps.completion(record=b"{}"), steps.completion("b", record=b"{}")
    reject = "reject a: its end cannot be written: too long"
    assert steps.write(*both) == ["store a b", reject, "ack b"]


def test_an_end_that_can_never_be_written_makes_a_dead_letter_and_spoils_no_other(
    steps: Steps,
) -> None:
    steps.fails["ack a"] = [ValueError("odd"), ValueError("odd")]
    assert steps.write(steps.completion(), steps.completion("b")) == [
        "reject a: its end cannot be written: odd",
        "ack b",
    ]


def test_what_follows_is_that_of_the_result_that_stands(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker had the message, too, and its failure came first."""
    first = Record(id="a", state=State.FAILURE, result=None)
    assert steps.app.results is not None
    monkeypatch.setattr(steps.app.results, "get", lambda _: first)
    steps.answers = [False]
    record = steps.app.results.encode(Record(id="a", state=State.SUCCESS, result=3))
    one = steps.completion(record=record, next=FOLLOWS)
    assert steps.write(one) == ["store a", "ack a"]
    assert one.job.outcome is not None
    assert (one.job.outcome.state, one.job.outcome.settled) == (State.FAILURE, True)


def test_as_many_go_together_as_leave_the_server_to_others(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    acker: Any = SimpleNamespace(_atomic=object(), _commits=False)
    for count, size, expected in ((1, 1, True), (MOST_AT_ONCE, 1, False), (1, 10**7, False)):
        assert Acker._has_room(acker, count, size) is expected


def test_a_result_on_another_server_is_stored_while_its_message_is_still_held(
    url: str, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TaskApp("tests", broker=url, result_backend=url.replace("host=0", "host=1")) as app:
        assert not app.completes_at_once
        assert app.results is not None
        held: list[int] = []
        store = app.results.write_many

        def write_many(records: Any) -> Any:
            held.append(look.in_flight())
            return store(records)

        monkeypatch.setattr(app.results, "write_many", write_many)
        app.task(name="add")(lambda: 3)
        with working(app) as worker:
            handle = app.send_task("add")
            wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
        assert (held, handle.result) == ([1], 3)
    assert look.left_behind() == []
