"""What a person does with queues and results, from the command line or the page.

Tested by test_queue_room.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, MessageError, ResultError

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.streams.dead_letters import DeadLetter, DeadLetters
    from blimp.queue.brokers.streams.visibility import StreamsSession
    from blimp.queue.protocol.record import Record


def requeue_dead(app: TaskApp, letters: DeadLetters, letter: DeadLetter) -> None:
    """Requeue a dead letter; delete its result and the mark that it has begun.

    The results of what was to follow it, which say that it failed, are deleted too.
    """
    from blimp.queue.redis.keys import began_key, result_key

    headers = letter.headers or {}
    id, retries = str(headers.get("id", "")), headers.get("retries") or 0
    nesting = headers.get("replaced_task_nesting") or 0
    ended = [id, *_ended_with(app, letter)] if id else []
    if app.results is not None and not app.completes_at_once:
        for one in ended:  # first: a kill in between loses an old result, not the message
            app.results.forget(one)
    forgetting = [result_key(one) for one in ended]
    if id:
        forgetting.append(began_key(id, retries, nesting))
    letters.requeue(letter.id, forgetting=forgetting, signer=app.signer)


def _ended_with(app: TaskApp, letter: DeadLetter) -> list[str]:
    """Return the ids of the tasks that could no longer run when the message was given up."""
    from blimp.queue.canvas.follow import after
    from blimp.queue.canvas.send import settings_of
    from blimp.queue.protocol.message import CONTENT_TYPE
    from blimp.queue.protocol.read import parse_message
    from blimp.queue.protocol.record import Outcome, State

    try:
        message = parse_message(
            headers=letter.headers or {},
            body=letter.body or b"",
            content_type=CONTENT_TYPE,
            content_encoding=None,
            queue=letter.queue,
            limit_bytes=app.limit_bytes,
        )
    except MessageError:
        return []
    found = after(message, Outcome(state=State.FAILURE), settings_of(app))
    return [record.id for record in found.records]


def check_streams(app: TaskApp, what: str = "") -> None:
    """Raise ConfigError, naming `what` needs it, for a broker without dead letters and counts."""
    if not app.capabilities.has_dead_letters:
        raise ConfigError(
            f"app {app.name!r} uses transport {app.transport!r}: {what}needs 'streams'"
        )


@contextlib.contextmanager
def open_session(app: TaskApp) -> Iterator[StreamsSession]:
    """Open a session on the broker; redis-py's errors become LinkError.

    Raises ConfigError for a broker without dead letters and counts.
    """
    from blimp.queue.brokers.streams.store import StreamsOptions
    from blimp.queue.brokers.streams.visibility import StreamsSession
    from blimp.queue.redis.urls import redis_url

    check_streams(app)
    with app.broker_link.link():
        app.broker_link.ask(lambda client: client.ping())  # of several, one that answers
        session = StreamsSession(
            url=redis_url(app.broker), options=StreamsOptions(broker=app.settings)
        )
        with contextlib.closing(session):
            yield session


def send_again(app: TaskApp, record: Record) -> str:
    """Send the task of `record` again; return its new id. Raises ResultError, LinkError."""
    if not record.final:
        raise ResultError(f"is {record.state}: only a task that has ended can be sent again")
    if record.name is None or record.args is None:
        missing = "name" if record.name is None else "arguments"
        raise ResultError(
            f"its {missing} are not stored: give the app result_extended=True, "
            "for tasks that end from then on"
        )
    options: Any = {} if record.queue is None else {"queue": record.queue}
    return app.send_task(record.name, record.args, record.kwargs, **options).id
