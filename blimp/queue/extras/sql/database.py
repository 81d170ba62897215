"""Results in a database: SQLite, PostgreSQL, MariaDB or MySQL, in Celery's tables."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from blimp.errors import BlimpError, ConfigError, LinkError, ResultError
from blimp.queue.extras.sql.sessions import Sessions
from blimp.queue.extras.sql.tables import (
    Statements,
    check_id,
    document_of,
    from_json,
    row_of,
    utc_now,
)
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES, to_json
from blimp.queue.protocol.record import Record, decode
from blimp.queue.redis.keys import result_key
from blimp.queue.results.backend import GrowingWatch, ResultBackend, ResultOptions
from blimp.queue.results.redis_backend import PublishedWatch

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer

LOOKED_AT = 10_000  # failures, for those of one app: as many as the index on Redis holds
AT_ONCE = 1000  # rows read or deleted by one statement: no lock is held for long
DELETED_AT_ONCE = 1000
LOOK_S = 2.0  # how often a waiter with a subscription reads the table all the same
FIRST_PAUSE_S, LAST_PAUSE_S = 0.02, 1.0  # between two reads of a waiter without one
LONGEST_PAUSE_S, SHORTEST_PAUSE_S = 3600.0, 10.0  # between two cleanups of one worker


class SqlResults(ResultBackend):
    """A ResultBackend on a database.

    url: SQLAlchemy's: `sqlite:///file`, `postgresql+psycopg://…`, `mariadb+pymysql://…`.
    notify_server: a Redis server on which written records are published; without one, waiters
        poll the table.
    Raises ConfigError for a URL or options that cannot be used. Every method raises
    TableMismatch for a table of another version.
    """

    commits = True

    def __init__(
        self,
        *,
        url: str,
        clock: Clock,
        options: ResultOptions,
        limit_bytes: int = MAX_MESSAGE_BYTES,
        timeout_s: float = 2.0,
        notify_server: RedisServer | None = None,
    ) -> None:
        super().__init__(keep_s=options.keep_s, limit_bytes=limit_bytes, clock=clock)
        self.sessions = Sessions(url=url, options=options, clock=clock, timeout_s=timeout_s)
        self._statements = Statements(self.sessions.tables, dialect=self.sessions.dialect)
        self._options = options
        self._notify_server = notify_server

    def prepare(self) -> None:
        self.sessions.prepare()

    def start(self, *, log: Any) -> tuple[Callable[[bool], None], ...]:
        """An unreachable database is waited for with the first result."""
        if self._options.database_create_tables_at_setup:
            try:
                self.prepare()
            except ConfigError:  # a TableMismatch is also a LinkError
                raise
            except LinkError as error:
                log.warning("no results yet", reason=str(error))
        return (Cleanup(results=self, clock=self.clock, log=log),) if self.keep_s else ()

    # --- writing ---------------------------------------------------------------------------

    def write(self, id: str, data: bytes) -> bool:
        (answer,) = self.write_many([(id, data)])
        if isinstance(answer, ResultError):
            raise answer
        return answer

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        """Write all in one transaction; each in one of its own if a row is refused."""
        now = utc_now(self.clock.wall_s())
        answers: list[bool | ResultError] = [False] * len(records)
        rows: dict[int, dict[str, Any]] = {}
        for number, (_, data) in enumerate(records):
            try:
                rows[number] = row_of(data, extended=self._options.result_extended, now=now)
            except ResultError as error:
                answers[number] = error
        try:
            self._upsert(rows, answers)
        except ResultError:
            for number, row in rows.items():
                try:
                    self._upsert({number: row}, answers)
                except ResultError as error:
                    table = self.sessions.tables.task.fullname
                    answers[number] = ResultError(f"{table}, task {row['task_id']}: {error}")
        self._publish([one for one, answer in zip(records, answers, strict=True) if answer is True])
        return answers

    def _upsert(self, rows: dict[int, dict[str, Any]], answers: list[bool | ResultError]) -> None:
        """Write `rows` in one transaction; set `answers` to True for those that were written."""
        if not rows:
            return
        written: list[int] = []
        with self.sessions.session(writes=True) as connection:
            for wave in _waves(rows):
                # In the same order in every process: two writers never wait for each other.
                batch = [rows[wave[id]] for id in sorted(wave)]
                written += [wave[id] for id in self._statements.write(connection, batch)]
        for number in written:
            answers[number] = True

    def _publish(self, records: Sequence[tuple[str, bytes]]) -> None:
        """Publish after the commit. If it fails, waiters read the table a little later."""
        server = self._notify_server
        if server is None or not records:
            return
        with (
            contextlib.suppress(LinkError),
            server.link(),
            server.client.pipeline(transaction=False) as pipe,
        ):
            for id, data in records:
                pipe.publish(result_key(id), data)
            pipe.execute()

    # --- reading ---------------------------------------------------------------------------

    def read(self, id: str) -> bytes | None:
        return self._read_many([id])[0]

    def _read_many(self, ids: Sequence[str]) -> list[bytes | None]:
        """Return the records of `ids`, each checked: an error names its row."""
        with self._row(", ".join(ids)) as connection:
            for id in ids:
                check_id(id)
            rows = connection.execute(self._statements.several, {"keys": ids}).mappings().all()
        found: dict[str, bytes] = {}
        for row in rows:
            try:
                data = found[row["task_id"]] = document_of(dict(row))
                decode(data)
            except ResultError as error:
                table = self.sessions.tables.task.fullname
                raise ResultError(f"{table}, task {row['task_id']}: {error}") from error
        return [found.get(id) for id in ids]

    def failures(self, *, limit: int, names: Container[str] | None = None) -> list[Record]:
        most = limit if names is None else max(limit, LOOKED_AT)
        with self.sessions.session() as connection:
            rows = connection.execute(self._statements.failures, {"most": most}).mappings().all()
        found: list[Record] = []
        for row in rows:
            with contextlib.suppress(ResultError):  # one that cannot be read
                if (record := decode(document_of(dict(row)))).is_of(names):
                    found.append(record)
        return found[:limit]

    def forget(self, id: str) -> None:
        with self._row(id, writes=True) as connection:
            connection.execute(self._statements.forget, {"key": check_id(id)})

    def watch(self, *ids: str) -> GrowingWatch:
        server, clock = self._notify_server, self.clock
        if server is None:
            return PollingWatch(read=self._read_many, ids=ids, clock=clock)
        return PublishedWatch(
            server=server, ids=ids, clock=clock, read=self._read_many, look_s=LOOK_S
        )

    # --- groups ----------------------------------------------------------------------------

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        """Store `document["result"]`: Celery's table has no room for more."""
        data, now = to_json(document["result"]), utc_now(self.clock.wall_s())
        with self._row(id, kind="group", writes=True) as connection:
            row = {"taskset_id": check_id(id), "result": data, "date_done": now}
            connection.execute(self._statements.save_group, row)

    def group(self, id: str) -> dict[str, Any] | None:
        with self._row(id, kind="group") as connection:
            found = connection.execute(self._statements.group, {"key": check_id(id)})
            row = found.mappings().first()
            return None if row is None else {"result": from_json(dict(row), "result")}

    def forget_group(self, id: str) -> None:
        with self._row(id, kind="group", writes=True) as connection:
            connection.execute(self._statements.forget_group, {"key": check_id(id)})

    # --- life ------------------------------------------------------------------------------

    def cleanup(self) -> int:
        """Delete what is older than `keep_s`; return how many rows. Workers may do it at once."""
        if not self.keep_s:
            return 0
        before = utc_now(self.clock.wall_s()) - timedelta(seconds=self.keep_s)
        deleted = 0
        for statement in self._statements.expired:
            while True:
                with self.sessions.session(writes=True) as connection:
                    values = {"before": before, "most": DELETED_AT_ONCE}
                    count = connection.execute(statement, values).rowcount
                deleted += count
                if count < DELETED_AT_ONCE:
                    break
        return deleted

    def close(self) -> None:
        self.sessions.close()

    @contextlib.contextmanager
    def _row(self, id: str, *, kind: str = "task", writes: bool = False) -> Iterator[sa.Connection]:
        """Yield a connection for the row of `id`, which an error about it names."""
        table = getattr(self.sessions.tables, kind)
        try:
            with self.sessions.session(writes=writes) as connection:
                yield connection
        except (ResultError, ValueError, TypeError) as error:  # TypeError: of a column's type
            raise ResultError(f"{table.fullname}, {kind} {id:.64}: {error}") from error


