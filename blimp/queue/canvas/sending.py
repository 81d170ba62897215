"""Sending a canvas: everything of it that can begin now."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from blimp.errors import ConfigError, MessageError
from blimp.queue.canvas.chords import NO_REDIS
from blimp.queue.canvas.plan import Ids, Node, Planner, Settings
from blimp.queue.options import check_limits, check_priority
from blimp.queue.protocol.embed import Signature, check_signature
from blimp.queue.protocol.message import write_message
from blimp.queue.publish.sending import SendOptions
from blimp.queue.results.group import GroupResult
from blimp.queue.results.handle import AsyncResult

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.protocol.message import TaskMessage


def settings_of(app: TaskApp) -> Settings:
    """Return what messages have that a worker of `app` begins."""
    return Settings(
        queue=app.queue,
        tasks=app.tasks,
        now_s=app.broker_clock.now_s,
        check=partial(check_all, app),
    )


def send(
    app: TaskApp,
    signature: Signature,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncResult:
    """Send what of `signature` can begin now; return where its result will be.

    Raises LinkError, and what was sent before runs; MessageError and ConfigError before
    anything is sent.
    """
    unknown = sorted(options.keys() - SendOptions.__optional_keys__ - {"retry", "retry_policy"})
    if unknown:
        raise ConfigError(f"sending {signature['task']!r}: there is no option {', '.join(unknown)}")
    for name in ("link", "link_error"):
        if isinstance(options.get(name), dict):
            options[name] = [options[name]]
    check_priority(options.get("priority", 0))
    check_limits(soft_s=options.get("soft_time_limit"), hard_s=options.get("time_limit"))
    check_signature(signature, where=str(signature.get("task", "signature")))
    now_s = app.broker_clock.recent_s()
    planner = Planner(
        settings=Settings(
            queue=app.queue,
            tasks=app.tasks,
            now_s=lambda: now_s,
            issues=True,
            origin=_origin(os.getpid()),
        ),
        ids=Ids(),
    )
    whole = {**signature, "options": _merged(signature, options)}
    node = planner.plan(whole, args, kwargs)
    check_lengths(app, planner.messages)
    if planner.sizes:
        chords = app.chords
        if chords is None:
            raise ConfigError(f"app {app.name!r}: {NO_REDIS}")
        chords.begin(planner.sizes)
    _publish(app, planner.messages, name=signature["task"])
    return result_of(app, node)


def _publish(app: TaskApp, messages: Sequence[TaskMessage], *, name: str) -> None:
    tracer = app.tracer
    if tracer is None:
        for message in messages:
            app.publisher.publish(message)
        return
    with tracer.span(f"send {name}"):  # all of them are one trace
        for message in messages:
            with tracer.sending(message) as traced:
                app.publisher.publish(traced)


def check_all(
    app: TaskApp, messages: Sequence[TaskMessage], sizes: Sequence[tuple[str, int]]
) -> None:
    """Raise MessageError for what `app` cannot send, or cannot count."""
    if sizes and app.chords is None:
        raise MessageError(NO_REDIS)
    check_lengths(app, messages)


def check_lengths(app: TaskApp, messages: Sequence[TaskMessage]) -> None:
    """Raise MessageError for a message that is too long, or that JSON cannot hold."""
    for message in messages:
        write_message(message, signer=None, limit_bytes=app.limit_bytes)


def _merged(signature: Signature, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `signature` with those of this call, as JSON would have them."""
    own = dict(signature.get("options") or {})
    for name in ("link", "link_error"):
        if options.get(name):
            before = own.get(name) or []
            options[name] = [*([before] if isinstance(before, dict) else before), *options[name]]
    return own | {name: value for name, value in options.items() if value is not None}


def result_of(app: TaskApp, node: Node) -> AsyncResult:
    """Return the handle of `node`, those of its children and parents with it."""
    parent = None if node.parent is None else result_of(app, node.parent)
    if node.children is None:
        return AsyncResult(node.id, app=app, parent=parent)
    children = [result_of(app, one) for one in node.children]
    return GroupResult(node.id, children, app=app, parent=parent)


@cache
def _origin(process: int) -> str:
    return f"{process}@{socket.gethostname()}"
