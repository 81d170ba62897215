"""A task that may not begin twice: its mark, and how long that lasts."""

import threading

import pytest
import redis

from blimp.queue import TaskApp
from blimp.queue.brokers.base import MARK_KEEP_S
from blimp.queue.redis.keys import began_key
from blimp.queue.worker import acker
from tests.queue.conftest import DEADLINE_S, wait_until, working


def test_a_mark_does_not_expire_while_its_message_is_pending(
    app: TaskApp, server: redis.Redis
) -> None:
    """A message may lie for longer than any time to live: its mark must be found then."""
    began, go_on = threading.Event(), threading.Event()

    @app.task(name="once", idempotent=False)
    def once() -> int:
        began.set()
        assert go_on.wait(DEADLINE_S)
        return 1

    key = began_key("the-id", 0, 0)
    with working(app):
        handle = once.apply_async(task_id="the-id")
        assert began.wait(DEADLINE_S)
        assert server.ttl(key) == -1
        go_on.set()
        assert handle.get(DEADLINE_S) == 1
        wait_until(lambda: server.ttl(key) > 0, "a mark stays for ever")
    assert server.ttl(key) <= MARK_KEEP_S


@pytest.mark.parametrize("kept", [True, False], ids=["result", "ignored"])
def test_a_worker_killed_right_after_an_end_leaves_no_mark(
    app: TaskApp, server: redis.Redis, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The step that ends the message sets the expiry: what follows it may never happen."""
    monkeypatch.setattr(acker, "let_marks_expire", lambda *_: None)

    @app.task(name="once", idempotent=False, ignore_result=not kept)
    def once() -> None: ...

    key = began_key("the-id", 0, 0)
    with working(app) as worker:
        once.apply_async(task_id="the-id")
        wait_until(lambda: worker.counts["done"] == 1, "the task does not end")
    assert 0 < server.ttl(key) <= MARK_KEEP_S