def _waves(rows: dict[int, dict[str, Any]]) -> Iterator[dict[str, int]]:
    """Yield row numbers by task, no task twice: one statement cannot write a row twice."""
    left = list(rows)
    while left:
        wave: dict[str, int] = {}
        # A row whose task is in this wave already goes into a later one.
        left = [n for n in left if wave.setdefault(rows[n]["task_id"], n) != n]
        yield wave


class PollingWatch(GrowingWatch):
    """The records of tasks, read repeatedly: at once after a new one, then ever less often."""

    def __init__(
        self,
        *,
        read: Callable[[Sequence[str]], list[bytes | None]],
        ids: Sequence[str],
        clock: Clock,
    ) -> None:
        self._read = read
        self._newest: dict[str, bytes | None] = dict.fromkeys(ids)
        self._found: list[Record] = []
        self._clock = clock
        self._pause_s = FIRST_PAUSE_S

    def next(self, *, timeout_s: float) -> Record | None:
        deadline_s = self._clock.now_s() + timeout_s
        while self._newest and not self._found:
            self._look()
            now_s = self._clock.now_s()
            if self._found or now_s >= deadline_s:
                break
            self._clock.sleep_until(min(deadline_s, now_s + self._pause_s))
            self._pause_s = min(LAST_PAUSE_S, 2.0 * self._pause_s)
        return self._found.pop() if self._found else None

    def _look(self) -> None:
        ids = list(self._newest)
        for start in range(0, len(ids), AT_ONCE):
            part = ids[start : start + AT_ONCE]
            for id, data in zip(part, self._read(part), strict=True):
                if data is None or id not in self._newest or data == self._newest[id]:
                    continue
                self._newest[id] = data
                self._found.append(record := decode(data))
                self._pause_s = FIRST_PAUSE_S
                if record.final:
                    self._newest.pop(id, None)

    def add(self, *ids: str) -> None:
        self._newest |= dict.fromkeys(ids)
        self._pause_s = FIRST_PAUSE_S

    def discard(self, *ids: str) -> None:
        for id in ids:
            self._newest.pop(id, None)

    def close(self) -> None:
        self._newest.clear()
        self._found.clear()


