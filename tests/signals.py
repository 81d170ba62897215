"""Signals as the kernel delivers them: to any thread, and some time after `kill` returned."""

import ctypes
import os
import signal
import time
from pathlib import Path

_STOPPED_BY_S = 60.0  # it takes 18 ms where six processes want two cores

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
    until_s = time.monotonic() + _STOPPED_BY_S
    while any(_state(task) not in "TZX" for task in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > until_s:
            raise TimeoutError(f"process {pid} runs {_STOPPED_BY_S:g} s after SIGSTOP")
        os.sched_yield()


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # that thread has ended
        return "X"
