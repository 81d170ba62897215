"""How results are kept, and the keywords that people say it with; Celery's names for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from blimp.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Engine

KEEP_S = 86_400
TABLES = ("task", "group")
DATABASE = "db+"  # before an SQLAlchemy URL
MAX_KEEP_S = 100 * 365 * 86_400


class ResultOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How results are kept.

    result_extended: keep the arguments too; a database then has columns for them, the task's
        name, worker, retries and queue.
    result_expires_s: seconds until a result is forgotten; None or 0: never.
    The rest is for databases alone.
    database_table_names, database_table_schemas: by "task" and "group".
    database_engine_options: for SQLAlchemy's `create_engine`.
    database_engine_callback: called with each engine, once it is made: for listeners.
    database_short_lived_sessions: keep no connection open between two uses.
    database_create_tables_at_setup: when a worker starts; else with the first use.
    """

    result_extended: bool = False
    result_expires_s: float | None = KEEP_S
    database_table_names: Mapping[str, str] = {}
    database_table_schemas: Mapping[str, str] = {}
    database_engine_options: Mapping[str, Any] = {}
    database_engine_callback: Callable[[Engine], object] | None = None
    database_short_lived_sessions: bool = False
    database_create_tables_at_setup: bool = True

    @property
    def keep_s(self) -> int:
        """Whole seconds, 0 for ever."""
        return int(self.result_expires_s or 0)


class ResultKeywords(TypedDict, total=False):
    """What `TaskApp` takes of them; see ResultOptions."""

    result_extended: bool
    result_expires_s: float | None
    database_table_names: Mapping[str, str] | None
    database_table_schemas: Mapping[str, str] | None
    database_engine_options: Mapping[str, Any] | None
    database_engine_callback: Callable[[Engine], object] | None
    database_short_lived_sessions: bool
    database_create_tables_at_setup: bool


def result_options(keywords: ResultKeywords) -> ResultOptions:
    """Return the options that `keywords` say. Raises ConfigError naming a wrong one."""
    unknown = set(keywords) - set(ResultOptions.__struct_fields__)
    if unknown:
        raise ConfigError(f"TaskApp options {sorted(unknown)}: there are none of these names")
    nullable = ("result_expires_s", "database_engine_callback")
    given: dict[str, Any] = {
        name: value for name, value in keywords.items() if value is not None or name in nullable
    }
    options = ResultOptions(**given)
    _check_keep(options.result_expires_s)
    for name in ("database_table_names", "database_table_schemas"):
        _check_names(name, getattr(options, name))
    engine_options: object = options.database_engine_options
    if not isinstance(engine_options, Mapping):
        kind = type(engine_options).__name__
        raise ConfigError(f"database_engine_options is {kind}: must be a mapping")
    callback: object = options.database_engine_callback
    if callback is not None and not callable(callback):
        raise ConfigError(f"database_engine_callback {callback!r}: must be a function")
    return options


def _check_keep(keep_s: object) -> None:
    if keep_s is None:
        return
    if not isinstance(keep_s, int | float) or isinstance(keep_s, bool):
        raise ConfigError(f"result_expires_s {keep_s!r}: must be a number of seconds, or None")
    if keep_s != 0 and not 1 <= keep_s <= MAX_KEEP_S:
        raise ConfigError(
            f"result_expires_s {keep_s!r}: must be 1 to {MAX_KEEP_S} seconds, or 0 for ever"
        )


def _check_names(option: str, names: object) -> None:
    if not isinstance(names, Mapping):
        raise ConfigError(f"{option} is {type(names).__name__}: must be a mapping")
    for table, name in names.items():
        if table not in TABLES:
            raise ConfigError(f"{option} {table!r}: must be one of {', '.join(TABLES)}")
        if not isinstance(name, str) or not name or "\0" in name:
            raise ConfigError(f"{option}[{table!r}] is {name!r}: must be a name")


def database_url(url: str | Sequence[str] | None) -> str | None:
    """Return the SQLAlchemy URL in a `result_backend`, None where it is no database's."""
    one = url[0] if isinstance(url, Sequence) and not isinstance(url, str) and url else url
    if not isinstance(one, str) or not one.startswith(DATABASE):
        return None
    if not isinstance(url, str) and url is not None and len(url) > 1:
        raise ConfigError("result_backend: results are kept in one database, not in several")
    return one.removeprefix(DATABASE)
