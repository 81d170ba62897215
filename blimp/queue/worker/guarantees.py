"""What a worker checks before it consumes: which guarantees are missing, and what needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from blimp.errors import ConfigError

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.options import TaskOptions

# What a task may ask for, and whether it does. All of it is noted on a Redis server.
NEEDS_STORE: dict[str, Callable[[TaskOptions], bool]] = {
    "idempotent=False": lambda options: not options.idempotent,
    "reject_on_worker_lost=True": lambda options: options.reject_on_worker_lost,
    "coalesce": lambda options: options.coalesce is not False,
    "requires": lambda options: options.requires is not None,
}


def missing_guarantees(app: TaskApp) -> str | None:
    """Return the line that a worker logs at its start; None if nothing is missing."""
    missing = app.capabilities.missing(has_store=app.has_store)
    if not missing:
        return None
    return f'transport "{app.transport}" ({app.capabilities.title}): ' + "; ".join(missing)


def check_tasks(app: TaskApp) -> None:
    """Raise ConfigError for a task that asks for what its broker cannot do."""
    if app.has_store:
        return
    refused = [
        f"{task.name!r} for {option}"
        for task in app.tasks.values()
        for option, needs in NEEDS_STORE.items()
        if needs(task.options)
    ]
    if refused:
        raise ConfigError(
            f"app {app.name!r} needs a Redis server beside transport {app.transport!r}: "
            f"{', '.join(refused)}; give it a result_backend"
        )
