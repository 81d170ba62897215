"""An SQLAlchemy engine for results: how it is made, and how long it lives.

What an error of SQLAlchemy or a driver means, in this package's words and without secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from blimp.errors import BlimpError, ConfigError, LinkError, NotAuthorised, ResultError
from blimp.queue.redis.urls import MAX_REASON_LENGTH, hide_password, tcp_keepalive
from blimp.queue.results.options import DATABASE, ResultOptions

DIALECTS = ("sqlite", "postgresql")
DEFAULTS = {"pool_pre_ping": True, "pool_recycle": 3600, "hide_parameters": True}
LEAST_TIMEOUT_S = 5.0  # for a database that is busy, not away: others write, too
_LIBPQ = ("psycopg", "psycopg2")


def parse(url: str) -> URL:
    """Return an SQLAlchemy URL, its driver being there. Raises ConfigError."""
    shown = f"result_backend {hide_password(DATABASE + url)!r}"
    try:
        parsed = make_url(url)
        dialect = parsed.get_dialect()
        if parsed.get_backend_name() in DIALECTS:
            dialect.import_dbapi()
    except (ImportError, exc.NoSuchModuleError) as error:
        raise ConfigError(f"{shown}: {error}; pip install 'blimp[sql]'") from None
    except exc.ArgumentError:  # where its password stands is not known then
        raise ConfigError("result_backend: its URL cannot be read as a database's") from None
    if parsed.get_backend_name() not in DIALECTS:
        raise ConfigError(f"{shown}: must be one of {', '.join(DIALECTS)}")
    if dialect.is_async:
        raise ConfigError(f"{shown}: an asynchronous driver; take sqlite or postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite" and (parsed.database or ":memory:") == ":memory:":
        raise ConfigError(f"{shown}: must name a file: nobody else sees one in memory")
    return parsed


def make_engine(url: URL, *, options: ResultOptions, timeout_s: float) -> sa.Engine:
    """Return an engine that has no connection yet. Raises ConfigError for wrong options."""
    given = dict(options.database_engine_options)
    settings: dict[str, Any] = {**DEFAULTS, **given}
    settings["connect_args"] = {
        **_timeouts(url, timeout_s=timeout_s),
        **(given.get("connect_args") or {}),
    }
    if options.database_short_lived_sessions:
        # What is for pools alone is no error then, as with Celery.
        settings = {
            name: value
            for name, value in settings.items()
            if not name.startswith("pool") and name not in ("max_overflow", "echo_pool")
        } | {"poolclass": NullPool}
    try:
        engine = sa.create_engine(url, **settings)
    except (TypeError, exc.ArgumentError) as error:
        raise ConfigError(f"database_engine_options: {error}") from None
    if url.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", _tune_sqlite)
    if options.database_engine_callback is not None:
        options.database_engine_callback(engine)
    return engine


def _timeouts(url: URL, *, timeout_s: float) -> Mapping[str, Any]:
    """Return what the driver is told, so that no call waits for a dead link for ever."""
    if url.get_backend_name() == "sqlite":
        return {"timeout": max(LEAST_TIMEOUT_S, timeout_s)}
    if url.get_driver_name() not in _LIBPQ:
        return {}
    keepalive = tcp_keepalive().values()
    names = ("keepalives_idle", "keepalives_interval", "keepalives_count")
    settings = {
        "connect_timeout": max(2, math.ceil(timeout_s)),  # libpq takes no less
        "tcp_user_timeout": int(1000 * max(LEAST_TIMEOUT_S, timeout_s)),
        **dict(zip(names, keepalive, strict=False)),
    }
    return {name: value for name, value in settings.items() if name not in url.query}


def _tune_sqlite(connection: Any, _: object) -> None:
    """Have readers and a writer at once, and what is committed on the disk.

    Without the last, a power cut takes the newest results, whose messages are gone already.
    """
    cursor = connection.cursor()
    try:
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
    finally:
        cursor.close()


_REFUSED = "28"  # the class of PostgreSQL's states for a wrong user or password
# While it connects, the driver has its words alone.
_REFUSAL = re.compile(r'authentication failed|role "[^"]*" does not exist|no pg_hba.conf entry')
# Others are mistakes in this package, and are told as they are.
PASSING = (exc.DBAPIError, exc.TimeoutError, exc.DisconnectionError)
_ROWS = (exc.DataError, exc.IntegrityError)  # of what is written, not of the database


def translated(error: exc.SQLAlchemyError, *, where: str) -> BlimpError:
    """Return LinkError where it may be tried again, ResultError where a row is at fault.

    What is wrong with a whole database, full or read-only or without its tables, may be put
    right: what waits for it is kept.
    """
    cause = getattr(error, "orig", None) or error
    # The driver's words; SQLAlchemy's own hold statements and parameters.
    text = str(cause) if cause is not error else str(error.args[0] if error.args else error)
    reason = " ".join(text.split())[:MAX_REASON_LENGTH]
    if isinstance(error, _ROWS):
        return ResultError(f"{where}: {reason}")
    state = getattr(cause, "sqlstate", None) or ""
    if state.startswith(_REFUSED) or _REFUSAL.search(reason):
        return NotAuthorised(f"{where} refuses: {reason}")
    lost = isinstance(error, exc.DBAPIError) and error.connection_invalidated
    return LinkError(f"{'lost ' if lost else ''}{where}: {reason}")
