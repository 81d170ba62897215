"""Celery on kombu's Redis transport: late acknowledgement, results off, all else its default."""

from __future__ import annotations

import os
from collections.abc import Callable

from celery import Celery

from benchmarks.queue.tally import QUEUE, URL, ran

app = Celery("bench", broker=os.environ[URL])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue=QUEUE,
    worker_hijack_root_logger=True,
)


@app.task(name="bench.ran")
def touch(sent_ns: int) -> None:
    ran(sent_ns)


def open_sender() -> Callable[[int], object]:
    send: Callable[[int], object] = touch.delay
    return send
