"""huey on Redis, one worker thread, as its documents begin; at most once by design."""

from __future__ import annotations

import os
from collections.abc import Callable

from huey import RedisHuey

from benchmarks.queue.tally import QUEUE, URL, ran

app = RedisHuey(QUEUE, url=os.environ[URL], results=False)


@app.task(name="bench_ran")
def touch(sent_ns: int) -> None:
    ran(sent_ns)


def open_sender() -> Callable[[int], object]:
    send: Callable[[int], object] = touch
    return send
