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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.protocol.embed import (
    CHAIN,
    CHORD,
    GATHER,
    GROUP,
    Signature,
    body_of,
    called_task,
    kind_of,
    listed,
    members,
    options_of,
    parts_of,
    passed_on,
    with_kwargs,
    with_options,
)
from blimp.queue.protocol.message import LOW, TaskMessage, new_id
from blimp.queue.publish.publisher import fair_headers, make_message, needs_now

if TYPE_CHECKING:
    from blimp.queue.interface import KnownTask

SIZE = "blimp_parts"  # option of a chord's body, if it is signed: how many parts the chord has


def _allow(*_: object) -> None:
    """Allow everything."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What messages have that their signatures do not say.

    queue: the default. tasks: the registered ones, whose options are the signatures' defaults.
    now_s: the broker's time; may raise LinkError. issues: messages get the time of now as their
    time of issue. nesting: how many replaced tasks came before, see `follow.replaced`.
    check: raises MessageError for messages, or chords (group id and size), that cannot be sent.
    is_signed: the body of a chord says how many parts there are.
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
    is_signed: bool = False


class Node:
    """The place of a result: of one task, or of a group. Becomes an AsyncResult."""

    def __init__(
        self,
        id: str,
        children: Sequence[Node] | None = None,
        *,
        task: str | None = None,
        ignored: bool = False,
    ) -> None:
        self.id = id
        self.task = task
        self.ignored = ignored  # no result of it is stored
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
            return new_id()
        self._count += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._name}/{self._count}"))


# --- rewriting: chains are flattened, groups become chords -----------------------------------


class Then(msgspec.Struct, frozen=True, kw_only=True):
    """What follows one signature, and what it is a part of.

    chain: the later links, last first. chord: the body of the chord that it is a part of.
    task_id: the id of its result, if it has none of its own.
    replaced_task_nesting, blimp_delivery: of the message with that id, at least so many: how
        often it was replaced and delivered. They go where the id goes: the worker knows by them
        that this is no copy of the task that it replaces.
    """

    chain: tuple[Signature, ...] = ()
    chord: Signature | None = None
    group_id: str | None = None
    group_index: int | None = None
    link: tuple[Signature, ...] = ()
    link_error: tuple[Signature, ...] = ()
    task_id: str | None = None
    replaced_task_nesting: int | None = None
    blimp_delivery: int | None = None


NOTHING = Then()


def steps_of(signatures: Iterable[Signature]) -> list[Signature]:
    """Return the links of a chain, inner chains flattened, each group a chord with its next.

    So what follows a group gets a list, of one result and of none as well. At the end of a
    chain, as in Celery, a group of one is its task, and a group of none is left out.
    """
    flat = _flattened(signatures)
    while flat and kind_of(flat[-1]) == GROUP:
        last = flat[-1]
        found = members(parts_of(last))
        if len(found) > 1:
            break
        flat[-1:] = _flattened(with_options(one, **passed_on(options_of(last))) for one in found)
    steps: list[Signature] = []
    for step in flat:
        if steps and kind_of(steps[-1]) == GROUP:
            steps[-1] = _chord_of(steps[-1], step)
        else:
            steps.append(step)
    return steps


def _flattened(signatures: Iterable[Signature]) -> list[Signature]:
    found: list[Signature] = []
    for one in signatures:
        if kind_of(one) == CHAIN:
            found += parts_of(closed(one, joined(options_of(one), NOTHING), split=_flattened))
        else:
            found.append(one)
    return found


def put(signature: Signature, then: Then) -> Signature:
    """Return a copy of `signature` with `then` in its options."""
    if then == NOTHING:
        return signature
    kind, own = kind_of(signature), options_of(signature)
    if kind == CHORD:
        return with_kwargs(signature, body=put(body_of(signature), then))
    if kind == GROUP and (then.chain or then.chord):
        return put(gathered(signature, then.chain), after_group(then))
    if kind == GROUP:
        _refuse_link(then)
        tasks = [put(one, Then(link_error=then.link_error)) for one in parts_of(signature)]
        signature = with_kwargs(signature, tasks=tasks)
        return with_options(signature, task_id=own.get("task_id") or then.task_id)
    changed = msgspec.structs.asdict(joined(own, then))
    return with_options(
        signature,
        **{
            name: list(value) if isinstance(value, tuple) else value
            for name, value in changed.items()
            if value not in (None, ())
        },
    )


def _of(kind: str | None, kwargs: dict[str, Any], task: str = "") -> Signature:
    """Return a signature as Celery writes it."""
    return {
        "task": task or f"celery.{kind}",
        "args": [],
        "kwargs": kwargs,
        "options": {},
        "subtask_type": kind,
        "immutable": False,
    }


def _chord_of(header: Signature, body: Signature) -> Signature:
    return _of(CHORD, {"header": header, "body": body, "kwargs": {}})


def joined(own: Mapping[str, Any], then: Then) -> Then:
    """Return what follows a signature: what its options say, and `then`."""
    if not own:
        return then
    index = then.group_index
    return Then(
        chain=(*then.chain, *listed(own.get(CHAIN))),
        chord=then.chord or own.get(CHORD) or None,
        group_id=then.group_id or own.get("group_id"),
        group_index=own.get("group_index") if index is None else index,
        link=(*listed(own.get("link")), *then.link),
        link_error=(*listed(own.get("link_error")), *then.link_error),
        task_id=own.get("task_id") or then.task_id,
        replaced_task_nesting=_most("replaced_task_nesting", own, then),
        blimp_delivery=_most("blimp_delivery", own, then),
    )


def _most(name: str, own: Mapping[str, Any], then: Then) -> int | None:
    return max(own.get(name) or 0, getattr(then, name) or 0) or None


def closed(
    signature: Signature,
    then: Then,
    *,
    split: Callable[[Iterable[Signature]], list[Signature]] = steps_of,
) -> Signature:
    """Return a chain or chord whose last task has its links, and every task its errbacks.

    split: makes the links of a chain.
    """
    moved = ("group_id", "group_index", "link", "link_error", CHAIN, CHORD)
    rest = {name: value for name, value in options_of(signature).items() if name not in moved}
    if kind_of(signature) == CHORD:
        header = signature["kwargs"]["header"]
        own = rest.pop("task_id", None)
        if own and (not isinstance(header, dict) or options_of(header).get("task_id") == own):
            # Celery freezes a chord so: its own id is the header's.
            then = msgspec.structs.replace(then, task_id=None)
            if not isinstance(header, dict):
                header = with_options(_of(GROUP, {"tasks": list(header)}), task_id=own)
                signature = with_kwargs(signature, header=header)
        return {**put(signature, then), "options": rest}
    rest.pop("task_id", None)
    steps = split(parts_of(signature))
    if steps:
        errors = Then(link_error=then.link_error)
        # `Planner._chain` carries the rest of the chain.
        last = msgspec.structs.replace(then, chain=(), link_error=())
        steps = [put(one, errors) for one in steps]
        steps[-1] = put(steps[-1], last)
    return {**with_kwargs(signature, tasks=steps), "options": rest}


def gathered(group: Signature, chain: Sequence[Signature]) -> Signature:
    """Return a chord of `group` and the next link, or a task that returns the group's results."""
    options = passed_on(options_of(group)) | {"task_id": options_of(group).get("task_id")}
    tasks = [
        with_options(one, group_id=None, group_index=None, chord=None) for one in parts_of(group)
    ]
    header = {**with_kwargs(group, tasks=tasks), "options": options}
    return _chord_of(header, chain[-1] if chain else _of(None, {"index": 0}, GATHER))


