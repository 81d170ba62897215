"""`python -m blimp.queue results`: failed tasks are listed, sent again, forgotten."""

import json
from pathlib import Path
from typing import Any

import pytest

from blimp.queue import State, TaskApp
from blimp.queue.cli.main import main
from tests.queue.conftest import DEADLINE_S, working


@pytest.fixture(params=["redis", "sqlite"])
def backend(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> str:
    return url if request.param == "redis" else f"db+sqlite:///{tmp_path}/results.db"


@pytest.fixture
def run(
    url: str, backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    def run(
        *arguments: str, result_backend: str | None = backend, **options: Any
    ) -> tuple[int, str, str]:
        def load(_: str) -> TaskApp:  # an app without the tasks: it only sends them
            return TaskApp("tests", broker=url, result_backend=result_backend, **options)

        monkeypatch.setattr("blimp.queue.cli.main.load_app", load)
        capsys.readouterr()  # what a worker has logged
        status = main(["results", *arguments, "-A", "here:app"])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_a_failed_task_is_listed_sent_again_and_forgotten(url: str, backend: str, run: Any) -> None:
    with TaskApp("tests", broker=url, result_backend=backend, result_extended=True) as app:
        valve = {"is_shut": True}

        @app.task(name="open")
        def open_valve(number: int, by: str = "operator") -> str:
            if valve["is_shut"]:
                raise ValueError(f"valve {number} is\nshut")
            return f"{number} by {by}"

        with working(app):
            first = open_valve.delay(7, by="motor")
            assert first.wait(DEADLINE_S).state is State.FAILURE
            status, out, err = run("failed", result_extended=True)
            assert (status, err) == (0, "")
            line, arguments = out.splitlines()
            assert line.startswith(f"{first.id}  20")
            assert line.endswith("  open  FAILURE  ValueError: valve 7 is shut")
            assert arguments == "  args [7]  kwargs {'by': 'motor'}"
            [found] = json.loads(run("failed", "--json", "--limit", "1", result_extended=True)[1])
            assert (found["id"], found["task"], found["args"]) == (first.id, "open", [7])
            assert "ValueError" in found["traceback"]
            assert (found["error"], found["queue"], found["worker"]) == (
                "ValueError",
                "tests",
                "worker",
            )

            valve["is_shut"] = False
            status, out, err = run("retry", first.id, result_extended=True)
            assert (status, err) == (0, "")
            new = out.split()[-1]
            assert out == f"{first.id}  sent again as {new}\n"
            assert new != first.id
            assert app.result(new).get(DEADLINE_S) == "7 by motor"
            assert app.result(first.id).state is State.FAILURE
            assert run("forget", first.id) == (0, "", "")
            assert run("failed", result_extended=True) == (0, "no task has failed for good\n", "")


def test_what_a_task_raised_reaches_the_terminal_escaped(url: str, backend: str, run: Any) -> None:
    with TaskApp("tests", broker=url, result_backend=backend, result_extended=True) as app:

        @app.task(name="fail")
        def fail(_: str) -> None:
            raise ValueError("\x1b]0;owned\x07 \u202e")

        with working(app):
            fail.delay("\x1b[2J").wait(DEADLINE_S)
            status, out, _ = run("failed", result_extended=True)
    assert (status, len(out.splitlines())) == (0, 2)
    assert out.replace("\n", "").isprintable()
    assert "  fail  FAILURE  ValueError: \\x1b]0;owned\\x07 \\u202e\n" in out


def test_what_cannot_be_sent_again_says_why(url: str, backend: str, run: Any) -> None:
    with TaskApp("tests", broker=url, result_backend=backend) as app:
        app.task(name="fail")(lambda: 1 / 0)
        with working(app):
            failed = app.send_task("fail")
            failed.wait(DEADLINE_S)
            status, out, err = run("retry", "nobody", failed.id)
    unknown, *unextended = err.splitlines()
    assert status == 1
    assert unknown.startswith("error: task nobody: is PENDING: only a task that has ended")
    if backend == url:  # a failure keeps its arguments
        assert out.startswith(f"{failed.id}  sent again as ")
        assert unextended == []
    else:  # Celery's table has no room for them
        assert out == ""
        assert unextended[0].startswith(f"error: task {failed.id}: its ")
        assert "are not stored: give the app result_extended=True" in unextended[0]


def test_failures_of_other_apps_are_listed_only_with_all(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, a developer saw the failures of all who share the server."""
    with (
        TaskApp("ours", broker=url, result_backend=url) as ours,
        TaskApp("theirs", broker=url, result_backend=url) as theirs,
    ):
        for app, name in ((ours, "ours.fail"), (theirs, "theirs.fail")):
            app.task(name=name)(lambda: 1 / 0)
            with working(app):
                app.send_task(name).wait(DEADLINE_S)
        monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: ours)
        listed = []
        for words in ((), ("--all",), ("--limit", "1")):
            assert main(["results", "failed", *words, "-A", "here:app"]) == 0
            out = capsys.readouterr().out
            listed.append(sorted(name for name in ("ours.fail", "theirs.fail") if name in out))
    assert listed == [["ours.fail"], ["ours.fail", "theirs.fail"], ["ours.fail"]]


def test_an_app_without_results_is_reported(run: Any) -> None:
    for command in (("failed",), ("retry", "x"), ("forget", "x"), ("cleanup",)):
        status, out, err = run(*command, result_backend=None)
        assert (status, out) == (2, "")
        assert err == "error: app 'tests' keeps no results: it has no result_backend\n"
