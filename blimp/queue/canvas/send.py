"""Sending a canvas: every message of it that can run now."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from blimp.errors import ConfigError, MessageError, PartlySent
from blimp.queue.canvas.plan import Ids, Node, Planner, Settings
from blimp.queue.protocol.embed import NO_REDIS, Signature, check_signature, listed
from blimp.queue.protocol.message import current_trace, write_message
from blimp.queue.publish.publisher import (
    AT_ONCE,
    check_options,
    origin_of,
    policy_for,
)
from blimp.queue.results.handle import AsyncResult, GroupResult
from blimp.queue.retry import RetryPolicy

if TYPE_CHECKING:
    from blimp.queue.interface import App
    from blimp.queue.protocol.message import TaskMessage


def send(
    app: App,
    signature: Signature,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncResult:
    """Send all of `signature` that can run now; return the place of its result.

    Raises MessageError and ConfigError before anything is sent. Raises LinkError if the broker
    does not answer: the messages that it took before that run.
    """
    check_options(signature["task"], options)
    check_signature(signature, where=str(signature.get("task", "signature")))
    merged = _merged(signature, options)
    policy = policy_for(app, merged)
    for name in ("retry", "retry_policy"):
        merged.pop(name, None)
    planner = _planner(app, policy)
    node = planner.plan({**signature, "options": merged}, args, kwargs)
    for _ in _start(app, planner, name=signature["task"], policy=policy):
        pass
    return result_of(app, node)


def steps(
    app: App, signatures: Iterable[Signature], options: dict[str, Any]
) -> Iterator[Callable[[], list[AsyncResult]]]:
    """Yield calls that send `signatures` as `send` does, many in one step, one step each.

    options: for each signature, instead of its own; `retry` and `retry_policy` are the steps'. A
    call returns the handles in order. It raises PartlySent if the broker has messages of it.
    """
    check_options("many", options)
    if options.get("task_id") is not None:
        raise ConfigError("sending 'many': the option task_id is for one: set() it in each")
    policy = policy_for(app, options)
    rest = {name: one for name, one in options.items() if name not in ("retry", "retry_policy")}
    numbered = enumerate(signatures)
    while some := list(islice(numbered, AT_ONCE)):
        yield partial(_send_some, app, some, rest, policy)


def _send_some(
    app: App,
    some: Sequence[tuple[int, Signature]],
    options: dict[str, Any],
    policy: RetryPolicy,
) -> list[AsyncResult]:
    planner = _planner(app, policy)
    nodes: list[Node] = []
    ends: list[int] = []  # how many messages there are up to each
    for number, one in some:
        check_signature(one, where=f"signatures[{number}]")
        task = app.tasks.get(one["task"])
        if task is not None and (what := task.options.sent_alone):
            where = f"signatures[{number}]: {one['task']!r}"
            raise MessageError(f"{where} {what}: it is sent alone, as by delay()")
        merged = {**one, "options": _merged(one, options)} if options else one
        nodes.append(planner.plan(merged))
        ends.append(len(planner.messages))
    sent = 0
    try:
        for count in _start(app, planner, name="many", policy=policy):
            sent += count
    except Exception as error:
        if not sent:
            raise
        whole = nodes[: bisect_right(ends, sent)]
        raise PartlySent([result_of(app, node) for node in whole], error) from error
    return [result_of(app, node) for node in nodes]


def raise_partly(sent: list[AsyncResult], error: Exception) -> NoReturn:
    """Raise what `error` is after the handles `sent`: itself if there are none."""
    if isinstance(error, PartlySent):
        sent, error = [*sent, *error.sent], error.reason
    elif not sent:
        raise error
    raise PartlySent(sent, error) from error


def _planner(app: App, policy: RetryPolicy) -> Planner:
    now_s = policy.call(app.broker_clock.recent_s, clock=app.clock, chance=app.chance)
    settings = Settings(
        queue=app.queue,
        tasks=app.tasks,
        now_s=lambda: now_s,
        issues=True,
        origin=origin_of(os.getpid()),
        is_signed=app.signer is not None,
    )
    return Planner(settings=settings, ids=Ids())


def _start(app: App, planner: Planner, *, name: str, policy: RetryPolicy) -> Iterator[int]:
    """Send what is planned; yield how many messages the broker took in each step."""
    messages = planner.messages
    if planner.sizes:
        check_lengths(app, messages)
        if app.chords is None:
            raise ConfigError(f"app {app.name!r}: {NO_REDIS}")
        begin = partial(app.chords.begin, planner.sizes)
        policy.call(begin, clock=app.clock, chance=app.chance)
    tracer, at_s = app.tracer, app.clock.wall_s()
    with nullcontext() if tracer is None else tracer.span(f"send {name}"):  # one trace for all
        if tracer is not None:
            messages = [_traced(tracer, message) for message in messages]
        elif parent := current_trace():
            messages = [
                msgspec.structs.replace(message, headers=parent | message.headers)
                for message in messages
            ]
        sent = 0
        for count in app.publisher.publish_many(messages, policy=policy):
            if app.on_sent is not None:
                for message in messages[sent : sent + count]:
                    app.on_sent(message, at_s=at_s)
            sent += count
            yield count


def _traced(tracer: Any, message: TaskMessage) -> TaskMessage:
    """Return `message` with a span of its own; what became of it is in the span around all."""
    with tracer.sending(message) as traced:
        return cast("TaskMessage", traced)


def settings_of(app: App) -> Settings:
    """Return the settings of messages that a worker of `app` sends."""
    return Settings(
        queue=app.queue,
        tasks=app.tasks,
        now_s=app.broker_clock.now_s,
        check=partial(check_all, app),
        is_signed=app.signer is not None,
    )


def check_all(app: App, messages: Sequence[TaskMessage], sizes: Sequence[tuple[str, int]]) -> None:
    """Raise MessageError for messages that `app` cannot send, or chords it cannot count."""
    if sizes and app.chords is None:
        raise MessageError(NO_REDIS)
    check_lengths(app, messages)


def check_lengths(app: App, messages: Sequence[TaskMessage]) -> None:
    """Raise MessageError for a message that is too long, or that JSON cannot hold."""
    for message in messages:
        write_message(message, signer=None, limit_bytes=app.limit_bytes)


def _merged(signature: Signature, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `signature`, those of this call instead; links are added up."""
    own = dict(signature.get("options") or {})
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("link", "link_error"):
        if name in given:
            given[name] = [*listed(own.get(name)), *listed(given[name])]
    return own | given


def result_of(app: Any, node: Node) -> AsyncResult:
    """Return the handle of `node`, with those of its children and parents."""
    parent = None if node.parent is None else result_of(app, node.parent)
    if node.children is None:
        return AsyncResult(node.id, app=app, parent=parent, task=node.task, ignored=node.ignored)
    children = [result_of(app, one) for one in node.children]
    return GroupResult(node.id, children, app=app, parent=parent)
