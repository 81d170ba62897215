"""Gives a log back that was cut, or damaged: all its whole chunks, with a new index."""

from contextlib import ExitStack
from pathlib import Path

import msgspec

from blimp.errors import LogError
from blimp.recording.log_file import LogFile
from blimp.recording.recording import NothingWhole, Recording
from blimp.types import Progress, unseen


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """chunks: written to the new log. lost_bytes: of the old file, in no record of the new one."""

    chunks: int
    lost_bytes: int


def recover(path: Path, out: Path, *, progress: Progress = unseen) -> Recovered:
    """Write all whole chunks of the log at `path` to a new log at `out`.

    Without a whole chunk nothing is written. Raises LogError if `path` is no log of ours, or `out`
    is there already or cannot be written.
    """
    try:
        log = Recording(path, progress=progress)
    except NothingWhole:
        return Recovered(chunks=0, lost_bytes=path.stat().st_size)
    chunks, lost = 0, log.size - log.whole_bytes
    with log, ExitStack() as writing:
        new: LogFile | None = None
        for number, at in enumerate(log.chunks):
            try:
                messages = log.messages(number)
            except LogError:
                lost += at.length
                continue
            new = new or writing.enter_context(LogFile(out, log.session, log.metadata))
            for message in messages:
                new.add(message)
            new.flush()
            chunks += 1
    return Recovered(chunks=chunks, lost_bytes=lost)
