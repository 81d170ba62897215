"""A child process that runs one task at a time, and the frames between it and its worker.

Every frame names its child and its job: a frame for one cannot be taken for another's, whatever
number the kernel gives a descriptor. A soft time limit and the stop of the worker come as
signals. The child never uses the worker's broker.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import select
import signal
import socket
import struct
import threading
import time
import traceback
from _thread import start_new_thread
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.clock import SystemClock
from blimp.errors import ConfigError, LeaseLost, LinkError, ResultError, SoftTimeLimitExceeded
from blimp.queue.app import TaskApp
from blimp.queue.context import TaskContext
from blimp.queue.extensions import ChildExtension, ChildHook
from blimp.queue.located import imported
from blimp.queue.log import running_message
from blimp.queue.neighbours import load
from blimp.queue.protocol.embed import called_task
from blimp.queue.protocol.kombu_body import from_json
from blimp.queue.protocol.message import TaskMessage, to_json
from blimp.queue.protocol.record import (
    Outcome,
    Record,
    State,
    failure,
    running_task,
    shortened,
    text_of,
)
from blimp.queue.steps import Ask, Steps, as_json
from blimp.queue.task import Task, check_returned
from blimp.queue.worker.completions import outcome_of

if TYPE_CHECKING:
    from blimp.queue.interface import App

MAX_FRAME_BYTES = 256_000_000
FRAME_S = 30  # a frame that has begun to arrive is lost if nothing more of it comes for so long
LONGEST = 1000  # letters of why an end cannot be sent
INTERRUPT, STOPPING = signal.SIGUSR1, signal.SIGUSR2  # only to a child that is ready


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=str.lower):
    child: int


class Begin(Frame, frozen=True, kw_only=True):
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


class Ready(Frame, frozen=True, kw_only=True):
    """The child waits for its first task. problem: why it cannot run any, "" if it can."""

    problem: str = ""


class Progress(Frame, frozen=True, kw_only=True):
    job: int
    fraction: float
    details: dict[str, Any]


class Done(Frame, frozen=True, kw_only=True):
    job: int
    outcome: Outcome


class AskSteps(Frame, frozen=True, kw_only=True):
    """Read what the task's steps returned; with a name, store one result."""

    job: int
    name: str = ""
    result: bytes = b""


class Stored(Frame, frozen=True, kw_only=True):
    """The answer to AskSteps. error: its class and text, "" if there is none."""

    results: dict[str, bytes] = {}
    error: tuple[str, str] = ("", "")


FromChild = Ready | Progress | AskSteps | Done
STEP_ERRORS = {one.__name__: one for one in (ConfigError, LeaseLost, LinkError, ResultError)}


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
            raise TimeoutError(
                f"a frame is incomplete, and nothing more came within {FRAME_S} s"
            ) from None
        except OSError as error:
            raise ValueError(f"a frame above {MAX_FRAME_BYTES} bytes ({error})") from None
        return self._decoder.decode(data)  # msgspec's errors are ValueErrors

    def close(self) -> None:
        self._connection.close()


# --- in the child ----------------------------------------------------------------------------


def main(number: int, origins: Sequence[str]) -> None:
    """Serve the worker at the other end of standard input until that closes it.

    origins: the "module:attribute" of each app whose tasks may come.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    channel = Channel(socket.socket(fileno=os.dup(0)), receives=Begin | Stored)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a task that reads standard input must not read frames
    os.close(nothing)
    with contextlib.suppress(EOFError, BrokenPipeError):
        Server(number=number, channel=channel).serve(origins)


class Server:
    def __init__(self, *, number: int, channel: Channel) -> None:
        self._number = number
        self._channel = channel
        self._chance = random.Random()
        self._stopping = threading.Event()
        self._may_interrupt = False
        self._asking = threading.Lock()  # who has it reads the answer
        self._is_asking = self._was_interrupted = False
        self._job = 0
        self._extension: ChildExtension | None = None
        self._hook: ChildHook | None = None
        self._apps: dict[str, App] = {}  # of the tasks that ran here, by origin

    def serve(self, origins: Sequence[str]) -> None:
        """Run what comes. Raises EOFError when the worker closes the channel."""
        try:
            for origin in origins:
                if isinstance(app := imported(origin), TaskApp):
                    app.import_tasks()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self._channel.send(Ready(child=self._number, problem=problem))
            return
        signal.signal(INTERRUPT, self._interrupt)
        # Not in the handler itself: the task that it interrupts may have the event's lock.
        signal.signal(STOPPING, lambda *_: start_new_thread(self._stopping.set, ()))
        self._channel.send(Ready(child=self._number))
        try:
            while True:
                begin: Begin = self._channel.receive()
                if begin.child != self._number:
                    raise EOFError  # the worker finds this child gone, and starts another
                self._end(begin, copy_context().run(self._run, begin))
        finally:
            with contextlib.ExitStack() as ends:
                if self._hook is not None:
                    ends.callback(self._hook.close)
                for app in self._apps.values():
                    ends.callback(_close_kept, app)

    def _ask(self, begin: Begin, name: str = "", result: bytes = b"") -> dict[str, bytes]:
        """Have the worker read or store results of steps. Any thread of the task."""
        with self._asking:
            if self._job != begin.job:
                raise LeaseLost(f"{begin.message.task}: step {name!r}: its task has ended")
            is_main = threading.current_thread() is threading.main_thread()
            self._is_asking = is_main  # to be interrupted here would leave half of an answer
            try:
                child, job = begin.child, begin.job
                self._channel.send(AskSteps(child=child, job=job, name=name, result=result))
                answer: Stored = self._channel.receive()
            finally:
                self._is_asking = False
        if is_main and self._was_interrupted:
            self._was_interrupted = False
            self._interrupt()
        kind, text = answer.error
        if kind:
            raise STEP_ERRORS[kind](text)
        return answer.results

    def _end(self, begin: Begin, outcome: Outcome) -> None:
        """Send `outcome`, or why it cannot be sent: the worker would take silence for a kill."""
        with self._asking:  # no thread that the task left reads what comes next
            self._job = 0
        try:
            if outcome.fault is not None:
                outcome = shortened(outcome, most_bytes=begin.limit_bytes)
            self._channel.send(Done(child=self._number, job=begin.job, outcome=outcome))
        except OSError:
            raise
        except Exception as error:
            what = f"{begin.message.task}: its end cannot be sent: {text_of(error)}"
            outcome = failure(ResultError(what[:LONGEST]))
            self._channel.send(Done(child=self._number, job=begin.job, outcome=outcome))

    def _run(self, begin: Begin) -> Outcome:
        try:
            begin = msgspec.structs.replace(begin, message=with_arguments(begin))
            running_message.set(begin.message)
            name = begin.message.task
            task = find(begin.origin, called_task(name, begin.message.kwargs))
            if task.name != name:
                task = task.app.task_for(begin.message)
            self._apps[begin.origin] = task.app
            self._job, self._was_interrupted = begin.job, False
            args = begin.message.args
            if task.options.bind:
                args = (
                    ChildContext(
                        task, begin, self._channel, self._stopping, partial(self._ask, begin)
                    ),
                    *args,
                )
        except Exception as error:
            return failure(error)
        try:
            try:
                running_task.set(name)
                self._may_interrupt = True
                with self._around(begin):
                    result = task.run(*args, **begin.message.kwargs)
                    check_returned(name, result)
            finally:
                self._may_interrupt = False
            return Outcome(state=State.SUCCESS, result=_sendable(result, task, begin))
        except BaseException as error:  # a task may raise SystemExit; the child goes on
            self._may_interrupt = False  # the limit may have interrupted the line that does it
            return outcome_of(error, task=task, message=begin.message, chance=self._chance)

    def _around(self, begin: Begin) -> AbstractContextManager[object]:
        """Return what the worker's extension has the task wrapped in."""
        if begin.extension != self._extension:
            self._extension = begin.extension
            if begin.extension is not None:
                self._hook = load(begin.extension.factory)(begin.extension.settings)
        if self._hook is None:
            return contextlib.nullcontext()
        return self._hook.around(begin.message)

    def _interrupt(self, *_: object) -> None:
        if self._is_asking:
            self._was_interrupted = True
        elif self._may_interrupt:
            self._may_interrupt = False
            raise SoftTimeLimitExceeded


