"""From a canvas to the messages that start it.

What can run now becomes a message. The rest travels in those messages: a task carries the later
links of its chain, last first, in `chain`, and the body of its chord in `chord`. A group that
something follows becomes a chord. Every part of a chord counts once: a part that ends in a group
gets one more task, which gathers the group's results.

The planner works on plain signatures and serves both sides: the client that sends a canvas and
the worker that sends what follows a task. So what Celery wrote runs here, and the reverse.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.canvas.rewriting import (
    NOTHING,
    Then,
    after_group,
    closed,
    gathered,
    group_of,
    joined,
    put,
    refuse_link,
    steps_of,
)
from blimp.queue.protocol.embed import (
    CHAIN,
    CHORD,
    GROUP,
    Signature,
    body_of,
    called_task,
    kind_of,
    members,
    options_of,
    parts_of,
    passed_on,
    with_kwargs,
    with_options,
)
from blimp.queue.protocol.message import LOW, TaskMessage
from blimp.queue.publish.publisher import make_message, needs_now
from blimp.queue.publish.taken_back import KnownTask


def _allow(*_: object) -> None:
    """Allow everything."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What messages have that their signatures do not say.

    queue: the default. tasks: the registered ones, whose options are the signatures' defaults.
    now_s: the broker's time; may raise LinkError. issues: messages get the time of now as their
    time of issue. nesting: how many replaced tasks came before, see `follow.replaced`.
    check: raises MessageError for messages, or chords (group id and size), that cannot be sent.
    """

    queue: str
    now_s: Callable[[], float]
    tasks: Mapping[str, KnownTask] = msgspec.field(default_factory=dict)
    root_id: str | None = None
    parent_id: str | None = None
    priority: int | None = None
    origin: str = ""
    headers: dict[str, Any] = msgspec.field(default_factory=dict)
    issues: bool = False
    nesting: int = 0
    check: Callable[[Sequence[TaskMessage], Sequence[tuple[str, int]]], None] = _allow


class Node:
    """The place of a result: of one task, or of a group. Becomes an AsyncResult."""

    def __init__(self, id: str, children: Sequence[Node] | None = None) -> None:
        self.id = id
        self.children = None if children is None else tuple(children)
        self.parent: Node | None = None

    def follow(self, parent: Node | None) -> Node:
        """Append `parent` to the line of nodes before this one. Returns itself."""
        first = self
        while first.parent is not None:
            first = first.parent
        first.parent = parent
        return self

    def as_tuple(self) -> list[Any]:
        """Return the node as Celery writes a result."""
        parent = None if self.parent is None else self.parent.as_tuple()
        children = None if self.children is None else [one.as_tuple() for one in self.children]
        return [[self.id, parent], children]


class Ids:
    """New random ids; or, made from `name`, the same ids each time."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._count = 0

    def next(self) -> str:
        if self._name is None:
            return str(uuid.uuid4())
        self._count += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._name}/{self._count}"))


