"""Restart: when a worker should, and how its process becomes a fresh one."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

MEGABYTE = 1_000_000
NOTED = "BLIMP_STOPS_NOTED"  # the descriptor that a restarted process reads stop signals from
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How this process was started: `again` starts the same in its place."""

    command: tuple[str, ...]
    directory: str

    @classmethod
    def of_this_process(cls) -> Self:
        return cls(command=(sys.executable, *sys.orig_argv[1:]), directory=os.getcwd())

    def again(self, *, unless: Callable[[], bool]) -> None:
        """Become a fresh process of the same command line, with the same pid.

        unless: asked when no handler receives a stop signal any more; True has it return
        instead. A later stop signal waits until it is unblocked; if another thread still gets
        it, it is noted for the new process. Nothing may be under way: every thread ends here,
        and every descriptor that is not inherited is closed. Main thread only.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        noted, note = os.pipe()
        os.set_inheritable(noted, True)
        for end in (noted, note):
            os.set_blocking(end, False)
        # Written to by the thread that gets the signal; a handler would run too late.
        number_before = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
        try:
            if not unless():
                sys.stdout.flush()
                sys.stderr.flush()
                os.chdir(self.directory)
                os.execve(self.command[0], self.command, {**os.environ, NOTED: str(noted)})
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(number_before)
            for end in (noted, note):
                os.close(end)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Wear:
    """Counts the tasks of one process; says when it has run too many, or grown too large.

    max_tasks, max_memory_mb: None for no limit; memory is what is resident, in 10^6 bytes.
    """

    def __init__(self, *, max_tasks: int | None, max_memory_mb: float | None) -> None:
        self._max_tasks = max_tasks
        self._max_memory_mb = max_memory_mb
        self._lock = threading.Lock()
        self._tasks = 0

    def count(self, tasks: int = 1) -> str | None:
        """Count tasks that have ended; return why the process should be replaced, or None."""
        with self._lock:
            self._tasks += tasks
            tasks = self._tasks
        if self._max_tasks is not None and tasks >= self._max_tasks:
            return f"{tasks} tasks were run, the limit is {self._max_tasks}"
        if self._max_memory_mb is not None:
            memory_mb = resident_bytes() / MEGABYTE
            if memory_mb > self._max_memory_mb:
                return f"{memory_mb:.0f} MB are in use, the limit is {self._max_memory_mb:g}"
        return None


def let_stop_signals_in() -> None:
    """Receive the stop signals that waited, or were noted, while this process restarted."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    noted = os.environ.pop(NOTED, None)
    if noted is None:
        return
    numbers = b""
    with contextlib.suppress(OSError, ValueError):
        numbers = os.read(int(noted), 4096)
        os.close(int(noted))
    for number in set(numbers) & STOP_SIGNALS:
        signal.raise_signal(number)


def resident_bytes() -> int:
    """Return the resident memory of this process (proc(5), statm, second field)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
