"""Decoding what the broker delivers, and rejecting with a reason what cannot run.

Tested by test_hostile_messages.py.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import Copied, LinkError, MessageError, NotGenuine, ResultError, UnknownTask
from blimp.nesting import shallow
from blimp.queue.log import Throttle
from blimp.queue.options import TaskOptions
from blimp.queue.protocol.embed import NO_REDIS
from blimp.queue.protocol.read import parse_message, readable_id
from blimp.queue.protocol.record import Record, State, encode, failure, fault_of
from blimp.queue.protocol.signing import SEAL
from blimp.queue.task import Task

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.brokers.base import Aside
    from blimp.queue.protocol.message import TaskMessage
    from blimp.queue.worker.aside import AsideRule

LOG_LENGTH = 200


class Decoder:
    """Never raises for a bad message, only LinkError without a broker."""

    def __init__(
        self, *, app: TaskApp, worker: str, aside: AsideRule, counts: Counter[str], log: Any
    ) -> None:
        self._app = app
        self._worker = worker
        self._counts = counts
        self._log = log
        self._throttle = Throttle(clock=app.clock)
        self._aside = aside

    def read(self, message: Any, *, queue: str) -> tuple[TaskMessage, Task] | Aside | str:
        """Return message and task of kombu's `message`; the reason if it is rejected.

        Or how it is set aside for a worker that knows its task.
        """
        parsed = None
        try:
            parsed = self._parse(message, queue)
            signer = self._app.signer
            if signer is not None and (claim := getattr(message, "claim", None)) is not None:
                # Raises Copied. Other brokers than streams do not say whether they deliver again.
                signer.window.admit(message.headers[SEAL], f"{claim.stream} {claim.id}")
            if parsed.chord is not None and self._app.chords is None:
                raise MessageError(NO_REDIS)
            task = self._app.task_for(parsed)
            return parsed, task
        except NotGenuine as error:
            self._rejected(error, queue=queue, headers=message.headers)
            return str(error)
        except (MessageError, UnknownTask) as error:
            if parsed is not None and isinstance(error, UnknownTask):
                aside = self._aside.unknown(parsed, message, error.task)
                if aside is not None:
                    return aside
            can_count = parsed is not None and (
                parsed.chord is None or self._app.chords is not None
            )
            if parsed is not None and parsed.is_followed and can_count:
                return parsed, self._failing(parsed, error)
            self._rejected(error, queue=queue, headers=message.headers)
            return str(error)

    def _failing(self, parsed: TaskMessage, error: Exception) -> Task:
        """Return a task that fails with `error`, so that chains and chords of `parsed` go on.

        Its message becomes a dead letter all the same.
        """
        outcome = msgspec.structs.replace(failure(error), dead=str(error))
        kind = "unknown_task" if isinstance(error, UnknownTask) else "unreadable"
        self._counts[kind] += 1
        self._log.error(kind, queue=parsed.queue, id=parsed.id, reason=str(error)[:LOG_LENGTH])

        def fail(*args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
            return outcome

        return Task(app=self._app, name=parsed.task, function=fail, options=TaskOptions())

    def reject_raw(self, raw: bytes, queue: str, error: Exception) -> None:
        """Drop a message that could not be opened; no broker has a record of it."""
        headers = find_headers(raw)
        if headers is None:
            self._counts["without_id"] += 1
        self._rejected(self._unproven(error), queue=queue, headers=headers)

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
        except Exception as error:  # it would be delivered again, and fail here again
            wrong = MessageError(f"cannot be read: {type(error).__name__}: {error}")
            raise self._unproven(wrong) from error

    def _unproven(self, error: Exception) -> Exception:
        """Return the error of what may have failed before its signature was looked at.

        It may name any id and seal: its result is not signed, and no seal is forgotten.
        """
        return error if self._app.signer is None else NotGenuine(str(error))

    def _rejected(self, error: Exception, *, queue: str, headers: object) -> None:
        """Count it, log it, and store a FAILURE if it has a readable id.

        The FAILURE of what is not genuine is not signed: only a sender without a key believes it.
        Nothing is stored of a copy, as its id is that of the message that was accepted.
        """
        is_genuine = not isinstance(error, NotGenuine)
        kind = "unknown_task" if isinstance(error, UnknownTask) else "unreadable"
        if not is_genuine:
            kind = "copied" if isinstance(error, Copied) else "not_genuine"
        elif self._app.signer is not None and isinstance(headers, dict):
            self._app.signer.window.forget(headers.get(SEAL))
        self._counts[kind] += 1
        id = readable_id(headers)
        more = self._throttle.admit(kind)
        if more is not None:
            self._log.error(kind, queue=queue, id=id, reason=str(error)[:LOG_LENGTH], **more)
        if id is None or self._app.results is None or kind == "copied":
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
            if is_genuine:
                self._app.results.store(record)
            else:
                data = encode(record, limit_bytes=self._app.limit_bytes)
                self._app.results.write(id, data)
        except ResultError:
            return  # not even its fault can be written
        except LinkError as error:
            if self._app.shares_server:
                raise  # the broker is unreachable as well, and delivers it again
            self._log.warning("failure not stored", id=id, reason=str(error)[:LOG_LENGTH])


def find_headers(raw: bytes) -> object:
    """Return the headers of a message that is wrong elsewhere, None if it has none."""
    try:
        payload = msgspec.json.decode(shallow(raw))
    except (ValueError, RecursionError):  # what is not UTF-8 is no DecodeError
        return None
    return payload.get("headers") if isinstance(payload, dict) else None