def _close_kept(app: App) -> None:
    try:
        app.close_kept()
    except Exception:  # not for `main`, which takes some for the end of its worker
        traceback.print_exc()


class ChildContext(TaskContext):
    """A TaskContext without a broker: progress and the broker's time go through the worker."""

    def __init__(
        self, task: Task, begin: Begin, channel: Channel, stopping: threading.Event, ask: Ask
    ) -> None:
        super().__init__(
            task=task,
            message=begin.message,
            worker=begin.worker,
            stopping=stopping,
            lost=threading.Event(),  # a child that loses its lease is killed
            revoked=threading.Event(),  # so is a revoked one
            previous=begin.previous,
            grant=None if begin.grant is None else _grant(begin.grant),
            steps=Steps(task=task, ask=ask),
        )
        self._begin = begin
        self._channel = channel
        self._began_s = time.monotonic()

    def progress(self, fraction: float, **details: Any) -> bool:
        """Ask the worker to publish how far the task is; returns True, as it does not answer."""
        begin = self._begin
        as_json([fraction, details], f"{self.task.name}: progress is", begin.limit_bytes)
        self._channel.send(
            Progress(child=begin.child, job=begin.job, fraction=fraction, details=details)
        )
        return True

    def _broker_now_s(self) -> float:
        if self._begin.broker_now_s is None:
            return time.time()
        return self._begin.broker_now_s + time.monotonic() - self._began_s


def _grant(given: dict[str, Any]) -> Any:
    """Return the grant as a child sees it: the worker renews it, and kills a child that lost it."""
    from blimp.queue.resources.grant import Grant, Ticket

    now_s = time.monotonic()
    return Grant(ticket=Ticket.read(given), ttl_s=math.inf, asked_s=now_s, clock=SystemClock())


def _sendable(result: Any, task: Task, begin: Begin) -> Any:
    """Return `result` as JSON. Raises ResultError if JSON cannot hold it."""
    if task.options.ignore_result or begin.message.ignore_result:
        return None
    return msgspec.Raw(as_json(result, f"{task.name} returned", begin.limit_bytes))


def without_arguments(message: TaskMessage) -> tuple[TaskMessage, msgspec.Raw]:
    """Return `message` and its arguments as `Begin` takes them."""
    arguments = msgspec.Raw(to_json([message.args, message.kwargs]))
    return msgspec.structs.replace(message, args=(), kwargs={}), arguments


def with_arguments(begin: Begin) -> TaskMessage:
    """Return the message of `begin`, complete again."""
    args, kwargs = from_json(bytes(begin.arguments))
    return msgspec.structs.replace(begin.message, args=tuple(args), kwargs=kwargs)


def find(origin: str, name: str) -> Task:
    """Return the task `name` at `origin`. Raises ConfigError if it is not there."""
    found = imported(origin)
    if isinstance(found, TaskApp):
        found = found.tasks.get(name)
    if not isinstance(found, Task) or found.name != name:
        raise ConfigError(
            f"task {name!r} is not in {origin}: a process of its own sees what the module makes "
            "when it is imported, and no more"
        )
    return found
