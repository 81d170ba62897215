"""The app of the worker processes of the tests of fair shares. Its task leaves a line in a file."""

import os
from pathlib import Path

from blimp.queue import TaskApp, TaskContext

BROKER = os.environ.get("KILLED_BROKER", "redis+socket:///nowhere?virtual_host=0")
DIRECTORY = Path(os.environ.get("KILLED_DIRECTORY", "."))

app = TaskApp("fair", broker=BROKER, result_backend=BROKER)


@app.task(name="share", bind=True, fair_key="{tenant}")
def share(context: TaskContext, tenant: str, number: int) -> int:
    """Write that it began. If there is a file `hold`, write that too, and end once it is gone."""
    note("begun", tenant, number)
    if (DIRECTORY / "hold").exists():
        note("held", tenant, number)
        while (DIRECTORY / "hold").exists():
            context.stopping.wait(0.005)
    return number


def note(name: str, tenant: str, number: int) -> None:
    with (DIRECTORY / name).open("a") as lines:
        lines.write(f"{tenant} {number}\n")
