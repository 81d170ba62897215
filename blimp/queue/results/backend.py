"""What a result backend is, on a Redis server or in a database, and the options of both."""

from __future__ import annotations

import sys
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from functools import partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
)

import msgspec
from msgspec import Meta

from blimp.closing import Closing
from blimp.errors import ConfigError, ResultError
from blimp.queue.protocol.record import Record, State, decode, encode
from blimp.queue.redis.urls import SCHEMES, check_address, hide_password, split_urls
from blimp.reading import ready

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from blimp.clock import Clock

T = TypeVar("T")
Q = ParamSpec("Q")

KEEP_S = 86_400
MAX_KEEP_S = 100 * 365 * 86_400
MIN_LIMIT_BYTES = 1_000  # room for a failure's record
DATABASE = "db+"  # before an SQLAlchemy URL
DIALECTS = ("sqlite", "postgresql", "mariadb", "mysql")


class ResultWatch(Closing):
    """The records of some tasks as they are written. Used by one thread.

    forged: how many were passed over, as no key had signed them.
    """

    forged = 0

    @abstractmethod
    def next(self, *, timeout_s: float) -> Record | None:
        """Return the next record, None if none is written within `timeout_s` seconds.

        The first call also returns what is stored already; no record is returned twice.
        Raises LinkError; may be called again.
        """


class GrowingWatch(ResultWatch):
    """A watch of tasks that come and go. One thread calls `next`, others `add` and `discard`."""

    @abstractmethod
    def add(self, *ids: str) -> None:
        """Watch these as well. What is stored of them already may be found late."""

    @abstractmethod
    def discard(self, *ids: str) -> None:
        """Watch these no more."""


class ResultBackend(ABC):
    """Reads, writes and waits for records. Thread-safe; connects on first use.

    Every method raises LinkError if the backend is unreachable: it may be called again. What the
    backend never accepts, or cannot read, is a ResultError.

    keep_s: seconds after which a record may be deleted; 0 for never.
    commits: each write waits for a disk, so that writing many at once is worth it.
    """

    commits = False

    def __init__(self, *, keep_s: int, limit_bytes: int, clock: Clock) -> None:
        self.keep_s = keep_s
        self.clock = clock
        self._limit_bytes = limit_bytes

    def encode(self, record: Record) -> bytes:
        """Return `record` as `write` takes it. Raises ResultError if JSON cannot hold it."""
        return encode(record, limit_bytes=self._limit_bytes)

    @abstractmethod
    def write(self, id: str, data: bytes) -> bool:
        """Write and publish what `encode` returned; False if a final record is there already."""

    @abstractmethod
    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        """Write each as `write` does; a refused one does not affect the others.

        After a LinkError some may be written. Calling again is harmless.
        """

    def store(self, record: Record, *, at: str | None = None) -> bool:  # noqa: ARG002
        """Encode and write `record`.

        at: the URL of a broker. If its server is one of this backend's, write there instead of
        to the one in use.
        """
        return self.write(record.id, self.encode(record))

    def announce(self, record: Record, *, at: str) -> None:  # noqa: B027 - most cannot
        """Let those that wait for `record` know it, and store nothing, if that can be done."""

    def get(self, id: str) -> Record:
        """Return the record of task `id`; a PENDING one if there is none."""
        data = self.read(id)
        return Record(id=id, state=State.PENDING) if data is None else decode(data)

    def get_many(self, ids: Sequence[str]) -> list[Record]:
        """Return the record of each task, as `get` does."""
        return [self.get(id) for id in ids]

    @abstractmethod
    def read(self, id: str) -> bytes | None:
        """Return the record of task `id` as `encode` would, None if there is none."""

    @abstractmethod
    def failures(self, *, limit: int, names: Container[str] | None = None) -> list[Record]:
        """Return the records of tasks that failed for good, the newest first.

        names: only of these tasks, and those whose name is not stored. Those whose record has
        expired, or cannot be read, are left out.
        """

    @abstractmethod
    def forget(self, id: str) -> None:
        """Delete the record of task `id`."""

    @abstractmethod
    def watch(self, *ids: str) -> GrowingWatch:
        """Return a subscription to the tasks `ids`, in force on return."""

    @abstractmethod
    def save_group(self, id: str, document: dict[str, Any]) -> None:
        """Store what a group consists of: `{"result": …}` as Celery writes it, and no more."""

    @abstractmethod
    def group(self, id: str) -> dict[str, Any] | None:
        """Return what `save_group` stored, None if nothing is there."""

    @abstractmethod
    def forget_group(self, id: str) -> None: ...

    def prepare(self) -> None:  # noqa: B027
        """Create or check tables, if the backend has any. Raises TableMismatch."""

    def start(self, *, log: Any) -> tuple[Callable[[bool], None], ...]:  # noqa: ARG002
        """Prepare for a worker that starts; return what its heartbeat is to call.

        Raises TableMismatch.
        """
        return ()

    def cleanup(self) -> int:
        """Delete what is older than `keep_s`; return how much. Redis does it by itself."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close the connections; a later call opens new ones. Idempotent."""


