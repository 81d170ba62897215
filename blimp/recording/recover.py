"""Gives a log back that was cut, or damaged: all its whole chunks, with a new index."""

from contextlib import ExitStack
from pathlib import Path

import msgspec

from blimp.errors import LogError
from blimp.recording.log_file import LogFile
from blimp.recording.part import NothingWhole
from blimp.recording.recording import open_recording
from blimp.types import Progress, unseen


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """chunks: written to the new log. lost_bytes: of the old file, in no record of the new one."""

    chunks: int
    lost_bytes: int


def recover(path: Path, out: Path, *, progress: Progress = unseen) -> Recovered:
    """Write all whole chunks of the flight that the log at `path` is of to a new log at `out`.

    Without a whole chunk nothing is written. Raises LogError if `path` is no log of ours, or `out`
    is there already or cannot be written.
    """
    try:
        log = open_recording(path, progress=progress)
    except NothingWhole:
        return Recovered(chunks=0, lost_bytes=path.stat().st_size)
    chunks, lost = 0, sum(part.size - part.whole_bytes for part in log.parts)
    with log, ExitStack() as writing:
        new: LogFile | None = None
        for number, (_, at) in enumerate(log.chunks):
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
