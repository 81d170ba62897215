"""Celery's two tables, as Celery 5.7 makes them, and the statements on them.

Source: celery 5.7.0, celery/backends/database/models.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.reflection import Inspector

from blimp.errors import TableMismatch
from blimp.queue.results.backend import ResultOptions

TASK_TABLE = "celery_taskmeta"
GROUP_TABLE = "celery_tasksetmeta"
MAX_LENGTH = 155  # of ids and names
FINAL_STATUS = ("SUCCESS", "FAILURE", "REVOKED")
# Celery's own 32 bits last for a fortnight at full speed, as every write takes one. It can read
# the longer number, too.
_ID = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
_UNUSED = {"stamps"}  # only Celery writes it; an older table lacks it
_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Tables:
    """The tables `task` and `group`, with the names and schemas of the options."""

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
        """Create the missing tables and check the others.

        Raises TableMismatch, and SQLAlchemy's error if another process creates one meanwhile: the
        caller tries again.
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
    """Raise TableMismatch if the table in the database is not like `table`.

    Further columns are allowed if a row may be written without them.
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
            f"table {table.fullname}: {'; '.join(faults)}. It is of another version, and is "
            "never altered here. Alter it, or name another with database_table_names"
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


class Statements:
    """The statements on the tables, each built once.

    upsert: writes a record unless a final one is there; returns the ids that were written.
    one, forget, group, forget_group: by `key`. save_group: replaces. failures: the newest `most`.
    expired: for each table, deletes `most` rows that are older than `before`. Rows that another
    process deletes or writes at the moment are skipped.
    """

    def __init__(self, tables: Tables, *, dialect: str) -> None:
        insert = _INSERTS[dialect]
        task, group = tables.task, tables.group
        columns = [column.name for column in task.columns if column.name not in ("id", "stamps")]
        made = insert(task)
        self.upsert = made.on_conflict_do_update(
            index_elements=[task.c.task_id],
            set_={name: made.excluded[name] for name in columns if name != "task_id"},
            where=sa.and_(
                *(
                    sa.func.coalesce(task.c.status, _literal("")) != _literal(status)
                    for status in FINAL_STATUS
                )
            ),
        ).returning(task.c.task_id)
        key: sa.BindParameter[str] = sa.bindparam("key")
        self.one = sa.select(*(task.c[name] for name in columns)).where(task.c.task_id == key)
        most = sa.bindparam("most", type_=sa.Integer)
        self.failures = (
            sa.select(*(task.c[name] for name in columns))
            .where(task.c.status == "FAILURE")
            .order_by(task.c.date_done.desc())
            .limit(most)
        )
        self.forget = sa.delete(task).where(task.c.task_id == key)
        made = insert(group)
        self.save_group = made.on_conflict_do_update(
            index_elements=[group.c.taskset_id],
            set_={name: made.excluded[name] for name in ("result", "date_done")},
        )
        self.group = sa.select(group.c.result).where(group.c.taskset_id == key)
        self.forget_group = sa.delete(group).where(group.c.taskset_id == key)
        self.expired = tuple(_expired(table) for table in (task, group))


def _literal(text: str) -> sa.ColumnElement[str]:
    """Return `text` as part of the statement: a parameter would be sent with every row."""
    return sa.literal_column(f"'{text}'", sa.String)


def _expired(table: sa.Table) -> sa.Delete:
    oldest = (
        sa.select(table.c.id)
        .where(table.c.date_done < sa.bindparam("before", type_=sa.DateTime))
        .order_by(table.c.date_done)
        .limit(sa.bindparam("most", type_=sa.Integer))
        .with_for_update(skip_locked=True)  # SQLite has one writer at a time: it ignores this
    )
    return sa.delete(table).where(table.c.id.in_(oldest))
