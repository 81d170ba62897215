"""What macOS or Windows lack of Linux, in one place.

Ground station, page, Python API and Lockstep run there, and reach a broker over TCP. What a ship
runs (`blimp up`, its worker, pools of processes) needs Linux, and is not tried anywhere else.
"""

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

try:
    import fcntl as fcntl  # for those who import it from here
    import termios

    TerminalError: type[Exception] = termios.error
except ImportError:  # Windows

    def _no_ioctl(*_: Any) -> Any:
        raise OSError("no ioctl on this system")

    fcntl = ModuleType("fcntl")
    # Locks keep two programs of one user apart; there they are the user's to keep apart.
    fcntl.__dict__.update(
        LOCK_SH=1, LOCK_EX=2, LOCK_NB=4, LOCK_UN=8, flock=lambda *_: None, ioctl=_no_ioctl
    )
    TerminalError = OSError

HAS_TERMINALS = TerminalError is not OSError
HAS_OWNERS = hasattr(os, "getuid")  # else files belong to nobody, and `st_mode` says nothing
_OF_UNIX = {"fcntl", "grp", "os", "pwd", "resource", "select", "signal", "socket", "termios", "tty"}
# Beside what a file is opened for: no link is followed, no child inherits it, bytes are bytes.
OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
sync_data = getattr(os, "fdatasync", os.fsync)  # macOS lacks it, too


def user_id() -> int:
    """Return this user's number, or the one that all files have where there are none."""
    return os.getuid() if HAS_OWNERS else 0


def unix_only(error: ImportError | AttributeError) -> str:
    """Return what to say of an error by what other systems lack; "" for a defect of ours."""
    of = error.name if isinstance(error, ImportError) else getattr(error.obj, "__name__", "")
    if hasattr(os, "pidfd_open") or of not in _OF_UNIX:  # Linux has it, and nothing else
        return ""
    return (
        f"this needs Linux (on Windows, WSL is one): {error}; "
        "ground, its page, Python programs and flights in lockstep run here"
    )


def monotonic_ns() -> int:
    """Return a clock that all processes share and, on Linux, counts while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


def readable(descriptors: "tuple[int, ...]", timeout_s: float) -> list[int]:
    """Return which of these can be read in time. On Windows they must be sockets."""
    if not hasattr(select, "poll"):
        return select.select(descriptors, (), (), timeout_s)[0]
    poll = select.poll()  # `select` takes no descriptor above 1023
    for number in descriptors:
        poll.register(number, select.POLLIN)
    return [number for number, _ in poll.poll(timeout_s * 1000.0)]


def read_at(file: int, size: int, at: int) -> bytes:
    """Read as os.pread, which Windows lacks: there no other thread may use the file meanwhile."""
    if hasattr(os, "pread"):
        return os.pread(file, size, at)
    os.lseek(file, at, os.SEEK_SET)
    return os.read(file, size)


def write_at(file: int, data: bytes, at: int) -> int:
    """Write as os.pwrite, see `read_at`."""
    if hasattr(os, "pwrite"):
        return os.pwrite(file, data, at)
    os.lseek(file, at, os.SEEK_SET)
    return os.write(file, data)


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk, where that is asked for apart from the files."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def fcntl_in_place() -> Iterator[None]:
    """Let a package be imported here that imports `fcntl`, which a simulator answers for."""
    before = sys.modules.get("fcntl")
    sys.modules["fcntl"] = fcntl
    try:
        yield
    finally:
        if before is not fcntl:
            sys.modules["fcntl"] = before  # type: ignore[assignment]  # None: it cannot be imported
