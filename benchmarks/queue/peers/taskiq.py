"""taskiq on Redis streams: acknowledges when the task has ended, no result backend."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from taskiq_redis import RedisStreamBroker

from benchmarks.queue.tally import QUEUE, URL, ran

broker = RedisStreamBroker(url=os.environ[URL], queue_name=QUEUE)


@broker.task(task_name="bench.ran")
async def touch(sent_ns: int) -> None:
    ran(sent_ns)


async def open_sender() -> Callable[[int], Awaitable[object]]:
    await broker.startup()
    send: Callable[[int], Awaitable[object]] = touch.kiq
    return send
