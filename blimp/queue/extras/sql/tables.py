"""Celery's two tables, as Celery 5.7 makes them: their columns, statements, and a record as a row.

The row holds what Celery 5.7 writes with `result_serializer="json"`. A state that is finer than
Celery's is in the result, beside the exception that Celery makes of it.

Source: celery 5.7.0, celery/backends/database/models.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine.reflection import Inspector

from blimp.errors import ResultError, TableMismatch
from blimp.nesting import shallow
from blimp.queue.protocol.message import to_json
from blimp.queue.results.backend import ResultOptions

TASK_TABLE = "celery_taskmeta"
GROUP_TABLE = "celery_tasksetmeta"
MAX_LENGTH = 155  # of ids and names
FINAL_STATUS = ("SUCCESS", "FAILURE", "REVOKED")
# Celery's own 32 bits last for a fortnight at full speed, as every write takes one. It can read
# the longer number, too.
_ID = sa.Integer().with_variant(sa.BigInteger(), "postgresql", "mysql", "mariadb")
MYSQL = ("mysql", "mariadb")
MOST_BYTES = "max_allowed_packet"  # in a connection's `info`
# MySQL's own defaults end at 64 KiB and at whole seconds, and take "a" and "A" for the same id.
_KEY = sa.String(MAX_LENGTH).with_variant(
    mysql.VARCHAR(MAX_LENGTH, collation="utf8mb4_bin"), *MYSQL
)
_BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), *MYSQL)
_DATE = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *MYSQL)
_UNUSED = {"stamps"}  # only Celery writes it; an older table lacks it


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
                sa.Column("result", _BYTES),
                sa.Column("date_done", _DATE, index=True),
                sa.Column("traceback", _TEXT),
                sa.Column("children", _BYTES),
                *(_extended() if options.result_extended else ()),
            ),
        )
        self.group = self._table(
            names.get("group", GROUP_TABLE),
            schemas.get("group"),
            "taskset_id",
            (
                sa.Column("result", _BYTES),
                sa.Column("date_done", _DATE, index=True),
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
            sa.Column(key, _KEY, unique=True),
            *columns,
            schema=schema,
            sqlite_autoincrement=True,
            # The engine with transactions, and all of Unicode, whatever the server's defaults.
            mysql_engine="InnoDB",
            mysql_charset="utf8mb4",
            mariadb_engine="InnoDB",
            mariadb_charset="utf8mb4",
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
        sa.Column("args", _BYTES),
        sa.Column("kwargs", _BYTES),
        sa.Column("worker", sa.String(MAX_LENGTH)),
        sa.Column("retries", sa.Integer),
        sa.Column("queue", sa.String(MAX_LENGTH)),
        sa.Column("stamps", _BYTES),
    )


def check(inspector: Inspector, table: sa.Table) -> None:
    """Raise TableMismatch if the table in the database is not like `table`.

    Further columns are allowed if a row may be written without them.
    """
    found = {
        column["name"]: column for column in inspector.get_columns(table.name, schema=table.schema)
    }
    expected = {column.name: column for column in table.columns if column.name not in _UNUSED}
    faults: list[str] = []
    for name, column in expected.items():
        kind = column.type.compile(inspector.dialect)
        if name not in found:
            faults.append(f"{name} is missing ({kind})")
        elif not _is_kind_of(found[name]["type"], column.type):
            faults.append(f"{name} is {found[name]['type']}, must be {kind}")
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
    constraints = inspector.get_unique_constraints(table.name, schema=table.schema)
    indexes = inspector.get_indexes(table.name, schema=table.schema)
    unique = (*constraints, *(one for one in indexes if one["unique"]))
    return any(one["column_names"] == [key] for one in unique)


class Statements:
    """The statements on the tables, each built once.

    write: writes records, none over a final one.
    several: by `keys`. forget, group, forget_group: by `key`. save_group: replaces. failures: the
    newest `most`.
    expired: for each table, deletes `most` rows that are older than `before`. Rows that another
    process deletes or writes at the moment are skipped.
    """

    def __init__(self, tables: Tables, *, dialect: str) -> None:
        task, group = tables.task, tables.group
        columns = [column.name for column in task.columns if column.name not in ("id", "stamps")]
        # Literals: a parameter would be sent with every row.
        final: list[sa.ColumnElement[str]] = [
            sa.literal_column(f"'{status}'") for status in FINAL_STATUS
        ]
        is_open = sa.func.coalesce(task.c.status, sa.literal_column("''")).not_in(final)
        written = [name for name in columns if name != "task_id"]
        self._is_mysql = dialect in MYSQL
        if self._is_mysql:
            # Without RETURNING: the rows are made or locked, those that are open found, written.
            self._lock = _upsert(task, (task.c.task_id,), dialect=dialect)
            self._open = sa.select(task.c.task_id).where(
                task.c.task_id.in_(sa.bindparam("keys", expanding=True)), is_open
            )
            self._upsert = _upsert(task, [task.c[name] for name in written], dialect=dialect)
        else:
            self._upsert = _upsert(
                task, [task.c[name] for name in written], dialect=dialect, where=is_open
            ).returning(task.c.task_id)
        key: sa.BindParameter[str] = sa.bindparam("key")
        record = sa.select(*(task.c[name] for name in columns))
        self.several = record.where(task.c.task_id.in_(sa.bindparam("keys", expanding=True)))
        newest = record.where(task.c.status == "FAILURE").order_by(task.c.date_done.desc())
        self.failures = newest.limit(sa.bindparam("most", type_=sa.Integer))
        self.forget = sa.delete(task).where(task.c.task_id == key)
        self.save_group = _upsert(group, (group.c.result, group.c.date_done), dialect=dialect)
        self.group = sa.select(group.c.result).where(group.c.taskset_id == key)
        self.forget_group = sa.delete(group).where(group.c.taskset_id == key)
        self.expired = tuple(_expired(table) for table in (task, group))

    def write(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """Write `rows`, each of another task, and return the ids of those that were written."""
        if not self._is_mysql:
            return connection.execute(self._upsert, rows).scalars().all()
        for row in rows:
            _check_size(row, most=connection.info[MOST_BYTES])
        keys = [{"task_id": row["task_id"]} for row in rows]
        connection.execute(self._lock, keys)
        found = connection.execute(self._open, {"keys": [one["task_id"] for one in keys]})
        written = found.scalars().all()
        if open_rows := [row for row in rows if row["task_id"] in set(written)]:
            connection.execute(self._upsert, open_rows)
        return written


def _check_size(row: Mapping[str, Any], *, most: int) -> None:
    """Raise ResultError for a row that the server may cut the connection for, without a word.

    A driver sends it as text, with a backslash before each quote and each zero byte.
    """
    need = 2 * sum(len(one) for one in row.values() if isinstance(one, str | bytes))
    if need > most:
        raise ResultError(f"needs up to {need} bytes, the server's max_allowed_packet is {most}")


def _upsert(
    table: sa.Table,
    columns: Iterable[sa.Column[Any]],
    *,
    dialect: str,
    where: sa.ColumnElement[bool] | None = None,
) -> Any:
    """Return an INSERT that sets `columns` of a row that has the key already."""
    names = [column.name for column in columns]
    if dialect in MYSQL:
        made = mysql.insert(table)
        return made.on_duplicate_key_update({name: made.inserted[name] for name in names})
    other = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    return other.on_conflict_do_update(
        index_elements=[table.columns[1]],
        set_={name: other.excluded[name] for name in names},
        where=where,
    )


def _expired(table: sa.Table) -> sa.Delete:
    oldest = (
        sa.select(table.c.id)
        .where(table.c.date_done < sa.bindparam("before", type_=sa.DateTime))
        .order_by(table.c.date_done)
        .limit(sa.bindparam("most", type_=sa.Integer))
        .with_for_update(skip_locked=True)  # SQLite has one writer at a time: it ignores this
        .subquery()  # MySQL takes a LIMIT below IN nowhere else
    )
    return sa.delete(table).where(table.c.id.in_(sa.select(oldest.c.id)))


MAX_RETRIES = 2**31 - 1
EXTENDED = ("name", "worker", "retries", "queue")
PICKLE = b"\x80"
_NULL = msgspec.Raw(b"null")


class Document(msgspec.Struct):
    """The parts of what `record.encode` writes for which there are columns."""

    status: str
    task_id: str
    result: msgspec.Raw = _NULL
    traceback: str | None = None
    children: msgspec.Raw = _NULL
    date_done: str | None = None
    name: str | None = None
    args: msgspec.Raw = _NULL
    kwargs: msgspec.Raw = _NULL
    worker: str | None = None
    retries: int | None = None
    queue: str | None = None
    blimp_state: str | None = None


_decoder = msgspec.json.Decoder(Document)


def row_of(data: bytes, *, extended: bool, now: datetime) -> dict[str, Any]:
    """Return the columns for a record as `encode` writes it. Raises ResultError.

    now: its date if it has none, so that a task that never ends is cleaned up, too.
    """
    try:
        document = _decoder.decode(shallow(data))
        date = naive_utc(document.date_done) if document.date_done else now
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise ResultError(f"a result of {len(data)} bytes cannot be read: {error}") from error
    row = {
        "task_id": check_id(document.task_id),
        "status": document.status,
        "result": _result(document),
        "date_done": date,
        "traceback": _text(document.traceback),
        "children": _bytes(document.children, empty=b"[]"),
    }
    if extended:
        row |= {
            "name": _text(document.name, limit=MAX_LENGTH),
            "args": _bytes(document.args),
            "kwargs": _bytes(document.kwargs),
            "worker": _text(document.worker, limit=MAX_LENGTH),
            "retries": max(0, min(document.retries or 0, MAX_RETRIES)),
            "queue": _text(document.queue, limit=MAX_LENGTH),
        }
    return row


def document_of(row: Mapping[str, Any]) -> bytes:
    """Return the record of a row. Raises ResultError naming a column that cannot be read."""
    status = row["status"]
    document = {
        "status": status,
        "result": from_json(row, "result"),
        "traceback": row["traceback"],
        "children": from_json(row, "children") or [],
        "date_done": None,
        "task_id": row["task_id"],
    }
    if row["date_done"] is not None and status in FINAL_STATUS:
        document["date_done"] = row["date_done"].replace(tzinfo=UTC).isoformat()
    document |= {name: row[name] for name in EXTENDED if name in row}
    document |= {
        name: from_json(row, name) for name in ("args", "kwargs") if row.get(name) is not None
    }
    fault = document["result"]
    if status in FINAL_STATUS and status != "SUCCESS" and isinstance(fault, dict):
        document["blimp_state"] = fault.pop("blimp_state", None)
    return to_json(document)


def check_id(id: str) -> str:
    """Return `id`. Raises ResultError if it cannot be that of a row."""
    if not 0 < len(id) <= MAX_LENGTH or "\0" in id or id.endswith(" "):  # MySQL ignores it
        most = f"1 to {MAX_LENGTH} letters, no zero bytes, and no space at the end"
        raise ResultError(f"id {id!r:.40} of {len(id)} letters: a table takes {most}")
    return id


def naive_utc(date: str) -> datetime:
    """Return an ISO 8601 date for a column without a time zone, which is UTC as Celery's."""
    found = datetime.fromisoformat(date)
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def utc_now(wall_s: float) -> datetime:
    return datetime.fromtimestamp(wall_s, UTC).replace(tzinfo=None)