class Cleanup:
    """Called with every heartbeat of a worker; deletes old results a few times in `keep_s`.

    Each run has a thread of its own: a database may be slow, and a heartbeat must not wait. The
    pauses are random, so that several workers seldom clean up at the same time.
    """

    def __init__(self, *, results: ResultBackend, clock: Clock, log: Any) -> None:
        self._results = results
        self._clock = clock
        self._log = log
        self._longest_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, results.keep_s / 4.0))
        self._next_s = clock.now_s() + self._pause_s()
        self._thread: threading.Thread | None = None

    def __call__(self, _: bool) -> None:
        """Start a run if it is time; the argument, whether the broker answers, is ignored."""
        if self._clock.now_s() < self._next_s or self.is_busy:
            return
        self._next_s = self._clock.now_s() + self._pause_s()
        self._thread = threading.Thread(target=self._clean, name="results-cleanup", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a run that is under way; return whether it ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.is_busy

    def _pause_s(self) -> float:
        return self._longest_s * random.uniform(0.5, 1.0)

    def _clean(self) -> None:
        try:
            count = self._results.cleanup()
        except BlimpError as error:
            self._log.warning("results not cleaned up", reason=str(error))
        except Exception:
            self._log.exception("results not cleaned up")
        else:
            if count:
                self._log.info("results cleaned up", rows=count)
