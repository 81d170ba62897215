"""`python -m blimp.queue queues` and `dead`."""

import json
from typing import Any

import pytest

from blimp.queue import TaskApp
from blimp.queue.brokers.base import Capabilities
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.cli.main import main
from tests.queue.conftest import DEADLINE_S, working
from tests.queue.server_view import Look


@pytest.fixture
def run(app: TaskApp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: app)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "-A", "here:app"])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_queues_are_counted(app: TaskApp, run: Any) -> None:
    app.send_task("a")
    app.send_task("a", countdown=60.0)
    status, out, _ = run("queues", "--json", "--queues", "tests,none")
    found = json.loads(out)
    assert status == 0
    assert found["tests"].pop("oldest_age_s") >= 0.0
    assert found["tests"] == {
        "ready": 1,
        "in_flight": 0,
        "scheduled": 1,
        "dead": 0,
        "paused": False,
    }
    assert found["none"]["ready"] == 0
    assert run("queues")[1].startswith("tests: 1 ready, 0 in flight, 1 scheduled, 0 dead, the old")


def test_claims_of_unique_tasks_are_listed_and_freed(app: TaskApp, run: Any) -> None:
    it = app.task(name="it", unique_until="end")(lambda: None)
    timed = app.task(name="timed", unique_for=60.0)(lambda: None)
    assert run("queues", "unique", "tests")[:2] == (0, "tests: no claims\n")
    first, second = it.delay(), timed.delay()
    out = run("queues", "unique", "tests")[1]
    assert out.startswith(f"timed[{second.id}]  for ")
    assert out.endswith(f"it[{first.id}]  until it begins or ends\n")
    assert run("queues", "unique", "tests", "--free", first.id) == (
        0, f"{first.id}: freed in tests\n", "",
    )  # fmt: skip
    assert run("queues", "unique", "tests", "--free", first.id)[0] == 1
    assert it.delay() != first
    assert timed.delay() == second
    assert {one["task"] for one in json.loads(run("queues", "-j", "unique", "tests")[1])} == {
        "it", "timed",
    }  # fmt: skip


def test_a_queue_is_paused_resumed_and_purged(app: TaskApp, run: Any) -> None:
    assert run("queues", "pause", "tests")[:2] == (
        0, "tests is paused: emergencies are delivered, nothing else\n",
    )  # fmt: skip
    assert run("queues", "pause", "tests")[1].startswith("tests was paused")
    app.task(name="add")(int.__add__)
    with working(app):
        sent = app.send_task("add", (1, 2))
        assert app.send_task("add", (3, 4), priority=0).get(DEADLINE_S) == 7
        assert sent.state == "PENDING"
        assert run("queues")[1].endswith("s old, paused\n")
        assert run("queues", "resume", "tests")[:2] == (0, "tests is delivered\n")
        assert sent.get(DEADLINE_S) == 3
    app.send_task("add", (1, 2))
    app.send_task("add", (1, 2), countdown=60.0)
    status, out, _ = run("queues", "purge", "tests")
    assert (status, out.startswith("tests: 1 ready and 1 scheduled messages would")) == (1, True)
    assert out.endswith("for their results for ever: add --yes to drop them\n")
    assert run("queues", "purge", "tests", "--yes")[:2] == (0, "tests: 2 dropped\n")
    assert run("queues")[1] == "tests: 0 ready, 0 in flight, 0 scheduled, 0 dead\n"


def test_dead_letters_are_listed_shown_requeued_and_dropped(
    app: TaskApp, run: Any, look: Look, session: StreamsSession
) -> None:
    queue = session.keys.queue("tests")
    for number in range(3):
        app.send_task("a", (number,), task_id=f"t{number}")
    session.store.make_group(queue)
    claims = [claim for claim, _ in session.store.take([queue], room=3).deliveries]
    for claim in claims:
        session.store.dead_letter(claim, "the reason")
    status, out, _ = run("dead", "list", "--json")
    letters = json.loads(out)
    assert (status, [letter["headers"]["id"] for letter in letters]) == (0, ["t0", "t1", "t2"])
    first = letters[0]["id"]
    assert "a[t0]  the reason" in run("dead", "list")[1]
    assert "[[0],{}," in run("dead", "show", first)[1]
    assert run("dead", "requeue", first)[0] == 0
    assert (look.waiting(), look.dead()) == (1, 2)
    assert run("dead", "requeue", first) == (1, "", f"error: no dead letter {first}\n")
    assert run("dead", "drop", "all")[0] == 0
    assert look.dead() == 0
    assert run("dead", "list") == (0, "no dead letters\n", "")
    for verb, wrong in (("show", "all"), ("show", "t0"), ("drop", "5"), ("requeue", "")):
        error = f"error: dead {verb} {wrong!r}: give the ids that `dead list` shows\n"
        assert run("dead", verb, wrong) == (2, "", error)


def test_what_a_stranger_chose_reaches_the_terminal_escaped(
    app: TaskApp, run: Any, session: StreamsSession
) -> None:
    """An escape sequence may move the cursor, rename the window, or type for the operator."""
    queue = session.keys.queue("tests")
    app.send_task("a\x1b[2J", ("b\x1b[2J",), task_id="c\x9b2J")
    session.store.make_group(queue)
    for delivery, _ in session.store.take([queue], room=1).deliveries:
        session.store.dead_letter(delivery, "d\x1b]0;e\x07\nf\u202e")
    status, out, _ = run("dead", "list")
    assert (status, "a\\x1b[2J[c\\x9b2J]  d\\x1b]0;e\\x07\\nf\\u202e\n" in out) == (0, True)
    shown = run("dead", "show", out.split()[0])[1]
    assert shown.replace("\n", "").isprintable()
    assert len(shown.splitlines()) == 4


def test_a_broker_without_dead_letters_is_refused(run: Any, app: TaskApp) -> None:
    app.capabilities = Capabilities(title="other")
    status, _, err = run("dead", "list")
    assert (status, "needs 'streams'" in err) == (2, True)
