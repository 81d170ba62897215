"""What the kernel can do for a punctual loop: keep its memory, and run it first.

Neither is needed to fly, and both need rights: what is refused is reported, and no more.
"""

import ctypes
import os
import resource
from pathlib import Path

PRIORITY = 50  # of SCHED_FIFO, as in the unit: below the kernel's own threads for buses
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4  # mlockall(2)
_CAP_IPC_LOCK = 14  # capabilities(7)


def make_realtime() -> tuple[str, ...]:
    """Lock this process's memory, and have its threads to come scheduled by SCHED_FIFO.

    Call it before threads are started. Returns what was refused, each as "what: why".
    """
    refused = {"mlockall": _lock_memory(), "SCHED_FIFO": _schedule_first()}
    return tuple(f"{what}: {why}" for what, why in refused.items() if why)


def _lock_memory() -> str:
    """Have no page read from a card in flight; return why not, "" if it is done."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit != resource.RLIM_INFINITY and not _may_lock_any():
        # It might succeed now, and then an allocation in flight would fail.
        return f"RLIMIT_MEMLOCK is {limit} bytes, must be unlimited"
    libc = ctypes.CDLL(None, use_errno=True)
    # What is mapped now is read in. What comes later is kept once it is used: all of it would
    # include 8 MB of stack for each thread.
    for flags in (_MCL_CURRENT, _MCL_FUTURE | _MCL_ONFAULT):
        if libc.mlockall(flags):
            return os.strerror(ctypes.get_errno())
    return ""


def _may_lock_any() -> bool:
    """Whether this process has CAP_IPC_LOCK, for which the limit does not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_IPC_LOCK & 1)
    return False


def _schedule_first() -> str:
    if os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        return ""  # the service manager has done it
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except OSError as error:
        return error.strerror or str(error)
    return ""
