"""Reading what the broker delivers, and turning away what cannot be run, with a reason."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from blimp.errors import LinkError, MessageError, ResultError, UnknownTask
from blimp.tasks.reading import parse_message, readable_id
from blimp.tasks.results.record import Record, State
from blimp.tasks.work.job import fault_of

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.message import TaskMessage
    from blimp.tasks.task import Task

LOG_LENGTH = 200


class Intake:
    """Never raises for a message, only LinkError for a broker that is away."""

    def __init__(self, *, app: TaskApp, worker: str, counts: Counter[str], log: Any) -> None:
        self._app = app
        self._worker = worker
        self._counts = counts
        self._log = log

    def read(self, message: Any, *, queue: str) -> tuple[TaskMessage, Task] | str:
        """Return what kombu's `message` asks for; the reason where it was turned away."""
        try:
            parsed = self._parse(message, queue)
            task = self._app.get_task(parsed.task)
            task.check_arguments(parsed.args, parsed.kwargs)
            return parsed, task
        except (MessageError, UnknownTask) as error:
            self._turn_away(error, queue=queue, headers=message.headers)
            return str(error)

    def turn_away_raw(self, raw: bytes, queue: str, error: Exception) -> None:
        """Drop a message that could not even be opened; no broker has a record of it."""
        from blimp.tasks.lines.stock import find_headers  # megabytes, and hardly ever needed

        headers = find_headers(raw)
        if headers is None:
            self._counts["without_id"] += 1
        self._turn_away(error, queue=queue, headers=headers)

    def _parse(self, message: Any, queue: str) -> TaskMessage:
        try:
            return parse_message(
                headers=message.headers,
                body=message.body,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                queue=queue,
                priority=message.properties.get("priority"),
                limit_bytes=self._app.limit_bytes,
                signer=self._app.signer,
            )
        except MessageError:
            raise
        except Exception as error:  # it would come again, and be met here again
            raise MessageError(f"cannot be read: {type(error).__name__}: {error}") from error

    def _turn_away(self, error: Exception, *, queue: str, headers: object) -> None:
        """Count it, log it, and tell whoever waits for it, if it has a readable id."""
        kind = "unknown_task" if isinstance(error, UnknownTask) else "unreadable"
        self._counts[kind] += 1
        id = readable_id(headers)
        self._log.error(kind, queue=queue, id=id, reason=str(error)[:LOG_LENGTH])
        if id is None or self._app.results is None:
            return
        name = headers.get("task") if isinstance(headers, dict) else None
        record = Record(
            id=id,
            state=State.FAILURE,
            fault=fault_of(error),
            name=name if isinstance(name, str) else None,
            worker=self._worker,
            queue=queue,
        )
        try:
            self._app.results.store(record)
        except ResultError:
            return  # what it carries cannot even be told
        except LinkError as error:
            if self._app.shares_server:
                raise  # the broker is away as well, and brings it again
            self._log.warning("sender not told", id=id, reason=str(error)[:LOG_LENGTH])
