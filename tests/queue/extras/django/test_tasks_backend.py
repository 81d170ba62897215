"""`django.tasks` on the queue. Django's own tests of its backends: benchmarks/django_suite.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import django
import pytest
import redis
from django.conf import settings
from django.core import checks
from django.db import transaction
from django.test import override_settings

from blimp.errors import LinkError
from blimp.queue.extras.django import outbox
from blimp.queue.extras.django.django_app import DjangoTaskApp, default_app
from blimp.queue.testing import InProcess
from tests.queue.conftest import WorkerProcess, wait_until
from tests.queue.extras.django.conftest import APP, WITHOUT_OUTBOX, sent, unreachable

if django.VERSION < (6, 0):
    pytest.skip("NOT RUN: needs Django 6.0: make .venv-django/installed", allow_module_level=True)

from django.tasks import default_task_backend, task_backends
from django.tasks.exceptions import (
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultMismatch,
)
from django.tasks.signals import task_enqueued, task_finished, task_started

from blimp.queue.extras.django.ticket import Ticket

ALONE = "blimp.queue.django:app"  # made of the settings alone


@pytest.fixture
def mails(project: SimpleNamespace) -> Any:
    from tests.queue.django_project.mails import tasks

    return tasks


@pytest.fixture
def signals() -> Iterator[list[tuple[str, str]]]:
    """The signals that come in this process: which, and the status that it says."""
    found: list[tuple[str, str]] = []
    watched = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    heard = [
        (one, lambda task_result, word=word, **_: found.append((word, str(task_result.status))))
        for word, one in watched.items()
    ]
    for one, hear in heard:
        one.connect(hear)
    yield found
    for one, hear in heard:
        one.disconnect(hear)


# --- with a worker --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "path"), [("send", APP), ("send_in_loop", ALONE)])
def test_a_task_runs_in_a_worker_and_its_result_says_all_that_django_asks(
    project: SimpleNamespace, mails: Any, name: str, path: str,
    server: redis.Redis, start_worker: Callable[..., WorkerProcess],
) -> None:  # fmt: skip
    order = project.Order.objects.create(item="lamp")
    result = getattr(mails, name).enqueue(order.pk)
    assert (result.status, result.attempts, result.is_finished) == ("READY", 0, False)
    assert default_task_backend.get_result(result.id) == result
    worker = start_worker(os.environ["PROJECT_BROKER"], app=path, options="--queues shop")
    wait_until(lambda: result.refresh() or result.is_finished, "the task does not end")
    assert (result.status, result.return_value, result.errors) == ("SUCCESSFUL", "lamp", [])
    assert (result.worker_ids, result.attempts, result.args) == (["w"], 1, [order.pk])
    assert result.enqueued_at <= result.started_at == result.last_attempted_at
    assert result.started_at <= result.finished_at
    assert project.Order.objects.get(pk=order.pk).confirmed_by == worker.process.pid


def test_a_killed_worker_s_task_is_run_again_and_both_attempts_are_known(
    project: SimpleNamespace, mails: Any,
    server: redis.Redis, start_worker: Callable[..., WorkerProcess],
) -> None:  # fmt: skip
    result = mails.hang_once.enqueue()
    first = start_worker(os.environ["PROJECT_BROKER"], app=APP, name="first")
    wait_until(lambda: result.refresh() or result.status == "RUNNING", "it does not begin")
    assert (result.worker_ids, result.finished_at) == (["first"], None)
    with pytest.raises(ValueError, match="not finished yet"):
        _ = result.return_value
    first.process.send_signal(signal.SIGKILL)
    start_worker(os.environ["PROJECT_BROKER"], app=APP, name="second")
    wait_until(lambda: result.refresh() or result.is_finished, "it is not run again")
    assert (result.return_value, result.attempts) == (2, 2)
    assert result.worker_ids == ["first", "second"]
    assert result.started_at < result.last_attempted_at < result.finished_at


# --- in this process ------------------------------------------------------------------------------


def test_a_failure_has_its_class_and_its_traceback(
    mails: Any, queue: InProcess, signals: list[tuple[str, str]]
) -> None:
    result = mails.fail.enqueue("no rope")
    queue.run()
    result.refresh()
    (error,) = result.errors
    assert (result.status, error.exception_class) == ("FAILED", ValueError)
    assert error.traceback.endswith("ValueError: no rope\n")
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert signals == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "FAILED")]


def test_arguments_of_no_call_are_a_failure_and_another_version_has_others(
    mails: Any, queue: InProcess
) -> None:
    result = mails.fail.enqueue()
    queue.run()
    result.refresh()
    assert result.status == "FAILED"
    assert "missing 1 required positional argument: 'words'" in result.errors[0].traceback
    versions = queue.app.versions()
    assert len({versions[one.module_path] for one in (mails.fail, mails.send, mails.leave)}) == 3


def test_the_context_is_django_s(mails: Any, queue: InProcess) -> None:
    result = mails.look.enqueue(1, words="two")
    assert result.kwargs == {"words": "two"}
    queue.run()
    found = mails.look.get_result(result.id).return_value
    assert found == [1, result.id, "RUNNING", ["in-process"], [1], {"words": "two"}]


def test_a_receiver_that_raises_stops_neither_caller_nor_task(mails: Any, queue: InProcess) -> None:
    def raises(**_: object) -> None:
        raise KeyError("a receiver's")

    for one in (task_enqueued, task_started, task_finished):
        one.connect(raises)
    try:
        result = mails.look.enqueue()
        queue.run()
        result.refresh()
        assert result.status == "SUCCESSFUL"
    finally:
        for one in (task_enqueued, task_started, task_finished):
            one.disconnect(raises)


def test_a_time_is_waited_for(mails: Any, queue: InProcess) -> None:
    later = datetime.fromtimestamp(queue.app.clock.wall_s(), UTC) + timedelta(minutes=5)
    result = mails.look.using(run_after=later).enqueue()
    assert default_task_backend.get_result(result.id).task.run_after == later
    assert queue.run() == 0
    queue.advance(301.0)
    result.refresh()
    assert result.status == "SUCCESSFUL"


def test_priorities_are_four_levels_and_the_default_queue_is_the_app_s(
    mails: Any, queue: InProcess
) -> None:
    levels = {100: 0, 51: 0, 50: 3, 1: 3, 0: 6, -1: 9, -100: 9}
    for priority in levels:
        mails.look.using(priority=priority).enqueue(priority)
    found = {message.args[0]: message.priority for message in queue.waiting}
    assert found == levels
    result = mails.look.using(queue_name="slow", priority=7).enqueue("slow")
    queues = {message.args[0]: message.queue for message in queue.waiting}
    assert (queues[0], queues["slow"]) == ("shop", "slow")
    task = mails.look.get_result(result.id).task
    assert (task.queue_name, task.priority) == ("slow", 7)


def test_what_was_never_sent_has_no_result_and_another_s_is_not_its_own(
    mails: Any, queue: InProcess
) -> None:
    for one in ("no such id", "", 5):
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(one)
    result = mails.look.enqueue()
    with pytest.raises(TaskResultMismatch):
        mails.fail.get_result(result.id)
    ours = queue.app.send_task("orders.confirm", (1,))
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(ours.id)


def test_a_task_that_another_program_names_runs_too(mails: Any, queue: InProcess) -> None:
    handle = queue.app.send_task(mails.look.module_path, (1,))
    assert handle.get()[:3] == [1, handle.id, "RUNNING"]


# --- transactions, see test_outbox.py too ---------------------------------------------------------


def test_a_task_is_sent_with_the_commit_and_known_before(
    project: SimpleNamespace, mails: Any, queue: InProcess, unsent: Any
) -> None:
    with transaction.atomic():
        result = mails.look.using(priority=7).enqueue(1)
        found = default_task_backend.get_result(result.id)
        assert (found, found.status, sent(queue)) == (result, "READY", [])
    assert (default_task_backend.get_result(result.id), sent(queue)) == (result, [(1,)])
    with transaction.atomic():
        gone = mails.look.enqueue(2)
        transaction.set_rollback(True)
    assert sent(queue) == [(1,)]
    with pytest.raises(TaskResultDoesNotExist):
        gone.refresh()


def test_what_is_sent_again_has_its_attempts_still(
    project: SimpleNamespace, mails: Any, queue: InProcess, unsent: Any
) -> None:
    with transaction.atomic():
        result = mails.look.enqueue()
        (row,) = unsent.all()
    queue.run()
    row.save(force_insert=True)  # as if its process was killed before the deletion
    outbox.flush(project.app, using="default")
    assert queue.run() == 0
    result.refresh()
    assert (result.status, result.attempts) == ("SUCCESSFUL", 1)


def test_always_is_a_row_without_a_transaction_too(
    project: SimpleNamespace, mails: Any, queue: InProcess, unsent: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(project.app.broker_kind, "send", unreachable)
    with pytest.raises(LinkError):
        mails.look.enqueue(1)  # there is nobody who would send it later
    options = {**settings.TASKS["default"]["OPTIONS"], "outbox": "always"}
    always = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    with override_settings(TASKS=always):
        result = mails.look.enqueue(2)
        assert (unsent.count(), result.status) == (1, "READY")
        result.refresh()
    with override_settings(TASKS=always, INSTALLED_APPS=WITHOUT_OUTBOX):
        assert {one.id for one in checks.run_checks()} == {"blimp.E002", "blimp.W001"}
    with override_settings(INSTALLED_APPS=WITHOUT_OUTBOX):
        assert [one.id for one in checks.run_checks()] == ["blimp.W001"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"app": "nowhere.at:all"}, r"TASKS\['default'\]\['OPTIONS'\]\['app'\] is 'now.*No mod"),
        ({"app": "os:path"}, "is 'os:path': module, no DjangoTaskApp"),
        ({"outbox": True}, r"\['outbox'\] is True: must be 'always'"),
        ({"apps": "x"}, r"no option 'apps' \(did you mean 'app'\?\)"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(
    project: SimpleNamespace, options: dict[str, Any], reason: str
) -> None:
    wrong = {"default": {"BACKEND": "blimp.queue.django.TasksBackend", "OPTIONS": options}}
    with override_settings(TASKS=wrong):
        if "app" in options:
            assert [one.id for one in checks.run_checks()] == ["blimp.E001"]
        with pytest.raises(InvalidTaskBackend, match=reason):
            task_backends["default"].app  # noqa: B018


def test_a_ticket_is_kept_in_a_database_of_results_too(
    project: SimpleNamespace, mails: Any, tmp_path: Path
) -> None:
    results = f"db+sqlite:///{tmp_path / 'results'}"
    with override_settings(BLIMP_QUEUE={"broker": "memory://", "result_backend": results}):
        app = DjangoTaskApp("kept")
    at, args, kwargs = datetime.now(UTC), [1], {"words": "two"}
    ticket = Ticket.of(mails.look, id="one", args=args, kwargs=kwargs, at=at).begun("w", at=at)
    with app:
        assert Ticket.kept(app, "one") is None
        ticket.keep(app)
        assert Ticket.kept(app, "one") == ticket


def test_without_a_result_backend_there_are_no_results(project: SimpleNamespace) -> None:
    plain = {"default": {"BACKEND": "blimp.queue.django.TasksBackend"}}
    with override_settings(TASKS=plain, BLIMP_QUEUE={"broker": "memory://"}):
        backend = task_backends["default"]
        assert backend.app.name == "tests"  # of tests.queue.django_project.settings
        with pytest.raises(NotImplementedError):
            backend.get_result("1")
    default_app.cache_clear()
