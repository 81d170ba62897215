"""A database as a result backend: its rows, damaged ones, and expiry."""

import contextlib
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from blimp.clock import ManualClock, SystemClock
from blimp.errors import ConfigError, LinkError, NotAuthorised, ResultError
from blimp.queue import TaskApp
from blimp.queue.cli.main import main
from blimp.queue.extras.sql.database import Cleanup, SqlResults
from blimp.queue.extras.sql.sessions import Sessions
from blimp.queue.protocol.record import Fault, Record, State
from blimp.queue.results.backend import ResultOptions, result_options
from tests.postgres import Postgres
from tests.queue.conftest import Silence
from tests.queue.results.conftest import OpenResults, run_program

DEADLINE_S = 60.0
DONE = "2026-11-20T13:02:03.477079+00:00"


def row(results: SqlResults, id: str) -> dict[str, Any]:
    table = results.sessions.tables.task
    with results.sessions.session() as connection:
        found = connection.execute(sa.select(table).where(table.c.task_id == id))
        return dict(found.mappings().one())


def spoil(results: SqlResults, statement: str, **values: object) -> None:
    table = results.sessions.tables.task.name
    with results.sessions.session(writes=True) as connection:
        connection.execute(sa.text(statement.format(table=table)), values)


# --- rows ------------------------------------------------------------------------------------


def test_a_row_is_as_celery_writes_it_with_json(open_results: OpenResults) -> None:
    results = open_results()
    results.store(Record(id="a", state=State.SUCCESS, result={"x": "ä"}, date_done=DONE))
    found = row(results, "a")
    found.pop("id")
    assert found == {
        "task_id": "a",
        "status": "SUCCESS",
        "result": '{"x":"ä"}'.encode(),
        "date_done": datetime(2026, 11, 20, 13, 2, 3, 477079),
        "traceback": None,
        "children": None,
    }


def test_our_state_stands_beside_the_exception_that_celery_raises(
    open_results: OpenResults,
) -> None:
    results = open_results()
    fault = Fault(exc_type="Refused", exc_message=["the battery is low"])
    results.store(Record(id="a", state=State.REFUSED, fault=fault))
    found = row(results, "a")
    assert found["status"] == "FAILURE"
    assert found["result"] == (
        b'{"exc_type":"Refused","exc_message":["the battery is low"],'
        b'"exc_module":"blimp.errors","blimp_state":"REFUSED"}'
    )


def test_what_a_column_cannot_hold_is_cut_and_an_id_is_refused(open_results: OpenResults) -> None:
    results = open_results(result_extended=True)
    record = Record(
        id="a", state=State.SUCCESS, name="n" * 300, queue="q\0", traceback="T\0", retries=2**40
    )
    assert results.store(record)
    found = results.get("a")
    assert (found.name, found.queue, found.traceback) == ("n" * 155, "q\ufffd", "T\ufffd")
    assert found.retries == 2**31 - 1
    for id in ("", "x" * 156, "a\0", "a "):
        with pytest.raises(ResultError, match="a table takes"):
            results.store(Record(id=id, state=State.SUCCESS))
        with pytest.raises(ResultError, match=r"celery_taskmeta|task_\d+, task"):
            results.get(id)


def test_ids_that_differ_in_their_letters_case_are_two_tasks(open_results: OpenResults) -> None:
    results = open_results()
    for id in ("a", "A", "ä"):
        assert results.store(Record(id=id, state=State.SUCCESS, result=id))
    assert [results.get(id).result for id in ("a", "A", "ä")] == ["a", "A", "ä"]


def test_what_fits_into_a_message_fits_into_a_row(open_results: OpenResults) -> None:
    results = open_results()
    text = "x" * (400_000 if results.sessions.dialect == "mariadb" else 999_000)  # its own limit
    assert results.store(Record(id="a", state=State.SUCCESS, result=text))
    assert results.get("a").result == text
    fault = Fault(exc_type="E", exc_message=["x"], exc_module="m")
    failed = Record(id="b", state=State.FAILURE, fault=fault, traceback=text)
    assert results.store(failed)
    assert results.get("b").traceback == text


