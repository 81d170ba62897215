"""The app of workers that kill themselves between the steps of a task."""

import asyncio
import os
import signal
import sys
import time
from functools import partial

from blimp.errors import SoftTimeLimitExceeded, TaskError
from blimp.queue import TaskApp, TaskContext
from tests.queue.killed_app import BROKER, DIRECTORY, RESULTS

app = TaskApp("stepping", broker=BROKER, result_backend=RESULTS)


def boundary(name: str) -> None:
    """Kill the worker here if the test asks for that, once."""
    wish = DIRECTORY / f"kill.{name}"
    if wish.exists():
        wish.unlink()
        os.kill(os.getpid() if "worker" in sys.argv else os.getppid(), signal.SIGKILL)
        signal.pause()


def effect(name: str) -> list[object]:
    boundary(f"in {name}")
    with (DIRECTORY / "effects").open("a") as effects:
        effects.write(f"{name}\n")
    boundary(f"after the effect of {name}")
    return [name, os.getpid()]


async def later(name: str) -> list[object]:
    await asyncio.sleep(0)
    return effect(name)


def run(context: TaskContext) -> list[object]:
    boundary("before a")
    a = context.step("a", partial(effect, "a"))
    boundary("before b")
    b = context.step("b", partial(effect, "b"))
    boundary("before the end")
    return [a, b, context.fence]


app.task(name="thread", bind=True)(run)
app.task(name="process", bind=True, cpu_bound=True)(run)


@app.task(name="limited", bind=True, cpu_bound=True, soft_time_limit=1.0)
def limited(context: TaskContext) -> str:
    (DIRECTORY / "began").touch()
    while not (DIRECTORY / "go").exists():
        time.sleep(0.005)
    try:
        context.step("a", int)
        context.step("b", lambda: time.sleep(30.0))
    except SoftTimeLimitExceeded:
        return "interrupted"
    return "not interrupted"


@app.task(name="loop", bind=True)
async def in_loop(context: TaskContext) -> list[object]:
    boundary("before a")
    a = await context.step("a", partial(later, "a"))
    boundary("before b")
    b = await context.step("b", partial(later, "b"))
    boundary("before the end")
    return [a, b, context.fence]


@app.task(name="retried", bind=True, autoretry_for=(TaskError,), retry_backoff=0)
def retried(context: TaskContext) -> list[object]:
    a = context.step("a", partial(effect, "a"))
    if context.retries < 2:
        raise TaskError("again")
    return [a, context.retries]