class Planner:
    """Collects the messages of one step.

    sizes: group id and number of parts of each chord that starts. They are written before
        the messages are sent.
    """

    def __init__(self, *, settings: Settings, ids: Ids) -> None:
        self._settings = settings
        self._ids = ids
        self.messages: list[TaskMessage] = []
        self.sizes: list[tuple[str, int]] = []

    def plan(
        self,
        signature: Signature,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        then: Then = NOTHING,
        common: Mapping[str, Any] | None = None,
    ) -> Node:
        """Add the messages that start `signature`; return the place of its result.

        args: come before its own. then: what follows it. common: options that replace its own.
        Raises MessageError if it cannot be sent.
        """
        if common:
            signature = with_options(signature, **common)
        if kind_of(signature) is not None:
            own = tuple(signature.get("args") or ())
            args = own if signature.get("immutable") else (*args, *own)
        run: Callable[..., Node] = {CHAIN: self._chain, GROUP: self._group, CHORD: self._chord}.get(
            kind_of(signature) or "", self._task
        )
        return run(signature, tuple(args), dict(kwargs or {}), joined(options_of(signature), then))

    def _task(
        self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], then: Then
    ) -> Node:
        id = then.task_id or self._ids.next()
        self.messages.append(
            message_of(
                signature, id=id, args=args, kwargs=kwargs, then=then, settings=self._settings
            )
        )
        return Node(id)

    def _chain(
        self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], then: Then
    ) -> Node:
        frozen, node = self.freeze(closed(signature, then))
        if not parts_of(frozen):
            raise MessageError("a chain needs a link, and has none")
        first, *rest = parts_of(frozen)
        self.plan(
            first,
            args,
            kwargs,
            then=Then(chain=(*then.chain, *reversed(rest))),
            common=passed_on(options_of(signature)),
        )
        return node

    def _group(
        self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], then: Then
    ) -> Node:
        found = members(parts_of(signature))
        # Celery froze this group as the end of a chord's part: each of its tasks is a part.
        is_counted = bool(found) and all(options_of(one).get(CHORD) for one in found)
        if then.chain or (then.chord and not is_counted):
            return self._chord(gathered(signature, then.chain), args, kwargs, after_group(then))
        refuse_link(then)
        id = then.task_id or self._ids.next()
        common = passed_on(options_of(signature))
        nodes = [
            self.plan(
                one,
                args,
                kwargs,
                then=Then(link_error=then.link_error)
                if is_counted
                else Then(group_id=id, group_index=index, link_error=then.link_error),
                common=common,
            )
            for index, one in enumerate(found)
        ]
        return Node(id, nodes)

    def _chord(
        self, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], then: Then
    ) -> Node:
        chord, node = self.freeze(closed(signature, then))
        header, body = chord["kwargs"]["header"], body_of(chord)
        found = parts_of(chord)
        if not found:
            self.plan(body, ([],))
            return node
        id = options_of(header)["task_id"]
        self.sizes.append((id, len(found)))
        common = passed_on(options_of(header)) | passed_on(options_of(signature))
        body = with_options(body, **passed_on(_without_times(options_of(signature))))
        for index, one in enumerate(found):
            self.plan(
                one,
                args,
                kwargs,
                then=Then(chord=body, group_id=id, group_index=index),
                common=common,
            )
        return node

    # --- all ids are set before anything is sent -------------------------------------------

    def freeze(self, signature: Signature) -> tuple[Signature, Node]:
        """Return a copy with all ids set, and the place of its result."""
        kind = kind_of(signature)
        if kind == CHAIN:
            return self._freeze_chain(signature)
        if kind == CHORD:
            return self._freeze_chord(signature)
        id = options_of(signature).get("task_id") or self._ids.next()
        if kind != GROUP:
            return with_options(signature, task_id=id), Node(id)
        pairs = [self.freeze(one) for one in members(parts_of(signature))]
        frozen = with_kwargs(signature, tasks=[one for one, _ in pairs])
        return with_options(frozen, task_id=id), Node(id, [node for _, node in pairs])

    def _freeze_chain(self, signature: Signature) -> tuple[Signature, Node]:
        steps = steps_of(parts_of(signature))
        options = options_of(signature)
        if steps and options.get("task_id"):
            steps[-1] = put(steps[-1], Then(task_id=options["task_id"]))
        done: list[Signature] = []
        node: Node | None = None
        for one in steps:
            frozen, found = self.freeze(one)
            node = found.follow(node)
            done.append(frozen)
        return with_kwargs(signature, tasks=done), node or Node("")

    def _freeze_chord(self, signature: Signature) -> tuple[Signature, Node]:
        signature = closed(signature, joined(options_of(signature), NOTHING))
        header = signature["kwargs"]["header"]
        if not (isinstance(header, dict) and kind_of(header) == GROUP):
            header = group_of(parts_of(signature))
        frozen, before = self.freeze(header)
        body, after = self.freeze(body_of(signature))
        return with_kwargs(signature, header=frozen, body=body), after.follow(before)


def _without_times(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without a delay: the delay of a chord is its header's."""
    return {name: value for name, value in options.items() if name not in ("countdown", "eta")}


# --- one message -----------------------------------------------------------------------------


def message_of(
    signature: Signature,
    *,
    id: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    then: Then,
    settings: Settings,
) -> TaskMessage:
    """Return the message of one task. Raises MessageError for a wrong option."""
    name, options = signature["task"], options_of(signature)
    if options.get("coalesce"):
        raise MessageError(f"{name!r} has 'coalesce': only a task that is sent alone may")
    task = settings.tasks.get(called_task(name, signature.get("kwargs")))
    defaults = None if task is None else task.options
    own, own_kwargs = tuple(signature.get("args") or ()), dict(signature.get("kwargs") or {})
    if not signature.get("immutable"):
        own, own_kwargs = (*args, *own), own_kwargs | kwargs
    priority = options.get("priority")
    if not isinstance(priority, int) or not 0 <= priority <= LOW:
        options = {**options, "priority": settings.priority}
    stamps = options.get("stamped_headers") or ()
    return make_message(
        name,
        own,
        own_kwargs,
        options,
        defaults=defaults,
        queue=settings.queue,
        now_s=settings.now_s() if settings.issues or needs_now(options, defaults) else None,
        id=id,
        root_id=settings.root_id or options.get("root_id"),
        parent_id=settings.parent_id or options.get("parent_id"),
        group_id=then.group_id,
        group_index=then.group_index,
        chain=then.chain,
        chord=then.chord,
        callbacks=then.link,
        errbacks=then.link_error,
        nesting=max(settings.nesting, _nesting(options)),
        stamps={stamp: options.get(stamp) for stamp in stamps} if stamps else {},
        origin=settings.origin,
        headers=settings.headers | (options.get("headers") or {}),
    )


def _nesting(options: Mapping[str, Any]) -> int:
    value = options.get("replaced_task_nesting") or 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise MessageError(f"option 'replaced_task_nesting' is {value!r:.40}, must be a count")
    return value
