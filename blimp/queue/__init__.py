"""A task queue on kombu and Redis that speaks Celery's protocol; usable without a blimp.

    from blimp.queue import TaskApp

    app = TaskApp("weather", broker="redis://localhost/0", result_backend="redis://localhost/0")

    @app.task(name="weather.read")
    def read(station: str) -> float: ...

    read.delay("pad").get(timeout=5.0)

Run a worker with `python -m blimp.queue worker -A module:app`.

Tasks that belong together: `signature`, `chain`, `group`, `chord` (docs/canvas.md). Resources that
only one program may hold: `ResourcePool` (docs/resources.md). A kombu transport:
`blimp.queue.kombu_transport`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.canvas.signature import Signature, chain, chord, group, signature
    from blimp.queue.context import TaskContext
    from blimp.queue.protocol.record import State
    from blimp.queue.resources import ResourcePool
    from blimp.queue.results.handle import AsyncResult, GroupResult
    from blimp.queue.task import Task
    from blimp.queue.worker.worker import Worker

__all__ = [
    "AsyncResult", "GroupResult", "ResourcePool", "Signature", "State", "Task", "TaskApp",
    "TaskContext", "Worker", "chain", "chord", "group", "signature",
]  # fmt: skip

_HOMES = {
    "TaskApp": "blimp.queue.app",
    "Worker": "blimp.queue.worker.worker",
    "Task": "blimp.queue.task",
    "TaskContext": "blimp.queue.context",
    "AsyncResult": "blimp.queue.results.handle",
    "GroupResult": "blimp.queue.results.handle",
    "Signature": "blimp.queue.canvas.signature",
    "signature": "blimp.queue.canvas.signature",
    "chain": "blimp.queue.canvas.signature",
    "group": "blimp.queue.canvas.signature",
    "chord": "blimp.queue.canvas.signature",
    "State": "blimp.queue.protocol.record",
    "ResourcePool": "blimp.queue.resources",
}


def __getattr__(name: str) -> Any:
    """Load on use: a ground station wants the client alone, and quickly."""
    import importlib

    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
