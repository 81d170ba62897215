"""Sending a task: what a caller may say of it, and how it becomes a message."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import msgspec

from blimp.errors import ConfigError
from blimp.queue.options import check_limits, check_priority
from blimp.queue.protocol.message import NORMAL, TaskMessage, epoch_s
from blimp.queue.publish.coalescing import Coalescing
from blimp.queue.retry import ONCE, RetryPolicy, policy_of

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp


T = TypeVar("T")


class SendOptions(TypedDict, total=False):
    """How one message is sent.

    countdown, eta: not to begin before then. expires: not to begin after then (seconds from
    now, or a time). ttl_s: not to begin when older than this on the broker's clock.
    priority: 0 (first) to 9 (last). coalesce: of the waiting messages with this key only the
    newest runs. soft_time_limit, time_limit: in seconds, instead of the task's own.
    link, link_error: signatures, as Celery writes them, of what follows a success or any
    other end; see canvas/signature.py. retry, retry_policy: for this message alone.
    """

    countdown: float | None
    eta: datetime | None
    expires: float | datetime | None
    ttl_s: float | None
    priority: int
    queue: str | None
    task_id: str | None
    coalesce: str | None
    soft_time_limit: float | None
    time_limit: float | None
    ignore_result: bool
    headers: dict[str, Any] | None
    link: dict[str, Any] | Sequence[dict[str, Any]]
    link_error: dict[str, Any] | Sequence[dict[str, Any]]
    retry: bool
    retry_policy: RetryPolicy | dict[str, Any] | None


class Outgoing:
    """One message on its way. Tried again, it is the same one, with the time of the first."""

    def __init__(
        self,
        *,
        app: TaskApp,
        name: str,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
        options: SendOptions,
    ) -> None:
        unknown = sorted(options.keys() - SendOptions.__optional_keys__)
        if unknown:
            raise ConfigError(f"sending {name!r}: there is no option {', '.join(unknown)}")
        self.id = options.get("task_id") or str(uuid.uuid4())
        self._app = app
        self._name = name
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self._options = options
        self._priority = check_priority(options.get("priority", NORMAL))
        check_limits(soft_s=options.get("soft_time_limit"), hard_s=options.get("time_limit"))
        self._policy = policy_of(options.get("retry_policy"), app.retry_policy)
        if not options.get("retry", True):
            self._policy = ONCE

    def send(self) -> None:
        """Raises LinkError, MessageError."""
        at_s = self._app.clock.wall_s()
        message = self._send()
        if self._app.on_sent is not None:
            self._app.on_sent(message, at_s=at_s)

    def _send(self) -> TaskMessage:
        now_s = self._call(self._app.broker_clock.recent_s)
        message = self._message(now_s)
        if self._app.tracer is None:
            return self._publish(message)
        with self._app.tracer.sending(message) as traced:
            return self._publish(traced)

    def _publish(self, message: TaskMessage) -> TaskMessage:
        if message.coalesce is None:
            self._app.publisher.publish(message, policy=self._policy)
            return message
        coalescing = Coalescing(link=self._app.broker_link)
        number = self._call(partial(coalescing.number, message.queue, message.coalesce))
        message = msgspec.structs.replace(message, coalesce_number=number)
        self._app.publisher.publish(message, policy=self._policy)
        coalescing.remember(message)
        return message

    def _call(self, function: Callable[[], T]) -> T:
        return self._policy.call(function, clock=self._app.clock, chance=self._app.chance)

    def _message(self, now_s: float) -> TaskMessage:
        options = self._options
        countdown, eta = options.get("countdown"), options.get("eta")
        if eta is not None:
            eta_s: float | None = epoch_s(eta)
        else:
            eta_s = None if countdown is None else now_s + countdown
        expires = options.get("expires")
        if isinstance(expires, datetime):
            expires_s: float | None = epoch_s(expires)
        else:
            expires_s = None if expires is None else now_s + expires
        return TaskMessage(
            id=self.id,
            task=self._name,
            args=self._args,
            kwargs=self._kwargs,
            queue=options.get("queue") or self._app.queue,
            priority=self._priority,
            eta_s=eta_s,
            expires_s=expires_s,
            issued_ms=int(now_s * 1000),
            timelimit=(options.get("time_limit"), options.get("soft_time_limit")),
            ttl_s=options.get("ttl_s"),
            coalesce=options.get("coalesce"),
            ignore_result=options.get("ignore_result", False),
            callbacks=_signatures(options.get("link", ()), "link"),
            errbacks=_signatures(options.get("link_error", ()), "link_error"),
            origin=origin_of(os.getpid()),
            headers=options.get("headers") or {},
        )


def _signatures(
    given: dict[str, Any] | Sequence[dict[str, Any]], what: str
) -> tuple[dict[str, Any], ...]:
    if not given:
        return ()
    from blimp.queue.protocol.embed import check_signature, listed

    found = listed(given)
    return tuple(check_signature(one, where=f"{what}[{n}]") for n, one in enumerate(found))


@cache
def origin_of(process: int) -> str:
    return f"{process}@{socket.gethostname()}"
