"""What a result backend is, on a Redis server or in a database, and the options of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict

import msgspec

from blimp.errors import ConfigError, ResultError
from blimp.queue.protocol.record import Record

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from blimp.clock import Clock

KEEP_S = 86_400
MAX_KEEP_S = 100 * 365 * 86_400
MIN_LIMIT_BYTES = 1_000  # room for a failure's record
TABLES = ("task", "group")
DATABASE = "db+"  # before an SQLAlchemy URL
DIALECTS = ("sqlite", "postgresql")


class ResultWatch(Protocol):
    """The records of some tasks as they are written. A context manager; used by one thread."""

    def next(self, *, timeout_s: float) -> Record | None:
        """Return the next record, None if none is written within `timeout_s` seconds.

        The first call also returns what is stored already; no record is returned twice.
        Raises LinkError; may be called again.
        """
        ...

    def close(self) -> None:
        """Idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class ResultBackend(Protocol):
    """Reads, writes and waits for records. Thread-safe; connects on first use.

    Every method raises LinkError if the backend is unreachable: it may be called again. What the
    backend never accepts, or cannot read, is a ResultError.

    keep_s: seconds after which a record may be deleted; 0 for never.
    commits: each write waits for a disk, so that writing many at once is worth it.
    """

    keep_s: int
    commits: bool

    def encode(self, record: Record) -> bytes:
        """Return `record` as `write` takes it. Raises ResultError if JSON cannot hold it."""
        ...

    def write(self, id: str, data: bytes) -> bool:
        """Write and publish what `encode` returned; False if a final record is there already."""
        ...

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        """Write each as `write` does; a refused one does not affect the others.

        After a LinkError some may be written. Calling again is harmless.
        """
        ...

    def store(self, record: Record, *, at: str | None = None) -> bool:
        """Encode and write `record`.

        at: the URL of a broker. If its server is one of this backend's, write there instead of
        to the one in use.
        """
        ...

    def get(self, id: str) -> Record:
        """Return the record of task `id`; a PENDING one if there is none."""
        ...

    def read(self, id: str) -> bytes | None:
        """Return the record of task `id` as `encode` would, None if there is none."""
        ...

    def failures(self, *, limit: int) -> list[Record]:
        """Return the records of tasks that failed for good, the newest first."""
        ...

    def forget(self, id: str) -> None:
        """Delete the record of task `id`."""
        ...

    def watch(self, *ids: str) -> ResultWatch:
        """Return a subscription to the tasks `ids`, in force on return."""
        ...

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        """Store what a group consists of: `{"result": …}` as Celery writes it, and no more."""
        ...

    def group(self, id: str) -> dict[str, Any] | None:
        """Return what `save_group` stored, None if nothing is there."""
        ...

    def forget_group(self, id: str) -> None: ...

    def prepare(self) -> None:
        """Create or check tables, if the backend has any. Raises TableMismatch."""
        ...

    def cleanup(self) -> int:
        """Delete what is older than `keep_s`; return how much. Redis does it by itself."""
        ...

    def close(self) -> None:
        """Close the connections; a later call opens new ones. Idempotent."""
        ...


class ResultApp(Protocol):
    """What results need of a TaskApp."""

    name: str
    clock: Clock
    result_options: ResultOptions

    @property
    def results(self) -> ResultBackend | None: ...

    @property
    def revoke(self) -> Callable[..., Any]: ...


class ResultOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How results are stored.

    result_extended: store the arguments, too: `results retry` needs them. A database then has
        columns for them and for the task's name, worker, retries and queue.
    result_expires_s: seconds until a result is deleted; None or 0: never.
    result_limit_bytes: a task whose result is longer as JSON fails with a ResultError; by
        default the app's `limit_bytes`.
    The rest is for databases alone.
    database_table_names, database_table_schemas: by "task" and "group".
    database_engine_options: for SQLAlchemy's `create_engine`.
    database_engine_callback: called with each new engine, to add listeners.
    database_short_lived_sessions: close the connection after each use.
    database_create_tables_at_setup: when a worker starts; else on first use.
    """

    result_extended: bool = False
    result_expires_s: float | None = KEEP_S
    result_limit_bytes: int | None = None
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
    """The same as keywords of `TaskApp`; see ResultOptions."""

    result_extended: bool
    result_expires_s: float | None
    result_limit_bytes: int | None
    database_table_names: Mapping[str, str] | None
    database_table_schemas: Mapping[str, str] | None
    database_engine_options: Mapping[str, Any] | None
    database_engine_callback: Callable[[Engine], object] | None
    database_short_lived_sessions: bool
    database_create_tables_at_setup: bool


def result_options(keywords: ResultKeywords) -> ResultOptions:
    """Return `keywords` as options. Raises ConfigError naming a wrong one."""
    unknown = set(keywords) - set(ResultOptions.__struct_fields__)
    if unknown:
        raise ConfigError(f"TaskApp options {sorted(unknown)}: there are none of these names")
    nullable = ("result_expires_s", "database_engine_callback")
    given: dict[str, Any] = {
        name: value for name, value in keywords.items() if value is not None or name in nullable
    }
    options = ResultOptions(**given)
    _check_keep(options.result_expires_s)
    _check_limit(options.result_limit_bytes)
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


def _check_limit(limit_bytes: object) -> None:
    is_number = isinstance(limit_bytes, int) and not isinstance(limit_bytes, bool)
    if limit_bytes is not None and not (is_number and limit_bytes >= MIN_LIMIT_BYTES):  # type: ignore[operator]
        raise ConfigError(
            f"result_limit_bytes {limit_bytes!r}: must be {MIN_LIMIT_BYTES} bytes or more"
        )


def _check_names(option: str, names: object) -> None:
    if not isinstance(names, Mapping):
        raise ConfigError(f"{option} is {type(names).__name__}: must be a mapping")
    for table, name in names.items():
        if table not in TABLES:
            raise ConfigError(f"{option} {table!r}: must be one of {', '.join(TABLES)}")
        if not isinstance(name, str) or not name or "\0" in name:
            raise ConfigError(f"{option}[{table!r}] is {name!r}: must be a name")
