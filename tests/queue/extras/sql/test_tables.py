"""Celery's tables: made as Celery makes them, and never altered where they are others."""

from typing import Any

import pytest
import sqlalchemy as sa

from blimp.clock import SystemClock
from blimp.errors import ConfigError, LinkError, TableMismatch
from blimp.queue.extras.sql.database import SqlResults
from blimp.queue.extras.sql.tables import Tables
from blimp.queue.protocol.record import Record, State
from blimp.queue.results.backend import ResultOptions, result_options
from tests.queue.results.conftest import OpenResults, run_program

PLAIN = ["id", "task_id", "status", "result", "date_done", "traceback", "children"]
EXTENDED = ["name", "args", "kwargs", "worker", "retries", "queue", "stamps"]


def columns_of(results: SqlResults, table: sa.Table) -> dict[str, Any]:
    inspector = sa.inspect(results.sessions.engine)
    return {one["name"]: one for one in inspector.get_columns(table.name, schema=table.schema)}


def execute(results: SqlResults, *statements: str) -> None:
    with results.sessions.engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def test_the_names_are_celerys() -> None:
    tables = Tables(ResultOptions())
    assert (tables.task.name, tables.group.name) == ("celery_taskmeta", "celery_tasksetmeta")
    sequences = [table.c.id.default.name for table in (tables.task, tables.group)]  # type: ignore[union-attr]
    assert sequences == ["task_id_sequence", "taskset_id_sequence"]


def test_the_columns_are_celerys(open_results: OpenResults) -> None:
    results = open_results()
    results.prepare()
    tables = results.sessions.tables
    found = columns_of(results, tables.task)
    assert list(found) == PLAIN
    assert found["task_id"]["type"].length == 155
    assert list(columns_of(results, tables.group)) == ["id", "taskset_id", "result", "date_done"]
    assert [name for name, one in found.items() if not one["nullable"]] == ["id"]


def test_extended_results_have_columns_of_their_own(open_results: OpenResults) -> None:
    results = open_results(result_extended=True)
    record = Record(
        id="a",
        state=State.SUCCESS,
        date_done="2026-11-20T13:02:03+00:00",
        name="weather.read",
        args=["pad", 1],
        kwargs={"unit": "K"},
        worker="w@here",
        retries=2,
        queue="weather",
    )
    results.store(record)
    assert results.get("a") == record
    assert list(columns_of(results, results.sessions.tables.task)) == PLAIN + EXTENDED


def test_a_table_without_what_is_asked_for_is_named_and_not_altered(
    open_results: OpenResults, names: dict[str, str]
) -> None:
    open_results().prepare()
    results = open_results(result_extended=True)
    with pytest.raises(
        TableMismatch, match=rf"table {names['task']}: name is missing \(VARCHAR\(155\)\); args is"
    ):
        results.prepare()
    with pytest.raises(TableMismatch, match="never altered"):
        results.get("a")
    assert list(columns_of(results, results.sessions.tables.task)) == PLAIN


@pytest.mark.parametrize(
    ("column", "kind", "fault"),
    [
        ("result", "TEXT", "result is TEXT, must be"),
        ("date_done", "VARCHAR(30)", r"date_done is VARCHAR\(30\), must be"),
        ("task_id", "INTEGER UNIQUE", r"task_id is INTEGER, must be VARCHAR\(155\)"),
        ("task_id", "VARCHAR(155)", "task_id is not unique"),
        ("tenant", "INTEGER NOT NULL", "tenant must be given a value"),
    ],
)
def test_a_column_of_another_kind_is_distinguished(
    open_results: OpenResults, names: dict[str, str], column: str, kind: str, fault: str
) -> None:
    results = open_results()
    kinds = {
        "id": "INTEGER PRIMARY KEY",
        "task_id": "VARCHAR(155) UNIQUE",
        "status": "VARCHAR(50)",
        "result": "BYTEA" if results.sessions.dialect == "postgresql" else "BLOB",
        "date_done": "TIMESTAMP",
        "traceback": "TEXT",
    }
    kinds |= {"children": kinds["result"], column: kind}
    definition = ", ".join(f"{name} {of}" for name, of in kinds.items())
    execute(results, f"CREATE TABLE {names['task']} ({definition})")
    with pytest.raises(TableMismatch, match=f"table {names['task']}: {fault}"):
        results.prepare()


def test_columns_of_others_are_no_matter(open_results: OpenResults, names: dict[str, str]) -> None:
    results = open_results()
    results.prepare()
    execute(results, f"ALTER TABLE {names['task']} ADD COLUMN tenant VARCHAR(10) DEFAULT 'x'")
    results.close()
    assert results.store(Record(id="a", state=State.SUCCESS))


def test_a_table_that_is_put_right_is_used(
    open_results: OpenResults, names: dict[str, str]
) -> None:
    """What waits to be written is a LinkError: it is tried again until then."""
    results = open_results()
    results.prepare()
    execute(results, f"ALTER TABLE {names['task']} RENAME COLUMN result TO outcome")
    record = Record(id="a", state=State.SUCCESS, result=1)
    with pytest.raises(LinkError):
        results.store(record)
    with pytest.raises(TableMismatch):
        results.store(record)
    execute(results, f"ALTER TABLE {names['task']} RENAME COLUMN outcome TO result")
    assert results.store(record)
    execute(results, f"DROP TABLE {names['task']}")
    with pytest.raises(LinkError):
        results.store(record)
    assert results.store(record)


def test_schemas(postgres_url: str, names: dict[str, str]) -> None:
    options = ResultOptions(
        database_table_names=names, database_table_schemas={"task": "tasks", "group": "groups"}
    )
    results = SqlResults(url=postgres_url.removeprefix("db+"), clock=SystemClock(), options=options)
    with pytest.raises(LinkError, match='schema "tasks" does not exist'):
        results.prepare()
    execute(results, "CREATE SCHEMA tasks", "CREATE SCHEMA groups")
    assert results.store(Record(id="a", state=State.SUCCESS))
    results.save_group("g", {"result": []})
    with results.sessions.engine.begin() as connection:
        for table in (f"tasks.{names['task']}", f"groups.{names['group']}"):
            assert connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar() == 1
    results.close()


STARTERS = """
import os, sys
from blimp.clock import SystemClock
from blimp.queue.results.backend import ResultOptions
from blimp.queue.protocol.record import Record, State
from blimp.queue.extras.sql.database import SqlResults

url, task, group = sys.argv[1:]
options = ResultOptions(database_table_names={"task": task, "group": group})
go, tell = os.pipe()
children = []
for number in range(8):
    child = os.fork()
    if child == 0:
        os.close(tell)
        os.read(go, 1)  # until all are there
        results = SqlResults(url=url, clock=SystemClock(), options=options)
        stored = results.store(Record(id=str(number), state=State.SUCCESS, result=number))
        os._exit(0 if stored else 1)
    children.append(child)
os.close(tell)
print(*(os.waitpid(child, 0)[1] for child in children))
"""


def test_eight_that_start_together_make_the_tables_once(
    database: str, names: dict[str, str], open_results: OpenResults
) -> None:
    done = run_program(STARTERS, database, names)
    assert done.stdout == "0 0 0 0 0 0 0 0\n", done.stderr
    results = open_results()
    assert [results.get(str(number)).result for number in range(8)] == list(range(8))


def test_names_that_are_none_are_refused() -> None:
    for wrong in ({"tasks": "x"}, {"task": ""}, {"task": "a\0"}, "celery"):
        with pytest.raises(ConfigError, match="database_table_names"):
            result_options({"database_table_names": wrong})  # type: ignore[typeddict-item]
