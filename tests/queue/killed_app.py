"""The app of the worker processes that the tests kill. Tasks leave marks in files."""

import os
import time
from pathlib import Path

from blimp.queue import TaskApp, TaskContext, signature

BROKER = os.environ.get("KILLED_BROKER", "redis+socket:///nowhere?virtual_host=0")
RESULTS = os.environ.get("KILLED_RESULTS", BROKER)
TRANSPORT = os.environ.get("KILLED_TRANSPORT", "streams")
DIRECTORY = Path(os.environ.get("KILLED_DIRECTORY", "."))

app = TaskApp("killed", broker=BROKER, result_backend=RESULTS, transport=TRANSPORT)


def run(context: TaskContext) -> dict[str, int]:
    """Mark that it began; end when the test lets it."""
    with (DIRECTORY / f"{context.id}.began").open("a") as marks:
        marks.write(f"{os.getpid()} {time.monotonic()}\n")
    while not (DIRECTORY / f"{context.id}.go").exists():
        context.stopping.wait(0.005)
        if context.stopping.is_set():
            time.sleep(0.005)
    return {"pid": os.getpid(), "fence": context.fence}


app.task(name="again", bind=True)(run)
app.task(name="once", bind=True, idempotent=False)(run)
app.task(name="resumed", bind=True, resumable=True, track_started=True)(run)


@app.task(name="quick")
def quick(value: int) -> int:
    return value


@app.task(name="link.parent", bind=True)
def parent(context: TaskContext, number: int) -> int:
    """Take long enough to be killed in; fail for odd numbers."""
    context.stopping.wait(0.01)
    if number % 2:
        raise ValueError(number)
    return number


def _follow(kind: str, context: TaskContext) -> None:
    number = context.message.args[-1]
    with (DIRECTORY / "followed").open("a") as marks:
        marks.write(f"{kind} {number} {context.id}\n")


@app.task(name="link.good", bind=True, ignore_result=True)
def good(context: TaskContext, *_: object) -> None:
    _follow("good", context)


@app.task(name="chord.part", bind=True)
def part(context: TaskContext, number: int) -> int:
    """Take long enough to be killed in."""
    context.stopping.wait(0.005)
    return number


@app.task(name="chord.body", bind=True)
def body(context: TaskContext, numbers: list[int], number: int) -> None:
    assert numbers == [number + place for place in range(len(numbers))], numbers
    _follow("body", context)


@app.task(name="replaced", bind=True)
def replaced(context: TaskContext, number: int) -> None:
    """Take long enough to be killed in; a chain runs in its place."""
    context.stopping.wait(0.005)
    context.replace(signature("quick", (number,)) | signature("link.good", (number,)))


@app.task(name="link.bad", bind=True, ignore_result=True)
def bad(context: TaskContext, *_: object) -> None:
    _follow("bad", context)
