"""Sending a task: what a caller may say of it, and how it becomes a message."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import msgspec

from blimp.errors import ConfigError
from blimp.queue.protocol.embed import check_signature, listed
from blimp.queue.protocol.message import (
    TaskMessage,
    check_limits,
    check_priority,
    make_message,
)
from blimp.queue.publish.taken_back import Coalescing, KnownTask, coalescing_key
from blimp.queue.retry import ONCE, RetryPolicy, policy_of

if TYPE_CHECKING:
    from random import Random

    from blimp.clock import Clock
    from blimp.queue.publish.publisher import Publisher
    from blimp.queue.redis.client import RedisServer
    from blimp.queue.redis.clock import BrokerClock


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


class SendingApp(Protocol):
    """What sending needs of a TaskApp; see there."""

    queue: str
    clock: Clock
    chance: Random
    retry_policy: RetryPolicy
    publisher: Publisher
    broker_clock: BrokerClock
    tracer: Any
    on_sent: Callable[..., None] | None

    @property
    def tasks(self) -> Mapping[str, KnownTask]: ...
    @property
    def broker_link(self) -> RedisServer: ...


def send(
    app: SendingApp,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None,
    options: SendOptions,
) -> str:
    """Send one task; return its id. Raises LinkError, MessageError, ConfigError.

    Missing options default to those of the task, if it is registered here.
    """
    policy = app.retry_policy
    if options:
        unknown = sorted(options.keys() - SendOptions.__optional_keys__)
        if unknown:
            raise ConfigError(f"sending {name!r}: there is no option {', '.join(unknown)}")
        check_limits(soft_s=options.get("soft_time_limit"), hard_s=options.get("time_limit"))
        policy = policy_of(options.get("retry_policy"), policy)
        if options.get("retry") is False:
            policy = ONCE
    at_s = 0.0 if app.on_sent is None else app.clock.wall_s()
    # A repeated attempt sends the same message, with the time of the first.
    now_s = policy.call(app.broker_clock.recent_s, clock=app.clock, chance=app.chance)
    message = _message(app, name, args, kwargs or {}, options, now_s=now_s)
    if app.tracer is None:
        message = _publish(app, message, policy)
    else:
        with app.tracer.sending(message) as traced:
            message = _publish(app, traced, policy)
    if app.on_sent is not None:
        app.on_sent(message, at_s=at_s)
    return message.id


def _message(
    app: SendingApp,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    options: SendOptions,
    *,
    now_s: float,
) -> TaskMessage:
    task = app.tasks.get(name)
    fields: dict[str, Any] = {}
    if options:
        if options.get("priority") is not None:
            check_priority(options["priority"])
        if options.get("coalesce") is not None:
            fields["coalesce"] = options["coalesce"]
        for option, field in (("link", "callbacks"), ("link_error", "errbacks")):
            if options.get(option):
                fields[field] = tuple(
                    check_signature(one, where=f"{option}[{number}]")
                    for number, one in enumerate(listed(options.get(option)))
                )
    if task is not None and task.options.coalesce is not False and "coalesce" not in fields:
        fields["coalesce"] = coalescing_key(task, args, kwargs)
    return make_message(
        name,
        tuple(args),
        kwargs,
        options,
        defaults=None if task is None else task.options,
        queue=app.queue,
        now_s=now_s,
        origin=origin_of(os.getpid()),
        **fields,
    )


def _publish(app: SendingApp, message: TaskMessage, policy: RetryPolicy) -> TaskMessage:
    if message.coalesce is None:
        app.publisher.publish(message, policy=policy)
        return message
    coalescing = Coalescing(link=app.broker_link)
    number = policy.call(
        partial(coalescing.number, message.queue, message.coalesce),
        clock=app.clock,
        chance=app.chance,
    )
    message = msgspec.structs.replace(message, coalesce_number=number)
    app.publisher.publish(message, policy=policy)
    coalescing.remember(message)
    return message


@cache
def origin_of(process: int) -> str:
    return f"{process}@{socket.gethostname()}"
