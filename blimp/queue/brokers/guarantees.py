"""What is missing with the transport in use, in the words of a worker's start-up line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from blimp.errors import ConfigError
from blimp.queue.brokers.choose import carrier_of

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.options import TaskOptions

# The guarantees that not every transport gives, in the words of the start-up line.
LACKS = {
    "taking": "a message is lost if the worker is killed, or the link lost, while it is taken",
    "memory": "messages end with this process, and no other sees them",
    "untested": "what it keeps of a killed worker's messages is its own affair",
    "name": "what a killed worker held waits until its name starts again",
    "leases": "no leases: a task that runs through an outage may be run elsewhere as well",
    "fence": "deliveries are not counted, only the first told from the others: a message that "
    "kills its worker comes again for ever",
    "names": "two live workers of one name are not refused",
    "one_step": "result and acknowledgement are two steps",
    "eta": "tasks with an ETA wait in a worker's memory",
    "priorities": "no priorities",
    "dead": "no dead letters: what is given up is dropped",
    "dead_queue": "dead letters stand in QUEUE.dead, which `dead` does not show",
    "broadcast": "a broadcast during an outage is not heard",
    # without a result_backend, where the broker is not a Redis server
    "results": "no results",
    "clock": "ages are judged on this machine's clock",
    "once": "tasks that need a note of what has begun, or is newest, are refused",
    "revoke": "a task is revoked only where a worker listens at that moment",
}
_WITHOUT_STORE = ("results", "clock", "once", "revoke")

# What a task may ask for, and whether it does. All is noted on the server.
NEEDS_STORE: dict[str, Callable[[TaskOptions], bool]] = {
    "idempotent=False": lambda options: not options.idempotent,
    "reject_on_worker_lost=True": lambda options: options.reject_on_worker_lost,
    "coalesce": lambda options: options.coalesce is not False,
    "requires": lambda options: options.requires is not None,
}


def missing_guarantees(app: TaskApp) -> str | None:
    """Return the line that a worker says at its start; None where nothing is missing."""
    carrier = carrier_of(app.transport)
    lacks = carrier.lacks + (() if app.has_store else _WITHOUT_STORE)
    if not lacks:
        return None
    return f'transport "{app.transport}" ({carrier.title}): ' + "; ".join(LACKS[k] for k in lacks)


def check_tasks(app: TaskApp) -> None:
    """Raise ConfigError for a task that asks for what its transport cannot do."""
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
