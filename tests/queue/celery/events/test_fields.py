"""The fields of events, for any task and any end."""

import json
from typing import Any, cast

import msgspec
import pytest

from blimp.errors import Refused, Reject
from blimp.queue import TaskApp
from blimp.queue.brokers.base import Delivery
from blimp.queue.celery.events import fields
from blimp.queue.protocol.message import MAX_REPR_LENGTH, TaskMessage
from blimp.queue.protocol.record import Outcome, Record, State, failure
from blimp.queue.worker.job import Job

PROGRAM = fields.program(hostname="pad", pid=7)
app = TaskApp("fields", broker="memory://")


@app.task(name="noop")
def noop() -> None: ...


def make_job(**message: Any) -> Job:
    return Job(
        message=TaskMessage(id="id", task="noop", **message),
        task=noop,
        delivery=cast("Delivery", None),
    )


def read(reported: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fields.to_bytes(reported, program=PROGRAM))
    return found


def test_every_event_names_its_program() -> None:
    reported = read(fields.Started("task-started", 1.5, "id"))
    assert reported == {
        "type": "task-started", "timestamp": 1.5, "uuid": "id",
        "hostname": "pad", "pid": 7, "utcoffset": fields.utc_offset_h(),
    }  # fmt: skip


@pytest.mark.parametrize("headers", [{}, {"argsrepr": 5, "kwargsrepr": None, "eta": 1}])
def test_arguments_are_shown_with_any_headers(headers: dict[str, Any]) -> None:
    message = TaskMessage(id="id", task="noop", args=(1,), kwargs={"b": "x"}, headers=headers)
    reported = read(fields.received(message, at_s=0.0))
    assert (reported["args"], reported["kwargs"], reported["eta"]) == ("(1,)", "{'b': 'x'}", None)


def test_invalid_unicode_is_replaced() -> None:
    message = TaskMessage(
        id="id", task="noop", headers={"argsrepr": "('\ud800',)", "kwargsrepr": "x" * 5000}
    )
    reported = read(fields.received(message, at_s=0.0))
    assert reported["args"] == "('?',)"
    assert len(reported["kwargs"]) == MAX_REPR_LENGTH


def test_a_result_without_a_repr_is_shown_by_its_class() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert fields.short(Shy()) == "<Shy: ValueError in its repr>"
    assert len(fields.short("x" * 5000)) == MAX_REPR_LENGTH


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome(state=State.SUCCESS, result=5), {"type": "task-succeeded", "result": "5"}),
        (failure(ValueError("a")), {"type": "task-failed", "exception": "ValueError('a')"}),
        (failure(Refused("no"), state=State.REFUSED), {"type": "task-failed"}),
        (failure(OSError(), state=State.INTERRUPTED), {"type": "task-failed"}),
        (Outcome(state=State.SUPERSEDED), {"type": "task-revoked", "expired": False}),
        (Outcome(state=State.EXPIRED), {"type": "task-revoked", "expired": True}),
        (Outcome(state=State.PENDING, requeue=True), {"type": "task-rejected", "requeue": True}),
        (Outcome(state=State.RETRY, retry_in_s=0.0), {"type": "task-retried", "exception": ""}),
    ],
)  # fmt: skip
def test_the_event_of_each_end(outcome: Outcome, expected: dict[str, Any]) -> None:
    reported = read(fields.ended(make_job(), outcome, at_s=2.0))
    assert expected.items() <= reported.items()
    assert (reported["uuid"], reported["timestamp"]) == ("id", 2.0)


def test_a_dead_letter_gets_the_event_of_its_outcome() -> None:
    own = msgspec.structs.replace(failure(Reject("not me")), dead="not me")
    killed = msgspec.structs.replace(failure(OSError("killed")), dead="killed")
    assert read(fields.ended(make_job(), own, at_s=0.0))["requeue"] is False
    assert read(fields.ended(make_job(), killed, at_s=0.0))["type"] == "task-failed"


def test_an_end_written_by_another_delivery_gets_its_event_again() -> None:
    settled = Outcome(state=State.PENDING, settled=True)
    job = make_job()
    assert fields.ended(job, settled, at_s=0.0) is None
    job.previous = Record(id="id", state=State.STARTED)
    assert fields.ended(job, settled, at_s=0.0) is None
    job.previous = Record(id="id", state=State.SUCCESS, result=[1])
    reported = read(fields.ended(job, settled, at_s=0.0))
    assert (reported["type"], reported["result"], reported["runtime"]) == (
        "task-succeeded",
        "[1]",
        None,
    )


def test_a_postponed_task_gets_no_event_of_its_end() -> None:
    assert fields.ended(make_job(), Outcome(state=State.PENDING, again_in_s=1.0), at_s=0.0) is None


def test_a_runtime_is_from_call_to_return() -> None:
    job = make_job()
    job.started_s, job.ended_s = 10.0, 12.5
    reported = read(fields.ended(job, Outcome(state=State.SUCCESS), at_s=0.0))
    assert reported["runtime"] == 2.5
