"""`task-sent`: what a sender tells of a task that it has sent."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

from blimp.errors import LinkError
from blimp.queue.events import fields
from blimp.queue.events.buffer import Event
from blimp.queue.events.sender import open_post, routing_key, write
from blimp.queue.protocol.lamport_clock import LamportClock

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.events.sender import Post
    from blimp.queue.protocol.message import TaskMessage


class SentEvents:
    """Sends each at once, in the thread that sent the task. Thread-safe.

    not_told: how many were not, since the broker was lost just then; their tasks were sent.
    """

    def __init__(self, app: TaskApp) -> None:
        self._app = app
        self._clock = LamportClock()
        self._lock = threading.Lock()
        self._posts: dict[int, Post] = {}  # by process: a fork has a name of its own
        self.not_told = 0

    def tell(self, message: TaskMessage, *, at_s: float) -> None:
        """Tell that `message` was sent, at a time of day. Never raises LinkError."""
        process = os.getpid()
        hostname = f"gen{process}@{socket.gethostname()}"  # as Celery names who has no name
        with self._lock:
            post = self._posts.get(process)
            if post is None:
                post = self._posts[process] = open_post(self._app, hostname=hostname)
        told = fields.sent(message, at_s=at_s)
        about = fields.about_program(hostname=hostname, pid=process)
        batch = [Event("task-sent", fields.to_bytes(told, about=about))]
        try:
            body = write(batch, first=self._clock.forward())
            post.send(body, routing_key=routing_key(batch))
        except LinkError:
            with self._lock:
                self.not_told += 1
