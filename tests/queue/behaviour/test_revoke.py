"""Revoked tasks: waiting, scheduled, in flight, running, not sent yet."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, MessageError, Revoked, SoftTimeLimitExceeded, TaskFailed
from blimp.queue import GroupResult, TaskApp, TaskContext, chord
from blimp.queue.brokers.base import Found
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.cli.main import main
from blimp.queue.control.extension import ControlExtension, Revoker
from blimp.queue.protocol.record import Record, State
from blimp.queue.publish.taken_back import KEEP_S, Revocation, Revocations
from blimp.queue.redis.urls import redis_url
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look


@pytest.fixture
def ran(app: TaskApp) -> list[str]:
    seen: list[str] = []
    app.task(name="note")(seen.append)
    return seen


def test_a_waiting_task_does_not_run_and_is_revoked(
    app: TaskApp, ran: list[str], look: Look
) -> None:
    waiting = app.send_task("note", ("a",))
    waiting.revoke()
    app.revoke("not sent yet")
    with working(app):
        assert waiting.wait(DEADLINE_S).state is State.REVOKED
        late = app.send_task("note", ("b",), task_id="not sent yet")
        with pytest.raises(Revoked, match="revoked before it began"):
            late.get(DEADLINE_S)
        assert app.send_task("note", ("c",)).wait(DEADLINE_S).state is State.SUCCESS
    assert ran == ["c"]
    assert look.left_behind() == []


def test_a_scheduled_task_does_not_run(app: TaskApp, ran: list[str]) -> None:
    with working(app):
        later = app.send_task("note", ("a",), countdown=0.4)
        later.revoke()
        assert later.wait(DEADLINE_S).state is State.REVOKED
    assert ran == []


def test_a_thread_that_sleeps_in_c_is_asked_and_the_state_says_so(app: TaskApp) -> None:
    began, go = threading.Event(), threading.Lock()
    go.acquire()

    @app.task(name="sleeps")
    def sleeps() -> None:
        began.set()
        go.acquire()  # one call into C

    with working(app):
        handle = sleeps.delay()
        assert began.wait(DEADLINE_S)
        app.revoke(handle.id, terminate=True)
        wait_until(lambda: handle.state is State.STARTED, "the state does not say so")
        assert app.results is not None
        assert "asked to end" in app.results.get(handle.id).result["revoked"]
        go.release()
        assert handle.wait(DEADLINE_S).state is State.REVOKED


def test_a_task_in_flight_ends_at_once_though_its_thread_is_busy(
    app: TaskApp, ran: list[str], look: Look
) -> None:
    go, began = threading.Event(), threading.Event()

    @app.task(name="busy")
    def busy() -> None:
        began.set()
        assert go.wait(DEADLINE_S)

    with working(app, sync_workers=1) as worker:
        first = busy.delay()
        assert began.wait(DEADLINE_S)
        waiting = app.send_task("note", ("a",))
        wait_until(lambda: worker.counts["received"] == 2, "it was not taken")
        waiting.revoke()
        assert waiting.wait(DEADLINE_S).state is State.REVOKED
        assert not first.ready()
        go.set()
        first.get(DEADLINE_S)
    assert ran == []
    assert look.left_behind() == []


def test_a_worker_that_starts_later_knows_it(
    url: str, app: TaskApp, ran: list[str], look: Look
) -> None:
    with TaskApp("tests", broker=url, result_backend=url) as sender:
        handle = sender.send_task("note", ("a",))
        sender.revoke(handle.id)
    with working(app):
        assert app.result(handle.id).wait(DEADLINE_S).state is State.REVOKED
    assert ran == []


def test_a_missed_revocation_is_read_from_the_server(
    app: TaskApp, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.queue.control.extension.LOAD_BEATS", 1)
    with working(app):
        other = Revocations(link=app.broker_link, app="tests", signer=None)
        other.keep("x", terminate=False, now_s=app.broker_clock.now_s())
        wait_until(lambda: "x" in app.revocations, "the worker never looked")
        assert app.send_task("note", ("a",), task_id="x").wait(DEADLINE_S).state is State.REVOKED
    assert ran == []


def test_without_terminate_a_running_task_goes_on(app: TaskApp) -> None:
    go, began = threading.Event(), threading.Event()

    @app.task(name="busy")
    def busy() -> str:
        began.set()
        assert go.wait(DEADLINE_S)
        return "done"

    with working(app):
        handle = busy.delay()
        assert began.wait(DEADLINE_S)
        handle.revoke()
        wait_until(lambda: handle.id in app.revocations, "the revocation did not arrive")
        go.set()
        assert handle.get(DEADLINE_S) == "done"


def test_terminate_cancels_a_coroutine(app: TaskApp, look: Look) -> None:
    began, ended = threading.Event(), threading.Event()

    @app.task(name="long")
    async def long() -> None:
        began.set()
        try:
            await asyncio.sleep(DEADLINE_S)
        finally:
            ended.set()

    with working(app):
        handle = long.delay()
        assert began.wait(DEADLINE_S)
        handle.revoke(terminate=True)
        with pytest.raises(Revoked, match="revoked while it ran"):
            handle.get(DEADLINE_S)
        assert ended.is_set()
    assert look.left_behind() == []


def test_terminate_interrupts_a_plain_function(app: TaskApp, look: Look) -> None:
    began = threading.Event()
    seen: list[bool] = []

    @app.task(name="long", bind=True)
    def long(context: TaskContext) -> None:
        try:
            began.set()
            while True:
                context.stopping.wait(0.01)
        except SoftTimeLimitExceeded:
            seen.append(context.revoked.is_set())
            raise

    with working(app):
        handle = long.delay()
        assert began.wait(DEADLINE_S)
        handle.revoke(terminate=True)
        assert handle.wait(DEADLINE_S).state is State.REVOKED
    assert seen == [True]
    assert look.left_behind() == []


def test_terminate_interrupts_only_interruptible_functions(app: TaskApp) -> None:
    """Or a lock that it holds then would be locked for ever."""
    began = threading.Event()
    lock = threading.Condition()

    @app.task(name="long", bind=True, interruptible=False)
    def long(context: TaskContext) -> str:
        began.set()
        assert context.revoked.wait(DEADLINE_S)
        for _ in range(1000):
            with lock:
                time.sleep(0)
        return "whole"

    with working(app):
        handle = long.delay()
        assert began.wait(DEADLINE_S)
        handle.revoke(terminate=True)
        assert handle.get(DEADLINE_S) == "whole"
    assert lock.acquire(blocking=False)


@pytest.mark.parametrize("options", [{"soft_time_limit": 1.0}, {"cpu_bound": True}])
def test_options_that_need_an_interruptible_function_are_named(app: TaskApp, options: Any) -> None:
    with pytest.raises(ConfigError, match="not interruptible"):
        app.task(name="long", interruptible=False, **options)(lambda: None)


def test_a_terminated_task_that_returns_is_a_success(app: TaskApp) -> None:
    began = threading.Event()

    @app.task(name="long", bind=True)
    def long(context: TaskContext) -> str:
        try:
            began.set()
            while True:
                context.stopping.wait(0.01)
        except SoftTimeLimitExceeded:
            return "tidied up"

    with working(app):
        handle = long.delay()
        assert began.wait(DEADLINE_S)
        handle.revoke(terminate=True)
        assert handle.get(DEADLINE_S) == "tidied up"


def test_a_retry_of_a_revoked_task_does_not_run(app: TaskApp) -> None:
    tries: list[int] = []
    go = threading.Event()

    @app.task(name="again", autoretry_for=(OSError,), retry_backoff=False)
    def again() -> None:
        tries.append(1)
        assert go.wait(DEADLINE_S)
        raise OSError

    with working(app):
        handle = again.delay()
        wait_until(lambda: tries, "it did not begin")
        handle.revoke()
        wait_until(lambda: handle.id in app.revocations, "the revocation did not arrive")
        go.set()
        assert handle.wait(DEADLINE_S).state is State.REVOKED
    assert tries == [1]


def test_a_stored_revocation_expires(app: TaskApp) -> None:
    now_s = app.broker_clock.now_s()
    app.revocations.keep("old", terminate=False, now_s=now_s - KEEP_S - 1.0)
    app.revocations.keep("new", terminate=True, now_s=now_s)
    fresh = Revocations(link=app.broker_link, app="tests", signer=None)
    assert fresh.load(now_s=now_s) == {"new": True}
    assert fresh.load(now_s=now_s) == {}
    assert "old" not in fresh


def test_with_a_key_only_signed_revocations_count(url: str, server: redis.Redis) -> None:
    """Otherwise any program that reaches the server could end a flight task."""
    key, other = "k" * 20, "o" * 20
    with (
        TaskApp("tests", broker=url, result_backend=url, signing_key=key) as app,
        TaskApp("tests", broker=url, result_backend=url, signing_key=key) as sender,
        TaskApp("tests", broker=url, result_backend=url, signing_key=other) as stranger,
        TaskApp("tests", broker=url, result_backend=url) as anybody,
    ):
        now_s = app.broker_clock.now_s()
        stranger.revocations.keep("a", terminate=True, now_s=now_s)
        anybody.revocations.keep("b", terminate=True, now_s=now_s)
        sender.revocations.keep("c", terminate=False, now_s=now_s)
        kept: Any = server.zrange("blimp:revoked:tests", 0, -1)
        (mine,) = (one for one in kept if one[1:2] == b"c")
        server.zadd("blimp:revoked:tests", {b"!" + mine[1:]: now_s + KEEP_S})
        assert app.revocations.load(now_s=now_s) == {"c": False}
        sender.revocations.keep("c", terminate=True, now_s=now_s)
        assert app.revocations.load(now_s=now_s) == {"c": True}  # also where it was known


def test_garbage_among_the_revocations_stops_no_worker(
    app: TaskApp, ran: list[str], server: redis.Redis
) -> None:
    later_s = app.broker_clock.now_s() + KEEP_S
    spoilt: list[bytes] = [b"-\xff", b"", b"!", b"\n"]
    server.zadd("blimp:revoked:tests", dict.fromkeys(spoilt, later_s))
    server.incr("blimp:revoked:tests:count")
    with working(app) as worker:
        assert app.send_task("note", ("a",)).wait(DEADLINE_S).state is State.SUCCESS
        assert worker.counts["reconnects"] == 0
    assert ran == ["a"]


def test_many_waiting_tasks_are_revoked_in_one_thread(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of a Celery client may name a thousand."""
    app.task(name="slow", rate_limit="1/h")(lambda: None)
    with working(app) as worker:
        handles = [app.send_task("slow") for _ in range(10)]
        wait_until(lambda: worker.counts["received"] == 10, "they are not taken")
        go, refuse = threading.Event(), worker.runner.refuse
        monkeypatch.setattr(
            worker.runner, "refuse", lambda *what: go.wait(DEADLINE_S) and refuse(*what)
        )
        worker.extension(ControlExtension).revocation._apply(
            {handle.id: False for handle in handles[1:]}
        )
        assert [one.name for one in threading.enumerate()].count("revoke") == 1
        go.set()
        for handle in handles[1:]:
            assert handle.wait(DEADLINE_S).state is State.REVOKED


