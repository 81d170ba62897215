"""What a message says of its way: its level, when it is due, and how long it may wait."""

import time
from typing import Any

import pytest

from blimp.errors import MessageError
from blimp.queue.brokers.streams.envelope import due_ms, level_of, post, ttl_ms, unpack
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.signing import Signer

MESSAGE = TaskMessage(id="a", task="t", queue="q", args=("x" * 500,))


def test_priorities_are_four_levels_and_what_is_none_is_normal() -> None:
    assert [level_of({"priority": one}) for one in range(10)] == [2, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert [level_of({"priority": one}) for one in (10, -1, "1", None)] == [2] * 4
    assert [
        post(TaskMessage(id="a", task="t", queue="q", priority=one)).level for one in (0, 9)
    ] == [0, 3]


@pytest.mark.parametrize(
    ("eta", "expected"),
    [
        ("2026-11-20T13:02:03+00:00", 1_795_179_723_000),
        ("2026-11-20T13:02:03", 1_795_179_723_000),  # as Celery means it, wherever this runs
        ("2026-11-20T14:02:03+01:00", 1_795_179_723_000),
        ("tomorrow", 0),
        (7, 0),
    ],
)
def test_it_is_due_at_its_eta_and_what_cannot_be_read_at_once(
    eta: Any, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert due_ms({"eta": eta}) == expected
    finally:
        monkeypatch.undo()
        time.tzset()


def test_only_a_worker_ends_a_task_that_expires() -> None:
    old = {"expiration": "5000"}
    assert ttl_ms({}, old) == ttl_ms({"expires": "2026-11-20"}, old) == 5000
    assert ttl_ms({"expires": "2026-11-20", "task": "t"}, old) is None
    assert ttl_ms({}, {"expiration": "-1"}) == 0
    assert ttl_ms({}, {"expiration": "soon"}) is ttl_ms({}, {}) is None


def test_what_follows_a_task_is_signed_and_not_above_the_limit() -> None:
    signer = Signer("k" * 16)
    put = post(MESSAGE, signer=signer)
    payload = unpack([b"h", put.head, b"b", put.body])
    signer.check(payload["headers"], put.body, queue="q")
    with pytest.raises(MessageError, match="the limit is 400"):
        post(MESSAGE, signer=signer, limit_bytes=400)
