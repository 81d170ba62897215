"""From a canvas to the messages that begin it: what can run now is sent, the rest travels along.

A task carries what follows it: a chain's later links, last first, in `chain`; the body of the
chord that it is a part of in `chord`. A group that something follows becomes a chord. Every
part of a chord counts once: one that ends in a group is made to end in a task that gathers it.

What Celery's canvas does in its client and its worker is here in one place, for both, and works
on plain signatures, so that what either of the two has written runs on the other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blimp.errors import MessageError
from blimp.queue.canvas.outline import Settings, make_message
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
    kind_of,
    members,
    options_of,
    parts_of,
    passed_on,
    with_kwargs,
    with_options,
)
from blimp.queue.protocol.message import TaskMessage


class Node:
    """Where a result will be: of a task, or of a group of them. Becomes an AsyncResult."""

    def __init__(self, id: str, children: Sequence[Node] | None = None) -> None:
        self.id = id
        self.children = None if children is None else tuple(children)
        self.parent: Node | None = None

    def follow(self, parent: Node | None) -> Node:
        """Have the first of those before this one follow `parent`. Returns itself."""
        first = self
        while first.parent is not None:
            first = first.parent
        first.parent = parent
        return self

    def as_tuple(self) -> list[Any]:
        """Return it as Celery writes a result."""
        parent = None if self.parent is None else self.parent.as_tuple()
        children = None if self.children is None else [one.as_tuple() for one in self.children]
        return [[self.id, parent], children]


class Ids:
    """Ids that are new; or where there is a name to make them from, always the same ones."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._count = 0

    def next(self) -> str:
        if self._name is None:
            return str(uuid.uuid4())
        self._count += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._name}/{self._count}"))


class Planner:
    """Gathers the messages of one step.

    sizes: of each chord that begins, its group and its number of parts: to be known before
        the messages are.
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
        """Have `signature` begin, with `args` before its own; return where its result will be.

        common: options instead of its own. Raises MessageError for what cannot be done.
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
            make_message(
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
        # A group that Celery froze as the end of a chord's part: each of its tasks is one then.
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

    # --- ids before anything is sent -----------------------------------------------------------

    def freeze(self, signature: Signature) -> tuple[Signature, Node]:
        """Return a copy in which everything has its id, and where its result will be."""
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
    """Return options without those that delay: a chord's delay is its header's."""
    return {name: value for name, value in options.items() if name not in ("countdown", "eta")}
