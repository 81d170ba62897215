"""What the end of a function means for its message."""

import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from blimp.errors import (
    Interrupted,
    Refused,
    Reject,
    SoftTimeLimitExceeded,
    WorkerLost,
)
from blimp.queue import State, TaskApp
from blimp.queue.brokers.base import MOST_DELIVERIES
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Outcome, failure
from blimp.queue.protocol.signing import SEAL
from blimp.queue.redis.keys import began_key
from blimp.queue.retry import give_up
from blimp.queue.worker.completions import Completions, outcome_of, timed_out, worker_lost
from blimp.queue.worker.job import Job
from tests.queue.conftest import Silence

NOWHERE = "redis+socket:///nowhere?virtual_host=0"
KEY = "k" * 16


def task(app: TaskApp | None = None, **options: Any) -> Any:
    app = app or TaskApp("ship", broker=NOWHERE, result_backend=NOWHERE)
    return app.task(name="t", **options)(lambda: None)


def ends(outcome: Outcome) -> tuple[State, bool, bool]:
    """Return its state, whether its message is put back, and whether it is a dead letter."""
    return outcome.state, outcome.requeue, bool(outcome.dead)


FAILS, AGAIN = (State.FAILURE, False, False), (State.FAILURE, True, False)
DEAD = (State.FAILURE, False, True)


@pytest.mark.parametrize(
    ("error", "options", "expected"),
    [
        (ValueError(), {}, FAILS),
        (ValueError(), {"acks_on_failure": False}, AGAIN),
        (ValueError(), {"acks_on_failure": False, "acks_late": False}, FAILS),
        (ValueError(), {"acks_on_timeout": False}, FAILS),
        (SoftTimeLimitExceeded(), {"acks_on_timeout": False}, AGAIN),
        (SoftTimeLimitExceeded(), {"acks_on_failure": False}, FAILS),
        (Refused("no"), {"autoretry_for": (Exception,)}, (State.REFUSED, False, False)),
        (Interrupted("cut"), {}, (State.INTERRUPTED, False, False)),
        (Reject("no"), {}, DEAD),
        (Reject("later", requeue=True), {}, AGAIN),
    ],
)
def test_what_an_error_means_is_in_the_options(
    error: Exception, options: dict[str, Any], expected: tuple[State, bool, bool]
) -> None:
    message = TaskMessage(id="a", task="t")
    outcome = outcome_of(error, task=task(**options), message=message, chance=random.Random())
    assert ends(outcome) == expected


@pytest.mark.parametrize(("retries", "expected"), [(0, State.RETRY), (2, State.FAILURE)])
def test_it_is_retried_so_often_and_no_more(retries: int, expected: State) -> None:
    again = task(autoretry_for=(OSError,), max_retries=2)
    message = TaskMessage(id="a", task="t", retries=retries)
    outcome = outcome_of(OSError(), task=again, message=message, chance=random.Random())
    assert outcome.state is expected
    given_up = OSError()
    give_up(given_up)
    outcome = outcome_of(given_up, task=again, message=message, chance=random.Random())
    assert outcome.state is State.FAILURE


@pytest.mark.parametrize(
    ("options", "delivery", "expected"),
    [
        ({}, 1, AGAIN),
        ({}, MOST_DELIVERIES, DEAD),  # it may be what kills its process
        ({"acks_late": False}, 1, FAILS),
        ({"reject_on_worker_lost": True}, 1, DEAD),
        ({"idempotent": False}, 1, (State.INTERRUPTED, False, False)),
    ],
)
def test_a_lost_process_is_no_reason_to_run_what_may_not_run_twice(
    options: dict[str, Any], delivery: int, expected: tuple[State, bool, bool]
) -> None:
    lost = worker_lost(WorkerLost("killed"), task=task(**options), delivery=delivery)
    assert ends(lost) == expected


def test_past_its_hard_limit_it_fails_or_goes_back() -> None:
    assert ends(timed_out(1.0, task=task())) == FAILS
    assert ends(timed_out(1.0, task=task(acks_on_timeout=False))) == AGAIN
    assert ends(timed_out(1.0, task=task(acks_on_timeout=False, acks_late=False))) == FAILS


# --- completions ---------------------------------------------------------------------------------


def build(outcome: Outcome, *, app: TaskApp | None = None, **options: Any) -> Any:
    one = task(app, **options)
    delivery: Any = SimpleNamespace(tag="1")
    message = TaskMessage(id="a", task="t", retries=1, delivery=3, headers={SEAL: "s-1"})
    job = Job(message=message, task=one, delivery=delivery)
    return Completions(app=one.app, worker="w", log=Silence()).build(job, outcome)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> TaskApp:
    """At a second of a thousand by the broker's clock, and at another by its own."""
    app = TaskApp("ship", broker=NOWHERE, result_backend=NOWHERE, signing_key=KEY)
    monkeypatch.setattr(app.broker_clock, "now_s", lambda: 1000.0)
    return app


def test_the_next_try_counts_and_waits_on_the_brokers_clock(app: TaskApp) -> None:
    outcome = Outcome(state=State.RETRY, retry_in_s=5.0)
    (again,) = build(outcome, app=app).next
    assert (again.id, again.retries, again.delivery, again.eta_s) == ("a", 2, 4, 1005.0)


def test_what_only_waits_for_a_resource_counts_nothing(app: TaskApp) -> None:
    (again,) = build(Outcome(state=State.PENDING, again_in_s=5.0), app=app).next
    assert (again.id, again.retries, again.delivery, again.eta_s) == ("a", 1, 3, 1005.0)


def test_what_was_acknowledged_before_it_ran_is_sent_again(app: TaskApp) -> None:
    completion = build(Outcome(state=State.PENDING, requeue=True), app=app, acks_late=False)
    assert (completion.requeue, completion.acks) == (False, False)
    assert [(one.id, one.delivery) for one in completion.next] == [("a", 4)]


@pytest.mark.parametrize(
    ("outcome", "is_known"),
    [
        (Outcome(state=State.PENDING, requeue=True), False),
        (msgspec.structs.replace(failure(ValueError()), dead="no"), False),
        (failure(ValueError()), True),
    ],
)
def test_what_comes_in_another_entry_is_accepted_there(
    app: TaskApp, outcome: Outcome, is_known: bool
) -> None:
    assert app.signer is not None
    app.signer.window.admit("s-1", "here")
    build(outcome, app=app)
    assert ("s-1" in app.signer.window._entries) is is_known


@pytest.mark.parametrize("options", [{"idempotent": False}, {"reject_on_worker_lost": True}])
def test_the_mark_of_what_may_not_begin_twice_ends_with_it(options: dict[str, Any]) -> None:
    ended = Outcome(state=State.SUCCESS)
    assert build(ended, **options).mark == began_key("a", 1)
    assert build(ended).mark == ""


def test_a_record_is_stored_unless_it_is_ignored() -> None:
    ended = Outcome(state=State.SUCCESS, result=3)
    assert b'"result":3' in build(ended).record
    assert build(ended, ignore_result=True).record == b""
    assert build(Outcome(state=State.SUCCESS, settled=True)).record == b""
