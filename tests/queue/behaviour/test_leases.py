"""A worker on streams: a lost lease reaches its task, and a bad message is a dead letter."""

import asyncio
import threading
from typing import Any

from blimp.queue import State, TaskApp
from blimp.queue.brokers.streams.visibility import StreamsSession
from blimp.queue.redis.keys import GROUP
from tests.queue.conftest import DEADLINE_S, wait_until, working


def steal(session: StreamsSession) -> None:
    """Give what is in flight to another consumer, as after an expired lease."""
    stream = session.keys.queue("tests").levels[2]
    client: Any = session.link.client
    for one in client.xpending_range(stream, GROUP, "-", "+", 10):
        client.xclaim(stream, GROUP, "thief", 0, [one["message_id"]])


def test_a_lost_lease_cancels_an_async_task_and_refuses_its_result(
    app: TaskApp, session: StreamsSession
) -> None:
    busy, cancelled = threading.Event(), threading.Event()

    @app.task(name="long")
    async def long() -> str:
        busy.set()
        try:
            await asyncio.sleep(DEADLINE_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "late"

    with working(app) as worker:
        handle = long.delay()
        assert busy.wait(DEADLINE_S)
        steal(session)
        assert cancelled.wait(DEADLINE_S)
        wait_until(lambda: worker.counts["done"] == 1, "it is still in flight")
        assert worker.counts["leases_lost"] == 1
        assert handle.state is State.PENDING