@pytest.mark.parametrize("id", ["", "x" * 256, "a\nb"])
def test_an_invalid_id_is_refused(app: TaskApp, id: str) -> None:
    with pytest.raises(MessageError, match="printable letters"):
        app.revoke(id)


def test_the_command_line_revokes(
    app: TaskApp,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "revoking.py").write_text(
        "from blimp.queue import TaskApp\n"
        f"app = TaskApp('tests', broker={url!r}, result_backend={url!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["revoke", "-A", "revoking:app", "one", "two", "--terminate"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "one  unknown",
        "two  unknown",
    ]
    assert app.revocations.load(now_s=app.broker_clock.now_s()) == {"one": True, "two": True}


@pytest.mark.parametrize("countdown", [None, 3600.0])
def test_a_task_that_waits_is_revoked_at_once_without_a_worker(
    app: TaskApp, look: Look, countdown: float | None
) -> None:
    ran: list[int] = []
    app.task(name="run")(lambda: ran.append(1))
    for _ in range(3):
        app.send_task("run", countdown=countdown)
    handle = app.send_task("run", countdown=countdown)
    assert handle.revoke() is Revocation.REVOKED
    assert handle.state is State.REVOKED
    with pytest.raises(Revoked, match="revoked before it began"):
        handle.get(timeout=DEADLINE_S)
    assert handle.revoke() is Revocation.REVOKED
    if countdown is None:
        with working(app):
            wait_until(lambda: look.waiting() + look.in_flight() == 0, "a message stays")
        assert ran == [1, 1, 1]
        assert handle.state is State.REVOKED


