"""Publishing again: bounded, in the words of a policy, and never twice for one answer lost."""

import json
import time
from typing import Any

import pytest

from blimp.clock import ManualClock
from blimp.errors import ConfigError, LinkError, MessageError
from blimp.queue import TaskApp
from blimp.queue.protocol.message import AGAIN, HIGH
from blimp.queue.protocol.signing import SEAL
from blimp.queue.publish.coalescing import Coalescing
from blimp.queue.redis.keys import Keys
from blimp.queue.retry import ONCE, PUBLISHING, RetryPolicy, policy_of
from tests.queue.conftest import DEADLINE_S
from tests.queue.server_view import Look


class Fixed:
    """A chance that draws the upper end."""

    def uniform(self, _: float, high: float) -> float:
        return high


def attempts(policy: RetryPolicy, *, cost_s: float = 0.0, brokers: int = 1) -> list[float]:
    """Return when a call was tried that never succeeds, on a clock of its own."""
    clock, times = ManualClock(), []

    def call() -> None:
        times.append(round(clock.now_s(), 3))
        clock.advance(cost_s)
        raise LinkError("unreachable")

    with pytest.raises(LinkError):
        policy.call(call, clock=clock, chance=Fixed(), brokers=brokers)  # type: ignore[arg-type]
    return times


def test_waits_grow_by_a_step_up_to_the_longest() -> None:
    policy = RetryPolicy(
        max_retries=5, interval_start=0.1, interval_step=0.2, interval_max=0.5, jitter=0.0
    )
    assert attempts(policy) == [0.0, 0.1, 0.4, 0.9, 1.4, 1.9]


def test_the_deadline_ends_it() -> None:
    policy = RetryPolicy(max_retries=None, timeout_s=5.0, interval_step=0.0)
    assert attempts(policy, cost_s=2.0) == [0.0, 2.0, 4.0]


def test_each_broker_of_a_round_is_tried_without_a_wait() -> None:
    policy = RetryPolicy(max_retries=5, interval_start=1.0, interval_max=1.0)
    assert attempts(policy, brokers=2) == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]


def test_once_is_once() -> None:
    assert attempts(ONCE) == [0.0]


