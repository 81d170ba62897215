"""Asking a worker as Celery's clients do, by kombu's Mailbox."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu.pidbox import Mailbox

from blimp.queue import TaskApp
from blimp.queue.celery.control.command_sender import open_connection

Ask = Callable[..., Any]


@pytest.fixture
def ask(app: TaskApp) -> Iterator[Ask]:
    """Return what the one worker answers, by kombu's Mailbox, as Celery makes it."""
    connection = open_connection(app, app.broker)
    mailbox = Mailbox("celery", type="fanout", accept=["json"], serializer="json")

    def ask(command: str, *, all: bool = False, **arguments: Any) -> Any:
        options: dict[str, Any] = {
            name: arguments.pop(name)
            for name in ("destination", "pattern", "matcher", "limit", "timeout")
            if name in arguments
        }
        options = {"limit": 1, "timeout": 5.0, **options}
        replies = mailbox(connection)._broadcast(command, arguments, reply=True, **options)
        return replies if all else next(iter(replies[0].values()))

    with connection:
        yield ask
