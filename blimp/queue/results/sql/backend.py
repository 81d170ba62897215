"""Results in a database: SQLite or PostgreSQL, in Celery's tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, ResultError
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES, to_json
from blimp.queue.protocol.record import Record, State, decode, encode
from blimp.queue.redis.keys import result_key
from blimp.queue.results.sql.polling import PollingWatch
from blimp.queue.results.sql.rows import (
    check_id,
    document_of,
    from_json,
    row_of,
    utc_now,
)
from blimp.queue.results.sql.sessions import Sessions
from blimp.queue.results.sql.statements import Statements
from blimp.queue.results.watch import Watch

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.redis.server import RedisServer
    from blimp.queue.results.base import ResultWatch
    from blimp.queue.results.options import ResultOptions

CLEANED_AT_ONCE = 1000  # rows: no lock is long
LOOK_S = 2.0  # how often a waiter who is told looks itself


class SqlResults:
    """A ResultBackend on a database.

    url: SQLAlchemy's, `sqlite:///file` or `postgresql+psycopg://…`.
    notify_server: a Redis server on which waiters are told of what is written; without one they
        look every now and then.
    Raises ConfigError for a URL or options that cannot be used. A table of another version is
    a TableMismatch in every method.
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
        """Make the tables, or check them. Raises LinkError, TableMismatch."""
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
        """Write all in one transaction; each in one of its own where that does not go."""
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
        self._tell([one for one, answer in zip(records, answers, strict=True) if answer is True])
        return answers

    def _upsert(self, rows: dict[int, dict[str, Any]], answers: list[bool | ResultError]) -> None:
        """Write `rows` in one transaction; note in `answers` which were."""
        if not rows:
            return
        written: list[int] = []
        with self.sessions.session(writes=True) as connection:
            for wave in _waves(rows):
                # In one order everywhere: two writers never wait for each other.
                batch = [rows[wave[id]] for id in sorted(wave)]
                found = connection.execute(self._statements.upsert, batch).scalars()
                written += [wave[id] for id in found]
        for number in written:
            answers[number] = True

    def _tell(self, records: Sequence[tuple[str, bytes]]) -> None:
        """Tell who waits, after the commit. What is lost here is found a little later."""
        if self._notify_server is None or not records:
            return
        link = self._notify_server
        with (
            contextlib.suppress(LinkError),
            link.link(),
            link.client.pipeline(transaction=False) as pipe,
        ):
            for id, data in records:
                pipe.publish(result_key(id), data)
            pipe.execute()

    # --- reading ---------------------------------------------------------------------------

    def get(self, id: str) -> Record:
        data = self.read(id)
        return Record(id=id, state=State.PENDING) if data is None else decode(data)

    def read(self, id: str) -> bytes | None:
        with self._naming(id), self.sessions.session() as connection:
            found = connection.execute(self._statements.one, {"key": check_id(id)})
            row = found.mappings().first()
            if row is None:
                return None
            data = document_of(dict(row))
            decode(data)  # what cannot be read is told of here, by its name
            return data

    def forget(self, id: str) -> None:
        with self._naming(id), self.sessions.session(writes=True) as connection:
            connection.execute(self._statements.forget, {"key": check_id(id)})

    def watch(self, id: str) -> ResultWatch:
        if self._notify_server is None:
            return PollingWatch(results=self, id=id, clock=self._clock)
        return Watch(
            server=self._notify_server, ids=[id], clock=self._clock, read=self.read, look_s=LOOK_S
        )

    # --- groups ----------------------------------------------------------------------------

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        """Keep `document["result"]`, which is all that Celery's table has room for."""
        row = {
            "taskset_id": id,
            "result": to_json(document["result"]),
            "date_done": utc_now(self._clock.wall_s()),
        }
        with self._naming(id, kind="group"), self.sessions.session(writes=True) as connection:
            check_id(id)
            connection.execute(self._statements.save_group, row)

    def group(self, id: str) -> dict[str, Any] | None:
        with self._naming(id, kind="group"), self.sessions.session() as connection:
            found = connection.execute(self._statements.group, {"key": check_id(id)}).first()
            return None if found is None else {"result": from_json(found[0], what="result")}

    def forget_group(self, id: str) -> None:
        with self._naming(id, kind="group"), self.sessions.session(writes=True) as connection:
            connection.execute(self._statements.forget_group, {"key": check_id(id)})

    # --- life ------------------------------------------------------------------------------

    def cleanup(self) -> int:
        """Delete what is older than `keep_s`; return how many rows. Others may do the same."""
        if not self.keep_s:
            return 0
        before = utc_now(self._clock.wall_s()) - timedelta(seconds=self.keep_s)
        deleted = 0
        for statement in self._statements.expired:
            while True:
                with self.sessions.session(writes=True) as connection:
                    values = {"before": before, "most": CLEANED_AT_ONCE}
                    count = connection.execute(statement, values).rowcount
                deleted += count
                if count < CLEANED_AT_ONCE:
                    break
        return deleted

    def close(self) -> None:
        self.sessions.close()

    @contextlib.contextmanager
    def _naming(self, id: str, *, kind: str = "task") -> Iterator[None]:
        """Have an error of one row name it."""
        tables = self.sessions.tables
        table = tables.task if kind == "task" else tables.group
        try:
            yield
        except (ResultError, ValueError, TypeError) as error:  # the latter of a column's type
            raise ResultError(f"{table.fullname}, {kind} {id:.{64}}: {error}") from error


def _waves(rows: dict[int, dict[str, Any]]) -> Iterator[dict[str, int]]:
    """Yield row numbers by task, none twice: one statement cannot write a row twice."""
    left = list(rows)
    while left:
        wave: dict[str, int] = {}
        # What finds its task's place taken is of a later one.
        left = [n for n in left if wave.setdefault(rows[n]["task_id"], n) != n]
        yield wave
