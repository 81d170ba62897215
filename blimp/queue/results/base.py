"""What keeps results, whichever it is: a Redis server or a database.

Every method raises LinkError where the keeper is away: it may be asked again. What it will
never take, or cannot be read, is a ResultError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

from blimp.errors import ResultError
from blimp.queue.protocol.record import Record


class ResultWatch(Protocol):
    """The records of one task as they come. A context manager; one thread's."""

    def next(self, *, timeout_s: float) -> Record | None:
        """Return the next record, None when none comes within `timeout_s` seconds.

        The first call looks at what is stored already; what was returned before is not news.
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

    keep_s: seconds after which a record may be forgotten; 0 for never.
    commits: each write waits for a disk: many at once are worth gathering.
    """

    keep_s: int
    commits: bool

    def encode(self, record: Record) -> bytes:
        """Return `record` as `write` takes it. Raises ResultError where JSON cannot hold it."""
        ...

    def write(self, id: str, data: bytes) -> bool:
        """Write and publish what `encode` returned; False when a final record stands already."""
        ...

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        """Write each, as `write` does; one that is refused spoils no other.

        Raises LinkError where it is not known of all: ask again, it does no harm.
        """
        ...

    def store(self, record: Record, *, at: str | None = None) -> bool:
        """Encode and write `record`.

        at: the URL of a broker: where its server is one of those that keep results, write it
        there and not to the one in use.
        """
        ...

    def get(self, id: str) -> Record:
        """Return what is known of task `id`; a PENDING record where nothing is."""
        ...

    def read(self, id: str) -> bytes | None:
        """Return the record of task `id` as `encode` would, None where nothing is known."""
        ...

    def forget(self, id: str) -> None: ...

    def watch(self, id: str) -> ResultWatch:
        """Return a subscription to task `id`, in force when this returns."""
        ...

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        """Keep what a group is made of: `{"result": …}` as Celery writes it, and no more."""
        ...

    def group(self, id: str) -> dict[str, Any] | None:
        """Return what `save_group` kept, None where nothing is known."""
        ...

    def forget_group(self, id: str) -> None: ...

    def prepare(self) -> None:
        """Make what results are kept in, where that is to be made. Raises TableMismatch."""
        ...

    def cleanup(self) -> int:
        """Forget what is older than `keep_s`; return how much. Nothing where that is done."""
        ...

    def close(self) -> None:
        """Give up the connections; a later call opens them anew. Idempotent."""
        ...
