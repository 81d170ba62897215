"""How a waiter is woken: a channel of its own, rung when something may be free for it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from blimp.closing import Closing

if TYPE_CHECKING:
    from blimp.queue.resources.server import Server

DEAF_S = 0.2  # where the server does not let it listen: whoever waits asks so often


class Wakeup(Closing):
    """A subscription that is in force when `listen` returns. One thread's.

    It never raises for its server: whoever waits asks again soon, rung or not.
    """

    def __init__(self, *, server: Server, channel: str) -> None:
        self._server = server
        self._channel = channel
        self._pubsub: Any = None

    def listen(self) -> bool:
        """Subscribe, where that is not so already; False where the server does not answer."""
        from redis.exceptions import RedisError

        if self._pubsub is None:
            pubsub = self._server.client.pubsub()
            try:
                pubsub.subscribe(self._channel)
                pubsub.get_message(timeout=1.0)  # the confirmation: from here on it is heard
            except (RedisError, OSError):
                pubsub.close()
                return False
            self._pubsub = pubsub
        return True

    def wait(self, timeout_s: float) -> bool:
        """Return when it is rung, or after `timeout_s`, or sooner where the link is lost."""
        from redis.exceptions import RedisError

        if self._pubsub is None:
            threading.Event().wait(min(timeout_s, DEAF_S))
            return False
        try:
            heard = self._pubsub.get_message(timeout=timeout_s)
            while heard is not None and self._pubsub.get_message(timeout=0.0) is not None:
                pass  # rung more than once: it is looked at once
        except (RedisError, OSError):
            self.close()
            return False
        return heard is not None

    def close(self) -> None:
        """Give up the subscription. Idempotent."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with contextlib.suppress(Exception):
                pubsub.close()