def test_what_a_server_takes_in_no_statement_is_an_error_of_that_row(mariadb_url: str) -> None:
    """Its own limit is 1 MiB here; a link error would be tried again for ever."""
    options = ResultOptions(database_table_names={"task": "packets", "group": "packet_groups"})
    url = mariadb_url.removeprefix("db+mariadb").removeprefix("db+")
    results = SqlResults(url=f"mysql{url}", clock=SystemClock(), options=options)
    with contextlib.closing(results):
        with pytest.raises(ResultError, match="max_allowed_packet"):
            results.store(Record(id="a", state=State.SUCCESS, result="x" * 600_000))
        assert results.store(Record(id="a", state=State.SUCCESS, result=1))


def test_one_that_is_refused_spoils_no_neighbour(open_results: OpenResults) -> None:
    results = open_results()
    good = [(id, results.encode(Record(id=id, state=State.SUCCESS, result=id))) for id in "abc"]
    bad = [("x", b"not json"), ("y", b'{"status": "' + b"S" * 60 + b'", "task_id": "y"}')]
    odd = [
        (
            "d",
            b'{"status": "FAILURE", "task_id": "d", "result": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        ),
        ("t", b'{"status": "FAILURE", "task_id": "t", "date_done": "0001-01-01T00:00+01:00"}'),
    ]
    answers = results.write_many([good[0], bad[0], good[1], bad[1], good[2], *odd])
    assert [answers[n] for n in (0, 2, 4)] == [True, True, True]
    assert "a result of 8 bytes cannot be read" in str(answers[1])
    assert "recursion" in str(answers[5])
    assert "out of range" in str(answers[6])
    if results.sessions.dialect != "sqlite":  # its texts have no limit
        assert "task y" in str(answers[3])
        assert "too long" in str(answers[3])
    assert [results.get(id).result for id in "abc"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("change", "values", "reason"),
    [
        ("result = :data", {"data": b"\x80\x05N."}, "result of 4 bytes is no JSON .*: a pickle"),
        ("result = :data", {"data": b'{"cut'}, "result of 5 bytes is no JSON"),
        ("result = :data", {"data": b""}, "result of 0 bytes is no JSON"),
        ("children = :data", {"data": b"\xff\xfe"}, "children of 2 bytes is no JSON"),
        ("status = 'ODD'", {}, "'ODD' is not a valid State"),
        ("status = NULL", {}, "None is not a valid State"),
    ],
)
def test_a_spoilt_row_is_an_error_that_names_it(
    open_results: OpenResults,
    names: dict[str, str],
    change: str,
    values: dict[str, object],
    reason: str,
) -> None:
    results = open_results()
    results.store(Record(id="a", state=State.SUCCESS, result=1))
    results.store(Record(id="b", state=State.SUCCESS, result=2))
    spoil(results, "UPDATE {table} SET " + change + " WHERE task_id = 'a'", **values)
    with pytest.raises(ResultError, match=f"{names['task']}, task a: .*{reason}"):
        results.get("a")
    with results.watch("a") as watch, pytest.raises(ResultError, match="task a"):
        watch.next(timeout_s=0.0)
    assert results.get("b").result == 2
    results.forget("a")
    assert results.get("a").state is State.PENDING


# --- sessions --------------------------------------------------------------------------------


def test_a_session_rolls_back_and_gives_its_connection_back(open_results: OpenResults) -> None:
    results = open_results()
    table = results.sessions.tables.task
    results.prepare()

    def fail() -> None:
        with results.sessions.session(writes=True) as connection:
            connection.execute(sa.insert(table).values(task_id="a", status="SUCCESS"))
            raise ValueError("mine")

    for _ in range(20):  # more than there are connections
        with pytest.raises(ValueError, match="mine"):
            fail()
    assert results.read("a") is None
    pool: Any = results.sessions.engine.pool
    assert pool.checkedout() == 0


def test_the_engine_is_as_it_was_asked_for(open_results: OpenResults) -> None:
    engines: list[sa.Engine] = []
    results = open_results(
        database_engine_options={"pool_size": 3, "pool_recycle": 60},
        database_engine_callback=engines.append,
    )
    results.prepare()
    pool: Any = results.sessions.engine.pool
    assert engines == [results.sessions.engine]
    assert (pool.size(), pool._recycle, pool._pre_ping) == (3, 60, True)
    assert open_results().sessions.engine.pool._recycle == 3600


def test_short_lived_sessions_keep_no_connection(open_results: OpenResults) -> None:
    opened: list[object] = []

    def listen(engine: sa.Engine) -> None:
        sa.event.listen(engine, "connect", lambda *_: opened.append("opened"))
        sa.event.listen(engine, "close", lambda *_: opened.append("closed"))

    results = open_results(
        database_short_lived_sessions=True,
        database_engine_options={"pool_size": 3, "max_overflow": 1},
        database_engine_callback=listen,
    )
    results.prepare()
    opened.clear()
    results.store(Record(id="a", state=State.SUCCESS))
    assert results.get("a").final
    assert opened == ["opened", "closed"] * 2


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_sqlite_has_what_is_committed_on_the_disk(open_results: OpenResults) -> None:
    results = open_results()
    with results.sessions.session() as connection:
        ask = connection.exec_driver_sql
        assert ask("PRAGMA journal_mode").scalar() == "wal"
        assert ask("PRAGMA synchronous").scalar() == 2


FORKING = """
import os, sys
from blimp.clock import SystemClock
from blimp.queue.results.backend import ResultOptions
from blimp.queue.protocol.record import Record, State
from blimp.queue.extras.sql.database import SqlResults

url, task, group = sys.argv[1:]
options = ResultOptions(database_table_names={"task": task, "group": group})
results = SqlResults(url=url, clock=SystemClock(), options=options)
results.store(Record(id="parent", state=State.SUCCESS, result=1))
engine = results.sessions.engine
with results.sessions.session() as held:  # while one of its connections is in use
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            assert results.sessions.engine is not engine
            ok = results.store(Record(id=str(number), state=State.SUCCESS, result=number))
            os._exit(0 if ok and results.get("parent").result == 1 else 1)
        children.append(child)
    print(*(os.waitpid(child, 0)[1] for child in children))
assert results.sessions.engine is engine
print(results.get("parent").result, *(results.get(str(n)).result for n in range(4)))
"""


def test_an_engine_is_never_used_in_a_fork(database: str, names: dict[str, str]) -> None:
    done = run_program(FORKING, database, names)
    assert done.stdout == "0 0 0 0\n1 0 1 2 3\n", done.stderr


# --- expiry ----------------------------------------------------------------------------------


def fill(results: SqlResults, clock: ManualClock, *, ids: range, state: State) -> None:
    records = [Record(id=str(number), state=state, result=number) for number in ids]
    assert all(results.write_many([(one.id, results.encode(one)) for one in records]))
    results.save_group(f"g{ids.start}", {"result": []})


def test_old_results_are_deleted_a_few_at_a_time_and_new_ones_stay(
    open_results: OpenResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.queue.extras.sql.database.DELETED_AT_ONCE", 10)
    clock = ManualClock()
    results = open_results(clock=clock, result_expires_s=60)
    fill(results, clock, ids=range(25), state=State.SUCCESS)
    fill(results, clock, ids=range(25, 30), state=State.STARTED)  # whose worker was lost
    clock.advance(30.0)
    fill(results, clock, ids=range(30, 40), state=State.SUCCESS)
    assert results.cleanup() == 0
    clock.advance(31.0)
    assert results.cleanup() == 32
    assert results.cleanup() == 0
    assert results.get("0").state is State.PENDING
    assert results.group("g0") is None
    assert results.get("30").result == 30
    assert results.group("g30") == {"result": []}
    clock.advance(1e9)
    assert open_results(clock=clock, result_expires_s=None).cleanup() == 0
    assert open_results(clock=clock, result_expires_s=0).cleanup() == 0


def test_a_worker_cleans_up_every_now_and_then(open_results: OpenResults) -> None:
    clock, log = ManualClock(), Silence()
    results = open_results(clock=clock, result_expires_s=60)
    fill(results, clock, ids=range(3), state=State.SUCCESS)
    cleaning = Cleanup(results=results, clock=clock, log=log)
    cleaning(True)
    assert not cleaning.is_busy
    clock.advance(100.0)
    cleaning(False)
    assert cleaning.wait(DEADLINE_S)
    assert log.lines == [("info", "results cleaned up", {"rows": 4})]
    clock.advance(1.0)
    cleaning(True)
    assert len(log.lines) == 1


def test_what_goes_wrong_while_cleaning_up_is_logged_and_tried_again(
    open_results: OpenResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, log = ManualClock(), Silence()
    cleaning = Cleanup(results=open_results(result_expires_s=60), clock=clock, log=log)

    def fail(error: Exception) -> Callable[[], int]:
        def cleanup() -> int:
            raise error

        return cleanup

    for error in (LinkError("unreachable"), KeyError("a bug")):
        monkeypatch.setattr(cleaning._results, "cleanup", fail(error))
        clock.advance(100.0)
        cleaning(True)
        assert cleaning.wait(DEADLINE_S)
    assert [line[:2] for line in log.lines] == [
        ("warning", "results not cleaned up"),
        ("exception", "results not cleaned up"),
    ]


def test_the_command_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock()
    app = TaskApp(
        "here",
        broker="memory://",
        result_backend=f"db+sqlite:///{tmp_path}/r.db",
        result_expires_s=60,
        clock=clock,
    )
    assert app.results is not None
    app.results.store(Record(id="a", state=State.SUCCESS))
    clock.advance(61.0)
    monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: app)
    assert main(["results", "cleanup", "-A", "here:app"]) == 0
    assert capsys.readouterr().out == "1 result deleted\n"
    none = TaskApp("none", broker="memory://")
    monkeypatch.setattr("blimp.queue.cli.main.load_app", lambda _: none)
    assert main(["results", "cleanup", "-A", "here:none"]) == 2
    assert "keeps no results" in capsys.readouterr().err


# --- what is wrong with a database -----------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("db+sqlite://", "must name a file"),
        ("db+sqlite:///:memory:", "must name a file"),
        ("db+mysql://root:secret@localhost/x", r"mysql\+pymysql"),
        ("db+oracle://root:secret@localhost/x", "must be one of sqlite, postgresql, mariadb"),
        ("db+postgresql+asyncpg://u:secret@localhost/x", "asyncpg|asynchronous"),
        ("db+postgresql+nothing://u:secret@localhost/x", "nothing"),
        ("db+", "cannot be read"),
        ("db+http//u:secret@x", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        TaskApp("a", broker="memory://", result_backend=url)
    assert "secret" not in str(caught.value)


def test_results_are_kept_in_one_database() -> None:
    with pytest.raises(ConfigError, match="one database, not in several"):
        TaskApp("a", broker="memory://", result_backend=["db+sqlite:///a", "db+sqlite:///b"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"result_expires_s": -1}, "`float` >= 0.0 - at `$.result_expires_s`"),
        ({"result_expires_s": "a day"}, "got `str` - at `$.result_expires_s`"),
        ({"result_expires_s": float("nan")}, "`float` >= 0.0 - at `$.result_expires_s`"),
        ({"database_engine_callback": "pkg:function"}, "must be a function"),
        ({"database_engine_options": ["echo"]}, "got `array` - at `$.database_engine_options`"),
        (
            {"database_table_schemas": {"chord": "x"}},
            "at `key` in `$.database_table_schemas`",
        ),
        ({"database_tables": {}}, "database_tables"),
    ],
)
def test_options_that_cannot_be_are_refused(options: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        TaskApp("a", broker="memory://", **options)
    with pytest.raises(ConfigError, match=re.escape(reason)):
        result_options(options)


def test_engine_options_that_there_are_not_are_named(open_results: OpenResults) -> None:
    with pytest.raises(ConfigError, match=r"database_engine_options: .*pool_colour"):
        open_results(database_engine_options={"pool_colour": "red"})


def test_a_server_that_is_unreachable_or_refuses_is_reported_without_its_password(
    postgres: Postgres, postgres_url: str, mariadb_url: str
) -> None:
    def ask(url: str) -> LinkError:
        sessions = Sessions(url=url, options=ResultOptions(), clock=SystemClock(), timeout_s=1.0)
        with pytest.raises(LinkError) as caught:
            sessions.prepare()
        assert "secret" not in str(caught.value)
        return caught.value

    unreachable = ask("postgresql+psycopg://blimp:secret@127.0.0.1:1/x")
    assert "database at postgresql+psycopg://blimp:***@127.0.0.1:1/x" in str(unreachable)
    query = ask("postgresql+psycopg://127.0.0.1:1/x?password=secret")
    assert "connection" in str(query)
    url = postgres_url.removeprefix("db+")
    missing = ask(url.replace("/results_", "/none_").replace("blimp@", "blimp:secret@"))
    assert "does not exist" in str(missing)
    stranger = ask(url.replace("blimp@", "stranger:secret@"))
    assert isinstance(stranger, NotAuthorised)
    url = mariadb_url.removeprefix("db+")
    assert "Unknown database" in str(ask(url.replace("/results_", "/none_")))
    assert isinstance(ask(url.replace("root@", "stranger:secret@")), NotAuthorised)
