"""dramatiq on Redis, 8 threads."""

from __future__ import annotations

import os
from collections.abc import Callable

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.queue.tally import QUEUE, URL, ran

dramatiq.set_broker(RedisBroker(url=os.environ[URL]))


@dramatiq.actor(actor_name="bench.ran", queue_name=QUEUE)
def touch(sent_ns: int) -> None:
    ran(sent_ns)


def open_sender() -> Callable[[int], object]:
    send: Callable[[int], object] = touch.send
    return send
