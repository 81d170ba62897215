"""Child processes that cannot outlive their parent, watched without waiting."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

# The child runs this before it executes the program. A preexec_fn would run Python between
# fork and exec, which is unsafe if the parent has threads. The death signal survives an exec.
# So do ignored signals, and Python ignores two of them: both are set back to their default.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[1]), 0, 0, 0)  # PR_SET_PDEATHSIG, prctl(2)
if os.getppid() != int(sys.argv[2]):
    sys.exit("the parent died before its child began")
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[3]}: {error.strerror}")
"""


class Child:
    """One child process, watched by a pidfd so that its number can never be another's.

    death_signal: what the kernel sends it when this process dies, kill -9 included; None
    for a child that may outlive it. Must be started from the main thread: the kernel
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
        stderr: IO[bytes] | int | None = None,
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [*_shim(death_signal), *arguments],
            stdin=stdin,
            stdout=2
            if stdout is None
            else stdout,  # a child's chatter must not mix with this process's data
            stderr=stderr,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,  # a Ctrl-C on the terminal is the parent's to handle
        )
        self.pid = self._process.pid
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except BaseException:  # one that cannot be watched would not be ended either
            self.pidfd = -1
            self._process.kill()
            self._process.wait()
            self.close()
            raise
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

    def kill_all(self) -> None:
        """Kill it and all that it has started in its session; nothing once it was waited for.

        Until then the kernel gives its number to no other group.
        """
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

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
        """Close the descriptors of a process that has ended. Idempotent."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _shim(death_signal: signal.Signals | None) -> list[str]:
    """Return the command line prefix that sets `death_signal`."""
    if death_signal is None:
        return []
    words = [str(int(death_signal)), str(os.getpid())]
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, *words]
