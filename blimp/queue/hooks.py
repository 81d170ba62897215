"""What the workers of an app call, beside its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError

if TYPE_CHECKING:
    from blimp.queue.control.broadcast import BroadcastHandler
    from blimp.queue.worker.boot import BootStep
    from blimp.queue.worker.observers import Observer


class Hooks:
    """Handlers of broadcasts, watchers of the link, and boot steps of the app `name`.

    observers: each makes one for a worker that is made; it is told of every job.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.broadcasts: dict[str, BroadcastHandler] = {}
        self.boot_steps: list[BootStep] = []
        self.link_watchers: list[Callable[[bool], None]] = []
        self.observers: list[Callable[[Any], Observer]] = []

    def on_broadcast(self, name: str) -> Callable[[BroadcastHandler], BroadcastHandler]:
        """Register what a worker does at once on `broadcast(name, …)`, past every queue.

        The handler gets the broadcast and returns what confirms it (JSON), or None where it
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
