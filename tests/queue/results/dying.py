"""The app of a worker process that dies right before or after its first result is committed."""

import os
import signal
from collections.abc import Sequence

from blimp.errors import ResultError
from blimp.queue import TaskContext
from tests.queue.killed_app import DIRECTORY, app

__all__ = ["app"]

assert app.results is not None
_write_many = app.results.write_many
_died = DIRECTORY / "died"
_when = (DIRECTORY / "when").read_text()


def write_many(records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
    if _when == "before":
        _die_once()
    answers = _write_many(records)
    _die_once()
    return answers


def _die_once() -> None:
    if not _died.exists():
        _died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


app.results.write_many = write_many  # type: ignore[method-assign]


@app.task(name="count", bind=True)
def count(context: TaskContext) -> int:
    """Leave a mark for each run; return which delivery this was."""
    with (DIRECTORY / "runs").open("a") as runs:
        runs.write(f"{context.id}\n")
    return context.fence
