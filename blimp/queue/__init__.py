"""A task queue on kombu and Redis that speaks Celery's protocol; usable without a blimp.

    from blimp.queue import TaskApp

    app = TaskApp("weather", broker="redis://localhost/0", result_backend="redis://localhost/0")

    @app.task(name="weather.read")
    def read(station: str) -> float: ...

    read.delay("pad").get(timeout=5.0)

Run a worker with `python -m blimp.queue worker -A module:app`.

Tasks that belong together: `signature`, `chain`, `group`, `chord` (docs/canvas.md). Resources that
only one program may hold: `ResourcePool` (docs/resources.md). A kombu transport:
`blimp.queue.celery.kombu_transport`. Tested by test_main.py.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.canvas.signature import Signature, chain, chord, group, signature
    from blimp.queue.context import TaskContext
    from blimp.queue.options import Depends
    from blimp.queue.protocol.record import State
    from blimp.queue.resources import ResourcePool
    from blimp.queue.results.handle import AsyncResult, GroupResult
    from blimp.queue.task import Task
    from blimp.queue.timetable import cron, every
    from blimp.queue.worker.worker import Worker

__all__ = [
    "AsyncResult", "Depends", "GroupResult", "ResourcePool", "Signature", "State", "Task",
    "TaskApp", "TaskContext", "Worker", "chain", "chord", "cron", "every", "group", "signature",
]  # fmt: skip

_HOMES = {
    "app": ("TaskApp",),
    "worker.worker": ("Worker",),
    "task": ("Task",),
    "context": ("TaskContext",),
    "options": ("Depends",),
    "results.handle": ("AsyncResult", "GroupResult"),
    "canvas.signature": ("Signature", "signature", "chain", "group", "chord"),
    "protocol.record": ("State",),
    "timetable": ("every", "cron"),
    "resources": ("ResourcePool",),
}


def __getattr__(name: str) -> Any:
    """Load on use: a ground station wants the client alone, and quickly."""
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    from blimp.queue.words import MODULE, here

    if name in MODULE:  # an ImportError keeps its words in `from blimp.queue import …`
        raise ImportError(f"cannot import name {name!r} from {__name__!r}{here(MODULE, name)}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