def single(signature: Signature) -> Signature:
    """Return `signature` with one task at its end, which has no id yet.

    A group there gets a task that gathers it.
    """
    kind = kind_of(signature)
    if kind == GROUP:
        return gathered(signature, ())
    signature = with_options(signature, task_id=None)
    if kind == CHORD:
        return with_kwargs(signature, body=single(body_of(signature)))
    if kind == CHAIN and parts_of(signature):
        *first, last = parts_of(signature)
        return with_kwargs(signature, tasks=[*first, single(last)])
    return signature


def after_group(then: Then) -> Then:
    """Return what follows the chord that `gathered` made of a group followed by `then`."""
    return msgspec.structs.replace(then, chain=then.chain[:-1], task_id=None)


def _refuse_link(then: Then) -> None:
    if then.link:
        raise MessageError("a group has no link: use a chord, whose body gets all its results")


# --- planning --------------------------------------------------------------------------------


class Planner:
    """Collects the messages of one step.

    sizes: group id and number of parts of each chord that starts. They are written before
        the messages are sent.
    """

    def __init__(self, *, settings: Settings, ids: Ids) -> None:
        self._settings = settings
        self._is_part = bool(settings.root_id or settings.parent_id or settings.nesting)
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
        kind, then = kind_of(signature), joined(options_of(signature), then)
        if kind is not None:
            own = tuple(signature.get("args") or ())
            args = own if signature.get("immutable") else (*args, *own)
        given: dict[str, Any] = {"args": tuple(args), "kwargs": kwargs or {}}
        match kind:
            case "chain":
                return self._chain(signature, given, then)
            case "group":
                return self._group(signature, given, then)
            case "chord":
                return self._chord(signature, given, then)
        return self._task(signature, given, then)

    def _chain(self, signature: Signature, given: dict[str, Any], then: Then) -> Node:
        frozen, node = self.freeze(closed(signature, then))
        if not parts_of(frozen):
            raise MessageError("a chain needs a link, and has none")
        first, *rest = parts_of(frozen)
        then = Then(chain=(*then.chain, *reversed(rest)))
        self.plan(first, **given, then=then, common=passed_on(options_of(signature)))
        return node

    def _group(self, signature: Signature, given: dict[str, Any], then: Then) -> Node:
        found = members(parts_of(signature))
        # Celery froze this group as the end of a chord's part: each of its tasks is a part.
        is_counted = bool(found) and all(options_of(one).get(CHORD) for one in found)
        if then.chain or (then.chord and not is_counted):
            return self._chord(gathered(signature, then.chain), given, after_group(then))
        _refuse_link(then)
        id = then.task_id or self._ids.next()
        common = passed_on(options_of(signature))
        nodes: list[Node] = []
        for index, one in enumerate(found):
            part = Then(link_error=then.link_error)
            if not is_counted:
                part = msgspec.structs.replace(part, group_id=id, group_index=index)
            nodes.append(self.plan(one, **given, then=part, common=common))
        return Node(id, nodes)

    def _chord(self, signature: Signature, given: dict[str, Any], then: Then) -> Node:
        chord, node = self.freeze(closed(signature, then))
        header, body = chord["kwargs"]["header"], body_of(chord)
        found = parts_of(chord)
        if not found:
            self.plan(body, ([],))
            return node
        id = options_of(header)["task_id"]
        self.sizes.append((id, len(found)))
        common = passed_on(options_of(header)) | passed_on(options_of(signature))
        # The delay of a chord is its header's.
        own = with_options(signature, countdown=None, eta=None)
        body = with_options(body, **passed_on(options_of(own)))
        if self._settings.is_signed:  # the server's own count is not
            body = with_options(body, **{SIZE: len(found)})
        for index, one in enumerate(found):
            part = Then(chord=body, group_id=id, group_index=index)
            self.plan(one, **given, then=part, common=common)
        return node

    def _task(self, signature: Signature, given: dict[str, Any], then: Then) -> Node:
        """Add the message of one task."""
        settings = self._settings
        name, options = signature["task"], options_of(signature)
        if options.get("coalesce"):
            raise MessageError(f"{name!r} has 'coalesce': only a task that is sent alone may")
        task = settings.tasks.get(called_task(name, signature.get("kwargs")))
        defaults = None if task is None else task.options
        own, own_kwargs = tuple(signature.get("args") or ()), signature.get("kwargs") or {}
        if not signature.get("immutable"):
            own, own_kwargs = (*given["args"], *own), own_kwargs | given["kwargs"]
        priority = options.get("priority")
        if priority is None:
            priority = settings.priority
        if priority is not None:
            is_one = isinstance(priority, int) and 0 <= priority <= LOW
            options = {**options, "priority": priority if is_one else settings.priority}
        headers = settings.headers | (options.get("headers") or {})
        if task is not None and task.options.fair_key is not None and task.name == name:
            headers = fair_headers(task, own, own_kwargs) | headers
        fields: dict[str, Any] = {"headers": headers} if headers else {}
        if options or then is not NOTHING or self._is_part:
            fields |= self._place(options, then)
        message = make_message(
            name,
            own,
            own_kwargs,
            options,
            defaults=defaults,
            queue=settings.queue,
            now_s=settings.now_s() if settings.issues or needs_now(options, defaults) else None,
            id=then.task_id or self._ids.next(),
            origin=settings.origin,
            **fields,
        )
        self.messages.append(message)
        return Node(message.id, task=message.task, ignored=_ignores(options, task))

    def _place(self, options: Mapping[str, Any], then: Then) -> dict[str, Any]:
        """Return what a message says of the canvas that it is a part of."""
        settings = self._settings
        stamps = options.get("stamped_headers") or ()
        return {
            "root_id": settings.root_id or options.get("root_id"),
            "parent_id": settings.parent_id or options.get("parent_id"),
            "group_id": then.group_id,
            "group_index": then.group_index,
            "chain": then.chain,
            "chord": then.chord,
            "callbacks": then.link,
            "errbacks": then.link_error,
            "nesting": max(settings.nesting, then.replaced_task_nesting or 0),
            "delivery": then.blimp_delivery or 1,
            "stamps": {stamp: options.get(stamp) for stamp in stamps},
        }

    def _ignores(self, signature: Signature) -> bool:
        name = called_task(signature["task"], signature.get("kwargs"))
        return _ignores(options_of(signature), self._settings.tasks.get(name))

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
            return (
                with_options(signature, task_id=id),
                Node(id, task=signature["task"], ignored=self._ignores(signature)),
            )
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
            header = _of(GROUP, {"tasks": list(parts_of(signature))})
        frozen, before = self.freeze(header)
        body, after = self.freeze(body_of(signature))
        return with_kwargs(signature, header=frozen, body=body), after.follow(before)


def _ignores(options: Mapping[str, Any], task: KnownTask | None) -> bool:
    return bool(options.get("ignore_result")) or (task is not None and task.options.ignore_result)
