"""saq on Redis, 16 at once."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from saq import Queue

from benchmarks.queue.tally import QUEUE, URL, ran

queue = Queue.from_url(os.environ[URL], name=QUEUE)


async def touch(_: Any, *, sent_ns: int) -> None:
    ran(sent_ns)


settings = {"queue": queue, "functions": [touch], "concurrency": 16}


async def open_sender() -> Callable[[int], Awaitable[object]]:
    await queue.connect()

    async def send(sent_ns: int) -> object:
        return await queue.enqueue("touch", sent_ns=sent_ns, ttl=-1)

    return send
