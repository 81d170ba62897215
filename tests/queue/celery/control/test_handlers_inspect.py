"""What a worker answers to `inspect`, in Celery's shapes."""

import json
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blimp.queue import TaskApp
from blimp.queue.celery.control.command import CommandContext
from blimp.queue.celery.control.handlers import query_task, scheduled
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker import interpreter
from blimp.queue.worker.job import Job
from tests.queue.celery.control.conftest import Ask
from tests.queue.conftest import DEADLINE_S, Held, wait_until, working


def test_ping_by_name_pattern_and_to_all(app: TaskApp, ask: Ask) -> None:
    with working(app, name="pad@here"):
        pong = [{"pad@here": {"ok": "pong"}}]
        assert ask("ping", all=True) == pong
        assert ask("ping", all=True, destination=["pad@here"]) == pong
        assert ask("ping", all=True, pattern="pad@*", matcher="glob") == pong
        assert ask("ping", all=True, destination=["other@here"], timeout=0.1) == []
        assert ask("ping", all=True, pattern="x*", matcher="glob", timeout=0.1) == []


def test_what_runs_waits_and_is_scheduled(app: TaskApp, ask: Ask) -> None:
    held = Held()
    hold = app.task(name="hold")(held.run)
    with working(app, sync_workers=1, prefetch=4):
        first = hold.delay("a")
        assert held.began.wait(DEADLINE_S)
        second = hold.apply_async(("b",), priority=3)
        while len(reserved := ask("reserved")) < 1:
            pass
        (running,) = ask("active")
        assert running.pop("time_start") > 0
        assert running == {
            "id": first.id,
            "name": "hold",
            "args": ["a"],
            "kwargs": {},
            "type": "hold",
            "hostname": "worker",
            "acknowledged": False,
            "delivery_info": {
                "exchange": "",
                "routing_key": "tests",
                "priority": 6,
                "redelivered": False,
            },
            "worker_pid": os.getpid(),
        }
        assert ask("active", safe=True)[0]["args"] == "('a',)"
        (waiting,) = reserved
        assert waiting["id"] == second.id
        assert waiting["time_start"] is None
        assert waiting["worker_pid"] is None
        assert ask("query_task", ids=[first.id, "none"])[first.id][0] == "active"
        assert ask("query_task", ids=second.id)[second.id][0] == "reserved"
        assert ask("stats")["total"] == {"hold": 2}
        assert ask("stats")["python"] == interpreter.described()
        held.go.set()
        second.get(DEADLINE_S)
        wait_until(lambda: ask("stats")["blimp_ended"] == [["hold", "SUCCESS", 2]], "no end")


def test_what_waits_for_its_eta_in_the_worker(app: TaskApp) -> None:
    """On streams the server keeps it: the worker's part is stood in for."""
    task = app.task(name="later")(lambda: None)
    message = TaskMessage(id="a-1", task="later", queue="tests", eta_s=60.0)
    job = Job(message=message, task=task, delivery=cast("Any", None))
    in_flight = SimpleNamespace(is_scheduled=lambda _: True)
    worker: Any = SimpleNamespace(app=app, name="w", jobs=lambda: [job], in_flight=in_flight)
    context = CommandContext(worker=worker, revoke=lambda *_: "", started_s=0.0)
    (found,) = scheduled(context)
    assert found["request"]["id"] == "a-1"
    assert found["eta"] == "1970-01-01T00:01:00+00:00"
    assert query_task(context, ids=["a-1"])["a-1"][0] == "scheduled"


def test_large_arguments_are_shown_as_text(app: TaskApp, ask: Ask) -> None:
    held = Held()
    hold = app.task(name="hold")(held.run)
    with working(app):
        hold.delay("x" * 100_000)
        assert held.began.wait(DEADLINE_S)
        (running,) = ask("active")
        assert running["args"] == "('" + "x" * 1022
        held.go.set()


def test_stats_conf_report_and_clock(url: str, ask: Ask) -> None:
    results = "redis://u:hunter22@localhost:1/0?password=hunter22"
    brokers = f"{url};redis://u:hunter22@localhost:1/0"
    with TaskApp("tests", broker=brokers, result_backend=results, signing_key="s" * 20) as app:
        app.task(name="a", rate_limit="10/s")(lambda: None)
        app.task(name="b", time_limit=3.0)(lambda: None)
        with working(app, sync_workers=3, name="w"):
            stats = ask("stats")
            assert {*stats} == {
                "total", "blimp_ended", "pid", "python", "clock", "uptime", "pool", "broker",
                "prefetch_count", "rusage",
            }  # fmt: skip
            assert stats["pool"]["max-concurrency"] == 3
            assert stats["broker"]["transport"] == app.transport
            assert stats["broker"]["virtual_host"] == "0"
            assert stats["pid"] == os.getpid()
            assert stats["prefetch_count"] >= 16
            assert stats["rusage"]["maxrss"] > 0
            conf = ask("conf", with_defaults=True)
            assert conf["task_default_queue"] == "tests"
            assert conf["accept_content"] == ["json"]
            reported = json.dumps([stats, conf, ask("report")])
            assert "hunter22" not in reported
            assert "s" * 20 not in reported
            assert ask("clock")["clock"] < ask("clock")["clock"]
            assert ask("registered") == ["a [rate_limit=10/s]", "b"]
            assert ask("registered", taskinfoitems=["time_limit"]) == ["a", "b [time_limit=3.0]"]
            (queue,) = ask("active_queues")
            assert queue["name"] == queue["routing_key"] == "tests"
            assert queue["exchange"]["type"] == "direct"
            app.revoke("one")
            assert ask("revoked") == ["one"]
            hello = ask("hello", from_node="celery@other", revoked=["x"])
            assert hello["revoked"] == ["one"]
            assert ask("hello", from_node="w") is None


@pytest.mark.parametrize(
    ("command", "arguments", "reason"),
    [
        ("nosuch", {}, r"KeyError('nosuch')"),
        ("__class__", {}, "KeyError"),
        ("query_task", {}, "missing a required argument: 'ids'"),
        ("query_task", {"ids": 3}, "ids 3: must be a text"),
        ("query_task", {"ids": ["a"] * 1001}, "the limit is 1000"),
        ("active", {"context": 1}, "multiple values"),
        ("registered", {"taskinfoitems": [1]}, "must be a list of names"),
    ],
)
def test_a_bad_question_is_answered_with_the_reason(
    app: TaskApp, ask: Ask, command: str, arguments: dict[str, object], reason: str
) -> None:
    with working(app):
        assert reason in ask(command, **arguments)["error"]
        assert ask("ping") == {"ok": "pong"}
