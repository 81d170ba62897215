"""How something plugs into an app's workers without the worker knowing it.

    class Load(Extension):
        def __init__(self, worker): self.worker = worker
        def beat(self, alive): publish(len(self.worker.jobs()))

    app.extend(Load)

Each worker of the app calls each registered factory once, with itself, and then the hooks of
what it returned. Events, remote control, metrics and traces are made this way. An extension
may use the public attributes of `Worker`; the worker knows of it only what stands here.

Canvases are a part of a job's end. A worker calls them through `FollowUps`, and knows of them,
too, only what stands here.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from blimp.errors import ConfigError
from blimp.queue.neighbours import load

if TYPE_CHECKING:
    from blimp.queue.brokers.base import Completion, FollowUp
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.protocol.record import Outcome, Record

# Registered for every app, and loaded by its worker. A further one is one line here.
WORKER_EXTENSIONS = ("blimp.queue.broadcast.extension:ControlExtension",)
SCHEDULES = "blimp.queue.scheduler:Schedules"  # of an app with a task that has one
KEPT = "blimp.queue.dependencies:KeptCloser"  # of an app with a task that depends on something
FOLLOW_UPS = "blimp.queue.canvas.chords:CanvasFollowUps"  # loaded by the first canvas


class ControlCommand(msgspec.Struct, frozen=True, kw_only=True):
    """function: called with the command's arguments; returns the answer (JSON).

    is_change: only a caller that may change the worker may use it.
    """

    function: Callable[..., Any]
    is_change: bool = True


class Extension:
    """Part of one worker. Override what is needed: every hook does nothing by default.

    Hooks of the worker, in order:
        starting: nothing is consumed yet; threads may be started, which block no signal.
        consuming: the worker has connected to its broker, or again. Main thread, right before
            it takes messages; may raise LinkError, and is called again then.
        beat: about once a second, from the heartbeat's thread; `alive`: the broker answered.
        stopping: nothing runs any more, or it was cut off; its end may still be written.
        stopped: all is written. The worker ends, or is replaced by a fresh process.

    Hooks of a job (see worker/job.py), in the thread where it happens; they neither wait nor
    raise. Its times, `received_s`, `started_s` and `ended_s`, are on the app's clock.
        received: it is in flight, and may have to wait for its time or for a pool.
        started: its function is called now.
        finished: its outcome is written: the end, the next try, or that it was requeued.
            What follows from it may be under way already, here or elsewhere.
        lost: another worker has its message: what it ends with here does not count.
    observes_jobs: False has the job hooks called only between `worker.observers.add(self)`
        and `remove(self)`.

    commands: remote-control commands it answers, by name.
    """

    observes_jobs: bool = True
    commands: Mapping[str, ControlCommand] = {}

    def starting(self) -> None: ...

    def consuming(self) -> None: ...

    def beat(self, alive: bool) -> None: ...

    def stopping(self) -> None: ...

    def stopped(self) -> None: ...

    def received(self, job: Any) -> None: ...

    def started(self, job: Any) -> None: ...

    def finished(self, job: Any, outcome: Any) -> None: ...

    def lost(self, job: Any) -> None: ...


class BackgroundExtension(Extension):
    """Works in a thread of its own, from the first connection until the worker stops.

    name: of the thread. `_ended` is set when it shall end.
    """

    observes_jobs = False

    def __init__(self, worker: Any, *, name: str) -> None:
        self._app = worker.app
        self._log = worker.log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def consuming(self) -> None:
        if not self._thread.is_alive() and not self._ended.is_set():
            self._thread.start()

    def stopping(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0 * self._app.timeout_s)

    def _serve(self) -> None:
        raise NotImplementedError


class Followed(Protocol):
    """What is written together with the end of a task, or not at all.

    complaints: the reasons why something that was to follow does not. children: what the
    record of the task names as sent by it.
    """

    @property
    def messages(self) -> Sequence[TaskMessage]: ...
    @property
    def complaints(self) -> Sequence[str]: ...
    @property
    def children(self) -> Sequence[Any]: ...


UntilDone = Callable[..., bool]  # calls until its server answers; False: the worker ends first


class FollowUps(Protocol):
    """What a worker calls of canvases: with a message that something follows, and no other.

    One for an app; any thread. Methods without `until_done` raise LinkError.
    """

    def follow(
        self, message: TaskMessage, outcome: Outcome, *, previous: Record | None
    ) -> tuple[Followed, Outcome]:
        """Return what follows `message`, and its outcome: a failure if it cannot be followed."""
        ...

    def update(self, found: Any, outcome: Outcome) -> FollowUp | None:
        """Return what the completion writes beside the messages of `found`; None for nothing."""
        ...

    def restated(self, completion: Completion) -> tuple[Completion, Record | None]:
        """Return what to write if another worker's result stands, and that result."""
        ...

    def join(self, completion: Completion, complete: Sequence[int], client: Any) -> Completion:
        """Return `completion` with what begins with these parts of its follow-up, by number."""
        ...

    def count(self, completion: Completion, until_done: UntilDone) -> Completion | None:
        """Do the steps that come before the completion; return it, None if the worker ends."""
        ...

    def note_joined(self, completion: Completion, until_done: UntilDone) -> None:
        """Do the steps that come after the completion."""
        ...


ExtensionFactory = Callable[[Any], Extension]  # called with the Worker


