"""Results in a database: SQLite or PostgreSQL, in Celery's tables."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from blimp.errors import BlimpError, LinkError, ResultError
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES, to_json
from blimp.queue.protocol.record import Record, State, decode, encode
from blimp.queue.redis.keys import result_key
from blimp.queue.results.sql.sessions import Sessions
from blimp.queue.results.sql.tables import (
    Statements,
    check_id,
    document_of,
    from_json,
    row_of,
    utc_now,
)
from blimp.queue.results.waiting import OneByOne, PollingWatch, Watch

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.results.backend import ResultBackend, ResultOptions, ResultWatch

DELETED_AT_ONCE = 1000  # rows: no lock is held for long
LOOK_S = 2.0  # how often a waiter with a subscription reads the table all the same
LONGEST_PAUSE_S, SHORTEST_PAUSE_S = 3600.0, 10.0  # between two cleanups of one worker


class SqlResults:
    """A ResultBackend on a database.

    url: SQLAlchemy's, `sqlite:///file` or `postgresql+psycopg://…`.
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
        self.keep_s = options.keep_s
        self.sessions = Sessions(url=url, options=options, clock=clock, timeout_s=timeout_s)
        self._statements = Statements(self.sessions.tables, dialect=self.sessions.dialect)
        self._extended = options.result_extended
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._notify_server = notify_server

    def prepare(self) -> None:
        """Create the tables, or check them. Raises LinkError, TableMismatch."""
        self.sessions.prepare()

    # --- writing ---------------------------------------------------------------------------

    def encode(self, record: Record) -> bytes:
        return encode(record, limit_bytes=self._limit_bytes)

    def store(self, record: Record, *, at: str | None = None) -> bool:  # noqa: ARG002
        return self.write(record.id, self.encode(record))

    def write(self, id: str, data: bytes) -> bool:
        (answer,) = self.write_many([(id, data)])
        if isinstance(answer, ResultError):
            raise answer
        return answer

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        """Write all in one transaction; each in one of its own if a row is refused."""
        now = utc_now(self._clock.wall_s())
        answers: list[bool | ResultError] = [False] * len(records)
        rows: dict[int, dict[str, Any]] = {}
        for number, (_, data) in enumerate(records):
            try:
                rows[number] = row_of(data, extended=self._extended, now=now)
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
                found = connection.execute(self._statements.upsert, batch).scalars()
                written += [wave[id] for id in found]
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

    def get(self, id: str) -> Record:
        data = self.read(id)
        return Record(id=id, state=State.PENDING) if data is None else decode(data)

    def read(self, id: str) -> bytes | None:
        with self._row(id) as connection:
            found = connection.execute(self._statements.one, {"key": id})
            row = found.mappings().first()
            if row is None:
                return None
            data = document_of(dict(row))
            decode(data)  # raises the error here, which names the row
            return data

    def failures(self, *, limit: int) -> list[Record]:
        """Return the records of tasks that failed for good, the newest first."""
        with self.sessions.session() as connection:
            rows = connection.execute(self._statements.failures, {"most": limit}).mappings().all()
        found: list[Record] = []
        for row in rows:
            with contextlib.suppress(ResultError):  # one that cannot be read
                found.append(decode(document_of(dict(row))))
        return found

    def forget(self, id: str) -> None:
        with self._row(id, writes=True) as connection:
            connection.execute(self._statements.forget, {"key": id})

    def watch(self, *ids: str) -> ResultWatch:
        return self._watch(ids[0]) if len(ids) == 1 else OneByOne(watch=self._watch, ids=ids)

    def _watch(self, id: str) -> ResultWatch:
        server, clock = self._notify_server, self._clock
        if server is None:
            return PollingWatch(read=self.read, id=id, clock=clock)
        return Watch(server=server, ids=[id], clock=clock, read=self.read, look_s=LOOK_S)

    # --- groups ----------------------------------------------------------------------------

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        """Store `document["result"]`: Celery's table has no room for more."""
        row = {
            "taskset_id": id,
            "result": to_json(document["result"]),
            "date_done": utc_now(self._clock.wall_s()),
        }
        with self._row(id, kind="group", writes=True) as connection:
            connection.execute(self._statements.save_group, row)

    def group(self, id: str) -> dict[str, Any] | None:
        with self._row(id, kind="group") as connection:
            found = connection.execute(self._statements.group, {"key": id}).first()
            return None if found is None else {"result": from_json(found[0], what="result")}

    def forget_group(self, id: str) -> None:
        with self._row(id, kind="group", writes=True) as connection:
            connection.execute(self._statements.forget_group, {"key": id})

    # --- life ------------------------------------------------------------------------------

    def cleanup(self) -> int:
        """Delete what is older than `keep_s`; return how many rows. Workers may do it at once."""
        if not self.keep_s:
            return 0
        before = utc_now(self._clock.wall_s()) - timedelta(seconds=self.keep_s)
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
        tables = self.sessions.tables
        table = tables.task if kind == "task" else tables.group
        try:
            with self.sessions.session(writes=writes) as connection:
                check_id(id)
                yield connection
        except (ResultError, ValueError, TypeError) as error:  # TypeError: of a column's type
            raise ResultError(f"{table.fullname}, {kind} {id:.{64}}: {error}") from error


def _waves(rows: dict[int, dict[str, Any]]) -> Iterator[dict[str, int]]:
    """Yield row numbers by task, no task twice: one statement cannot write a row twice."""
    left = list(rows)
    while left:
        wave: dict[str, int] = {}
        # A row whose task is in this wave already goes into a later one.
        left = [n for n in left if wave.setdefault(rows[n]["task_id"], n) != n]
        yield wave


class Cleanup:
    """Called with every heartbeat of a worker; deletes old results a few times in `keep_s`.

    Each run has a thread of its own: a database may be slow, and a heartbeat must not wait. The
    pauses are random, so that several workers seldom clean up at the same time.
    """

    def __init__(
        self,
        *,
        results: ResultBackend,
        clock: Clock,
        log: Any,
        chance: random.Random | None = None,
    ) -> None:
        self._results = results
        self._clock = clock
        self._log = log
        self._chance = chance or random.Random()
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
        return self._longest_s * self._chance.uniform(0.5, 1.0)

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
