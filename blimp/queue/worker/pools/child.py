"""A worker's side of one child process."""

from __future__ import annotations

import json
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from blimp.errors import WorkerLost
from blimp.processes import Child
from blimp.queue.worker.pools.frames import (
    Begin,
    Channel,
    Done,
    Frame,
    FromChild,
    Progress,
    Ready,
    Setup,
    Unfit,
)

END_S = 1.0  # how long a child that is told to end may take

# A fresh interpreter that looks for modules where this one does.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from blimp.queue.worker.pools.child_main import main
main(sys.argv[2])
"""


class ChildProcess:
    """A fresh interpreter that runs one job at a time. Never a fork: the worker has threads.

    Raises OSError where the system has no process or descriptor left for it.

    One thread starts it, waits, calls and ends it: the kernel kills the child when that
    thread ends, kill -9 of the worker included. `tell` and `kill` are any thread's.
    """

    def __init__(self, setup: Setup) -> None:
        self.number = setup.child
        ours, theirs = socket.socketpair()
        try:
            self._process = _begin(setup, stdin=theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = Channel(ours, receives=FromChild)
        self._events = select.poll()
        self._events.register(self._channel.fileno(), select.POLLIN)
        self._events.register(self._process.fileno(), select.POLLIN)
        self._lock = threading.Lock()
        self._open = True
        self._ready = False
        self._jobs = 0
        self._job: int | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._open and self._process.running()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it can run jobs. Raises WorkerLost saying why it cannot."""
        frame = self._receive(until_s=time.monotonic() + timeout_s)
        if isinstance(frame, Unfit):
            raise WorkerLost(f"child {self.number} cannot begin: {frame.reason}")
        if not isinstance(frame, Ready):
            raise WorkerLost(f"child {self.number} said {type(frame).__name__}, not Ready")
        with self._lock:
            self._ready = True

    def next_job(self) -> int:
        with self._lock:
            self._jobs += 1
            self._job = self._jobs
        return self._jobs

    def call(self, begin: Begin, *, on_progress: Callable[[Progress], object]) -> Done:
        """Have a job run to its end. Raises WorkerLost where the child ends before."""
        try:
            self._send(begin)
            while True:
                frame = self._receive(until_s=None)
                if isinstance(frame, Progress):
                    if frame.job == begin.job:
                        on_progress(frame)
                elif isinstance(frame, Done) and frame.job == begin.job:
                    return frame
                else:
                    raise WorkerLost(f"child {self.number} said {frame!r:.200} in job {begin.job}")
        except WorkerLost:
            self.kill()  # whatever it is, it is not to be given another
            raise
        finally:
            with self._lock:
                self._job = None

    def tell(self, frame: Frame) -> None:
        """Send a short frame, if it listens. Never waits: a child may stand still."""
        with self._lock:
            if self._open:
                self._channel.offer(frame)

    def kill(self, *, job: int | None = None) -> None:
        """Kill it; only while it runs `job`, where that is given."""
        with self._lock:
            if self._open and job in (None, self._job):
                self._process.send(signal.SIGKILL)

    def kill_unless_idle(self) -> None:
        """Kill it where it starts or runs a job; one that waits for work ends by itself."""
        with self._lock:
            if self._open and not (self._ready and self._job is None):
                self._process.send(signal.SIGKILL)

    def end(self) -> None:
        """Have it end, and see that it does. Idempotent."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._channel.close()  # it ends when it reads that
        # Only here are descriptors closed, so nobody meets another's under an old number.
        self._wait_ended()
        if self._process.running():
            self._process.send(signal.SIGKILL)
        self._process.end(within_s=END_S)

    def _send(self, frame: Frame) -> None:
        try:
            self._channel.send(frame)
        except OSError:
            raise WorkerLost(self._last_words()) from None

    def _receive(self, *, until_s: float | None) -> Any:
        """Return the next frame. Raises WorkerLost where none comes: it ended, or is too late."""
        try:
            while (frame := self._channel.take()) is None:
                self._wait(until_s)
        except ValueError as error:
            raise WorkerLost(f"child {self.number} cannot be understood: {error}") from error
        if frame.child != self.number:
            raise WorkerLost(f"child {self.number} calls itself {frame.child}")
        return frame

    def _wait(self, until_s: float | None) -> None:
        left_ms = None if until_s is None else max(0.0, until_s - time.monotonic()) * 1000.0
        ready = {number for number, _ in self._events.poll(left_ms)}
        if not ready:
            raise WorkerLost(f"child {self.number}, process {self.pid}, does not begin in time")
        if self._channel.fileno() in ready and self._channel.read():
            return
        # A child of its own may keep the channel open: what counts is that it has ended.
        raise WorkerLost(self._last_words())

    def _last_words(self) -> str:
        self._wait_ended()
        status = self._process.exit_status()
        how = "closed its channel"
        if status is not None:
            how = f"ended with status {status}"
            if status < 0:
                how = f"was killed by {signal.Signals(-status).name}"
        return f"its process {self.pid} {how}"

    def _wait_ended(self) -> None:
        """Give a process that is about to end a moment to do so."""
        if self._process.running():
            end = select.poll()  # select takes no descriptor above 1023
            end.register(self._process.fileno(), select.POLLIN)
            end.poll(END_S * 1000.0)


def _begin(setup: Setup, *, stdin: int) -> Child:
    path, words = json.dumps(sys.path), msgspec.json.encode(setup).decode()
    return Child(
        name=f"child {setup.child}",
        arguments=[sys.executable, "-c", _PROGRAM, path, words],
        death_signal=signal.SIGKILL,
        stdin=stdin,
    )
