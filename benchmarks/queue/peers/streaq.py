"""streaQ on Redis streams, 64 coroutines at once, results for no time."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from streaq import Worker

from benchmarks.queue.tally import QUEUE, URL, ran

worker = Worker(redis_url=os.environ[URL], queue_name=QUEUE, concurrency=64)


@worker.task(name="bench.ran", ttl=0)
async def touch(sent_ns: int) -> None:
    ran(sent_ns)


async def open_sender() -> Callable[[int], Awaitable[object]]:
    await worker.__aenter__()

    async def send(sent_ns: int) -> object:
        return await touch.enqueue(sent_ns)

    return send


if __name__ == "__main__":  # its own command logs each task
    worker.run_sync()
