"""docket on Redis streams, 64 coroutines at once, nothing kept of a task that has ended."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta

from docket import Docket, Worker

from benchmarks.queue.tally import QUEUE, URL, ran


async def touch(sent_ns: int) -> None:
    ran(sent_ns)


def _open() -> Docket:
    docket = Docket(name=QUEUE, url=os.environ[URL], execution_ttl=timedelta(0))
    docket.register(touch)
    return docket


async def open_sender() -> Callable[[int], Awaitable[object]]:
    docket = await _open().__aenter__()

    async def send(sent_ns: int) -> object:
        return await docket.add(touch)(sent_ns)

    return send


async def _work() -> None:
    logging.basicConfig(level=logging.WARNING)
    async with _open() as docket, Worker(docket, concurrency=64) as worker:
        await worker.run_forever()


if __name__ == "__main__":
    asyncio.run(_work())
