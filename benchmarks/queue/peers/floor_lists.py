"""The floor on lists: redis-py alone, BLMOVE and LREM, one by one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import redis

from benchmarks.queue.tally import QUEUE, URL, ran

HELD = f"{QUEUE}.held"
BLOCK_S, TIMEOUT_S = 5, 10.0


def _client() -> Any:
    return redis.Redis.from_url(os.environ[URL], socket_timeout=TIMEOUT_S)


def open_sender() -> Callable[[int], None]:
    client = _client()
    return lambda sent_ns: client.lpush(QUEUE, sent_ns)


def work() -> None:
    client = _client()
    while True:
        message = client.blmove(QUEUE, HELD, BLOCK_S, "RIGHT", "LEFT")
        if message is not None:
            ran(int(message))
            client.lrem(HELD, -1, message)


if __name__ == "__main__":
    work()
