"""Starting a child process that cannot outlive its parent, and watching it without waiting."""

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1  # prctl(2)


class Child:
    """One child process, watched by a pidfd so that its number can never be another's.

    death_signal: what the kernel sends it when this process dies, kill -9 included; None
    for a child that looks after itself. Must be started from the main thread: the kernel
    takes the death of the thread that forked for that of the parent.
    """

    def __init__(
        self,
        *,
        name: str,
        arguments: Sequence[str],
        death_signal: signal.Signals | None = signal.SIGTERM,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            list(arguments),
            stdin=stdin,
            stdout=2 if stdout is None else stdout,  # chatter is not this process's data
            stderr=stderr,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,  # a Ctrl-C on the terminal is the parent's to handle
            preexec_fn=None if death_signal is None else _dies_with_parent(death_signal),
        )
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        self.stdin = self._process.stdin
        self.stdout = self._process.stdout

    def fileno(self) -> int:
        """Readable when the process has ended (for selectors)."""
        return self.pidfd

    def running(self) -> bool:
        return self._process.poll() is None

    def exit_status(self) -> int | None:
        """Exit code, or minus the signal's number; None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def end(self, *, within_s: float) -> None:
        """Ask it to end, wait, kill it when it does not. Idempotent."""
        self.send(signal.SIGTERM)
        try:
            self._process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._process.wait()
        self.close()

    def close(self) -> None:
        """Give up the descriptors of a process that has ended. Idempotent."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _dies_with_parent(number: signal.Signals) -> Callable[[], None]:
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return set_death_signal
