"""A worker's side of one child process, and the frames and channel that both sides use.

Each child has a socket pair of its own, and every frame names its child and its job: a frame
for one cannot be taken for another's, whatever number the kernel gives the descriptor.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from blimp.errors import WorkerLost
from blimp.processes import Child
from blimp.queue.extensions import ChildExtension
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import TaskMessage, to_json
from blimp.queue.protocol.record import Outcome, Record

MAX_FRAME_BYTES = 256_000_000
FRAME_S = 30  # a frame that has begun to arrive is lost if nothing more of it comes for so long


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a child gets on its command line. origins: "module:attribute", where its tasks are."""

    child: int
    origins: tuple[str, ...]
    max_tasks: int | None
    max_memory_mb: float | None


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    child: int


# --- to a child ----------------------------------------------------------------------------


class Begin(Frame, frozen=True, kw_only=True, tag="begin"):
    """Run a task. broker_now_s: the broker's clock at this moment, if it is known.

    arguments: `[args, kwargs]` in kombu's JSON, which keeps their types; `message` has none.
    """

    job: int
    origin: str
    message: TaskMessage
    arguments: msgspec.Raw
    limit_bytes: int
    worker: str = ""
    previous: Record | None = None
    broker_now_s: float | None = None
    grant: dict[str, Any] | None = None
    extension: ChildExtension | None = None


def without_arguments(message: TaskMessage) -> tuple[TaskMessage, msgspec.Raw]:
    """Return `message` and its arguments as `Begin` takes them."""
    arguments = msgspec.Raw(to_json([message.args, message.kwargs]))
    return msgspec.structs.replace(message, args=(), kwargs={}), arguments


def with_arguments(begin: Begin) -> TaskMessage:
    """Return the message of `begin`, complete again."""
    args, kwargs = from_json(bytes(begin.arguments))
    return msgspec.structs.replace(begin.message, args=tuple(args), kwargs=kwargs)


class Interrupt(Frame, frozen=True, kw_only=True, tag="interrupt"):
    job: int


class Stopping(Frame, frozen=True, kw_only=True, tag="stopping"):
    pass


# --- from a child --------------------------------------------------------------------------


class Ready(Frame, frozen=True, kw_only=True, tag="ready"):
    pass


class Unfit(Frame, frozen=True, kw_only=True, tag="unfit"):
    """It cannot start: a module of `origins` cannot be imported."""

    reason: str


class Progress(Frame, frozen=True, kw_only=True, tag="progress"):
    job: int
    fraction: float
    details: dict[str, Any]


class Done(Frame, frozen=True, kw_only=True, tag="done"):
    """A job has ended. worn: why a new child should replace this one, "" if it need not."""

    job: int
    outcome: Outcome
    worn: str = ""


ToChild = Begin | Interrupt | Stopping
FromChild = Ready | Unfit | Progress | Done


class Channel:
    """Frames over one stream socket: any thread sends, one receives. Close is idempotent."""

    def __init__(self, end: socket.socket, *, receives: Any) -> None:
        # The end of a child killed in the middle of a frame may stay open in a fork of its own:
        # then only this timeout ends the wait for the rest.
        try:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", FRAME_S, 0))
        except OSError:  # a 32-bit system with 64-bit times
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", FRAME_S, 0))
        self._connection = Connection(end.detach())
        self._readable = select.poll()
        self._readable.register(self._connection.fileno(), select.POLLIN)
        self._decoder = msgspec.json.Decoder(receives)
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, frame: Frame) -> None:
        """Raises OSError if the other end is gone."""
        data = msgspec.json.encode(frame)
        with self._sending:
            self._connection.send_bytes(data)

    def offer(self, frame: Frame) -> bool:
        """Send a short frame if that can be done at once; return whether it was."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            ready = select.poll()
            ready.register(self.fileno(), select.POLLOUT)
            if not ready.poll(0):
                return False
            self._connection.send_bytes(msgspec.json.encode(frame))
            return True
        except (OSError, ValueError):  # it is closed, here or there
            return False
        finally:
            self._sending.release()

    def receive(self) -> Any:
        """Wait for a frame and return it.

        Raises EOFError if the other end is closed, TimeoutError if the rest of a frame does not
        come, ValueError for what is no frame.
        """
        self._readable.poll()
        try:
            data = self._connection.recv_bytes(MAX_FRAME_BYTES)
        except ConnectionError:
            raise EOFError from None
        except BlockingIOError:
            raise TimeoutError(f"half a frame, and nothing more within {FRAME_S} s") from None
        except OSError as error:
            raise ValueError(f"a frame above {MAX_FRAME_BYTES} bytes ({error})") from None
        return self._decoder.decode(data)  # msgspec's errors are ValueErrors

    def close(self) -> None:
        self._connection.close()


END_S = 1.0  # how long a child may take to end when its channel is closed

# A fresh interpreter that looks for modules where this one does.
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from blimp.queue.worker.pools.child_main import main
main(sys.argv[2])
"""


