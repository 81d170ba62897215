"""A signal that the kernel gives to another thread than the main one, as it may."""

import ctypes
import signal
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)


def signal_another_thread(pid: int, number: signal.Signals) -> None:
    """Have a thread of the process get it that is not the main one. Raises OSError."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid:
            if _libc.tgkill(pid, int(task.name), number):
                raise OSError(ctypes.get_errno(), f"no {number.name} for a thread of {pid}")
            return
    raise ProcessLookupError(f"{pid} has one thread")