_warned: weakref.WeakSet[object] = weakref.WeakSet()


def warn_of_waiting(app: object, call: str, instead: str) -> None:
    """Warn, once an app, of a plain call in a coroutine: it holds its event loop up.

    asyncio is not imported for it: in a program without it no loop runs.
    """
    loops = sys.modules.get("asyncio.events")
    if loops is None or loops._get_running_loop() is None or app in _warned:
        return
    _warned.add(app)
    level = 2  # of the caller who is not of this package
    while sys._getframe(level - 1).f_globals.get("__name__", "").startswith("blimp.queue."):
        level += 1
    warnings.warn(
        f"{call} waits for the server, and the running event loop with it: await {instead} there",
        RuntimeWarning,
        stacklevel=level,
    )


class Sends(Protocol):
    """What has methods that wait for a broker."""

    @property
    def awaiting(self) -> Any:
        """The Awaiting of its app; None if there is nothing to wait for."""
        ...


S = TypeVar("S", bound=Sends)


def awaited(
    method: Callable[Concatenate[S, Q], T],
) -> Callable[Concatenate[S, Q], Coroutine[Any, Any, T]]:
    """Return the form of a method for coroutines: others go on while it waits for the broker."""
    name = method.__name__

    async def call(self: S, /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        own: Callable[[], T] = partial(getattr(self, name), *args, **kwargs)
        awaiting = self.awaiting
        result: T = own() if awaiting is None else await awaiting.call(own)
        return result

    call.__name__ = f"a{name}"
    call.__qualname__ = f"{method.__qualname__.removesuffix(name)}a{name}"
    call.__doc__ = f"Do what `{name}` does, from a coroutine: others go on while it waits."
    return call


_Names = Mapping[
    Annotated[str, Meta(pattern="^(task|group)$")],
    Annotated[str, Meta(min_length=1, pattern=r"^[^\0]+$")],
]


@ready
class ResultOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    result_expires_s: Annotated[float, Meta(ge=0, le=MAX_KEEP_S)] | None = KEEP_S
    result_limit_bytes: Annotated[int, Meta(ge=MIN_LIMIT_BYTES)] | None = None
    database_table_names: _Names = {}
    database_table_schemas: _Names = {}
    database_engine_options: Mapping[str, Any] = {}
    database_engine_callback: Any = None
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
    nullable = ("result_expires_s", "database_engine_callback")
    given = {name: one for name, one in keywords.items() if one is not None or name in nullable}
    try:
        options = msgspec.convert(given, ResultOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None
    if 0 < (options.result_expires_s or 0) < 1:
        raise ConfigError("result_expires_s must be 1 or more seconds, or 0")
    callback = options.database_engine_callback
    if callback is not None and not callable(callback):
        raise ConfigError(f"database_engine_callback {callback!r}: must be a function")
    return options


def database_url(url: str | Sequence[str] | None) -> str | None:
    """Return the SQLAlchemy URL in a `result_backend`, None for that of a Redis server.

    Raises ConfigError for what names neither, with the URL that was probably meant.
    """
    if url is None:
        return None
    urls = [url] if isinstance(url, str) and url.startswith(DATABASE) else split_urls(url)
    if not any(one.startswith(DATABASE) for one in urls):
        for one in urls:
            _check_redis(one)
        return None
    if len(urls) > 1:
        raise ConfigError("result_backend: results are kept in one database, not in several")
    return urls[0].removeprefix(DATABASE)


def _check_redis(url: str) -> None:
    shown = f"result_backend {hide_password(url)!r}"
    scheme, separator, rest = url.partition("://")
    dialect, plus, driver = scheme.partition("+")
    if dialect in (*DIALECTS, "postgres"):
        dialect = "postgresql" if dialect == "postgres" else dialect
        meant = hide_password(f"{DATABASE}{dialect}{plus}{driver}{separator}{rest}")
        raise ConfigError(f"{shown}: the URL of a database begins with {DATABASE!r}: {meant!r}")
    if not separator or scheme not in SCHEMES:
        known = ", ".join((*SCHEMES, *(DATABASE + one for one in DIALECTS)))
        raise ConfigError(f"{shown}: its scheme must be one of {known}")
    try:
        check_address(url)
    except ConfigError as error:  # it speaks of a broker
        raise ConfigError(f"{shown}: {str(error).rpartition(': ')[2]}") from None
