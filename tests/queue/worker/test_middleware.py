"""Jobs that do not begin: too old, superseded, over the limit, or begun before."""

from types import SimpleNamespace
from typing import Any

import pytest
import redis

from blimp.clock import ManualClock
from blimp.queue import State, TaskApp
from blimp.queue.brokers.base import MARK_KEEP_S
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Outcome, Record
from blimp.queue.redis.keys import began_key
from blimp.queue.steps import here
from blimp.queue.worker import acker
from blimp.queue.worker.job import Job
from blimp.queue.worker.middleware import (
    AHEAD_S,
    Expiry,
    OverLimit,
    SkipSuperseded,
    begun_before,
    default_middleware,
    mark_begun,
)
from tests.queue.conftest import DEADLINE_S, Held, wait_until, working


def test_a_mark_does_not_expire_while_its_message_is_pending(
    app: TaskApp, server: redis.Redis
) -> None:
    """A message may lie for longer than any time to live: its mark must be found then."""
    held = Held()
    once = app.task(name="once", idempotent=False)(held.run)
    key = began_key("the-id", 0, 0)
    with working(app):
        handle = once.apply_async((1,), task_id="the-id")
        assert held.began.wait(DEADLINE_S)
        assert server.ttl(key) == -1
        held.go.set()
        assert handle.get(DEADLINE_S) == 1
        wait_until(lambda: server.ttl(key) > 0, "a mark stays for ever")
    assert server.ttl(key) <= MARK_KEEP_S


@pytest.mark.parametrize("kept", [True, False], ids=["result", "ignored"])
def test_a_worker_killed_right_after_an_end_leaves_no_mark(
    app: TaskApp, server: redis.Redis, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The step that ends the message sets the expiry: what follows it may never happen."""
    monkeypatch.setattr(acker, "let_marks_expire", lambda *_: None)

    @app.task(name="once", idempotent=False, ignore_result=not kept)
    def once() -> None: ...

    key = began_key("the-id", 0, 0)
    with working(app) as worker:
        once.apply_async(task_id="the-id")
        wait_until(lambda: worker.counts["done"] == 1, "the task does not end")
    assert 0 < server.ttl(key) <= MARK_KEEP_S


# --- without a server ----------------------------------------------------------------------------

NOWHERE = "redis+socket:///nowhere?virtual_host=0"
RAN = Outcome(state=State.SUCCESS, result="ran")
NOW_S = 1000.0


def job_of(message: TaskMessage, *, previous: Record | None = None, **options: Any) -> Job:
    app = TaskApp("ship", broker=NOWHERE, result_backend=NOWHERE)
    delivery: Any = SimpleNamespace(tag="1", over_delivery_limit="delivered 20 times")
    job = Job(message=message, task=app.task(name="t", **options)(lambda: None), delivery=delivery)
    job.in_thread, job.previous = here, previous
    return job


def pass_through(middleware: Any, job: Job) -> Outcome:
    """Return how the job ends, whose function succeeds if it is called."""

    async def call(_: Job) -> Outcome:
        return RAN

    passing = middleware(job, call)
    with pytest.raises(StopIteration) as ended:
        passing.send(None)
    found: Outcome = ended.value.value
    return found


class BrokersTime:
    """It may be up to a second later than is certain, and went back by two."""

    def latest_s(self) -> float:
        return NOW_S

    now_s = latest_s

    def doubt_s(self, issued_s: float) -> float:
        return 2.0 if issued_s <= NOW_S - 3.0 else 0.0


def ends_at(age_s: float, *, ttl_s: float | None = None, **given: Any) -> State:
    clock: Any = BrokersTime()
    fields = {name: given.pop(name) for name in ("expires_s",) if name in given}
    issued_ms = int((NOW_S - age_s) * 1000)
    message = TaskMessage(id="a", task="t", issued_ms=issued_ms, ttl_s=ttl_s, **fields)
    job = job_of(message, **given)
    expiry = Expiry(clock=clock)
    assert expiry.wants(job)
    return pass_through(expiry, job).state


BEGAN, NOT = Record(id="a", state=State.STARTED), Record(id="a", state=State.PENDING)


@pytest.mark.parametrize(
    ("age_s", "given", "expected"),
    [
        (1.0, {"ttl_s": 1.0}, State.SUCCESS),
        (1.1, {"ttl_s": 1.0}, State.EXPIRED),
        (-0.9 * AHEAD_S, {"ttl_s": 1.0}, State.SUCCESS),
        (-1.1 * AHEAD_S, {"ttl_s": 1.0}, State.EXPIRED),  # of the future: the clock went back
        (4.0, {"ttl_s": 5.0}, State.EXPIRED),  # it may be 6 s old
        (4.0, {"ttl_s": 5.0, "acts_in_doubt": True}, State.SUCCESS),
        (0.0, {"expires_s": NOW_S}, State.SUCCESS),
        (0.0, {"expires_s": NOW_S - 0.1}, State.EXPIRED),
        (9.0, {"ttl_s": 1.0, "resumable": True, "previous": BEGAN}, State.SUCCESS),
        (9.0, {"ttl_s": 1.0, "resumable": True, "previous": NOT}, State.EXPIRED),
        (9.0, {"ttl_s": 1.0, "resumable": True}, State.EXPIRED),
        (9.0, {"ttl_s": 1.0, "previous": BEGAN}, State.EXPIRED),
    ],
)
def test_what_is_too_old_by_the_brokers_clock_does_not_begin(
    age_s: float, given: dict[str, Any], expected: State
) -> None:
    assert ends_at(age_s, **given) is expected


def test_whether_it_is_superseded_must_be_known_before_it_begins() -> None:
    job = job_of(TaskMessage(id="a", task="t", coalesce="k", coalesce_number=1))
    superseded = SkipSuperseded(app=job.task.app)  # type: ignore[arg-type]
    assert superseded.wants(job)
    assert pass_through(superseded, job).requeue  # its server does not answer


def test_what_was_delivered_too_often_is_a_dead_letter() -> None:
    job = job_of(TaskMessage(id="a", task="t"))
    found = pass_through(OverLimit(), job)
    assert (found.state, found.dead) == (State.FAILURE, "t: delivered 20 times")


@pytest.mark.parametrize(
    ("delivery", "options", "expected"),
    [
        (1, {}, State.STARTED),  # a copy by a publisher that lost its answer
        (2, {}, State.INTERRUPTED),
        (2, {"reject_on_worker_lost": True}, State.FAILURE),
    ],
)
def test_what_had_begun_and_may_not_begin_twice_does_not(
    delivery: int, options: dict[str, Any], expected: State
) -> None:
    message = TaskMessage(id="a", task="t", delivery=delivery)
    found = begun_before(job_of(message, idempotent=False, **options))
    assert (found.state, bool(found.dead)) == (expected, expected is State.FAILURE)
    assert found.settled is (expected is State.STARTED)


def test_of_two_deliveries_one_begins_and_knows_that_it_was_itself(app: TaskApp) -> None:
    message = TaskMessage(id="a", task="t")
    first, second = job_of(message), job_of(message)
    assert mark_begun(app, first)
    assert not mark_begun(app, second)
    assert mark_begun(app, first)  # asked again, as the answer was lost


def test_all_that_a_job_passes_is_there_in_its_order() -> None:
    app = TaskApp("ship", broker=NOWHERE, clock=ManualClock())
    assert [type(one).__name__ for one in default_middleware(app)] == [
        "Leftovers", "Once", "OverLimit", "SkipRevoked", "SkipSuperseded", "Expiry", "Requires",
    ]  # fmt: skip
