"""The app of the worker processes that wear out, run into limits, or lose a child."""

import asyncio
import os
import time
from pathlib import Path

from blimp.errors import SoftTimeLimitExceeded
from blimp.tasks import TaskApp, TaskContext
from tests.tasks.killed import BROKER, DIRECTORY, TRANSPORT

app = TaskApp("labour", broker=BROKER, result_backend=BROKER, transport=TRANSPORT)


def mark(name: str) -> None:
    """Leave a line in the file `name` for the test to see."""
    with (DIRECTORY / name).open("a") as marks:
        marks.write(f"{os.getpid()}\n")


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.005)


@app.task(name="pid")
def pid() -> int:
    return os.getpid()


@app.task(name="count", ignore_result=True)
def count(number: int) -> None:
    mark(f"ran-{number}")


@app.task(name="hold", bind=True)
def hold(context: TaskContext) -> int:
    """Run until the test lets it."""
    mark(f"{context.id}.began")
    wait_for(DIRECTORY / f"{context.id}.go")
    return context.fence


@app.task(name="stuck", time_limit=0.2)
def stuck() -> None:
    mark("stuck.began")
    time.sleep(3600)


@app.task(name="stuck-again", time_limit=0.2, acks_on_timeout=False, bind=True)
def stuck_again(context: TaskContext) -> int:
    if context.fence < 2:
        time.sleep(3600)
    return context.fence


@app.task(name="stubborn", time_limit=0.2)
async def stubborn() -> None:
    """Does not heed its cancellation."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            mark("stubborn.cancelled")


@app.task(name="hoard")
def hoard(megabytes: int) -> int:
    _HOARD.append(b"x" * (megabytes * 1_000_000))
    return os.getpid()


_HOARD: list[bytes] = []


def soft(seconds: float) -> str:
    """Run in small steps, so that an exception may strike between two."""
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            time.sleep(0.001)
    except SoftTimeLimitExceeded:
        return "told"
    return "not told"