def test_revoke_says_what_it_found(app: TaskApp) -> None:
    assert app.revoke("nobody") is Revocation.UNKNOWN
    begun, go = threading.Event(), threading.Event()

    @app.task(name="run")
    def run() -> str:
        begun.set()
        assert go.wait(DEADLINE_S)
        return "done"

    with working(app):
        handle = run.delay()
        assert begun.wait(DEADLINE_S)
        assert handle.revoke() is Revocation.IN_FLIGHT
        assert handle.state is State.PENDING
        go.set()
        assert handle.get(DEADLINE_S) == "done"
        assert handle.revoke() is Revocation.ENDED


def test_what_ends_between_the_two_looks_of_a_revocation_has_ended(app: TaskApp) -> None:
    results = app.results
    assert results is not None

    def ends_meanwhile(queue: str, id: str, mark: bytes) -> Found:
        results.store(Record(id=id, state=State.SUCCESS, result=1))
        return Found.ABSENT

    answer = app.revocations.revoke_waiting(
        "t", queues=["tests"], mark_message=ends_meanwhile, results=results, wall_s=0.0
    )
    assert answer is Revocation.ENDED


@pytest.fixture
def sender(url: str, app: TaskApp) -> Iterator[TaskApp]:
    with TaskApp("tests", broker=url, result_backend=url) as other:
        yield other


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers learn of no revocation, by broadcast or from the server."""
    monkeypatch.setattr(Revoker, "receive", lambda *_: "")
    monkeypatch.setattr(Revocations, "load", lambda *_, **__: {})


@pytest.mark.usefixtures("cut_off")
def test_a_worker_that_is_cut_off_runs_nothing_that_is_revoked(
    app: TaskApp, sender: TaskApp, ran: list[str], look: Look
) -> None:
    """Either may win the race for a message: what the sender calls REVOKED does not run."""
    with working(app):
        handles = [sender.send_task("note", (str(number),)) for number in range(40)]
        found = [one.revoke() for one in reversed(handles)][::-1]
        for one in handles:
            one.wait(DEADLINE_S)
    for number, (one, answer) in enumerate(zip(handles, found, strict=True)):
        assert answer in (Revocation.REVOKED, Revocation.IN_FLIGHT, Revocation.ENDED)
        assert (one.state is State.REVOKED) is (answer is Revocation.REVOKED)
        assert (str(number) in ran) is (answer is not Revocation.REVOKED)
    assert look.left_behind() == []


@pytest.mark.usefixtures("cut_off")
@pytest.mark.parametrize("countdown", [None, 3600.0])
def test_a_revoked_message_ends_in_a_worker_that_is_cut_off(
    app: TaskApp, sender: TaskApp, ran: list[str], look: Look, countdown: float | None
) -> None:
    handle = sender.send_task("note", ("a",), countdown=countdown)
    assert sender.revoke(handle.id) is Revocation.REVOKED
    with working(app):
        assert sender.send_task("note", ("b",)).wait(DEADLINE_S).state is State.SUCCESS
        wait_until(lambda: look.waiting() + look.in_flight() == 0, "a message stays")
    assert ran == ["b"]
    assert handle.state is State.REVOKED


@pytest.mark.usefixtures("cut_off")
def test_what_was_put_back_is_revoked(app: TaskApp, sender: TaskApp, ran: list[str]) -> None:
    handle = sender.send_task("note", ("a",))
    holder = StreamsSession(url=redis_url(app.broker), options={})
    queue = holder.keys.queue("tests")
    (delivery,) = holder.store.take([queue], room=1).deliveries
    assert sender.revoke(handle.id) is Revocation.IN_FLIGHT
    assert handle.state is State.PENDING
    assert holder.store.release([delivery[0]]) == [1]
    assert sender.revoke(handle.id) is Revocation.REVOKED
    holder.close()
    with working(app):
        assert sender.send_task("note", ("b",)).wait(DEADLINE_S).state is State.SUCCESS
    assert ran == ["b"]


@pytest.mark.usefixtures("cut_off")
def test_callbacks_and_chords_of_a_revoked_message_end(app: TaskApp, sender: TaskApp) -> None:
    errors: list[str] = []
    app.task(name="same")(lambda value: value)
    app.task(name="total")(sum)
    app.task(name="error")(errors.append)
    part = app.tasks["same"].s(1)
    part.link_error(app.tasks["error"].s())
    handle = chord([part, app.tasks["same"].s(2)], app.tasks["total"].s()).apply_async()
    assert isinstance(handle.parent, GroupResult)
    assert sender.revoke(handle.parent[0].id) is Revocation.REVOKED
    with working(app):
        with pytest.raises(TaskFailed, match="ChordError: Dependency"):
            handle.get(timeout=DEADLINE_S)
        wait_until(lambda: errors == [handle.parent[0].id], "the errback does not run")


@pytest.mark.usefixtures("cut_off")
def test_a_forged_mark_revokes_nothing(url: str, server: redis.Redis) -> None:
    with TaskApp("tests", broker=url, result_backend=url, signing_key="k" * 20) as app:
        app.task(name="same")(lambda value: value)
        handle = app.send_task("same", (1,))
        assert app.publisher.revoke("tests", handle.id, b"-" + handle.id.encode()) is Found.MARKED
        with working(app):
            assert handle.get(DEADLINE_S) == 1


def test_an_id_among_the_arguments_is_not_the_task(app: TaskApp, sender: TaskApp) -> None:
    app.task(name="same")(lambda **_: 1)
    handle = sender.send_task("same", headers={"about": {"id": "x"}})
    assert sender.revoke("x") is Revocation.UNKNOWN
    with working(app):
        assert handle.get(DEADLINE_S) == 1


def test_the_search_has_a_limit(app: TaskApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blimp.queue.brokers.streams.store.MOST_SEARCHED", 1000)
    handles = [app.send_task("a") for _ in range(1001)]
    assert handles[-1].revoke() is Revocation.NOT_SEARCHED
    assert handles[-1].state is State.PENDING
    assert handles[999].revoke() is Revocation.REVOKED


def test_a_message_is_found_among_many(app: TaskApp, server: redis.Redis) -> None:
    ids = [app.send_task("a").id for _ in range(1500)]
    app.send_task("a", kwargs={"id": "other"})
    assert app.revoke(ids[1499]) is Revocation.REVOKED
    assert app.revoke("other") is Revocation.UNKNOWN
