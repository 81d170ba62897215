"""The outbox: in this process, and with processes that are killed at each of its boundaries."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import django
import pytest
import redis
from django.core.management import call_command
from django.db import transaction

from blimp.errors import LinkError
from blimp.queue.extras.django import outbox
from blimp.queue.protocol.unique import HEADER
from blimp.queue.testing import InProcess
from tests.forked import ran
from tests.postgres import Postgres
from tests.queue.conftest import WorkerProcess
from tests.queue.extras.django.conftest import APP, sent, unreachable

ROUNDS = int(os.environ.get("OUTBOX_ROUNDS", "3"))


# --- in this process ------------------------------------------------------------------------------


def test_a_row_is_there_until_the_commit_has_sent_it(
    project: SimpleNamespace, queue: InProcess, unsent: Any
) -> None:
    with transaction.atomic():
        project.tasks.count.apply_async_on_commit((1,), priority=3)
        assert (unsent.count(), sent(queue)) == (1, [])
        (row,) = unsent.all()
        assert (row.app, len(row.id)) == ("shop", 36)
    assert (unsent.count(), sent(queue)) == (0, [(1,)])
    assert (queue.waiting[0].id, queue.waiting[0].priority) == (row.id, 3)


def test_without_a_broker_the_commit_stands_and_the_task_is_sent_later_in_its_order(
    project: SimpleNamespace, queue: InProcess, unsent: Any,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    after: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(project.app.broker_kind, "send", unreachable)
        with transaction.atomic():
            for number in range(3):
                project.tasks.count.delay_on_commit(number)
            transaction.on_commit(lambda: after.append("ran"))
        assert (unsent.count(), after) == (3, ["ran"])
        with pytest.raises(LinkError):
            outbox.flush(project.app, using="default")
    assert "waits in the outbox: no broker" in caplog.text
    assert outbox.flush(project.app, using="default", left_s=60.0) == 0  # their senders may come
    assert outbox.flush(project.app, using="default") == 3
    assert (unsent.count(), sent(queue)) == (0, [(0,), (1,), (2,)])


def test_a_row_that_cannot_be_sent_keeps_no_other_from_it(
    project: SimpleNamespace, queue: InProcess, unsent: Any, caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    unsent.create(id="broken", app="shop", call="{")
    unsent.create(id="another's", app="market", call="{")
    with transaction.atomic():
        project.tasks.count.delay_on_commit(1)
        rows = list(unsent.filter(app="shop").exclude(pk="broken"))
    for row in rows:  # as if its process was killed before the deletion
        row.save(force_insert=True)
    with caplog.at_level(logging.ERROR):
        call_command("send_outbox")
    assert capsys.readouterr().out == "sent: 1\n"
    assert "task broken stays in the outbox" in caplog.text
    assert {row.id for row in unsent.all()} == {"broken", "another's"}
    assert sent(queue) == [(1,)]  # once


def test_a_transaction_that_is_committed_by_hand_is_sent_by_a_relay(
    project: SimpleNamespace, queue: InProcess, unsent: Any
) -> None:
    transaction.set_autocommit(False)
    try:
        project.tasks.count.delay_on_commit(1)
        transaction.rollback()
        project.tasks.count.delay_on_commit(2)
        assert sent(queue) == []
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert (sent(queue), outbox.flush(project.app, using="default")) == ([], 1)
    assert sent(queue) == [(2,)]


def test_a_unique_task_takes_its_claim(
    project: SimpleNamespace, queue: InProcess, unsent: Any
) -> None:
    """Beside the stamp of its row: a row that is sent twice is one task."""
    task = project.app.task(name="once", unique_until="end")(lambda: None)
    with transaction.atomic():
        task.delay_on_commit()
    assert HEADER in queue.waiting[0].headers


# --- processes that are killed --------------------------------------------------------------------


def run(*words: str) -> str:
    program = [sys.executable, "-m", "tests.queue.django_project.killed", *words]
    ended = ran(program, timeout=3000.0)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The project's database, for processes that are started: of each kind one."""
    monkeypatch.setenv("PROJECT_DIRECTORY", str(tmp_path))
    if request.param == "sqlite":
        run("prepare")
        yield
        return
    server: Postgres = request.getfixturevalue("postgres")
    with server.database() as url:
        name, _, host = url.partition("@/")[2].partition("?host=")
        engine = {"ENGINE": "django.db.backends.postgresql", "USER": "blimp"}
        made = {"default": engine | {"NAME": name, "HOST": host}}
        monkeypatch.setenv("PROJECT_DATABASES", json.dumps(made))
        run("prepare")
        yield


@pytest.mark.parametrize(
    "kind",
    [
        "delayed",
        pytest.param("mails", marks=pytest.mark.skipif(django.VERSION < (6,), reason="no tasks")),
    ],
)
def test_what_a_killed_process_has_committed_is_sent_once_and_nothing_else(
    project: SimpleNamespace, server: redis.Redis, database: None, kind: str,
    start_worker: Callable[..., WorkerProcess],
) -> None:  # fmt: skip
    """Killed in the transaction, between commit and send, send and deletion, and after it."""
    start_worker(os.environ["PROJECT_BROKER"], app=APP)
    found = json.loads(run(str(ROUNDS), kind))
    assert found == {"committed": 4 * ROUNDS, "lost": [], "doubled": [], "left": 0}
