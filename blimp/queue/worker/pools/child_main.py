"""What runs in a child process: one job at a time, from a socket to an outcome.

It never uses the worker's broker. The main thread runs the tasks, because a soft time limit
comes as a signal, which Python handles there; another thread reads the channel.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import queue
import random
import signal
import socket
import threading
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.clock import SystemClock
from blimp.errors import ConfigError, ResultError, SoftTimeLimitExceeded
from blimp.queue.context import TaskContext
from blimp.queue.extensions import ChildExtension, ChildHook, load
from blimp.queue.protocol.embed import called_task
from blimp.queue.protocol.message import to_json
from blimp.queue.protocol.record import Outcome, State, failure
from blimp.queue.task import Task
from blimp.queue.worker.completions import outcome_of
from blimp.queue.worker.pools.child import (
    Begin,
    Channel,
    Done,
    Interrupt,
    Progress,
    Ready,
    Setup,
    Stopping,
    ToChild,
    Unfit,
    with_arguments,
)
from blimp.queue.worker.shutdown import Wear

if TYPE_CHECKING:
    from blimp.queue.resources.grant import Grant


def main(setup_json: str) -> None:
    """Serve the worker at the other end of standard input until that closes it."""
    setup = msgspec.json.decode(setup_json, type=Setup)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    channel = Channel(socket.socket(fileno=os.dup(0)), receives=ToChild)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a task that reads standard input must not read frames
    os.close(nothing)
    with contextlib.suppress(BrokenPipeError):
        Server(setup=setup, channel=channel).serve()


class Server:
    def __init__(self, *, setup: Setup, channel: Channel) -> None:
        self._setup = setup
        self._channel = channel
        self._wear = Wear(max_tasks=setup.max_tasks, max_memory_mb=setup.max_memory_mb)
        self._chance = random.Random()
        self._begins: queue.SimpleQueue[Begin | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._job: int | None = None
        self._interrupted: int | None = None
        self._extension: ChildExtension | None = None
        self._hook: ChildHook | None = None

    def serve(self) -> None:
        try:
            for origin in self._setup.origins:
                __import__(origin.partition(":")[0])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._channel.send(Unfit(child=self._setup.child, reason=reason))
            return
        signal.signal(signal.SIGUSR1, self._interrupt)
        threading.Thread(target=self._read, name="channel", daemon=True).start()
        self._channel.send(Ready(child=self._setup.child))
        while (begin := self._begins.get()) is not None:
            outcome = self._run(begin)
            worn = self._wear.count() or ""
            self._channel.send(
                Done(child=self._setup.child, job=begin.job, outcome=outcome, worn=worn)
            )
        if self._hook is not None:
            self._hook.close()

    # --- the main thread -----------------------------------------------------------------------

    def _run(self, begin: Begin) -> Outcome:
        try:
            begin = msgspec.structs.replace(begin, message=with_arguments(begin))
            name = begin.message.task
            task = find(begin.origin, called_task(name, begin.message.kwargs))
            if task.name != name:
                task = task.app.task_for(begin.message)
            args = begin.message.args
            if task.options.bind:
                context = ChildContext(
                    task=task,
                    begin=begin,
                    channel=self._channel,
                    stopping=self._stopping,
                )
                args = (context, *args)
        except Exception as error:
            return failure(error)
        try:
            try:
                self._job = begin.job
                with self._around(begin):
                    result = task.function(*args, **begin.message.kwargs)
            finally:
                self._job = None
            return Outcome(state=State.SUCCESS, result=_sendable(result, task, begin))
        except BaseException as error:  # a task may raise SystemExit; the child goes on
            self._job = None  # a soft limit may have interrupted the line that does it
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
        if self._job is not None and self._job == self._interrupted:
            self._interrupted = None
            raise SoftTimeLimitExceeded

    # --- the thread that reads -------------------------------------------------------------------

    def _read(self) -> None:
        while True:
            try:
                self._handle(self._channel.receive())
            except Exception:  # closed, or nothing that can be read
                if self._job is not None:
                    os._exit(1)  # nothing waits for it any more
                self._begins.put(None)
                return

    def _handle(self, frame: Any) -> None:
        if frame.child != self._setup.child:
            os._exit(1)  # the worker finds it gone, and starts another
        if isinstance(frame, Begin):
            self._begins.put(frame)
        elif isinstance(frame, Interrupt):
            self._interrupted = frame.job
            ident = threading.main_thread().ident
            assert ident is not None
            signal.pthread_kill(ident, signal.SIGUSR1)
        elif isinstance(frame, Stopping):
            self._stopping.set()


class ChildContext(TaskContext):
    """A TaskContext without a broker: progress and the broker's time go through the worker."""

    def __init__(
        self,
        *,
        task: Task,
        begin: Begin,
        channel: Channel,
        stopping: threading.Event,
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
        )
        self._begin = begin
        self._channel = channel
        self._began_s = time.monotonic()

    def progress(self, fraction: float, **details: Any) -> bool:
        """Ask the worker to publish how far the task is; returns True, as it does not answer."""
        try:
            to_json([fraction, details])
        except (TypeError, ValueError, RecursionError) as error:
            raise ResultError(f"{self.task.name}: progress JSON cannot hold: {error}") from error
        self._channel.send(
            Progress(
                child=self._begin.child, job=self._begin.job, fraction=fraction, details=details
            )
        )
        return True

    def _broker_now_s(self) -> float:
        if self._begin.broker_now_s is None:
            return time.time()
        return self._begin.broker_now_s + time.monotonic() - self._began_s


def _grant(given: dict[str, Any]) -> Grant:
    """Return the grant as a child sees it: the worker renews it, and kills a child that lost it."""
    from blimp.queue.resources.grant import Grant, Ticket

    now_s = time.monotonic()
    return Grant(ticket=Ticket.read(given), ttl_s=math.inf, asked_s=now_s, clock=SystemClock())


def _sendable(result: Any, task: Task, begin: Begin) -> Any:
    """Return `result` as JSON. Raises ResultError if JSON cannot hold it."""
    if task.options.ignore_result or begin.message.ignore_result:
        return None
    try:
        data = to_json(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultError(f"{task.name} returned what JSON cannot hold: {error}") from error
    if len(data) > begin.limit_bytes:
        raise ResultError(
            f"{task.name} returned {len(data)} bytes as JSON: the limit is {begin.limit_bytes}"
        )
    return msgspec.Raw(data)


def find(origin: str, name: str) -> Task:
    """Return the task `name` at `origin`. Raises ConfigError if it is not there."""
    from blimp.queue.app import TaskApp

    module_name, _, attribute = origin.partition(":")
    found = getattr(importlib.import_module(module_name), attribute, None)
    if isinstance(found, TaskApp):
        found = found.tasks.get(name)
    if not isinstance(found, Task) or found.name != name:
        raise ConfigError(
            f"task {name!r} is not in {origin}: a process of its own sees what the module makes "
            "when it is imported, and no more"
        )
    return found
