"""`python -m blimp.queue inspect` and `control`."""

import json
from typing import Any

import pytest

from blimp.queue import TaskApp
from blimp.queue.cli.main import main
from tests.queue.conftest import working


@pytest.fixture
def run(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def load(_: str) -> TaskApp:  # not the worker's own: a command closes it
        return TaskApp("tests", broker=url, result_backend=url)

    monkeypatch.setattr("blimp.queue.cli.main.load_app", load)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "-A", "here:app", "-d", "pad@here", "-t", "5"])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_workers_are_asked_and_commanded(app: TaskApp, run: Any) -> None:
    app.task(name="add", rate_limit="3/s")(lambda a: a + 1)
    with working(app, name="pad@here"):
        assert run("inspect", "ping") == (0, "->  pad@here: OK\n        pong\n", "")
        assert json.loads(run("inspect", "ping", "--json")[1]) == {"pad@here": {"ok": "pong"}}
        assert "        - empty -" in run("inspect", "active")[1]
        assert "        * add [rate_limit=3/s]" in run("inspect", "registered")[1]
        assert "add [acks_late=True]" in run("inspect", "registered", "acks_late")[1]
        assert '"pid": ' in run("inspect", "stats")[1]
        assert "task_serializer" in run("inspect", "conf", "--with-defaults")[1]
        assert run("inspect", "query_task", "one", "two")[1] == "->  pad@here: OK\n        {}\n"
        for command in ("reserved", "scheduled", "revoked", "active_queues", "report", "clock"):
            assert run("inspect", command)[0] == 0
        for command in (
            "revoke one two --terminate",
            "rate_limit add 5/m",
            "time_limit add 1.5 3",
            "time_limit add 1.5",
            "add_consumer more",
            "cancel_consumer more",
            "pool_grow 2",
            "pool_shrink",
            "enable_events",
            "disable_events",
            "heartbeat",
        ):
            status, out, err = run("control", *command.split())
            assert (status, out[:16], err) == (0, "->  pad@here: OK", ""), command
        assert app.tasks["add"].options.rate_limit == "5/m"
        assert app.tasks["add"].options.time_limit is None
        status, out, _ = run("control", "rate_limit", "none", "5/m")
        assert (status, out) == (1, "->  pad@here: ERROR\n        unknown task\n")
        assert run("control", "shutdown")[1] == "->  pad@here: OK\n        shutting down\n"


def test_an_answer_reaches_the_terminal_escaped(app: TaskApp, run: Any) -> None:
    app.task(name="add\x1b[2J")(lambda a: a)
    with working(app, name="pad@here"):
        shown = run("inspect", "registered")[1]
        assert shown == "->  pad@here: OK\n        * add\\x1b[2J\n"
        status, out, err = run("control", "rate_limit", "no\x1b[2J", "x")
    assert (status, (out + err).replace("\n", "").isprintable()) == (1, True)


def test_nobody_answers(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: app)
    assert main(["inspect", "ping", "-A", "here:app", "--timeout", "0.05"]) == 1
    assert capsys.readouterr().err == "error: no worker answered within 0.05 s\n"
    assert main(["control", "shutdown", "-A", "a:b", "-d", "x,y", "-t", "0.05", "--json"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("{}\n", "error: no answer from x, y within 0.05 s\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "inspect none -A a:b",
        "inspect ping -A a:b -t 0",
        "inspect query_task -A a:b",
        "control time_limit add soon -A a:b",
    ],
)
def test_wrong_arguments_are_named(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err
