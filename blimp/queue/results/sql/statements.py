"""The statements that results are kept with, each made once."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from blimp.queue.results.sql.rows import FINAL_STATUS
from blimp.queue.results.sql.tables import Tables

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Statements:
    """upsert: write a record where no final one stands; returns the ids that were written.

    one, forget, group, forget_group: by `key`. save_group: replaces.
    expired: for each table, deletes `most` rows from `before`; others that do the same now,
    or write such a row, are left alone.
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
    """Return `text` as a part of the statement: a parameter would be sent with every row."""
    return sa.literal_column(f"'{text}'", sa.String)


def _expired(table: sa.Table) -> sa.Delete:
    oldest = (
        sa.select(table.c.id)
        .where(table.c.date_done < sa.bindparam("before", type_=sa.DateTime))
        .order_by(table.c.date_done)
        .limit(sa.bindparam("most", type_=sa.Integer))
        .with_for_update(skip_locked=True)  # SQLite has one writer at a time, and no word for it
    )
    return sa.delete(table).where(table.c.id.in_(oldest))
