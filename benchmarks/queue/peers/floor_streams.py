"""The floor on streams: redis-py alone, XREADGROUP in batches of 16, XACK after the work."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import redis

from benchmarks.queue.tally import QUEUE, URL, ran

GROUP = "workers"
BATCH = 16
BLOCK_MS, TIMEOUT_S = 5_000, 10.0


def _client() -> Any:
    return redis.Redis.from_url(os.environ[URL], socket_timeout=TIMEOUT_S)


def open_sender() -> Callable[[int], None]:
    client = _client()
    return lambda sent_ns: client.xadd(QUEUE, {"sent_ns": sent_ns})


def work() -> None:
    client = _client()
    client.xgroup_create(QUEUE, GROUP, id="0", mkstream=True)
    while True:
        answer = client.xreadgroup(GROUP, "floor", {QUEUE: ">"}, count=BATCH, block=BLOCK_MS)
        for _, entries in answer or ():
            for _, fields in entries:
                ran(int(fields[b"sent_ns"]))
            client.xack(QUEUE, GROUP, *(id for id, _ in entries))


if __name__ == "__main__":
    work()
