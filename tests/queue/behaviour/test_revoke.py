"""Revoked tasks: waiting, scheduled, in flight, running, not sent yet."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, Revoked, SoftTimeLimitExceeded
from blimp.queue import TaskApp, TaskContext
from blimp.queue.broadcast.extension import Revoker
from blimp.queue.brokers.base import Found
from blimp.queue.brokers.streams.store import Store
from blimp.queue.cli.main import main
from blimp.queue.protocol.record import State
from blimp.queue.publish.revocations import KEEP_S, Revocation, Revocations
from tests.queue.conftest import DEADLINE_S, Held, wait_until, working
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
    held = Held()
    busy = app.task(name="busy")(held.run)
    with working(app, sync_workers=1) as worker:
        first = busy.delay()
        assert held.began.wait(DEADLINE_S)
        waiting = app.send_task("note", ("a",))
        wait_until(lambda: worker.counts["received"] == 2, "it was not taken")
        waiting.revoke()
        assert waiting.wait(DEADLINE_S).state is State.REVOKED
        assert not first.ready()
        held.go.set()
        first.get(DEADLINE_S)
    assert ran == []
    assert look.left_behind() == []


def test_a_missed_revocation_is_read_from_the_server(
    app: TaskApp, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.queue.broadcast.extension.LOAD_BEATS", 1)
    with working(app):
        other = Revocations(link=app.broker_link, app="tests", signer=None)
        other.keep("x", terminate=False, now_s=app.broker_clock.now_s())
        wait_until(lambda: "x" in app.revocations, "the worker never looked")
        assert app.send_task("note", ("a",), task_id="x").wait(DEADLINE_S).state is State.REVOKED
    assert ran == []


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
def test_a_forged_mark_revokes_nothing(url: str, server: redis.Redis) -> None:
    with TaskApp("tests", broker=url, result_backend=url, signing_key="k" * 20) as app:
        app.task(name="same")(lambda value: value)
        handle = app.send_task("same", (1,))
        assert app.publisher.revoke("tests", handle.id, b"-" + handle.id.encode()) is Found.MARKED
        with working(app):
            assert handle.get(DEADLINE_S) == 1


def test_the_search_has_a_limit(app: TaskApp, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults: Any = Store.find.__kwdefaults__
    monkeypatch.setitem(defaults, "most", 1000)
    handles = [app.send_task("a") for _ in range(1001)]
    assert handles[-1].revoke() is Revocation.NOT_SEARCHED
    assert handles[-1].state is State.PENDING
    assert handles[999].revoke() is Revocation.REVOKED
