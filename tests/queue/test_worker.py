"""The worker on a real broker: what becomes of each kind of task and message."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from blimp.errors import (
    ConfigError,
    Expired,
    Interrupted,
    MaxRetriesExceeded,
    Refused,
    Reject,
    Retry,
    TaskError,
    TaskFailed,
    UnknownTask,
)
from blimp.queue import State, TaskApp, TaskContext, Worker
from blimp.queue.protocol.message import HIGH, LOW
from blimp.queue.protocol.record import Record
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.golden import CELERY_MESSAGE, envelope
from tests.queue.look import Look
from tests.queue.rounds import a_hundred_done

# --- plain and async, arguments and results ---------------------------------------------------


def test_runs_plain_and_async_tasks_and_acknowledges_them(app: TaskApp, look: Look) -> None:
    with a_hundred_done(app):
        assert look.left_behind() == [b"blimp.worker.tests.worker"]
    assert look.left_behind() == []


def test_async_tasks_run_side_by_side(app: TaskApp) -> None:
    met = threading.Barrier(1)
    seen: list[int] = []
    together = asyncio.Event()

    @app.task(name="meet")
    async def meet(number: int) -> int:
        seen.append(number)
        if len(seen) == 5:
            together.set()
        await asyncio.wait_for(together.wait(), DEADLINE_S)
        return number

    with working(app):
        handles = [meet.delay(n) for n in range(5)]
        assert [handle.get(DEADLINE_S) for handle in handles] == list(range(5))
    assert met.parties == 1


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
    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    with working(app), pytest.raises(TaskFailed) as caught:
        add.apply_async(args, kwargs).get(DEADLINE_S)
    assert caught.value.kind == "TypeError"
    assert complaint in str(caught.value)


def test_wrong_arguments_leave_no_dead_letter(app: TaskApp, look: Look) -> None:
    app.task(name="add")(lambda a: a)
    with working(app), pytest.raises(TaskFailed):
        app.send_task("add", (1, 2, 3)).get(DEADLINE_S)
    assert look.left_behind() == []


def test_a_task_that_fails_for_good_is_logged_at_error_with_its_traceback(app: TaskApp) -> None:
    @app.task(name="fails", autoretry_for=(OSError,), max_retries=1, retry_backoff=False)
    def fails() -> None:
        raise OSError("still shut")

    log = Silence()
    with working(app, log=log), pytest.raises(TaskFailed):
        fails.delay().get(DEADLINE_S)
    told = [(level, fields) for level, event, fields in log.lines if event == "task"]
    assert [(level, fields["state"]) for level, fields in told] == [
        ("info", "RETRY"),
        ("error", "FAILURE"),
    ]
    assert 'raise OSError("still shut")' in told[1][1]["traceback"]


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


def test_progress_and_start_are_told(app: TaskApp) -> None:
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
            told: dict[State, Record] = {}  # what is stored is read first, and may be the later
            while not {State.STARTED, State.PROGRESS} <= told.keys():
                record = watch.next(timeout_s=DEADLINE_S)
                assert record is not None
                told[record.state] = record
            assert told[State.PROGRESS].result == {"fraction": 0.4, "leg": 2}
            go.set()
            assert handle.get(DEADLINE_S) == "the-id"


# --- retry and reject -------------------------------------------------------------------------


def test_retries_with_growing_waits_until_it_succeeds(app: TaskApp) -> None:
    tries: list[tuple[int, int]] = []

    @app.task(
        name="shaky",
        bind=True,
        autoretry_for=(OSError,),
        max_retries=5,
        retry_backoff=0.01,
        retry_jitter=False,
    )
    def shaky(context: TaskContext) -> int:
        tries.append((context.message.retries, context.fence))
        if len(tries) < 4:
            raise ConnectionResetError("again")
        return len(tries)

    with working(app):
        assert shaky.delay().get(DEADLINE_S) == 4
    assert [retries for retries, _ in tries] == [0, 1, 2, 3]
    fences = [fence for _, fence in tries]
    assert fences == sorted(set(fences)), "the fence must grow with each try"


def test_gives_up_after_max_retries_with_its_own_error(app: TaskApp, look: Look) -> None:
    tries = []

    @app.task(name="lost", autoretry_for=(OSError,), max_retries=2, retry_backoff=0.01)
    def lost() -> None:
        tries.append(1)
        raise OSError("gone")

    with working(app) as worker:
        with pytest.raises(TaskFailed, match="OSError: gone"):
            lost.delay().get(DEADLINE_S)
        wait_until(lambda: worker.counts["done"] == 3, "not acknowledged")
    assert len(tries) == 3
    assert look.left_behind() == []


def test_retries_only_what_it_was_told_to(app: TaskApp) -> None:
    tries = []

    @app.task(name="lost", autoretry_for=(OSError,), retry_backoff=0.01)
    def lost() -> None:
        tries.append(1)
        raise KeyError("other")

    with working(app), pytest.raises(TaskFailed, match="KeyError"):
        lost.delay().get(DEADLINE_S)
    assert len(tries) == 1


def test_a_task_may_ask_for_its_own_retry(app: TaskApp) -> None:
    @app.task(name="asks", bind=True, max_retries=2)
    def asks(context: TaskContext) -> None:
        context.retry(countdown=0.01)

    @app.task(name="asks-with", bind=True, max_retries=1)
    def asks_with(context: TaskContext) -> None:
        context.retry(ValueError("still shut"), eta=datetime.now(UTC))

    @app.task(name="raises", bind=True)
    def raises(context: TaskContext) -> int:
        if context.message.retries == 0:
            raise Retry("later", countdown_s=0.01)
        return context.message.retries

    with working(app):
        with pytest.raises(TaskFailed, match="asks: tried again 2 times, its limit") as caught:
            asks.delay().get(DEADLINE_S)
        assert caught.value.kind == MaxRetriesExceeded.__name__
        with pytest.raises(TaskFailed, match="ValueError: still shut"):
            asks_with.delay().get(DEADLINE_S)
        assert raises.delay().get(DEADLINE_S) == 1


def test_reject_drops_or_puts_back(app: TaskApp, look: Look) -> None:
    deliveries: list[int] = []

    @app.task(name="drop")
    def drop() -> None:
        raise Reject("not for me")

    @app.task(name="back", bind=True)
    def back(context: TaskContext) -> int:
        deliveries.append(context.fence)
        if context.fence < 3:
            raise Reject("not yet", requeue=True)
        return context.fence

    with working(app) as worker:
        with pytest.raises(TaskFailed, match="Reject: not for me"):
            drop.delay().get(DEADLINE_S)
        assert back.delay().get(DEADLINE_S) == 3
        wait_until(lambda: worker.counts["done"] == 4, "not acknowledged")
    assert deliveries == [1, 2, 3]
    assert look.left_behind() == []


@pytest.mark.parametrize("acks_late", [True, False])
def test_a_task_that_may_not_begin_twice_may_ask_to(app: TaskApp, acks_late: bool) -> None:
    deliveries: list[int] = []

    @app.task(name="back", bind=True, idempotent=False, acks_late=acks_late)
    def back(context: TaskContext) -> int:
        deliveries.append(context.fence)
        if context.fence < 3:
            raise Reject("not yet", requeue=True)
        return context.fence

    with working(app):
        assert back.delay().get(DEADLINE_S) == 3
    assert deliveries == [1, 2, 3]


def test_a_failure_that_is_not_acknowledged_runs_again_though_it_may_not_begin_twice(
    app: TaskApp,
) -> None:
    deliveries: list[int] = []

    @app.task(name="back", bind=True, idempotent=False, acks_on_failure=False)
    def back(context: TaskContext) -> int:
        deliveries.append(context.fence)
        if context.fence < 2:
            raise ValueError("not yet")
        return context.fence

    @app.task(name="slow", bind=True, idempotent=False, acks_on_timeout=False, time_limit=0.2)
    async def slow(context: TaskContext) -> int:
        if context.fence < 2:
            await asyncio.sleep(DEADLINE_S)
        return context.fence

    with working(app):
        assert back.delay().get(DEADLINE_S) == 2
        assert slow.delay().get(DEADLINE_S) == 2
    assert deliveries == [1, 2]


# --- time -------------------------------------------------------------------------------------


def test_what_is_too_old_does_not_begin(app: TaskApp) -> None:
    ran: list[int] = []

    @app.task(name="move")
    def move(number: int) -> int:
        ran.append(number)
        return number

    stale = move.apply_async((1,), ttl_s=0.01)
    late = move.apply_async((2,), expires=0.01)
    past = move.apply_async((3,), expires=datetime.now(UTC) - timedelta(seconds=1))
    fresh = move.apply_async((4,), ttl_s=60.0, expires=60.0)
    born_s = app.broker_clock.now_s()
    wait_until(lambda: app.broker_clock.now_s() > born_s + 0.02, "the clock stands")
    with working(app):
        with pytest.raises(Expired, match=r"s old, its time to live is 0\.01 s"):
            stale.get(DEADLINE_S)
        for handle in (late, past):
            with pytest.raises(Expired, match="s past its expiry"):
                handle.get(DEADLINE_S)
        assert fresh.get(DEADLINE_S) == 4
    assert stale.state is State.EXPIRED
    assert ran == [4]


def test_age_is_judged_where_the_task_would_begin_not_where_it_was_taken(app: TaskApp) -> None:
    """A message waits behind a busy executor until it is stale: it must not begin then."""
    go, busy = threading.Event(), threading.Event()

    @app.task(name="hold")
    def hold() -> None:
        busy.set()
        go.wait(DEADLINE_S)

    @app.task(name="move")
    def move() -> None:
        raise AssertionError("it began though stale")

    with working(app, sync_workers=1) as worker:
        hold.delay()
        assert busy.wait(DEADLINE_S)
        stale = move.apply_async(ttl_s=0.05)
        wait_until(lambda: worker.counts["received"] == 2, "not taken")
        born_s = app.broker_clock.now_s()
        wait_until(lambda: app.broker_clock.now_s() > born_s + 0.1, "the clock stands")
        go.set()
        assert stale.wait(DEADLINE_S).state is State.EXPIRED


def test_age_is_measured_on_the_brokers_clock(url: str) -> None:
    """A worker whose own clock is a year off judges as if it were right."""
    from blimp.clock import SystemClock

    class Wrong(SystemClock):
        def wall_s(self) -> float:
            return super().wall_s() + 365 * 86_400

    with TaskApp("tests", broker=url, result_backend=url, clock=Wrong()) as app:

        @app.task(name="move")
        def move() -> str:
            return "moved"

        with working(app):
            assert move.apply_async(ttl_s=30.0, expires=30.0).get(DEADLINE_S) == "moved"


def test_begins_at_its_eta_and_not_before(app: TaskApp) -> None:
    begun: dict[str, float] = {}

    @app.task(name="later")
    def later(name: str) -> None:
        begun[name] = app.broker_clock.now_s()

    with working(app, prefetch=1):
        sent_s = app.broker_clock.now_s()
        eta = datetime.fromtimestamp(sent_s + 0.3, UTC)
        handles = [
            later.apply_async(("countdown",), countdown=0.4),
            later.apply_async(("eta",), eta=eta),
            later.apply_async(("now",)),  # not held up by those that wait, at prefetch 1
        ]
        for handle in handles:
            handle.get(DEADLINE_S)
    assert list(begun) == ["now", "eta", "countdown"]
    assert begun["now"] - sent_s < 0.29
    assert begun["eta"] - sent_s >= 0.3
    assert begun["countdown"] - sent_s >= 0.4


def test_the_first_lane_is_served_first(app: TaskApp) -> None:
    ran: list[str] = []

    @app.task(name="note")
    def note(lane: str) -> None:
        ran.append(lane)

    handles = [
        note.apply_async((lane,), priority=priority)
        for lane, priority in (("low", LOW), ("normal", 6), ("high", HIGH), ("emergency", 0))
    ]
    with working(app, sync_workers=1):
        for handle in handles:
            handle.get(DEADLINE_S)
    assert ran == ["emergency", "high", "normal", "low"]


def test_prefetch_holds_back_and_recovers(app: TaskApp, look: Look) -> None:
    go = threading.Event()
    begun = threading.Semaphore(0)

    @app.task(name="hold")
    def hold(number: int) -> int:
        begun.release()
        go.wait(DEADLINE_S)
        return number

    handles = [hold.delay(n) for n in range(10)]
    with working(app, sync_workers=4, prefetch=3) as worker:
        for _ in range(3):
            assert begun.acquire(timeout=DEADLINE_S)
        wait_until(lambda: look.in_hand() == 3, "not three in hand")
        assert worker.counts["received"] == 3
        assert look.waiting() == 7
        go.set()
        assert [handle.get(DEADLINE_S) for handle in handles] == list(range(10))


# --- bad messages -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "kind", "reason"),
    [
        (envelope(task="nope", id="bad"), UnknownTask, "no task 'nope' in app 'tests'"),
        (envelope(task="add", id="bad", body=b"[[NaN, 1], {}, {}]"), None, "NaN and Infinity"),
        (envelope(task="add", id="bad", body=b"[[1, 2]]"), None, "the three of"),
        (envelope(task="add", id="bad", args="12"), None, "args is str, must be list"),
        (envelope(task="add", id="bad", kwargs=[1]), None, "kwargs is list, must be dict"),
        (envelope(task="add", id="bad", without=("task",)), None, "header 'task' is missing"),
        (envelope(task="add", id="bad", retries="x"), None, "header 'retries' is 'x'"),
        (envelope(task="add", id="bad", blimp_ttl_s=1), None, "needs 'blimp_issued_ms'"),
        (envelope(task="add", id="bad", content_type="application/x-yaml"), None, "x-yaml"),
        (envelope(task="add", id="bad", body=b" " * 1_000_001), None, "the limit is 1000000"),
        (envelope(task="add", id="bad", body=b" " * 7_500_000), None, "the limit is 1000000"),
    ],
)
def test_whoever_sent_a_bad_message_hears_of_it(
    app: TaskApp, look: Look, raw: bytes, kind: type[TaskError] | None, reason: str
) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    look.push("tests", raw)
    with working(app) as worker:
        with pytest.raises(TaskFailed) as caught:
            app.result("bad").get(DEADLINE_S)
        assert reason in str(caught.value)
        assert caught.value.kind == (kind.__name__ if kind else "MessageError")
        assert add.delay(1, 2).get(DEADLINE_S) == 3
        assert worker.counts["unreadable"] + worker.counts["unknown_task"] == 1
    assert look.left_behind() == []


def test_two_messages_with_one_delivery_tag_are_both_run(app: TaskApp, look: Look) -> None:
    ran = threading.Semaphore(0)

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        ran.release()
        return a + b

    for id in ("one", "two"):
        look.push("tests", envelope(task="add", id=id, args=[1, 2]))
    with working(app):
        assert app.result("one").get(DEADLINE_S) == 3
        assert app.result("two").get(DEADLINE_S) == 3
    assert look.left_behind() == []


def test_a_celery_message_is_run(app: TaskApp, look: Look) -> None:
    @app.task(name="weather.read")
    def read(station: str, n: int) -> list[Any]:
        return [station, n]

    look.push("q", CELERY_MESSAGE.replace(b"2026-11-20T13:02:31", b"2126-11-20T13:02:31"))
    with working(app, queues=("q",)):
        handle = app.result("11111111-2222-3333-4444-555555555555")
        assert handle.get(DEADLINE_S) == ["pad", 2]


# --- middleware -------------------------------------------------------------------------------


def test_a_middleware_that_fails_keeps_the_task_from_running(url: str) -> None:
    async def broken(job: Any, call_next: Any) -> Any:
        raise RuntimeError("cannot tell")

    with TaskApp("tests", broker=url, result_backend=url, middleware=[broken]) as app:

        @app.task(name="move")
        def move() -> None:
            raise AssertionError("it ran")

        with working(app), pytest.raises(TaskFailed, match="RuntimeError: cannot tell"):
            move.delay().get(DEADLINE_S)


def test_middleware_wraps_in_its_order_both_kinds_of_task(url: str) -> None:
    order: list[str] = []

    def layer(name: str) -> Any:
        async def call(job: Any, call_next: Any) -> Any:
            order.append(f"{name} in")
            outcome = await call_next(job)
            order.append(f"{name} out")
            return outcome

        return call

    middleware = [layer("outer"), layer("inner")]
    with TaskApp("tests", broker=url, result_backend=url, middleware=middleware) as app:

        @app.task(name="plain")
        def plain() -> None:
            order.append("task")

        @app.task(name="async")
        async def other() -> None:
            await asyncio.sleep(0)
            order.append("task")

        with working(app):
            plain.delay().get(DEADLINE_S)
            other.delay().get(DEADLINE_S)
    assert order == ["outer in", "inner in", "task", "inner out", "outer out"] * 2


# --- stopping, names, outages -----------------------------------------------------------------


def test_a_warm_stop_ends_what_runs_and_gives_back_what_waits(app: TaskApp, look: Look) -> None:
    go, busy = threading.Event(), threading.Event()

    @app.task(name="hold", bind=True)
    def hold(context: TaskContext, number: int) -> list[int]:
        busy.set()
        go.wait(DEADLINE_S)
        return [number, context.fence]

    with working(app, sync_workers=1, prefetch=4) as worker:
        handles = [hold.delay(n) for n in range(3)]
        later = hold.apply_async((3,), countdown=3600)
        assert busy.wait(DEADLINE_S)
        taken = 3  # streams keep on the server what is not due
        wait_until(lambda: worker.counts["received"] == taken, "not taken")
        worker.stop()
        wait_until(lambda: worker.counts["given_back"] == taken - 1, "not given back at once")
        assert look.waiting() == 3
        go.set()
        assert handles[0].get(DEADLINE_S) == [0, 1]
    assert look.in_hand() == 0
    with working(app, name="another"):
        fence = 1  # streams do not count what never began
        assert handles[1].get(DEADLINE_S) == [1, fence]  # in their order
        assert handles[2].get(DEADLINE_S) == [2, fence]
        assert later.state is State.PENDING


def test_a_task_that_will_not_end_is_cut_off_and_given_back(app: TaskApp, look: Look) -> None:
    go, busy = threading.Event(), threading.Event()

    @app.task(name="hold")
    def hold() -> None:
        busy.set()
        go.wait(DEADLINE_S)

    with working(app, grace_s=0.05) as worker:
        handle = hold.delay()
        assert busy.wait(DEADLINE_S)
    assert worker.counts["cut_off"] == 1
    assert look.waiting() == 1
    go.set()
    assert handle.state is State.PENDING


def test_a_name_in_use_is_refused_with_its_holder(app: TaskApp) -> None:
    from blimp.queue.worker.name_lock import NameLock

    with working(app):
        second = NameLock(link=app.broker_link, app="tests", worker="worker")
        with pytest.raises(TaskError, match=r"worker name 'worker' is in use by process \d+ on"):
            second.take()
    second.take()
    second.leave()


def test_a_result_that_is_final_is_not_run_for_again(app: TaskApp, look: Look) -> None:
    """Killed between result and acknowledgement: only the acknowledgement is missing."""

    @app.task(name="add")
    def add() -> None:
        raise AssertionError("it ran again")

    assert app.results is not None
    app.results.store(Record(id="done", state=State.SUCCESS, result=3))
    look.push("tests", envelope(task="add", id="done", blimp_delivery=1))
    with working(app) as worker:
        wait_until(lambda: worker.counts["done"] == 1, "not acknowledged")
    assert app.result("done").get(DEADLINE_S) == 3
    assert look.left_behind() == []


def test_two_tasks_of_one_name_are_refused(app: TaskApp) -> None:
    from blimp.errors import ConfigError

    app.task(name="a")(lambda: None)
    with pytest.raises(ConfigError, match="two tasks are named 'a'"):
        app.task(name="a")(lambda: None)
    with pytest.raises(ConfigError, match=r"priority 10: must be from 0 \(first\) to 9 \(last\)"):
        app.task(name="b", priority=10)


def test_an_option_that_there_is_not_is_named(app: TaskApp) -> None:
    with pytest.raises(ConfigError, match=r"\['acks_early'\]"):
        app.task(acks_early=True)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="priority 10: must be from 0"):
        app.task(priority=10)(lambda: None)


def test_a_worker_idles_quietly(app: TaskApp, server: redis.Redis) -> None:
    """At most five commands a second reach the broker from a worker without work."""
    app.on_broadcast("stop")(lambda broadcast: {})
    with working(app), server.monitor() as monitor:
        heard, began_s = 0, time.monotonic()
        for command in monitor.listen():  # the pulse alone says something each second
            now_s = time.monotonic() - began_s
            if now_s > 4.0:
                break
            if now_s > 1.0 and command["client_type"] != "lua":
                heard += 1
    assert heard / 3.0 <= 5.0


def test_worker_repr_of_defaults(app: TaskApp) -> None:
    worker = Worker(app=app, log=Silence())
    assert worker.queues == ("tests",)
    assert worker.name.startswith("tests@")


# --- corners ----------------------------------------------------------------------------------


def test_early_acknowledgement_is_before_the_task(app: TaskApp, look: Look) -> None:
    in_hand: list[int] = []
    runs: list[int] = []

    @app.task(name="at-most-once", acks_late=False, bind=True)
    def at_most_once(context: TaskContext) -> int:
        in_hand.append(look.in_hand())
        runs.append(context.fence)
        if context.fence == 1:
            raise Reject("once more", requeue=True)
        return 1

    with working(app):
        assert at_most_once.delay().get(DEADLINE_S) == 1
    assert in_hand == [0, 0]
    assert runs == [1, 2]
    assert look.left_behind() == []


def test_a_task_may_end_as_interrupted(app: TaskApp) -> None:
    @app.task(name="cut")
    def cut() -> None:
        raise Interrupted("the flight process was restarted")

    with working(app), pytest.raises(Interrupted, match="was restarted"):
        cut.delay().get(DEADLINE_S)


def test_a_middleware_that_waits_in_a_plain_task_fails_it_and_no_more(url: str) -> None:
    async def waits(job: Any, call_next: Any) -> Any:
        if job.message.args:
            await asyncio.sleep(0)
        return await call_next(job)

    with TaskApp("tests", broker=url, result_backend=url, middleware=[waits]) as app:

        @app.task(name="plain")
        def plain(*args: int) -> int:
            return len(args)

        with working(app, sync_workers=1):
            with pytest.raises(TaskFailed, match="awaited something in a plain task's thread"):
                plain.delay(1).get(DEADLINE_S)
            assert plain.delay().get(DEADLINE_S) == 0


def test_a_link_watcher_that_fails_does_not_stop_the_pulse(app: TaskApp) -> None:
    heard: list[bool] = []

    @app.on_link
    def broken(alive: bool) -> None:
        raise OSError("no mailbox")

    app.on_link(heard.append)
    log = Silence()
    with working(app, log=log):
        wait_until(lambda: len(heard) >= 2, "the pulse stopped")
    assert log.events("link watcher")


def test_async_tasks_are_cut_off_and_given_back_too(app: TaskApp, look: Look) -> None:
    busy = threading.Event()

    @app.task(name="forever")
    async def forever() -> None:
        busy.set()
        await asyncio.sleep(3600)

    with working(app, grace_s=0.05) as worker:
        forever.delay()
        assert busy.wait(DEADLINE_S)
    assert worker.counts["cut_off"] == 1
    assert look.waiting() == 1


def test_a_stop_leaves_no_thread_behind(app: TaskApp) -> None:
    app.on_broadcast("stop")(lambda broadcast: {})
    before = set(threading.enumerate())
    with working(app):
        app.broadcast("stop").get(DEADLINE_S)
    wait_until(lambda: set(threading.enumerate()) <= before, "threads are left behind")


# --- rows of the fault-tolerance document -------------------------------------------------------


@pytest.mark.parametrize("exc", [None, OSError("why")])
def test_a_retry_of_its_own_limit_is_not_tried_again_by_itself(
    app: TaskApp, exc: Exception | None
) -> None:
    tries: list[int] = []

    @app.task(
        name="again", bind=True, autoretry_for=(Exception,), max_retries=5, retry_backoff=False
    )
    def again(context: TaskContext) -> None:
        tries.append(1)
        context.retry(exc, countdown=0.0, max_retries=1)

    with working(app), pytest.raises(TaskFailed, match=r"MaxRetriesExceeded|OSError: why"):
        again.delay().get(DEADLINE_S)
    assert len(tries) == 2


def test_a_retry_at_a_time(app: TaskApp) -> None:
    times: list[float] = []

    @app.task(name="again", bind=True)
    def again(context: TaskContext) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            context.retry(eta=datetime.now(UTC) + timedelta(seconds=0.3))

    with working(app):
        again.delay().get(DEADLINE_S)
    assert 0.25 < times[1] - times[0] < 5.0


def test_a_task_sees_how_often_it_was_delivered(app: TaskApp) -> None:
    seen: list[tuple[bool, int, int]] = []

    @app.task(name="look", bind=True)
    def look(context: TaskContext) -> None:
        seen.append((context.redelivered, context.deliveries, context.message.retries))
        if len(seen) == 1:
            raise Reject("not now", requeue=True)
        if len(seen) == 2:
            context.retry(countdown=0.0)

    with working(app):
        look.delay().get(DEADLINE_S)
    assert seen == [(False, 1, 0), (True, 2, 0), (True, 2, 1)]


@pytest.mark.parametrize("slots", [32, 150])
def test_as_many_long_tasks_run_at_once_as_there_are_threads_for(app: TaskApp, slots: int) -> None:
    """However few end in a moment: they are not taken to wait, but to run."""
    together = threading.Barrier(slots)

    @app.task(name="together")
    def wait() -> None:
        together.wait(DEADLINE_S)

    with working(app, sync_workers=slots):
        for handle in [wait.delay() for _ in range(slots)]:
            handle.get(DEADLINE_S)
