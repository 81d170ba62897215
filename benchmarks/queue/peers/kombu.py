"""A kombu consumer alone, on kombu's own Redis transport; acknowledges after the work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

import kombu

from benchmarks.queue.tally import QUEUE, URL, ran

BLOCK_S = 5.0


def open_sender() -> Callable[[int], None]:
    producer = kombu.Connection(os.environ[URL]).Producer()
    queue = kombu.Queue(QUEUE)
    queue(producer.channel).declare()
    return lambda sent_ns: producer.publish({"sent_ns": sent_ns}, routing_key=QUEUE)


def _take(body: dict[str, int], message: Any) -> None:
    ran(body["sent_ns"])
    message.ack()


def work() -> None:
    with (
        kombu.Connection(os.environ[URL]) as connection,
        connection.Consumer(kombu.Queue(QUEUE), callbacks=[_take], accept=["json"]),
    ):
        while True:
            with contextlib.suppress(TimeoutError):
                connection.drain_events(timeout=BLOCK_S)


if __name__ == "__main__":
    work()
