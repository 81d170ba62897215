"""What a worker does on `control`: its effect, and not only its answer."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from blimp.config import remote_control_from_environment
from blimp.errors import Revoked, SoftTimeLimitExceeded, TaskError
from blimp.queue import State, TaskApp
from blimp.queue.celery.control import command_sender
from blimp.queue.celery.control.command import Command
from blimp.queue.celery.control.command_sender import open_connection, send_command
from blimp.tasks.app import build_ship_app
from tests.queue.celery.control.conftest import Ask
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look


@pytest.fixture
def gate(app: TaskApp) -> Iterator["Gate"]:
    gate = Gate(app)
    yield gate
    gate.open.set()


class Gate:
    """A task that waits for `open`. running: how many of it run."""

    def __init__(self, app: TaskApp) -> None:
        self.open = threading.Event()
        self._lock = threading.Lock()
        self.running = 0
        app.task(name="hold")(self.hold)

    def hold(self) -> None:
        with self._lock:
            self.running += 1
        try:
            assert self.open.wait(DEADLINE_S)
        finally:
            with self._lock:
                self.running -= 1


def test_a_revoked_task_does_not_run_or_ends(app: TaskApp, ask: Ask, look: Look) -> None:
    began = threading.Event()

    @app.task(name="spin")
    def spin() -> None:
        began.set()
        while True:
            pass

    with working(app, sync_workers=1):
        running = spin.delay()
        assert began.wait(DEADLINE_S)
        waiting = spin.delay()
        wait_until(lambda: len(ask("reserved")) == 1, "it was not taken")
        assert ask("revoke", task_id=waiting.id)["ok"] == (
            f"tasks {ask_set(waiting.id)} flagged as revoked"
        )
        assert waiting.wait(DEADLINE_S).state is State.REVOKED
        reply = ask("revoke", task_id=[running.id], terminate=True, signal="SIGKILL")
        assert reply == {"ok": f"terminate: {running.id}: its thread is asked to stop"}
        with pytest.raises(Revoked):
            running.get(DEADLINE_S)
        unknown = ask("terminate", signal="TERM", task_id="x")
        assert unknown == {"ok": "terminate: tasks unknown: x"}
        assert set(ask("revoked")) == {waiting.id, running.id, "x"}
    assert look.left_behind() == []


def ask_set(*ids: str) -> set[str]:
    return set(ids)


def test_time_limits_change_for_later_runs(app: TaskApp, ask: Ask) -> None:
    @app.task(name="spin", soft_time_limit=60.0)
    def spin() -> None:
        while True:
            pass

    app.task(name="rough", interruptible=False)(lambda: None)
    with working(app):
        done = ask("time_limit", task_name="spin", soft=0.05, hard=30)
        assert done == {"ok": "time limits set successfully"}
        with pytest.raises(TaskError) as caught:
            spin.delay().get(DEADLINE_S)
        assert isinstance(caught.value, SoftTimeLimitExceeded) or "SoftTimeLimit" in str(
            caught.value
        )
        assert ask("time_limit", task_name="rough", hard=5.0)["ok"]
        assert (app.tasks["rough"].options.time_limit) == 5.0
        for arguments, reason in (
            ({"task_name": "none"}, "unknown task"),
            ({"task_name": 3}, "must be a text"),
            ({"task_name": "spin", "soft": 2, "hard": 1}, "must be below"),
            ({"task_name": "spin", "hard": -1}, "above 0"),
            ({"task_name": "spin", "hard": 1e12}, "up to 31536000"),
            ({"task_name": "spin", "hard": "5"}, "must be seconds"),
            ({"task_name": "spin", "hard": True}, "must be seconds"),
            ({"task_name": "rough", "soft": 1}, "not interruptible"),
        ):
            assert reason in ask("time_limit", **arguments)["error"]
        assert app.tasks["spin"].options.soft_time_limit == 0.05


def test_threads_grow_and_shrink_at_once(app: TaskApp, ask: Ask, gate: Gate) -> None:
    with working(app, sync_workers=1, prefetch=1):
        handles = [app.send_task("hold") for _ in range(4)]
        wait_until(lambda: gate.running == 1, "none runs")
        assert ask("pool_grow", n=3) == {"ok": "pool will grow"}
        wait_until(lambda: gate.running == 4, "it did not grow")
        assert ask("stats")["pool"]["max-concurrency"] == 4
        assert ask("pool_shrink", n=2) == {"ok": "pool will shrink"}
        gate.open.set()
        for handle in handles:
            handle.get(DEADLINE_S)
        gate.open.clear()
        handles = [app.send_task("hold") for _ in range(4)]
        wait_until(lambda: gate.running == 2, "they do not run")
        assert len(ask("active")) == 2
        assert "must be from 1 to 256" in ask("pool_shrink", n=2)["error"]
        assert "must be from 1 to 256" in ask("pool_grow", n=256)["error"]
        assert "whole number" in ask("pool_grow", n="2")["error"]
        assert "whole number" in ask("pool_grow", n=0)["error"]
        assert "must be one of" in ask("pool_grow", pool="ships")["error"]
        assert "no such command" in ask("autoscale", max=3, min=1)["error"]
        gate.open.set()
        for handle in handles:
            handle.get(DEADLINE_S)


def test_a_queue_is_added_and_cancelled(app: TaskApp, ask: Ask, look: Look) -> None:
    app.task(name="add")(lambda a: a + 1)
    with working(app) as worker:
        there = app.send_task("add", (1,), queue="more")
        assert ask("add_consumer", queue="more") == {"ok": "add consumer more"}
        assert there.get(DEADLINE_S) == 2
        assert [one["name"] for one in ask("active_queues")] == ["tests", "more"]
        assert ask("add_consumer", queue="more")["ok"]
        assert app.send_task("add", (2,)).get(DEADLINE_S) == 3
        assert ask("cancel_consumer", queue="more") == {"ok": "no longer consuming from more"}
        assert ask("cancel_consumer", queue="none")["ok"]
        left = app.send_task("add", (3,), queue="more")
        assert app.send_task("add", (4,)).get(DEADLINE_S) == 5
        assert look.waiting("more") == 1
        assert ask("cancel_consumer", queue="tests")["ok"]
        assert ask("active_queues") == []
        waiting = app.send_task("add", (5,))
        assert ask("ping") == {"ok": "pong"}
        assert not left.ready()
        assert not waiting.ready()
        assert ask("add_consumer", queue="tests")["ok"]
        assert waiting.get(DEADLINE_S) == 6
        assert "1 to 255" in ask("add_consumer", queue="")["error"]
        assert "1 to 255" in ask("cancel_consumer", queue="q" * 256)["error"]
        assert "must be one of" in ask("add_consumer", queue="q", exchange_type="fanout")["error"]
        assert "unexpected keyword" in ask("add_consumer", queue="q", x_max=3)["error"]
        assert ask("add_consumer", queue="more")["ok"]
        assert left.get(DEADLINE_S) == 4
        assert worker.counts["reconnects"] == 0


def test_a_queue_is_bound_to_a_named_exchange(app: TaskApp, ask: Ask) -> None:
    import kombu

    from blimp.queue.protocol.message import TaskMessage, write_message

    app.task(name="add")(lambda a: a + 1)
    with working(app):
        assert ask(
            "add_consumer",
            queue="wind",
            exchange="weather",
            exchange_type="topic",
            routing_key="wind.#",
        )["ok"]
        headers, body = write_message(TaskMessage(id="one", task="add", args=(1,)), signer=None)
        with open_connection(app, app.broker) as connection:
            kombu.Producer(connection.channel()).publish(
                body,
                headers=headers,
                exchange=kombu.Exchange("weather", type="topic"),
                routing_key="wind.gust",
                content_type="application/json",
                content_encoding="utf-8",
                declare=[kombu.Exchange("weather", type="topic")],
            )
        assert app.result("one").get(DEADLINE_S) == 2


def test_shutdown_stops_warm(app: TaskApp, ask: Ask, gate: Gate, look: Look) -> None:
    log = Silence()
    with working(app, log=log, sync_workers=1) as worker:
        running = app.send_task("hold")
        app.send_task("hold")
        wait_until(lambda: worker.counts["received"] == 2 and gate.running == 1, "none runs")
        assert ask("shutdown") == {"ok": "shutting down"}
        wait_until(lambda: worker.counts["requeued"] == 1, "it does not stop")
        gate.open.set()
        running.get(DEADLINE_S)
        wait_until(lambda: bool(log.events("stopped")), "it does not end")
    assert look.waiting() == 1


def test_with_a_key_only_signed_changes_are_made(url: str, ask: Ask) -> None:
    key, other = "k" * 20, "o" * 20
    with (
        TaskApp("tests", broker=url, result_backend=url, signing_key=key) as app,
        TaskApp("tests", broker=url, result_backend=url, signing_key=other) as stranger,
        TaskApp("others", broker=url, result_backend=url, signing_key=key) as neighbour,
    ):
        log = Silence()
        with working(app, log=log) as worker:
            assert ask("ping") == {"ok": "pong"}
            assert "only signed" in ask("shutdown")["error"]
            assert (
                "another key"
                in send_command(stranger, "shutdown", timeout_s=5.0, destination=["worker"])[
                    "worker"
                ]["error"]
            )
            assert send_command(neighbour, "shutdown", timeout_s=0.2) == {}
            reply = send_command(app, "pool_grow", {"n": 2}, destination=["worker"])
            assert reply == {"worker": {"ok": "pool will grow"}}
            assert not worker._stops.stopping.is_set()
        assert len(log.events("remote command refused")) == 2


def test_a_signed_command_runs_once_and_while_it_is_fresh(
    url: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Command
    with (
        TaskApp("tests", broker=url, result_backend=url, signing_key="k" * 20) as app,
        working(app),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("kombu.pidbox.uuid", lambda: "t")
            assert "ok" in send_command(app, "pool_grow", destination=["worker"])["worker"]
            again = send_command(app, "pool_grow", destination=["worker"])
        assert "done already" in again["worker"]["error"]
        with monkeypatch.context() as patch:
            old_s = app.broker_clock.now_s() - 40.0
            patch.setattr(
                command_sender, "Command", lambda **fields: made(**fields | {"sent_s": old_s})
            )
            found = send_command(app, "pool_grow", destination=["worker"])
        assert "40 s old, the limit is 30" in found["worker"]["error"]
        with monkeypatch.context() as patch:  # nor again by the process that takes its place
            old_s = app.broker_clock.now_s() - 20.0
            patch.setattr(
                command_sender, "Command", lambda **fields: made(**fields | {"sent_s": old_s})
            )
            found = send_command(app, "shutdown", destination=["worker"])
        assert "before this worker started" in found["worker"]["error"]


@pytest.mark.parametrize(("mode", "answers"), [("inspect", True), ("off", False)])
def test_modes_inspect_and_off(url: str, ask: Ask, mode: str, answers: bool) -> None:
    with (
        TaskApp("tests", broker=url, result_backend=url, remote_control=mode) as app,
        working(app),
    ):
        if answers:
            assert ask("ping") == {"ok": "pong"}
            assert "remote_control='inspect'" in ask("pool_grow")["error"]
        else:
            assert ask("ping", all=True, timeout=0.2) == []


def test_a_ship_only_answers_questions_by_default() -> None:
    assert remote_control_from_environment({}) == "inspect"
    assert remote_control_from_environment({"BLIMP_REMOTE_CONTROL": ""}) == "inspect"
    assert remote_control_from_environment({"BLIMP_REMOTE_CONTROL": "all"}) == "all"
    app = build_ship_app(
        vehicle="ship", broker="redis://nowhere", mailbox=cast("Any", None), signing_key="k" * 20
    )
    assert app.remote_control == "inspect"
