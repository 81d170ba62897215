"""One job: who ends it, and what its function learns of that."""

from types import SimpleNamespace
from typing import Any

import pytest

from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker.job import Job, Stage


class Running:
    """A function's run that can be cancelled, as a coroutine, or not, as a thread."""

    def __init__(self, *, can_be_cancelled: bool) -> None:
        self.can_be_cancelled = can_be_cancelled
        self.asked: list[str] = []

    def cancel(self) -> bool:
        self.asked.append("cancel")
        return self.can_be_cancelled

    def interrupt(self) -> None:
        self.asked.append("interrupt")


@pytest.fixture
def job() -> Job:
    app = TaskApp("ship", broker="redis+socket:///nowhere?virtual_host=0")
    delivery: Any = SimpleNamespace(tag="1")
    task = app.task(name="t")(lambda: None)
    return Job(message=TaskMessage(id="a", task="t"), task=task, delivery=delivery)


def run(job: Job, *, can_be_cancelled: bool = True) -> list[str]:
    """Have its function run; return what is asked of that."""
    call: Any = Running(can_be_cancelled=can_be_cancelled)
    assert job.begin()
    job.call = call
    asked: list[str] = call.asked
    return asked


def test_who_begins_it_and_who_requeues_it_exclude_each_other(job: Job) -> None:
    assert job.begin()
    assert not job.begin()
    assert not job.withdraw()
    assert job.finish()
    assert not job.finish()
    assert job.stage is Stage.DONE


def test_what_was_withdrawn_neither_begins_nor_ends(job: Job) -> None:
    assert job.withdraw()
    assert (job.begin(), job.withdraw(), job.finish()) == (False, False, False)


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_a_lost_lease_ends_its_function_and_is_seen_there(job: Job, is_looked_at: bool) -> None:
    asked = run(job)
    lost = job.lost if is_looked_at else None
    job.lose()
    assert (lost or job.lost).is_set()
    assert (asked, job.is_lost) == (["cancel"], True)


def test_a_lost_resource_ends_its_function_and_not_its_message(job: Job) -> None:
    asked = run(job)
    job.lose_grant()
    assert job.lost.is_set()
    assert (asked, job.is_lost) == (["cancel"], False)


@pytest.mark.parametrize(
    ("can_be_cancelled", "expected"), [(True, ["cancel"]), (False, ["cancel", "interrupt"])]
)
def test_a_revoked_one_is_cancelled_or_else_interrupted(
    job: Job, can_be_cancelled: bool, expected: list[str]
) -> None:
    asked, revoked = run(job, can_be_cancelled=can_be_cancelled), job.revoked
    job.revoke()
    assert revoked.is_set()
    assert (asked, job.is_revoked) == (expected, True)
