"""A task that may not begin twice: its mark, and how long that lasts."""

import threading

import redis

from blimp.queue import TaskApp
from blimp.queue.redis.keys import began_key
from blimp.queue.worker.middleware.skip import KEEP_ENDED_S
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
    assert server.ttl(key) <= KEEP_ENDED_S
