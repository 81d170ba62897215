"""`python -m blimp.queue deploy check`."""

import json
from typing import Any

import pytest

from blimp.queue import TaskApp
from blimp.queue.cli.main import main
from tests.queue.conftest import wait_until, working


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(app: TaskApp, *options: str) -> tuple[int, Any]:
        monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: app)
        status = main(["deploy", "check", "-A", "here:app", *options])
        return status, capsys.readouterr().out

    return run


def build(url: str, **tasks: Any) -> TaskApp:
    app = TaskApp("tests", broker=url, result_backend=url)
    for name, function in tasks.items():
        app.task(name=name, queue="apart" if name == "apart" else None)(function)
    return app


def test_what_live_workers_cannot_run_is_named_and_a_failure(url: str, run: Any) -> None:
    def one(x: int) -> int:
        return x

    def two(x: int, y: int) -> int:
        return x + y

    old = build(url, kept=one, changed=one, gone=one)
    new = build(url, kept=one, changed=two, added=one, apart=one)
    status, said = run(new)
    assert (status, "tests: workers none" in said) == (1, True)
    with working(old, name="a"):
        status, said = run(new)
        assert status == 1
        assert "cannot run added: no live worker knows it" in said
        assert "cannot run changed: live workers know it with other arguments" in said
        assert "apart: workers none\n  cannot run apart: no live worker knows it" in said
        assert "kept" not in said
        assert run(old) == (0, "tests: workers a\n  its workers can run this code\n")
        with working(new, name="b", queues=["tests", "apart"]) as worker:
            worker.in_flight.held_by = lambda: True
            status, said = run(new)
            assert (status, "added runs only in b" in said) == (0, True)
            assert "gone" not in said


def test_what_waits_and_the_code_does_not_know_is_counted(url: str, run: Any) -> None:
    new = build(url, kept=int)
    for options in ({}, {"countdown": 60.0}, {"priority": 0}):
        new.send_task("gone", (1,), **options)
    status, said = run(new)
    assert (status, "3 of gone wait, which this code cannot run, nor any live worker" in said) == (
        1,
        True,
    )
    with working(new):
        with new.broker_link.link():
            aside = "blimp:queue:tests:aside"
            wait_until(lambda: new.broker_link.client.zcard(aside) == 2, "two are set aside")
        status, said = run(new, "--json", "--queues", "tests")
        found = json.loads(said)["tests"]
        assert (status, found["waiting"], found["lost"]) == (1, {"gone": 3}, ["gone"])
        assert (found["workers"], found["missing"], found["partly"]) == (["worker"], {}, {})
