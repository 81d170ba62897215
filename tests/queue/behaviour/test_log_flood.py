"""Strangers who send rubbish as fast as they can: a worker writes some lines of each kind."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from blimp.queue import TaskApp
from blimp.queue.log import MOST_LINES, stderr_logger
from tests.queue.broadcast.test_extension import Sender
from tests.queue.celery_messages import envelope
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look

KEY = "k" * 32
FLOOD = 1000
MOST_BYTES = 200_000  # unlimited it is 250 bytes a line: 1.3 MB


def lines_of(text: str) -> Iterator[str]:
    """Yield the event of each line of the log."""
    for line in text.splitlines():
        yield line.partition(" event=")[2].partition(" worker=")[0] or line[:40]


def test_rubbish_on_every_road_fills_no_log_and_a_stop_passes(
    url: str, server: redis.Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    with TaskApp("tests", broker=url, result_backend=url, signing_key=KEY) as app:
        app.task(name="add")(lambda a, b: a + b)
        app.on_broadcast("estop")(lambda _: {})
        log = stderr_logger(level="info", worker="worker")
        with working(app, log=log) as worker, TaskApp("tests", broker=url) as stranger:
            look = Look(server=server)
            stranger.broadcast("estop", id="unsigned")
            sender = Sender(stranger)
            with sender.connection:
                sender.send(b"rubbish")
                sender.send(b'{"method": "shutdown", "arguments": {}}')
            asked: Any = server
            newest: dict[bytes, list[Any]] = {
                key: [fields for _, fields in asked.xrange(key)]
                for key in asked.scan_iter("blimp:fanout:*")
            }
            assert sum(map(len, newest.values())) >= 3
            with server.pipeline(transaction=False) as pipe:
                for number in range(FLOOD):
                    for fanout, samples in newest.items():
                        for fields in ({"rubbish": number}, *samples):
                            pipe.xadd(fanout, fields, maxlen=100)
                    pipe.execute()
            for number in range(FLOOD):
                look.push("tests", envelope(task="add", id=f"unsigned-{number}", args=[1, 2]))
                look.push_raw("tests", b"rubbish")
                look.push_raw("tests", json.dumps({"headers": 5}).encode())
            wait_until(lambda: look.waiting() == 0, "the worker does not get through")
            assert app.broadcast("estop", id="genuine").get(DEADLINE_S) == {}
            assert worker.counts["not_genuine"] >= FLOOD
    err = capfd.readouterr().err
    kinds = Counter(lines_of(err))
    assert max(kinds.values()) <= MOST_LINES, kinds
    assert len(err) < MOST_BYTES, kinds
    assert any("unreadable" in kind for kind in kinds)
