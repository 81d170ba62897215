"""Signals as the kernel delivers them: to any thread, and some time after `kill` returned."""

import ctypes
import os
import signal
from pathlib import Path

from tests.repeating import until

_libc = ctypes.CDLL(None, use_errno=True)


def signal_another_thread(pid: int, number: signal.Signals) -> None:
    """Have a thread of the process get it that is not the main one. Raises OSError."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid:
            if _libc.tgkill(pid, int(task.name), number):
                raise OSError(ctypes.get_errno(), f"no {number.name} for a thread of {pid}")
            return
    raise ProcessLookupError(f"{pid} has one thread")


def stop_process(pid: int) -> None:
    """Send SIGSTOP, and return once none of its threads can run on. Raises TimeoutError.

    `kill` returns at once: each thread runs on until the kernel has scheduled it once more.
    """
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    until(lambda: all(_state(task) in "TZX" for task in tasks.iterdir()), f"{pid} did not stop")


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # that thread has ended
        return "X"