class Observers:
    """Calls the job hooks of several extensions. Any thread.

    What one raises is logged, and stops neither the job nor the others. `received`, `started`,
    `finished` and `lost` are empty while nobody observes.
    """

    def __init__(self, *, log: Any) -> None:
        self._log = log
        self.extensions: tuple[Extension, ...] = ()

    def add(self, extension: Extension) -> None:
        """Call its job hooks from now on, for jobs under way too; those it does not have, never."""
        self.extensions = (*self.extensions, extension)

    def remove(self, extension: Extension) -> None:
        self.extensions = tuple(one for one in self.extensions if one is not extension)

    def _call(self, hook: str, job: Any, *outcome: Any) -> None:
        for extension in self.extensions:
            try:
                getattr(extension, hook)(job, *outcome)
            except Exception:
                self._log.exception("observer", hook=hook, id=job.message.id)

    received = partialmethod(_call, "received")
    started = partialmethod(_call, "started")
    finished = partialmethod(_call, "finished")
    lost = partialmethod(_call, "lost")


def observes(extension: Extension) -> bool:
    """Return whether any job hook of `extension` does something, and is wanted at once."""
    hooks = ("received", "started", "finished", "lost")
    kind = type(extension)
    return extension.observes_jobs and any(
        getattr(kind, hook) is not getattr(Extension, hook) for hook in hooks
    )


class Plugged:
    """The extensions of one worker, in the order in which they were plugged in."""

    def __init__(self, *, observers: Observers, log: Any) -> None:
        self._observers = observers
        self._log = log
        self._extensions: tuple[Extension, ...] = ()

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._extensions)

    def plug_in(self, worker: Any, factories: Sequence[ExtensionFactory | str]) -> None:
        """Make an extension by each of `factories`."""
        for factory in factories:
            extension = load(factory)(worker)
            self._extensions = (*self._extensions, extension)
            if observes(extension):
                self._observers.add(extension)

    def beats(self) -> list[Callable[[bool], None]]:
        return [extension.beat for extension in self._extensions]

    def call(self, hook: str) -> None:
        """Call a hook of each; what one raises ends the worker."""
        for extension in self._extensions:
            getattr(extension, hook)()

    def end(self, hook: str) -> None:
        """Call a closing hook of each: one that fails keeps no other from closing."""
        for extension in self._extensions:
            try:
                getattr(extension, hook)()
            except Exception:
                self._log.exception("extension", hook=hook, of=type(extension).__name__)


class Middleware(Protocol):
    """Wraps the function of each job: see worker/middleware.py."""

    def __call__(self, job: Any, call_next: Callable[[Any], Awaitable[Any]], /) -> Awaitable[Any]:
        """Return the outcome of `call_next(job)`, or one of its own."""
        ...


class ChildExtension(msgspec.Struct, frozen=True, kw_only=True):
    """What an extension has a child process do around each task: traces, log lines.

    factory: "module:attribute", called in the child with `settings` (JSON) once; returns a
        ChildHook.
    """

    factory: str
    settings: dict[str, Any]


class ChildHook(Protocol):
    """An extension's part in a child process."""

    def around(self, message: Any) -> AbstractContextManager[object]:
        """Return what the call of a task's function is wrapped in."""
        ...

    def close(self) -> None:
        """The child ends."""
        ...


class BootStep(Protocol):
    """Both get the Worker, and run in its first loop, where `async def` tasks run too."""

    async def start(self, worker: Any) -> None: ...

    async def stop(self, worker: Any) -> None: ...


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """One emergency message as it came. id: the same each time it is repeated.

    seal, sent_s: of each repeat, if it is signed; sent_s is on the broker's clock.
    """

    id: str
    name: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    seal: str | None = None
    sent_s: float | None = None
    signature: str = ""


# Returns what confirms it, None if it could not act yet. Raises Refused with a reason.
BroadcastHandler = Callable[[Broadcast], dict[str, Any] | None]


class Hooks:
    """What the workers of the app `name` call, beside its tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.broadcasts: dict[str, BroadcastHandler] = {}
        self.boot_steps: list[BootStep] = []
        # Why no broadcast would reach this process's worker, "" if it would; see Listener.
        self.deaf: Callable[[], str] = lambda: ""
        self.link_watchers: list[Callable[[bool], None]] = []
        self.extensions: list[ExtensionFactory | str] = list(WORKER_EXTENSIONS)
        self.child_extension: ChildExtension | None = None

    def on_broadcast(self, name: str) -> Callable[[BroadcastHandler], BroadcastHandler]:
        """Register what a worker does at once on `broadcast(name, …)`, past every queue.

        The handler gets the broadcast and returns what confirms it (JSON), or None if it
        could not act: it is then called again when the sender repeats itself.
        """

        def register(handler: BroadcastHandler) -> BroadcastHandler:
            if name in self.broadcasts:
                raise ConfigError(f"app {self.name!r}: two handlers for broadcast {name!r}")
            self.broadcasts[name] = handler
            return handler

        return register

    def on_link(self, watcher: Callable[[bool], None]) -> Callable[[bool], None]:
        """Register what a worker calls about once a second: did the broker answer just now?"""
        self.link_watchers.append(watcher)
        return watcher

    def boot_step(self, step: BootStep) -> BootStep:
        """Have a worker start `step` before it consumes, and stop it, in reverse order, after.

        A step has the coroutines `start(worker)` and `stop(worker)`; one that does not start
        ends the worker.
        """
        self.boot_steps.append(step)
        return step

    def extend(self, factory: ExtensionFactory) -> ExtensionFactory:
        """Have each worker of the app that is made from now on call `factory` with itself."""
        self.extensions.append(factory)
        return factory
