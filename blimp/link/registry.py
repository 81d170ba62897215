"""The run registry: which ships run on this machine, one file a ship.

`<registry>/<vehicle>.json`, written by `blimp up`, read by ground stations that were given no
broker. An entry whose process has ended is ignored.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from blimp.errors import ConfigError
from blimp.files import write_atomically
from blimp.link.paths import make_own_directory
from blimp.reading import ready
from blimp.system import fcntl

MAX_ENTRY_BYTES = 64 * 1024


@ready
class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """One running stack. started: when its process began, in the kernel's ticks since boot."""

    vehicle: str
    broker: str
    pid: int
    runtime_dir: str = ""
    started: int = 0  # 0 if it is not known

    @property
    def runs(self) -> bool:
        """Whether that process runs: not a zombie, and not another process with its number."""
        started = start_time(self.pid)
        return started is not None and self.started in (0, started)


def register(path: Path, *, vehicle: str, broker: str, runtime_dir: Path) -> None:
    """Register this process's ship. Raises ConfigError if one of its name runs already.

    The lock decides between two that start together; the rename lets a reader see the whole
    entry or none.
    """
    cure = ": remove it, or set XDG_RUNTIME_DIR"
    make_own_directory(path.parent, what="run registry", cure=cure)
    with _locked(path.parent):
        other = read(path)
        if other is not None and other.runs:
            raise ConfigError(
                f"a ship named {vehicle!r} runs on this machine already (process {other.pid}): "
                "end it, or choose another --vehicle"
            )
        entry = Registration(
            vehicle=vehicle,
            broker=broker,
            pid=os.getpid(),
            runtime_dir=str(runtime_dir),
            started=start_time(os.getpid()) or 0,
        )
        # For this user alone: the broker's URL may hold a password.
        write_atomically(path, msgspec.json.encode(entry), mode=0o600)


def unregister(path: Path, *, runtime_dir: Path) -> None:
    """Remove the entry of the ship in `runtime_dir`, never a successor's. Idempotent."""
    if not path.parent.is_dir():
        return
    with _locked(path.parent):
        entry = read(path)
        if entry is not None and entry.runtime_dir == str(runtime_dir):
            path.unlink(missing_ok=True)
    try:
        path.parent.rmdir()
    except OSError:
        return  # another ship is in it


def read(path: Path) -> Registration | None:
    """Return the entry at `path`, None if it is missing, unreadable or not ours."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_ENTRY_BYTES), type=Registration)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def start_time(pid: int) -> int | None:
    """Return when a process started (proc(5), stat field 22); None if none runs."""
    if pid <= 0:
        return None
    try:
        # The name in field 2 may contain parentheses: parse what follows the last one.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in ("Z", "X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