class ChildProcess:
    """A fresh interpreter that runs one job at a time. Never a fork: the worker has threads.

    Raises OSError if the system has no process or descriptor left for it.

    One thread starts it, waits, calls and ends it: the kernel kills the child when that
    thread ends, kill -9 of the worker included. Any thread may `send_control` and `kill`.
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
            raise WorkerLost(f"child {self.number} cannot start: {frame.reason}")
        if not isinstance(frame, Ready):
            raise WorkerLost(f"child {self.number} sent {type(frame).__name__}, not Ready")
        with self._lock:
            self._ready = True

    def next_job(self) -> int:
        with self._lock:
            self._jobs += 1
            self._job = self._jobs
        return self._jobs

    def call(self, begin: Begin, *, on_progress: Callable[[Progress], object]) -> Done:
        """Run a job and return its end. Raises WorkerLost if the child ends before."""
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
                    raise WorkerLost(f"child {self.number} sent {frame!r:.200} in job {begin.job}")
        except WorkerLost:
            self.kill()  # whatever its state, it gets no further job
            raise
        finally:
            with self._lock:
                self._job = None

    def send_control(self, frame: Frame) -> None:
        """Send a short frame, if its channel has room. Never waits: a child may stand still."""
        with self._lock:
            if self._open:
                self._channel.offer(frame)

    def kill(self, *, job: int | None = None) -> None:
        """Kill it; if `job` is given, only while it runs that one."""
        with self._lock:
            if self._open and job in (None, self._job):
                self._process.send(signal.SIGKILL)

    def kill_unless_idle(self) -> None:
        """Kill it while it starts or runs a job; one that waits for work ends by itself."""
        with self._lock:
            if self._open and not (self._ready and self._job is None):
                self._process.send(signal.SIGKILL)

    def end(self) -> None:
        """End it and wait until it has ended. Idempotent."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._channel.close()  # the child reads that, and ends
        # Descriptors are closed only here, so that no old number is used for another's.
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
        """Return the next frame. Raises WorkerLost if none comes: it ended, or is too late."""
        self._wait(until_s)
        try:
            frame = self._channel.receive()
        except ValueError as error:
            raise WorkerLost(f"child {self.number} sent what cannot be read: {error}") from error
        except (EOFError, TimeoutError):
            raise WorkerLost(self._last_words()) from None
        if frame.child != self.number:
            raise WorkerLost(f"child {self.number} calls itself {frame.child}")
        return frame

    def _wait(self, until_s: float | None) -> None:
        left_ms = None if until_s is None else max(0.0, until_s - time.monotonic()) * 1000.0
        ready = {number for number, _ in self._events.poll(left_ms)}
        if not ready:
            raise WorkerLost(f"child {self.number}, process {self.pid}, does not start in time")
        # A process that it forked may keep the channel open: its own end decides.
        if self._channel.fileno() not in ready:
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
        """Wait a moment for a process that is about to end."""
        if self._process.running():
            end = select.poll()  # select takes no descriptor above 1023
            end.register(self._process.fileno(), select.POLLIN)
            end.poll(END_S * 1000.0)


def _begin(setup: Setup, *, stdin: int) -> Child:
    path, setup_json = json.dumps(sys.path), msgspec.json.encode(setup).decode()
    return Child(
        name=f"child {setup.child}",
        arguments=[sys.executable, "-c", _PROGRAM, path, setup_json],
        death_signal=signal.SIGKILL,
        stdin=stdin,
    )
