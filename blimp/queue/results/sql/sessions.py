"""Transactions with the database: each ends, whatever happens in it."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import exc

from blimp.queue.redis.fork import begin_anew_after_fork
from blimp.queue.redis.urls import hide_password
from blimp.queue.results.sql.engine import PASSING, make_engine, parse, translated
from blimp.queue.results.sql.tables import Tables
from blimp.queue.retry import Backoff

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.results.options import ResultOptions

PREPARE_TRIES = 10
# PostgreSQL's: a table, a type or a row of its catalogue is there already; changed meanwhile;
# two wait for each other.
_RACES = ("42P07", "42710", "23505", "XX000", "40P01", "40001")
_BACKOFF = Backoff(first_s=0.01, cap_s=1.0, full_jitter=True)


class Sessions:
    """Gives connections of one engine, which connects on first use and is never used in a fork.

    The tables are made, or checked, with the first connection, and again after an error.
    Raises ConfigError for a URL or engine options that cannot be used.
    """

    def __init__(self, *, url: str, options: ResultOptions, clock: Clock, timeout_s: float) -> None:
        self.url = parse(url)
        self.where = f"database at {hide_password(self.url.render_as_string())}"
        self.tables = Tables(options)
        self._options = options
        self._clock = clock
        self._timeout_s = timeout_s
        self._chance = random.Random()
        # It connects when it is used; what is wrong with the options is told now.
        self._engine: sa.Engine | None = self._make()
        self._inherited: list[sa.Engine] = []
        self._begin_anew()
        begin_anew_after_fork(self)

    @property
    def dialect(self) -> str:
        """ "sqlite" or "postgresql"."""
        return self.url.get_backend_name()

    def _begin_anew(self) -> None:
        self._making = threading.Lock()
        self._preparing = threading.Lock()
        # SQLite has one writer: who waits here waits without asking it again and again.
        self._writing = threading.Lock()
        self._is_prepared = False

    def after_fork(self) -> None:
        """Leave the parent's connections alone: to close one is to say something on it."""
        if self._engine is not None:
            self._inherited.append(self._engine)
            self._engine = None
        self._begin_anew()

    @property
    def engine(self) -> sa.Engine:
        with self._making:
            if self._engine is None:
                self._engine = self._make()
            return self._engine

    def _make(self) -> sa.Engine:
        return make_engine(self.url, options=self._options, timeout_s=self._timeout_s)

    @contextlib.contextmanager
    def session(self, *, writes: bool = False) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction, committed at the end, rolled back on an error.

        Raises LinkError, or ResultError where what was written cannot be.
        """
        self.prepare()
        with self._translating(), self._turn(writes), self.engine.begin() as connection:
            yield connection

    def prepare(self) -> None:
        """Make or check the tables, once. Raises LinkError, TableMismatch.

        Others may make them at the same moment: then it is looked at again.
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
                        raise self._told(error) from None
                    wait_s = _BACKOFF.delay_s(attempt, chance=self._chance)
                    self._clock.sleep_until(self._clock.now_s() + wait_s)

    def _turn(self, writes: bool) -> contextlib.AbstractContextManager[object]:
        return self._writing if writes and self.dialect == "sqlite" else contextlib.nullcontext()

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except PASSING as error:
            raise self._told(error) from None

    def _told(self, error: exc.SQLAlchemyError) -> Exception:
        told = translated(error, where=self.where)
        if not isinstance(error, exc.DataError | exc.IntegrityError):
            self._is_prepared = False  # the next one may find another database
        return told

    def close(self) -> None:
        with self._making:
            engine, self._engine = self._engine, None
            self._is_prepared = False
        if engine is not None:
            engine.dispose()


def _is_race(error: exc.SQLAlchemyError) -> bool:
    """Say whether another has made the same table, or is making it, just now."""
    cause = getattr(error, "orig", None)
    text = str(cause)
    return (
        getattr(cause, "sqlstate", None) in _RACES or "already exists" in text or "locked" in text
    )
