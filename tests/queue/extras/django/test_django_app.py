"""The Django project beside this file, in this process and with real workers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import django
import psycopg
import pytest
import redis
from django.db import connections, transaction
from django.test import TestCase, override_settings

from blimp.errors import ConfigError, MessageError, TaskFailed
from blimp.queue.extras.django.django_app import DjangoTask, DjangoTaskApp
from blimp.queue.testing import InProcess
from tests.broker import EmbeddedBroker
from tests.forked import ran
from tests.postgres import Postgres
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until
from tests.queue.extras.django.conftest import APP, WITHOUT_OUTBOX, sent

# --- the project ---------------------------------------------------------------------------------


def test_a_view_has_a_real_worker_run_what_it_commits_and_nothing_else(
    project: SimpleNamespace, server: redis.Redis, start_worker: Callable[..., WorkerProcess]
) -> None:
    def confirmer() -> int | None:
        return project.Order.objects.get(pk=pk).confirmed_by  # type: ignore[no-any-return]

    refused = project.client.post("/orders/", {"item": "moon"})
    assert (refused.status_code, project.Order.objects.filter(item="moon").count()) == (409, 0)
    assert server.dbsize() == 0  # nor is there a message
    taken = project.client.post("/orders/", {"item": "lamp"})
    pk = taken.json()["id"]
    assert (taken.status_code, confirmer()) == (202, None)
    worker = start_worker(os.environ["PROJECT_BROKER"], app=APP)
    wait_until(confirmer, "the worker confirms no order")
    assert confirmer() == worker.process.pid

    in_child = project.app.send_task("orders.confirm_in_process", (pk,))
    assert in_child.get(timeout=DEADLINE_S) == "lamp"
    assert confirmer() not in (None, worker.process.pid)
    assert project.tasks.confirm_in_loop.delay(pk).get(timeout=DEADLINE_S) == "lamp"
    assert confirmer() == worker.process.pid
    assert worker.terminate() == 0


REST_OF_PROJECT = {
    "shop/settings.py": """
        SECRET_KEY = "of an example"
        INSTALLED_APPS = ["orders"]
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
        """,
    "orders/models.py": """
        from django.db import models

        class Order(models.Model):
            item = models.TextField()
            is_confirmed = models.BooleanField(default=False)
        """,
    "web.py": """
        import django, shop.queue
        from django.core.management import call_command
        from django.test import RequestFactory

        django.setup()
        call_command("migrate", run_syncdb=True, verbosity=0)
        from orders.views import order

        print(order(RequestFactory().post("/", {"item": "lamp"})).status_code)
        """,
}


def test_the_project_of_the_document_runs(
    server: redis.Redis, broker_server: EmbeddedBroker, tmp_path: Path,
    start_worker: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    text = (Path(__file__).parents[4] / "docs/django.md").read_text("utf-8")
    block = re.search(r"```python\n(# shop/settings.py\n.*?)```", text, re.S)
    assert block is not None
    _, *parts = re.split(r"^# (\w+/\w+\.py)\n", block[1], flags=re.M)
    for name, code in (*zip(parts[::2], parts[1::2], strict=True), *REST_OF_PROJECT.items()):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with (tmp_path / name).open("a") as file:
            file.write(dedent(code).replace("redis://localhost/0", broker_server.url))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    ended = ran([sys.executable, "web.py"], timeout=DEADLINE_S)
    assert (ended.stdout, ended.stderr) == ("202\n", "")
    start_worker(broker_server.url, app="shop.queue:app")
    with contextlib.closing(sqlite3.connect("shop.sqlite3")) as database:
        wait_until(
            lambda: database.execute("SELECT is_confirmed FROM orders_order").fetchone() == (1,),
            "the worker confirms no order",
        )


def test_the_queue_knows_no_django_before_its_module_is_asked_for() -> None:
    code = (  # kombu's JSON itself looks for django.utils.functional
        "import sys; from blimp.queue import TaskApp, Worker; import blimp.queue.cli.main, "
        "blimp.queue.extras.processes.child; TaskApp('a', broker='memory://'); "
        "assert not {'django.conf', 'django.db', 'asgiref'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)


def command(**environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "blimp.queue", "queues", "-A", APP]
    return ran(words, timeout=DEADLINE_S, env=os.environ | environment)


def test_a_project_without_settings_or_without_django_is_one_line() -> None:
    ended = command(DJANGO_SETTINGS_MODULE="")
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert "BLIMP_QUEUE: Django has no settings: Requested setting BLIMP_QUEUE" in ended.stderr
    ended = command(DJANGO_SETTINGS_MODULE="no.settings")
    assert (ended.returncode, ended.stderr) == (2, f"error: -A '{APP}': No module named 'no'\n")
    code = "import sys; sys.modules['django'] = None; import blimp.queue.django"
    without = ran([sys.executable, "-c", code], timeout=DEADLINE_S)
    assert "ConfigError: blimp.queue.django needs django: " in without.stderr
    assert "[django]" in without.stderr


@pytest.mark.skipif(django.VERSION >= (6, 0), reason="it has django.tasks")
def test_a_django_without_tasks_is_named() -> None:
    with pytest.raises(ConfigError, match=r"TasksBackend needs Django 6\.0 or later.* this is 5"):
        from blimp.queue.django import TasksBackend  # noqa: F401


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (None, r"BLIMP_QUEUE in Django's settings is missing: must be a dict of TaskApp's"),
        ("redis://localhost/0", "is str: must be a dict"),
        ({}, "has no 'broker', the URL of a server"),
        ({"BROKER_URL": "memory://"}, r"no option 'BROKER_URL' .*; TaskApp has: \['broker', "),
        ({"BROKER": "memory://"}, r"no option 'BROKER' \(did you mean 'broker'\?\)"),
        ({"broker": "memory://", "name": "x"}, "no option 'name'"),
        ({"broker": "memory://", "result_expires": 1}, "did you mean 'result_expires_s'"),
        ({"broker": "memory://", 5: 1}, "no option 5"),
    ],
)
def test_a_wrong_setting_is_named(project: SimpleNamespace, setting: Any, reason: str) -> None:
    with override_settings(BLIMP_QUEUE=setting), pytest.raises(ConfigError, match=reason):
        DjangoTaskApp("wrong")


def test_settings_are_the_keywords_of_the_app(project: SimpleNamespace) -> None:
    given = {"broker": "memory://", "queue": "orders", "timeout_s": 0.5, "result_expires_s": 60}
    with override_settings(BLIMP_QUEUE=given), DjangoTaskApp("right") as app:
        assert (app.name, app.queue, app.timeout_s) == ("right", "orders", 0.5)
        assert app.result_options.keep_s == 60


# --- transactions --------------------------------------------------------------------------------


@pytest.fixture(params=["by the outbox", "by a callback"])
def either(request: pytest.FixtureRequest, project: SimpleNamespace) -> Iterator[None]:
    if request.param == "by the outbox":
        yield
    else:
        with override_settings(INSTALLED_APPS=WITHOUT_OUTBOX):
            yield


def test_a_connection_that_is_too_old_is_closed_before_a_task(
    project: SimpleNamespace, queue: InProcess
) -> None:
    app: DjangoTaskApp = project.app

    @app.task(name="look")
    def look() -> bool:
        return connections["archive"].connection is None

    connections["archive"].ensure_connection()
    connections["archive"].close_at = 0.0
    assert look.delay().get() is True
    del app.tasks["look"]


@pytest.mark.usefixtures("either")
def test_a_task_is_sent_by_the_commit_and_never_by_a_rollback(
    project: SimpleNamespace, queue: InProcess
) -> None:
    confirm = project.tasks.confirm
    confirm.delay_on_commit(0)  # at once: there is no transaction
    assert sent(queue) == [(0,)]
    with transaction.atomic():
        assert confirm.delay_on_commit(1) is None
        with transaction.atomic():
            confirm.delay_on_commit(2)
        _roll_back(confirm, 3)
        confirm.delay_on_commit(5)
        assert sent(queue) == [(0,)]
    assert sent(queue) == [(0,), (1,), (2,), (5,)]
    with transaction.atomic():
        confirm.delay_on_commit(6)
        transaction.set_rollback(True)
    _roll_back(confirm, 7)
    assert sent(queue) == [(0,), (1,), (2,), (5,)]


def _roll_back(confirm: DjangoTask, number: int) -> None:
    with contextlib.suppress(KeyError), transaction.atomic():
        confirm.delay_on_commit(number)
        raise KeyError


@pytest.mark.usefixtures("either")
def test_the_database_and_the_options_are_the_callers(
    project: SimpleNamespace, queue: InProcess, unsent: Any
) -> None:
    confirm = project.tasks.confirm
    with transaction.atomic(using="archive"):
        with transaction.atomic():
            confirm.apply_async_on_commit((1,), using="archive", task_id="one", priority=3)
            confirm.apply_async_on_commit((2,))
        assert sent(queue) == [(2,)]
    assert [(one.args, one.priority) for one in queue.waiting] == [((1,), 3), ((2,), 6)]
    assert (queue.waiting[0].id, unsent.count()) == ("one", 0)
    with pytest.raises(Exception, match="The connection 'attic' doesn't exist"):
        confirm.apply_async_on_commit((1,), using="attic")


@pytest.mark.usefixtures("either")
def test_arguments_are_those_of_the_call_and_wrong_ones_an_error_of_it(
    project: SimpleNamespace, queue: InProcess
) -> None:
    app: DjangoTaskApp = project.app

    @app.task(name="count")
    def count(rows: list[int]) -> int:
        return len(rows)

    rows = [1]
    with transaction.atomic():
        count.delay_on_commit(rows)
        rows.append(2)
        with pytest.raises(TypeError, match="arguments of 'count': missing a required argument"):
            count.delay_on_commit()  # type: ignore[call-arg]
        with pytest.raises(MessageError, match=r"JSON cannot hold them: .*Order"):
            count.delay_on_commit(project.Order())
        with pytest.raises(MessageError, match="2000070 bytes as JSON: the limit is 1000000"):
            count.delay_on_commit("x" * 2_000_000)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="sending 'count': there is no option in_s"):
            count.apply_async_on_commit((rows,), in_s=1)  # type: ignore[call-arg]
    assert sent(queue) == [([1],)]
    del app.tasks["count"]


def test_a_broker_that_does_not_answer_is_raised_after_the_commit_or_logged(
    project: SimpleNamespace, queue: InProcess, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    confirm, Order = project.tasks.confirm, project.Order  # noqa: N806
    monkeypatch.setattr(project.app.broker_kind, "send", _unreachable)

    def take() -> None:
        with transaction.atomic():
            Order.objects.create(item="raised")
            confirm.delay_on_commit(1)

    after: list[str] = []
    with override_settings(INSTALLED_APPS=WITHOUT_OUTBOX), pytest.raises(ConnectionError):
        take()
    with (
        override_settings(INSTALLED_APPS=WITHOUT_OUTBOX),
        caplog.at_level(logging.ERROR, "django.db.backends.base"),
        transaction.atomic(),
    ):
        Order.objects.create(item="logged")
        confirm.apply_async_on_commit((1,), robust=True)
        transaction.on_commit(lambda: after.append("ran"))
    assert Order.objects.filter(item__in=("raised", "logged")).count() == 2
    assert (after, "send_on_commit" in caplog.text) == (["ran"], True)


def _unreachable(*_: object) -> None:
    raise ConnectionError("no broker")


@pytest.mark.usefixtures("queue")
class TestOrders(TestCase):
    """As a project's own tests are: each in a transaction that is rolled back."""

    @pytest.fixture(autouse=True)
    def _parts(self, project: SimpleNamespace, queue: InProcess) -> None:
        self.project, self.queue = project, queue

    def test_a_test_runs_what_a_commit_would_send(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            taken = self.client.post("/orders/", {"item": "rope"})
            assert self.queue.waiting == []
        assert self.queue.run() == 1  # it sees what is not committed, and the transaction goes on
        order = self.project.Order.objects.get(pk=taken.json()["id"])
        assert order.confirmed_by == os.getpid()

    async def test_a_coroutine_runs_in_the_transaction_of_the_test(self) -> None:
        order = await self.project.Order.objects.acreate(item="rope")
        handle = await self.project.tasks.confirm_in_loop.adelay(order.pk)
        assert await handle.aget(timeout=1.0) == "rope"
        await order.arefresh_from_db()
        assert order.confirmed_by == os.getpid()


# --- connections ---------------------------------------------------------------------------------


class Probes:
    """A worker whose tasks use a database of PostgreSQL."""

    def __init__(self, *, app: DjangoTaskApp, database: str, host: str) -> None:
        self._app = app
        self._look = f"host={host} user=blimp dbname=postgres"
        self._database = database

    def run(self, name: str) -> int:
        """Run a probe; return the process of the server that had its connection."""
        pid = self._app.send_task(f"probes.{name}").get(timeout=DEADLINE_S)
        return int(pid)

    def connections(self) -> int:
        """Return how many the worker has."""
        with psycopg.connect(self._look) as look:
            words = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            found = look.execute(words, [self._database]).fetchone()
        assert found is not None
        return int(found[0])


@pytest.fixture
def start_probes(
    project: SimpleNamespace,
    postgres: Postgres,
    server: redis.Redis,
    start_worker: Callable[..., WorkerProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Probes]]:
    """Start a worker with a database of these options; return its probes."""
    with postgres.database() as url:

        def start(**options: Any) -> Probes:
            database, _, host = url.partition("@/")[2].partition("?host=")
            settings = {"ENGINE": "django.db.backends.postgresql", "NAME": database, "HOST": host}
            made = {"server": settings | {"USER": "blimp"} | options}
            monkeypatch.setenv("PROJECT_DATABASES", json.dumps(made))
            one_each = "--sync-workers 1 --process-workers 1"
            start_worker(os.environ["PROJECT_BROKER"], app=APP, options=one_each)
            return Probes(app=project.app, database=database, host=host)

        yield start


@pytest.mark.parametrize("place", ["thread", "process"])
def test_a_task_whose_connection_was_killed_works_at_its_next_run(
    start_probes: Callable[..., Probes], postgres: Postgres, place: str
) -> None:
    probes = start_probes(CONN_MAX_AGE=None)
    first = probes.run(place)
    assert probes.run(place) == first  # it is kept
    postgres.run(f"SELECT pg_terminate_backend({first}, 5000)")
    with pytest.raises(TaskFailed, match="OperationalError"):
        probes.run(place)
    assert probes.run(place) != first


@pytest.mark.parametrize(
    ("place", "options"),
    [("thread", {}), ("process", {}), ("loop", {}), ("loop", {"CONN_MAX_AGE": None})],
)
def test_a_connection_that_is_not_kept_ends_with_its_task(
    start_probes: Callable[..., Probes], place: str, options: dict[str, Any]
) -> None:
    probes = start_probes(**options)
    assert probes.run(place) != probes.run(place)
    wait_until(lambda: probes.connections() == 0, "a connection stays")


def test_a_transaction_left_open_ends_with_its_task(start_probes: Callable[..., Probes]) -> None:
    probes = start_probes(CONN_MAX_AGE=None)
    left = probes.run("left_open")
    assert probes.run("thread") != left
