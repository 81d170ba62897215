"""Tasks that depend on what their worker makes, in a thread, a loop and a process.

What is opened and closed is written to a file, a line each, with a number for each value.
"""

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from blimp.queue import Depends, TaskApp
from tests.queue.killed_app import BROKER, DIRECTORY

NOTES = DIRECTORY / "notes"
app = TaskApp("depending", broker=BROKER, result_backend=BROKER)
numbers = itertools.count(1)


def note(*words: object) -> None:
    with NOTES.open("a") as notes:
        notes.write(" ".join(map(str, [os.getpid(), *words])) + "\n")


def client() -> Iterator[int]:
    """Made once."""
    number = next(numbers)
    note("client", number, "opened")
    yield number
    note("client", number, "closed")


def session(client: int = Depends(client, per="worker")) -> Iterator[tuple[int, int]]:
    """Made for each call."""
    number = next(numbers)
    note("session", number, "opened")
    try:
        yield client, number
    except Exception as error:
        note("session", number, "raised", type(error).__name__)
        raise
    note("session", number, "closed")


async def aclient() -> AsyncIterator[int]:
    number, loop = next(numbers), asyncio.get_running_loop()
    note("aclient", number, "opened")
    async with asyncio.timeout(3600.0):  # it must be left in the task that entered it
        yield number
    assert asyncio.get_running_loop() is loop
    note("aclient", number, "closed")


async def asession(
    plain: tuple[int, int] = Depends(session), client: int = Depends(aclient, per="worker")
) -> AsyncIterator[tuple[int, int]]:
    note("asession", plain[1], "opened")
    yield client, plain[1]
    note("asession", plain[1], "closed")


def work(fails: bool = False, *, session: tuple[int, int] = Depends(session)) -> Any:
    if fails:
        raise ValueError("as asked")
    note("work", session[1], threading.current_thread().name)
    return session


async def awork(fails: bool = False, *, session: tuple[int, int] = Depends(asession)) -> Any:
    await asyncio.sleep(0)
    if fails:
        raise ValueError("as asked")
    return session


app.task(name="thread")(work)
app.task(name="process", cpu_bound=True)(work)
app.task(name="loop")(awork)
