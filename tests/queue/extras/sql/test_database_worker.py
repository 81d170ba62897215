"""A worker with results in a database: none lost or doubled, whatever is unreachable when."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from blimp.queue import State, TaskApp
from blimp.queue.extras.sql.database import Cleanup, SqlResults
from tests.database_server import DatabaseServer
from tests.directory import socket_directory
from tests.mariadb import MariaDB, collect_refused, find_mariadb
from tests.postgres import Postgres, find_postgres
from tests.queue.conftest import DEADLINE_S, Silence, WorkerProcess, wait_until, working
from tests.queue.server_view import Look

Start = Callable[..., WorkerProcess]


@pytest.fixture
def app(url: str, database: str, names: dict[str, str]) -> Iterator[TaskApp]:
    with TaskApp("tests", broker=url, result_backend=database, database_table_names=names) as app:
        yield app


def rows(app: TaskApp) -> dict[str, str]:
    """Return the status of every row; fails where a task has two."""
    assert isinstance(app.results, SqlResults)
    table = app.results.sessions.tables.task
    with app.results.sessions.session() as connection:
        found = connection.execute(sa.select(table.c.task_id, table.c.status)).all()
    statuses = {row.task_id: str(row.status) for row in found}
    assert len(statuses) == len(found)
    return statuses


def in_queue(look: Look, app: str = "tests", worker: str = "worker") -> int:
    """Return how many messages wait, or are delivered and not acknowledged."""
    return look.waiting(app) + look.in_flight(app=app)


@pytest.mark.parametrize("backend", ["redis", "sqlite"])
def test_extended_results_tell_how_the_task_was_called(
    url: str, tmp_path: Path, backend: str
) -> None:
    backend = url if backend == "redis" else f"db+sqlite:///{tmp_path}/r.db"
    limit_bytes = 10_000
    with TaskApp(
        "tests", broker=url, result_backend=backend, result_extended=True, limit_bytes=limit_bytes
    ) as app:
        app.task(name="echo")(lambda value, times=1: value * times)
        with working(app):
            found = app.send_task("echo", ("ab",), {"times": 2}).wait(DEADLINE_S)
            assert (found.result, found.args, found.kwargs) == ("abab", ["ab"], {"times": 2})
            assert (found.name, found.worker, found.queue) == ("echo", "worker", "tests")
            # Arguments do not count for the limit of a result.
            assert app.send_task("echo", ("x" * 9_000,)).get(DEADLINE_S) == "x" * 9_000
            found = app.send_task("echo", ("x" * 9_000, 2)).wait(DEADLINE_S)
    assert found.state is State.FAILURE
    assert "the limit is 10000" in found.reason
    assert found.args == ["x" * 9_000, 2]


def test_a_waiter_gets_what_is_published_and_need_not_read_the_table(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.queue.extras.sql.database.LOOK_S", 10.0 * DEADLINE_S)
    go = threading.Event()
    app.task(name="wait")(lambda: go.wait(DEADLINE_S))
    with working(app):
        handle = app.send_task("wait")
        assert app.results is not None
        with app.results.watch(handle.id) as watch:
            assert watch.next(timeout_s=0.0) is None  # it has looked, and looks no more
            go.set()
            record = watch.next(timeout_s=DEADLINE_S)
    assert record is not None
    assert record.result is True


def test_what_a_worker_does_at_its_start_for_results(
    url: str, tmp_path: Path, names: dict[str, str]
) -> None:
    def start(backend: str | None, **options: Any) -> tuple[tuple[Any, ...], Silence]:
        log = Silence()
        with TaskApp("tests", broker=url, result_backend=backend, **options) as app:
            return () if app.results is None else app.results.start(log=log), log

    file = tmp_path / "r.db"
    (cleaning,), _ = start(f"db+sqlite:///{file}")
    assert isinstance(cleaning, Cleanup)
    assert file.exists()
    assert start(f"db+sqlite:///{file}", result_expires_s=0)[0] == ()
    start(f"db+sqlite:///{tmp_path}/later.db", database_create_tables_at_setup=False)
    assert not (tmp_path / "later.db").exists()
    _, log = start(f"db+sqlite:///{tmp_path}/no/folder/r.db")
    assert len(log.events("no results yet")) == 1
    assert start(url)[0] == start(None)[0] == ()


@pytest.mark.parametrize(
    ("database", "when"),
    [("sqlite", "before"), ("sqlite", "after"), ("postgresql", "after"), ("mariadb", "after")],
    indirect=["database"],
)
@pytest.mark.long
def test_killed_around_the_commit_of_a_result_it_is_one_all_the_same(
    database: str,
    url: str,
    look: Look,
    start_worker: Start,
    tmp_path: Path,
    when: str,
) -> None:
    """After it, the message comes again, finds its result, and is not run again."""
    (tmp_path / "when").write_text(when)
    with TaskApp("killed", broker=url, result_backend=database) as app:
        assert app.results is not None
        app.results.forget("t")
        first = start_worker(url, results=database, app="tests.queue.results.dying:app")
        handle = app.send_task("count", task_id="t")
        first.end()
        assert handle.state is (State.PENDING if when == "before" else State.SUCCESS)
        assert look.in_flight(app="killed") == 1
        second = start_worker(url, results=database, app="tests.queue.results.dying:app")
        assert handle.get(DEADLINE_S) == (2 if when == "before" else 1)
        wait_until(lambda: in_queue(look, "killed", "w") == 0, "it is not acknowledged")
        assert second.terminate() == 0
        runs = (tmp_path / "runs").read_text().split()
        assert runs == (["t"] * 2 if when == "before" else ["t"])
        assert rows(app)["t"] == "SUCCESS"


# --- an unreachable database -----------------------------------------------------------------


class Counting:
    """A task that counts how often each of its numbers was run."""

    def __init__(self, app: TaskApp) -> None:
        self._lock = threading.Lock()
        self.runs: dict[int, int] = {}
        self.send = app.task(name="count")(self._count).delay

    def _count(self, number: int) -> int:
        with self._lock:
            self.runs[number] = self.runs.get(number, 0) + 1
        return number


@pytest.fixture(params=["postgresql", "mariadb"])
def own_server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    """A server to be stopped and started: the others' is everybody's."""
    with socket_directory() as directory:
        server: DatabaseServer
        if request.param == "mariadb":
            server = MariaDB(directory=directory, program=find_mariadb())
        else:
            server = Postgres(directory=directory, programs=find_postgres(), is_durable=False)
        with server:
            yield server


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.long
def test_a_database_that_crashes_under_load_delays_results_and_loses_none(
    url: str, look: Look, own_server: DatabaseServer
) -> None:
    log = Silence()
    with (
        own_server.database() as backend,
        TaskApp("tests", broker=url, result_backend=backend) as app,
    ):
        counting = Counting(app)
        with working(app, log=log):
            handles = [counting.send(number) for number in range(300)]
            assert handles[0].get(DEADLINE_S) == 0
            own_server.crash()
            try:
                handles += [counting.send(number) for number in range(300, 400)]
                wait_until(lambda: bool(log.events("results unreachable")), "it is not missed")
                assert look.in_flight() > 0
            finally:
                own_server.start()
            assert [handle.get(DEADLINE_S) for handle in handles] == list(range(400))
            wait_until(lambda: look.in_flight() == 0, "something is not acknowledged")
        assert rows(app) == {handle.id: "SUCCESS" for handle in handles}
        assert counting.runs == dict.fromkeys(range(400), 1)
        assert log.events("results unreachable: over")
    collect_refused()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Holds the SQLite database for itself, until it is rolled back."""
    holder = sqlite3.connect(tmp_path / "results.db", isolation_level=None)
    yield holder
    holder.close()


@contextmanager
def impatient(url: str, database: str) -> Iterator[TaskApp]:
    """An app that finds its database locked at once, and its tables there."""
    options = {"connect_args": {"timeout": 0.01}}
    with TaskApp(
        "tests", broker=url, result_backend=database, database_engine_options=options
    ) as app:
        assert app.results is not None
        app.results.prepare()
        yield app


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_database_that_is_locked_delays_results_and_loses_none(
    url: str, database: str, locked: sqlite3.Connection, look: Look
) -> None:
    log = Silence()
    with impatient(url, database) as app:
        counting = Counting(app)
        with working(app, log=log):
            locked.execute("BEGIN IMMEDIATE")
            handles = [counting.send(number) for number in range(100)]
            wait_until(lambda: bool(log.events("results unreachable")), "it is not missed")
            assert rows(app) == {}
            locked.execute("ROLLBACK")
            assert [handle.get(DEADLINE_S) for handle in handles] == list(range(100))
        assert rows(app) == {handle.id: "SUCCESS" for handle in handles}
        assert counting.runs == dict.fromkeys(range(100), 1)
