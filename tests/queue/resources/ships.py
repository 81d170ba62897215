"""Tasks that require a ship, for a worker in a process of its own."""

import os
import time
from pathlib import Path
from typing import Any

from blimp.queue import TaskApp
from blimp.queue.context import TaskContext

app = TaskApp(
    "tests",
    broker=os.environ.get("KILLED_BROKER", "redis://nowhere"),
    result_backend=os.environ.get("KILLED_RESULTS", "redis://nowhere"),
    transport=os.environ.get("KILLED_TRANSPORT", "streams"),
)
app.pools.declare("ship", ttl_s=600.0)


def note(context: TaskContext) -> dict[str, Any]:
    grant = context.grant
    assert grant is not None
    grant.check()
    return {
        "resource": grant.resource,
        "token": grant.token,
        "holder": grant.holder,
        "deliveries": context.deliveries,
    }


@app.task(name="fly", requires="ship", bind=True)
def fly(context: TaskContext) -> dict[str, Any]:
    """The first delivery waits to be killed, holding its ship."""
    if context.deliveries == 1:
        Path(os.environ["KILLED_DIRECTORY"], "flying").touch()
        time.sleep(60.0)
    return note(context)


@app.task(name="compute", requires="ship", bind=True, cpu_bound=True)
def compute(context: TaskContext) -> dict[str, Any]:
    return note(context)