def test_a_policy_may_be_given_in_celerys_words() -> None:
    given = {"max_retries": 7, "interval_start": 0.5, "interval_step": 0.1, "interval_max": 2}
    policy = policy_of(given, PUBLISHING)
    assert (policy.max_retries, policy.interval_max) == (7, 2)
    assert policy_of(None, PUBLISHING) is PUBLISHING
    assert policy_of(ONCE, PUBLISHING) is ONCE


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"retries": 3}, "unknown field `retries`"),
        ({"max_retries": -1}, r"'max_retries': -1}: Expected `int` >= 0 .*max_retries"),
        ({"interval_max": None}, r"Expected `float`, got `null` .*interval_max"),
        ({"interval_step": "x"}, r"Expected `float`, got `str` .*interval_step"),
    ],
)
def test_what_is_wrong_in_a_policy_is_named(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        TaskApp("tests", broker="redis://localhost", retry_policy=given)


@pytest.mark.parametrize(
    ("options", "tries"),
    [({}, 4), ({"retry": False}, 1), ({"retry_policy": {"max_retries": 1}}, 2)],
)
def test_a_message_has_its_own_policy(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch, options: Any, tries: int
) -> None:
    seen: list[float] = []

    def fail(*_: object, **__: object) -> None:
        seen.append(time.monotonic())
        raise LinkError("unreachable")

    monkeypatch.setattr(app.publisher._sender(), "send", fail)
    with pytest.raises(LinkError):
        app.send_task("add", **options)
    assert len(seen) == tries


@pytest.mark.parametrize("key", [None, "k" * 16])
def test_what_is_sent_again_says_so_and_is_signed_as_one_of_its_own(
    url: str, look: Look, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """A broker without stamps has both: the worker looks whether it has ended already."""
    attempts: list[tuple[dict[str, Any], object]] = []
    with TaskApp("tests", broker=url, signing_key=key) as app:
        sender = app.publisher._sender()

        def lose(messages: Any, stamp: Any) -> None:
            ((_, headers, body),) = messages
            if app.signer is not None:
                app.signer.check(headers, body, queue="tests")
            attempts.append((dict(headers), stamp))
            if len(attempts) < 3:
                raise LinkError("the answer is lost")

        monkeypatch.setattr(sender, "send", lose)
        app.send_task("t")
    assert [AGAIN in headers for headers, _ in attempts] == [False, True, True]
    assert len({stamp for _, stamp in attempts}) == 1
    assert len({headers.get(SEAL) for headers, _ in attempts}) == (3 if key else 1)


def test_a_broadcast_is_sealed_dated_and_not_above_the_limit(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []
    with TaskApp("tests", broker=url, signing_key="k" * 16, limit_bytes=1000) as app:
        sender = app.publisher._sender()
        monkeypatch.setattr(sender, "broadcast", lambda _, body: sent.append(json.loads(body)))
        for _ in range(2):
            app.broadcast("estop", id="one")
        with pytest.raises(MessageError, match=r"broadcast of \d+ bytes: the limit is 1000"):
            app.broadcast("estop", {"why": "x" * 1000})
        now_s = app.broker_clock.now_s()
    assert [one["id"] for one in sent] == ["one", "one"]
    assert sent[0]["seal"] != sent[1]["seal"]
    assert all(abs(one["sent_s"] - now_s) < DEADLINE_S and one["signature"] for one in sent)


def test_what_is_newer_is_remembered_after_it_was_sent(
    app: TaskApp, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, a sender leaves two that run, and not one that never came."""
    waiting: list[int] = []
    monkeypatch.setattr(Coalescing, "remember", lambda *_: waiting.append(look.waiting()))
    app.send_task("t", coalesce="k")
    assert waiting == [1]


def test_a_task_sent_by_name_has_the_options_of_the_known_task(app: TaskApp, look: Look) -> None:
    app.task(name="aim", queue="guns", priority=HIGH, ttl_s=5.0)(lambda: None)
    app.send_task("aim")
    app.tasks["aim"].delay()
    app.send_task("aim", queue="other")
    assert look.server.xlen(Keys().queue("guns").levels[1]) == 2
    assert look.server.xlen(Keys().queue("other").levels[1]) == 1
    entries = look.server.xrange(Keys().queue("guns").levels[1])
    assert all(b'"blimp_ttl_s":5.0' in fields[b"h"] for _, fields in entries)


class NumpyFloat(float):
    """A subclass of float, as numpy.float64 is one."""


def test_a_number_may_be_a_subclass_of_float(app: TaskApp, look: Look) -> None:
    app.send_task("aim", ttl_s=NumpyFloat(5.0), expires=NumpyFloat(60.0))
    ((_, fields),) = look.server.xrange(Keys().queue(app.queue).levels[2])
    assert b'"blimp_ttl_s":5.0' in fields[b"h"]
    with pytest.raises(MessageError, match=r"option 'ttl_s' is -1\.0"):
        app.send_task("aim", ttl_s=NumpyFloat(-1.0))
    with pytest.raises(MessageError, match="option 'expires' is False"):
        app.send_task("aim", expires=False)


@pytest.mark.parametrize("priority", ["", "3", 10, -1, 0.5])
def test_a_priority_that_there_is_not_is_refused(app: TaskApp, look: Look, priority: Any) -> None:
    task = app.task(name="t")(lambda: None)
    for send in (task.apply_async, task.s().apply_async):
        with pytest.raises(ConfigError, match=r"priority .*: must be from 0 \(first\) to 9"):
            send((), priority=priority)
    assert look.left_behind() == []
