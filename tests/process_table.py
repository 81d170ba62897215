"""What the kernel says of processes now: of one that has ended, no children and an empty line."""

import contextlib
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return what a process has started, by whichever of its threads, and has not waited for."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def command_line(pid: int) -> list[str]:
    """Return a process's command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def lives(pid: int) -> bool:
    """Return whether it runs: one that has ended and is not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