def from_json(row: Mapping[str, Any], column: str) -> Any:
    """Return the value in a column of JSON. Raises ResultError."""
    data = row[column]
    if data is None:
        return None
    if not isinstance(data, bytes):
        raise ResultError(f"{column} is {type(data).__name__}, must be bytes")
    try:
        return msgspec.json.decode(shallow(data))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        hint = ": a pickle, which is never opened here" if data.startswith(PICKLE) else ""
        raise ResultError(f"{column} of {len(data)} bytes is no JSON ({error}){hint}") from error


def _result(document: Document) -> bytes:
    result = bytes(document.result)
    if document.blimp_state is None:
        return result
    fault = msgspec.json.decode(result)
    if not isinstance(fault, dict):  # Celery raises what this names, and fails without it
        fault = {"exc_type": document.blimp_state, "exc_message": [], "exc_module": "blimp.errors"}
    return to_json(fault | {"blimp_state": document.blimp_state})


def _bytes(value: msgspec.Raw, *, empty: bytes = b"null") -> bytes | None:
    data = bytes(value)
    return None if data in (b"null", empty) else data


def _text(text: str | None, *, limit: int | None = None) -> str | None:
    """Return `text` without zero bytes, which PostgreSQL refuses, cut at `limit` letters."""
    return None if text is None else text.replace("\0", "\ufffd")[:limit]
