"""What a worker that starts on a terminal says of itself, as Celery's does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blimp.distribution import described
from blimp.queue.log import printable
from blimp.queue.redis.urls import hide_password
from blimp.queue.worker.boot import missing_guarantees

if TYPE_CHECKING:
    from blimp.queue.worker.worker import Worker


def greeting(worker: Worker) -> str:
    """Return the lines: app, brokers without passwords, queues, tasks, pools, what is missing."""
    app, sizes = worker.app, worker.pools.sizes
    results = app.result_backend or ()
    rows = [
        ("app", app.name),
        ("broker", _urls(app.brokers.urls)),
        ("results", _urls([results] if isinstance(results, str) else results) or "none are kept"),
        ("queues", ", ".join(dict.fromkeys(worker.settings.queues)) or app.queue),
        (
            "pools",
            f"{sizes.sync_workers} threads; {sizes.loop_workers} event loops of "
            f"{sizes.loop_concurrency} tasks each; {sizes.process_workers} processes",
        ),
        ("prefetch", str(worker.settings.prefetch or "adapts")),
        ("events", "sent" if app.events else "not sent; -E sends them"),
        ("not guaranteed", missing_guarantees(app) or "nothing is missing with this broker"),
    ]
    lines = [f"{worker.name}: blimp.queue {described()}", ""]
    lines += [f"  {name:14}  {value}" for name, value in rows]
    lines += ["", "tasks" if app.tasks else "no tasks: this worker runs nothing"]
    lines += [f"  {name}" for name in sorted(app.tasks)]
    return "\n".join(printable(line) for line in [*lines, ""])


def _urls(urls: object) -> str:
    assert isinstance(urls, list | tuple)
    return ", ".join(hide_password(url) for url in urls)
