"""This project, as people run it: late acknowledgement by default, results off."""

from __future__ import annotations

import os
from collections.abc import Callable

from benchmarks.queue.tally import QUEUE, URL, ran
from blimp.queue import TaskApp

app = TaskApp(QUEUE, broker=os.environ[URL])


@app.task(name="bench.ran")
def touch(sent_ns: int) -> None:
    ran(sent_ns)


def open_sender() -> Callable[[int], object]:
    return touch.delay
