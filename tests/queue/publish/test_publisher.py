"""Publishing again: bounded, in the words of a policy, and never twice for one answer lost."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import redis

from blimp.clock import ManualClock
from blimp.errors import ConfigError, LinkError, MessageError
from blimp.queue import AsyncResult, Task, TaskApp
from blimp.queue.brokers.base import Completion
from blimp.queue.protocol.message import HIGH
from blimp.queue.redis.keys import Keys
from blimp.queue.retry import ONCE, PUBLISHING, RetryPolicy, policy_of
from blimp.queue.worker.acker import Acker
from tests.queue.conftest import DEADLINE_S, working
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


def test_a_publish_whose_answer_was_lost_runs_once(
    app: TaskApp, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    ran_again = threading.Event()
    write = Acker._write

    @app.task(name="note")
    def note(what: str) -> None:
        if what in runs:
            ran_again.set()
        runs.append(what)

    def write_late(acker: Acker, batch: Sequence[Completion]) -> list[Completion]:
        ran_again.wait(0.1)  # long enough for a copy that does not wait for the first's result
        return write(acker, batch)

    monkeypatch.setattr(Acker, "_write", write_late)
    send, lost = app.publisher._sender().send, [True, True]

    def lose_the_answer(*args: Any, **options: Any) -> None:
        send(*args, **options)
        if lost:
            lost.pop()
            raise LinkError("the answer is lost")

    monkeypatch.setattr(app.publisher._sender(), "send", lose_the_answer)
    handle = app.send_task("note", ("a",))
    # Streams know the message again; elsewhere the worker finds the result of the first.
    assert look.waiting() == 1
    app.send_task("note", ("b",))
    # One at a time: a copy that runs beside the first finds no result yet.
    with working(app, sync_workers=1):
        handle.wait(DEADLINE_S)
        app.send_task("note", ("c",)).wait(DEADLINE_S)
    assert runs == ["a", "b", "c"]
    assert look.left_behind() == []


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


# --- unique_for ----------------------------------------------------------------------------------


def test_of_many_senders_of_the_same_one_sends_it(url: str) -> None:
    ran: list[tuple[Any, ...]] = []
    begin = threading.Barrier(8)
    sent: list[AsyncResult] = []

    def define(app: TaskApp) -> Task:
        return app.task(name="it", unique_for=60.0)(lambda *args, by=1: ran.append((*args, by)))

    def send(number: int) -> None:
        with TaskApp("tests", broker=url, result_backend=url) as app:
            it = define(app)
            begin.wait(DEADLINE_S)
            sent.append(it.delay(1, by=2))
            sent.append(it.apply_async((1,), {"by": 2}, countdown=0.01))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(sent) == 16
    assert len({one.id for one in sent}) == 1
    with TaskApp("tests", broker=url, result_backend=url) as app:
        it = define(app)
        others = [it.delay(), it.delay(1), it.delay(1, by=3), it.delay("1", by=2)]
        assert len({one.id for one in (*others, sent[0])}) == 5
        with working(app):
            app.result(sent[0].id).get(DEADLINE_S)
            assert it.delay(1, by=2) == sent[0]  # it has ended, and is not sent again
            for one in others:
                one.get(DEADLINE_S)
            it.delay("last").get(DEADLINE_S)
    assert Counter(ran) == Counter([(1,), (1, 1), (1, 2), (1, 3), ("1", 2), ("last", 1)])


def test_the_next_sends_for_one_that_died_after_it_had_claimed(
    app: TaskApp, server: redis.Redis, look: Look
) -> None:
    it = app.task(name="it", unique_for=60.0)(lambda value: value)
    first = it.delay("known")
    claims: Any = [key for key in server.keys("*unique*") if b":" + first.id.encode() not in key]
    assert len(claims) == 1
    server.set(claims[0], "claimed-only", px=60_000)
    assert it.delay("known").id == it.delay("known").id == "claimed-only"
    assert look.waiting() == 2
    with working(app):
        assert app.result("claimed-only").get(DEADLINE_S) == "known"


def test_what_is_the_same_is_the_key_and_later_it_is_another(
    app: TaskApp, server: redis.Redis
) -> None:
    ran: list[int] = []

    @app.task(name="it", unique_for=60.0, unique_key=lambda user: user)
    def it(user: str, number: int) -> int:
        ran.append(number)
        return number

    @app.task(name="template", unique_for=60.0, unique_key="{number}")
    def template(number: int, other: int = 0) -> None: ...

    first = it.delay("ada", 1)
    assert it.delay("ada", 2) == first
    assert it.delay("bob", 3) != first
    claims: Any = [key for key in server.keys("*unique*") if server.get(key) == first.id.encode()]
    assert len(claims) == 1
    assert 0 < server.pttl(claims[0]) <= 60_000
    server.delete(*claims)  # as it does by itself then
    assert it.delay("ada", 4) != first
    assert template.delay(1, 2) == template.delay(1, 3) != template.delay(2, 2)
    with working(app):
        assert first.get(DEADLINE_S) == 1
        it.delay("last", 5).get(DEADLINE_S)
    assert ran == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"unique_for": 0}, "unique_for 0: must be"),
        ({"unique_for": True}, "unique_for True: must be"),
        ({"unique_for": 1e9}, "unique_for 1000000000.0: must be"),
        ({"unique_key": "a"}, "unique_key: for how long"),
        ({"unique_for": 1.0, "unique_key": 1}, "unique_key 1: must be a text or a function"),
        ({"unique_for": 1.0, "coalesce": True}, "unique_for and coalesce"),
    ],
)
def test_what_cannot_be_unique_is_refused(app: TaskApp, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        app.task(name="it", **options)(print)


def test_where_it_cannot_be_known_sending_is_refused(app: TaskApp) -> None:
    it = app.task(name="it", unique_for=60.0, unique_key=lambda size: 1 // size)(lambda size: size)
    with pytest.raises(MessageError, match="unique_key of 'it': ZeroDivisionError"):
        it.delay(0)
    with pytest.raises(MessageError, match=r"signatures\[0\]: 'it' is unique: it is sent alone"):
        app.send_many([it.s(1)])
    with TaskApp("tests", broker="memory://") as other:
        it = other.task(name="it", unique_for=60.0)(lambda size: size)
        with pytest.raises(ConfigError, match="unique_for needs a Redis or Valkey broker"):
            it.delay(1)
