"""Celery's two tables, as Celery 5.7 makes them.

Source: celery 5.7.0, celery/backends/database/models.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.reflection import Inspector

from blimp.errors import TableMismatch
from blimp.queue.results.options import ResultOptions

TASK_TABLE = "celery_taskmeta"
GROUP_TABLE = "celery_tasksetmeta"
MAX_LENGTH = 155  # of ids and names
# Celery reads it too. Its own 32 bits last for a fortnight at full speed: every write takes one.
_ID = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
_UNUSED = {"stamps"}  # only Celery writes it; a table from before it is as good


class Tables:
    """`task` and `group`, with the names and schemas of the options."""

    def __init__(self, options: ResultOptions) -> None:
        self.metadata = sa.MetaData()
        names, schemas = options.database_table_names, options.database_table_schemas
        self.task = self._table(
            names.get("task", TASK_TABLE),
            schemas.get("task"),
            "task_id",
            (
                sa.Column("status", sa.String(50)),
                sa.Column("result", sa.LargeBinary),
                sa.Column("date_done", sa.DateTime, index=True),
                sa.Column("traceback", sa.Text),
                sa.Column("children", sa.LargeBinary),
                *(_extended() if options.result_extended else ()),
            ),
        )
        self.group = self._table(
            names.get("group", GROUP_TABLE),
            schemas.get("group"),
            "taskset_id",
            (
                sa.Column("result", sa.LargeBinary),
                sa.Column("date_done", sa.DateTime, index=True),
            ),
        )

    def _table(
        self, name: str, schema: str | None, key: str, columns: Iterable[sa.Column[Any]]
    ) -> sa.Table:
        sequence = sa.Sequence(f"{key}_sequence", schema=schema)
        return sa.Table(
            name,
            self.metadata,
            sa.Column("id", _ID, sequence, primary_key=True, autoincrement=True),
            sa.Column(key, sa.String(MAX_LENGTH), unique=True),
            *columns,
            schema=schema,
            sqlite_autoincrement=True,
        )

    def prepare(self, connection: sa.Connection) -> None:
        """Make the tables that are missing, and check those that are there.

        Raises TableMismatch; what another makes meanwhile is SQLAlchemy's error: try again.
        """
        inspector = sa.inspect(connection)
        for table in (self.task, self.group):
            if inspector.has_table(table.name, schema=table.schema):
                check(inspector, table)
            else:
                self.metadata.create_all(connection, tables=[table])


def _extended() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("name", sa.String(MAX_LENGTH)),
        sa.Column("args", sa.LargeBinary),
        sa.Column("kwargs", sa.LargeBinary),
        sa.Column("worker", sa.String(MAX_LENGTH)),
        sa.Column("retries", sa.Integer),
        sa.Column("queue", sa.String(MAX_LENGTH)),
        sa.Column("stamps", sa.LargeBinary),
    )


def check(inspector: Inspector, table: sa.Table) -> None:
    """Raise TableMismatch where the table in the database is not as `table` says.

    Columns of others are no matter as long as a row may be written without them.
    """
    found = {
        column["name"]: column for column in inspector.get_columns(table.name, schema=table.schema)
    }
    expected = {column.name: column for column in table.columns if column.name not in _UNUSED}
    dialect = inspector.dialect
    faults = [
        f"{name} is missing ({column.type.compile(dialect)})"
        for name, column in expected.items()
        if name not in found
    ]
    faults += [
        f"{name} is {found[name]['type']}, must be {column.type.compile(dialect)}"
        for name, column in expected.items()
        if name in found and not _is_kind_of(found[name]["type"], column.type)
    ]
    faults += [
        f"{name} must be given a value"
        for name, column in found.items()
        if name not in table.columns and not column["nullable"] and column["default"] is None
    ]
    key = table.columns[1].name
    if not faults and not _is_unique(inspector, table, key):
        faults.append(f"{key} is not unique")
    if faults:
        raise TableMismatch(
            f"table {table.fullname}: {'; '.join(faults)}. It is of another version: it is never "
            "altered here. Alter it, or name another with database_table_names"
        )


def _is_kind_of(found: Any, expected: Any) -> bool:
    if isinstance(expected, sa.DateTime):
        return isinstance(found, sa.DateTime) and not found.timezone
    for kind in (sa.LargeBinary, sa.Integer, sa.String):
        if isinstance(expected, kind):
            # BYTEA and BLOB have no nearer common base.
            return isinstance(found, sa.types._Binary if kind is sa.LargeBinary else kind)
    raise AssertionError(expected)


def _is_unique(inspector: Inspector, table: sa.Table, key: str) -> bool:
    names, schema = table.name, table.schema
    constraints = inspector.get_unique_constraints(names, schema=schema)
    indexes = [one for one in inspector.get_indexes(names, schema=schema) if one["unique"]]
    return any(one["column_names"] == [key] for one in (*constraints, *indexes))
