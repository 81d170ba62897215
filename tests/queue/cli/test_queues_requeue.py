"""`dead requeue`: a dead letter runs again, whatever its first run left behind."""

import json
from typing import Any

import pytest

from blimp.errors import Reject, TaskFailed
from blimp.queue import State, TaskApp, TaskContext
from blimp.queue.brokers.base import MOST_DELIVERIES as MOST
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.cli.main import main
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker.middleware import mark_begun
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look

KEY = "k" * 16


class Begun:
    """What mark_begun wants of a job."""

    def __init__(self, message: TaskMessage) -> None:
        self.message = message
        self.mark = b""


def requeue(app: TaskApp, monkeypatch: pytest.MonkeyPatch) -> None:
    again = TaskApp("tests", broker=app.broker, result_backend=app.result_backend)
    monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: again)
    assert main(["dead", "requeue", "all", "-A", "here:app"]) == 0


def reject_once(app: TaskApp, **options: Any) -> list[int]:
    """Register a task that is rejected at its first run; return the fences of its runs."""
    runs: list[int] = []

    @app.task(name="moody", bind=True, **options)  # type: ignore[untyped-decorator]
    def moody(context: TaskContext) -> str:
        runs.append(context.fence)
        if len(runs) == 1:
            raise Reject("not for me")
        return "done"

    return runs


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("apart", [False, True])
def test_a_requeued_task_is_run_and_its_new_end_is_reported(
    url: str, transport: str, look: Look, monkeypatch: pytest.MonkeyPatch,
    idempotent: bool, apart: bool,
) -> None:  # fmt: skip
    results = url.replace("host=0", "host=1") if apart else url
    with TaskApp("tests", broker=url, result_backend=results) as app:
        runs = reject_once(app, idempotent=idempotent)
        with working(app):
            handle = app.send_task("moody")
            wait_until(lambda: look.dead() == 1, "it is no dead letter")
            requeue(app, monkeypatch)
            wait_until(lambda: handle.state is State.SUCCESS, "its old end stands")
            assert handle.get(DEADLINE_S) == "done"
    assert runs == [1, 1]
    assert (look.waiting(), look.in_flight(), look.dead()) == (0, 0, 0)


@pytest.mark.parametrize("key_of_person", [KEY, None])
def test_a_signed_dead_letter_of_the_servers_runs_again_in_the_same_worker(
    url: str, look: Look, monkeypatch: pytest.MonkeyPatch, key_of_person: str | None
) -> None:
    """The server gave it up, so no worker knows that it is no copy."""
    runs: list[int] = []
    with TaskApp("tests", broker=url, result_backend=url, signing_key=KEY) as app:

        @app.task(name="moody", bind=True)
        def moody(context: TaskContext) -> str:
            runs.append(context.fence)
            if len(runs) == 1:
                raise Reject("not yet", requeue=True)
            return "done"

        monkeypatch.setattr("blimp.queue.brokers.streams.consumer.SPARE_DELIVERIES", 1 - MOST)
        with working(app) as worker:
            handle = app.send_task("moody")
            wait_until(lambda: look.dead() == 1, "it is no dead letter")
            again = TaskApp("tests", broker=url, result_backend=url, signing_key=key_of_person)
            monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: again)
            assert main(["dead", "requeue", "all", "-A", "here:app"]) == 0
            assert handle.get(DEADLINE_S) == "done"
            assert worker.counts["copied"] == 0
    assert runs == [1, 1]


def test_a_requeued_task_whose_worker_is_killed_comes_again(
    app: TaskApp, look: Look, monkeypatch: pytest.MonkeyPatch, session: StreamsSession
) -> None:
    runs = reject_once(app)
    with working(app):
        handle = app.send_task("moody")
        wait_until(lambda: look.dead() == 1, "it is no dead letter")
    requeue(app, monkeypatch)
    queue = session.keys.queue("tests")
    session.store.begin([queue], known=())
    assert len(session.store.take([queue], room=1).deliveries) == 1
    session.store.begin([queue], known=())  # its namesake, after a kill
    with working(app):
        wait_until(lambda: handle.state is State.SUCCESS, "it was acknowledged unrun")
    assert runs == [1, 2]


def test_a_requeued_retry_begins_as_if_never_delivered(
    app: TaskApp, look: Look, monkeypatch: pytest.MonkeyPatch, session: StreamsSession
) -> None:
    runs: list[tuple[int, int]] = []

    @app.task(name="moody", bind=True, idempotent=False)
    def moody(context: TaskContext) -> str:
        runs.append((context.message.retries, context.fence))
        if len(runs) == 1:
            context.retry(countdown=0.0)
        if len(runs) == 2:
            raise Reject("not for me")
        return "done"

    with working(app):
        handle = moody.delay()
        wait_until(lambda: look.dead() == 1, "it is no dead letter")
        (letter,) = DeadLetters(store=session.store, queue="tests").list()
        assert (letter.headers or {})["blimp_delivery"] == 1
        requeue(app, monkeypatch)
        wait_until(lambda: handle.state is State.SUCCESS, "its old end stands")
    assert runs == [(0, 1), (1, 2), (1, 1)]


def test_a_letter_that_is_gone_leaves_result_and_marker(
    app: TaskApp, session: StreamsSession, server: Any
) -> None:
    server.set("celery-task-meta-x", json.dumps({"status": "SUCCESS"}))
    job: Any = Begun(TaskMessage(id="x", task="a"))
    assert mark_begun(app, job)
    letters = DeadLetters(store=session.store, queue="tests")
    assert not letters.requeue("1-1", forgetting=["celery-task-meta-x", "blimp-began-x-0"])
    assert server.exists("celery-task-meta-x", "blimp-began-x-0") == 2


def test_what_follows_a_requeued_task_follows_its_second_end_too(
    app: TaskApp, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errbacks have the ids of those of its first end, and must not be taken for copies."""
    heard: list[str] = []
    runs = 0

    @app.task(name="moody")
    def moody() -> str:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise Reject("not for me")
        return "done"

    @app.task(name="after", idempotent=False)
    def after(what: str, who: str) -> str:
        heard.append(f"{who}")
        return f"{what} {who}"

    task = moody.s()
    task.link(after.s("callback").set(task_id="callback"))
    task.on_error(after.s("errback"))
    with working(app):
        last = (task | after.s("chain")).delay()
        for run in (1, 2):
            wait_until(lambda run=run: look.dead() == 1 and len(heard) == run, "no errback")
            with pytest.raises(TaskFailed, match="not for me"):
                last.get(DEADLINE_S)
            requeue(app, monkeypatch)
        wait_until(lambda: last.state is State.SUCCESS, "the end of its chain stands")
        assert last.get(DEADLINE_S) == "done chain"
        assert app.result("callback").get(DEADLINE_S) == "done callback"
    assert sorted(heard) == ["callback", "chain", "errback", "errback"]
