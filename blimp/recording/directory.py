"""A directory of logs: new names, and the oldest logs removed so that the rest has room."""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from blimp.errors import ConfigError, LogError
from blimp.link.paths import make_own_directory
from blimp.recording.tape import Session
from blimp.system import OPEN_FLAGS, fcntl

if TYPE_CHECKING:
    from blimp.recording.log_file import LogFile

# The number orders them: a Pi without a network has no clock that does.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*-(\d{6,})-\d{8}T\d{6}Z\.mcap")
MIN_FREE_BYTES = 64 * 2**20  # of the disk, for everybody else
_ATTEMPTS = 100


class Entry(NamedTuple):
    """A log of ours in the directory. number: the larger, the newer."""

    number: int
    path: Path
    size: int


class LogDirectory:
    """The logs in `path`, together at most `max_bytes`.

    The directory is made for this user alone. Raises ConfigError if another user could put files
    into it, LogError if it cannot be written.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes
        make_own_directory(path, what="log directory", cure=": choose another --log-dir")

    def logs(self) -> list[Entry]:
        """Return the logs, the oldest first."""
        return sorted(_entries(self.path))

    def new(self, session: Session, *, before: str = "") -> "LogFile":
        """Begin a log. Raises LogError if the disk does not take it, ConfigError without mcap.

        before: the name of the log that it continues.
        """
        from blimp.recording.log_file import LogFile  # of an extra

        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        number = max((entry.number for entry in self.logs()), default=0)
        for _ in range(_ATTEMPTS):  # another ship's recorder may be quicker
            number += 1
            path = self.path / f"{session.vehicle}-{number:06d}-{stamp}.mcap"
            if not any(self.path.glob(f"*-{number:06d}-*.mcap")):
                return LogFile(path, session, before=before)
        raise LogError(f"log directory {self.path}: no new name in {_ATTEMPTS} attempts")

    def make_room(self) -> list[Path]:
        """Remove the oldest logs until all fit the bound and the disk has room; return them.

        A log that is being written stays.
        """
        removed = []
        logs = self.logs()
        total = sum(entry.size for entry in logs)
        # If others have filled the disk, all logs together may not make room: they stay then.
        helps = self.free_bytes() + total >= MIN_FREE_BYTES
        for entry in logs:
            if total <= self.max_bytes and not (helps and self.free_bytes() < MIN_FREE_BYTES):
                break
            if _is_written(entry.path):
                continue
            with contextlib.suppress(FileNotFoundError):
                entry.path.unlink()
                removed.append(entry.path)
            total -= entry.size
        return removed

    def free_bytes(self) -> int:
        """Return what the disk has free for this user."""
        about = os.statvfs(self.path)
        return about.f_bavail * about.f_frsize


def logs_of(directory: Path, vehicle: str) -> list[Entry]:
    """Return the logs of a ship in a directory, the oldest first; none if it cannot be read."""
    with contextlib.suppress(LogError):
        return _of(vehicle, sorted(_entries(directory)))
    return []


def log_sizes(directory: Path) -> dict[Path, int]:
    """Return the logs in a directory and their bytes, none if it cannot be read."""
    with contextlib.suppress(LogError):
        return {one.path: one.size for one in _entries(directory)}
    return {}


def newest_log(directory: Path, vehicle: str) -> Path | None:
    """Return the newest log of a ship in a directory, None if there is none."""
    if not directory.is_dir():
        return None
    logs = LogDirectory(directory, max_bytes=0).logs()
    mine = _of(vehicle, logs)
    return mine[-1].path if mine else None


def _of(vehicle: str, logs: list[Entry]) -> list[Entry]:
    return [one for one in logs if one.path.name.rsplit("-", 2)[0] == vehicle]


def _entries(directory: Path) -> Iterator[Entry]:
    try:
        found = list(os.scandir(directory))
    except OSError as error:
        raise LogError(f"log directory {directory}: {error.strerror}") from error
    for one in found:
        name = _NAME.fullmatch(one.name)
        with contextlib.suppress(FileNotFoundError):
            if name is not None and one.is_file(follow_symlinks=False):
                size = one.stat(follow_symlinks=False).st_size
                yield Entry(int(name[1]), directory / one.name, size)


def _is_written(path: Path) -> bool:
    """Whether a process has the log open for writing: it then holds a lock on it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | OPEN_FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def check_bound(megabytes: int, *, where: str) -> int:
    """Return a bound of logs in bytes, 0 for no log. Raises ConfigError for one too small."""
    if megabytes != 0 and not 10 <= megabytes <= 1_000_000:
        raise ConfigError(f"{where}: must be 10 to 1000000 MB, or 0 for no log, not {megabytes}")
    return megabytes * 1_000_000
