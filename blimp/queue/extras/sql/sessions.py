"""Transactions with the database: an engine, and connections that always end.

Translates the errors of SQLAlchemy and of the drivers, without secrets. Tested by test_database.py.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from blimp.distribution import install_hint
from blimp.errors import BlimpError, ConfigError, LinkError, NotAuthorised, ResultError
from blimp.queue.extras.sql.tables import MOST_BYTES, MYSQL, Tables
from blimp.queue.redis.forks import reset_after_fork
from blimp.queue.redis.urls import MAX_REASON_LENGTH, hide_password, tcp_keepalive
from blimp.queue.results.backend import DATABASE, DIALECTS
from blimp.queue.retry import Backoff

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.results.backend import ResultOptions

DEFAULTS: dict[str, Any] = {"pool_pre_ping": True, "pool_recycle": 3600, "hide_parameters": True}
LEAST_TIMEOUT_S = 5.0  # for a database that is busy with other writers, not unreachable
PREPARE_TRIES = 10
_LIBPQ = ("psycopg", "psycopg2")
TAKEN = "sqlite, postgresql+psycopg, mariadb+pymysql, mysql+pymysql"
_MYSQL = ("pymysql", "mysqldb")
# SQL's and PostgreSQL's states: a table, a type or a row of its catalogue is there already;
# changed meanwhile; two transactions wait for each other.
_RACES = ("42P07", "42710", "23505", "XX000", "40P01", "40001")
_REFUSED = "28"  # the class of SQL's states for a wrong user or password
# While it connects, PostgreSQL's driver gives a text alone; MySQL has another state for a database
# that the user may not use.
_REFUSAL = re.compile(
    r'authentication failed|role "[^"]*" does not exist|no pg_hba.conf entry|Access denied for user'
)
# Any other error is a mistake in this package, and is raised as it is.
PASSING = (exc.DBAPIError, exc.TimeoutError, exc.DisconnectionError)
_ROWS = (exc.DataError, exc.IntegrityError)  # about what is written, not about the database
_BACKOFF = Backoff(first_s=0.01, cap_s=1.0, full_jitter=True)


class Sessions:
    """Opens connections of one engine, which connects on first use and is never used in a fork.

    The tables are created or checked with the first connection, and again after an error.
    Raises ConfigError for a URL or engine options that cannot be used.
    """

    def __init__(self, *, url: str, options: ResultOptions, clock: Clock, timeout_s: float) -> None:
        self.url = parse(url)
        self.where = f"database at {hide_password(self.url.render_as_string())}"
        self.tables = Tables(options)
        self._options = options
        self._clock = clock
        self._timeout_s = timeout_s
        # Made now, so that wrong options are an error at once.
        self._engine: sa.Engine | None = make_engine(self.url, options, timeout_s)
        self._inherited: list[sa.Engine] = []
        self._chance = random.Random()
        self._reset()
        reset_after_fork(self)

    @property
    def dialect(self) -> str:
        """One of `DIALECTS`."""
        return self.url.get_backend_name()

    def _reset(self) -> None:
        self._making = threading.Lock()
        self._preparing = threading.Lock()
        # SQLite has one writer: a thread that waits here need not ask it again and again.
        self._writing = threading.Lock()
        self._is_prepared = False

    def after_fork(self) -> None:
        """Do not touch the parent's connections: closing one sends something on it."""
        if self._engine is not None:
            self._inherited.append(self._engine)
            self._engine = None
        self._reset()

    @property
    def engine(self) -> sa.Engine:
        with self._making:
            self._engine = self._engine or make_engine(self.url, self._options, self._timeout_s)
            return self._engine

    @contextlib.contextmanager
    def session(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction, committed at the end, rolled back on an error.

        Raises LinkError, or ResultError if the row cannot be written.
        """
        self.prepare()
        try:
            with self._turn(writes), self.engine.begin() as connection:
                yield connection
        except PASSING as error:
            raise self._translated(error) from None

    def prepare(self) -> None:
        """Create or check the tables, once. Raises LinkError, TableMismatch.

        Another process may create them at the same moment: then they are checked again.
        """
        if self._is_prepared:
            return
        with self._preparing:
            for attempt in range(PREPARE_TRIES):
                if self._is_prepared:
                    return
                try:
                    with self._turn(True), self.engine.begin() as connection:
                        self.tables.prepare(connection)
                    self._is_prepared = True
                except PASSING as error:
                    if attempt == PREPARE_TRIES - 1 or not _is_race(error):
                        raise self._translated(error) from None
                    wait_s = _BACKOFF.delay_s(attempt, chance=self._chance)
                    self._clock.sleep_until(self._clock.now_s() + wait_s)

    def _turn(self, writes: bool) -> contextlib.AbstractContextManager[object]:
        return self._writing if writes and self.dialect == "sqlite" else contextlib.nullcontext()

    def _translated(self, error: exc.SQLAlchemyError) -> BlimpError:
        """Return a LinkError if a later attempt may succeed, a ResultError for a wrong row.

        A fault of the whole database (full, read-only, without its tables) can be repaired, so
        what waits for it is kept.
        """
        cause = getattr(error, "orig", None) or error
        # The driver's text; SQLAlchemy's own holds statements and parameters.
        text = str(cause) if cause is not error else str(error.args[0] if error.args else error)
        reason = " ".join(text.split())[:MAX_REASON_LENGTH]
        if isinstance(error, _ROWS):
            return ResultError(f"{self.where}: {reason}")
        self._is_prepared = False  # the next connection may find another database
        if (getattr(cause, "sqlstate", None) or "").startswith(_REFUSED) or _REFUSAL.search(reason):
            return NotAuthorised(f"{self.where} refuses: {reason}")
        lost = isinstance(error, exc.DBAPIError) and error.connection_invalidated
        return LinkError(f"{'lost ' if lost else ''}{self.where}: {reason}")

    def close(self) -> None:
        with self._making:
            engine, self._engine = self._engine, None
            self._is_prepared = False
        if engine is not None:
            engine.dispose()


def parse(url: str) -> URL:
    """Return an SQLAlchemy URL whose driver is installed. Raises ConfigError."""
    shown = f"result_backend {hide_password(DATABASE + url)!r}"
    try:
        parsed = make_url(url)
        dialect = parsed.get_dialect()
        if parsed.get_backend_name() in DIALECTS:
            dialect.import_dbapi()
    except (ImportError, exc.NoSuchModuleError) as error:
        raise ConfigError(
            f"{shown}: {error}; {install_hint('sql')} has the drivers of {TAKEN}"
        ) from None
    except exc.ArgumentError:  # the password in it cannot be found, so the URL is not shown
        raise ConfigError("result_backend: its URL cannot be read as a database's") from None
    if parsed.get_backend_name() not in DIALECTS:
        raise ConfigError(f"{shown}: must be one of {', '.join(DIALECTS)}")
    if dialect.is_async:
        raise ConfigError(f"{shown}: an asynchronous driver; take one of {TAKEN}")
    if parsed.get_backend_name() == "sqlite" and (parsed.database or ":memory:") == ":memory:":
        raise ConfigError(f"{shown}: must name a file: no other process sees a database in memory")
    return parsed


def make_engine(url: URL, options: ResultOptions, timeout_s: float) -> sa.Engine:
    """Return an engine that has no connection yet. Raises ConfigError for wrong options."""
    settings = {**DEFAULTS, **options.database_engine_options}
    if url.get_backend_name() in MYSQL:
        # A writer locks rows, and no gap between them: those that others make there go on.
        settings.setdefault("isolation_level", "READ COMMITTED")
    settings["connect_args"] = _timeouts(url, timeout_s) | (settings.get("connect_args") or {})
    if options.database_short_lived_sessions:
        # As with Celery, options of a connection pool are ignored then.
        for name in [*settings]:
            if name.startswith("pool") or name in ("max_overflow", "echo_pool"):
                del settings[name]
        settings["poolclass"] = NullPool
    try:
        engine = sa.create_engine(url, **settings)
    except (TypeError, exc.ArgumentError) as error:
        raise ConfigError(f"database_engine_options: {error}") from None
    if url.get_backend_name() == "sqlite":
        sa.event.listen(engine, "connect", _tune_sqlite)
    elif url.get_backend_name() in MYSQL:
        sa.event.listen(engine, "connect", _tune_mysql)
    if options.database_engine_callback is not None:
        options.database_engine_callback(engine)
    return engine


def _timeouts(url: URL, timeout_s: float) -> dict[str, Any]:
    """Return options of the driver, so that no call waits for ever on a dead connection."""
    if url.get_backend_name() == "sqlite":
        return {"timeout": max(LEAST_TIMEOUT_S, timeout_s)}
    if url.get_driver_name() in _MYSQL:
        settings = dict.fromkeys(
            ("read_timeout", "write_timeout"), math.ceil(max(LEAST_TIMEOUT_S, timeout_s))
        ) | {"connect_timeout": max(1, math.ceil(timeout_s))}
        return {name: value for name, value in settings.items() if name not in url.query}
    if url.get_driver_name() not in _LIBPQ:
        return {}
    names = ("keepalives_idle", "keepalives_interval", "keepalives_count")
    settings = dict(zip(names, tcp_keepalive().values(), strict=False)) | {
        "connect_timeout": max(2, math.ceil(timeout_s)),  # libpq takes no less
        "tcp_user_timeout": int(1000 * max(LEAST_TIMEOUT_S, timeout_s)),
    }
    return {name: value for name, value in settings.items() if name not in url.query}


def _tune_sqlite(connection: Any, _: object) -> None:
    """Allow readers beside a writer, and write commits to the disk.

    Without the latter a power cut loses the newest results, whose messages are gone already.
    """
    with contextlib.closing(connection.cursor()) as cursor:
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")


def _tune_mysql(connection: Any, record: Any) -> None:
    """Refuse what does not fit into its column, which a server may cut; ask for its limit."""
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")
        cursor.execute("SELECT @@max_allowed_packet")
        record.info[MOST_BYTES] = cursor.fetchone()[0]


def _is_race(error: exc.SQLAlchemyError) -> bool:
    """Return whether another process creates the same table now, or just has."""
    cause = getattr(error, "orig", None)
    is_known = getattr(cause, "sqlstate", None) in _RACES
    return is_known or "already exists" in str(cause) or "locked" in str(cause)
