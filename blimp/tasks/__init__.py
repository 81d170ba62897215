"""A task queue on kombu and Redis that speaks Celery's protocol; usable without a blimp.

    from blimp.tasks import TaskApp

    app = TaskApp("weather", broker="redis://localhost/0", result_backend="redis://localhost/0")

    @app.task(name="weather.read")
    def read(station: str) -> float: ...

    read.delay("pad").get(timeout=5.0)

Run a worker with `python -m blimp.tasks worker -A module:app`.

Tasks that belong together: `signature`, `chain`, `group`, `chord` (docs/canvas.md). Executors that
only one may hold: `blimp.tasks.leases`. A kombu transport: `blimp.tasks.transport`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.canvas.signature import Signature, chain, chord, group, signature
    from blimp.tasks.results.group import GroupResult
    from blimp.tasks.results.handle import AsyncResult
    from blimp.tasks.results.record import State
    from blimp.tasks.task import Task, TaskContext
    from blimp.tasks.worker import Worker

__all__ = [
    "AsyncResult", "GroupResult", "Signature", "State", "Task", "TaskApp", "TaskContext", "Worker",
    "chain", "chord", "group", "signature",
]  # fmt: skip

_HOMES = {
    "TaskApp": "blimp.tasks.app",
    "Worker": "blimp.tasks.worker",
    "Task": "blimp.tasks.task",
    "TaskContext": "blimp.tasks.task",
    "AsyncResult": "blimp.tasks.results.handle",
    "GroupResult": "blimp.tasks.results.group",
    "Signature": "blimp.tasks.canvas.signature",
    "signature": "blimp.tasks.canvas.signature",
    "chain": "blimp.tasks.canvas.signature",
    "group": "blimp.tasks.canvas.signature",
    "chord": "blimp.tasks.canvas.signature",
    "State": "blimp.tasks.results.record",
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
