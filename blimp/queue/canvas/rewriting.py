"""Rewriting signatures before they are sent: chains are flattened, groups become chords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from blimp.errors import MessageError
from blimp.queue.protocol.embed import (
    CHAIN,
    CHORD,
    GATHER,
    GROUP,
    Signature,
    body_of,
    kind_of,
    listed,
    members,
    options_of,
    parts_of,
    passed_on,
    with_kwargs,
    with_options,
)


class Then(msgspec.Struct, frozen=True, kw_only=True):
    """What follows one signature, and what it is a part of.

    chain: the later links, last first. chord: the body of the chord that it is a part of.
    task_id: the id of its result, if it has none of its own.
    """

    chain: tuple[Signature, ...] = ()
    chord: Signature | None = None
    group_id: str | None = None
    group_index: int | None = None
    link: tuple[Signature, ...] = ()
    link_error: tuple[Signature, ...] = ()
    task_id: str | None = None


NOTHING = Then()


def steps_of(signatures: Sequence[Signature]) -> list[Signature]:
    """Return the links of a chain, inner chains flattened, each group a chord with its next."""
    steps: list[Signature] = []
    for one in signatures:
        kind = kind_of(one)
        inner = [one]
        if kind == CHAIN:
            inner = steps_of(parts_of(closed(one, joined(options_of(one), NOTHING))))
        elif kind == GROUP:
            found = members(parts_of(one))
            if len(found) == 1:
                inner = steps_of([with_options(found[0], **passed_on(options_of(one)))])
            elif not found:
                inner = []
        for step in inner:
            if steps and kind_of(steps[-1]) == GROUP:
                steps[-1] = chord_of(steps[-1], step)
            else:
                steps.append(step)
    return steps


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
        refuse_link(then)
        tasks = [put(one, Then(link_error=then.link_error)) for one in parts_of(signature)]
        signature = with_kwargs(signature, tasks=tasks)
        return with_options(signature, task_id=own.get("task_id") or then.task_id)
    both = joined(own, then)
    changed = {
        CHAIN: list(both.chain) or None,
        CHORD: both.chord,
        "group_id": both.group_id,
        "group_index": both.group_index,
        "link": list(both.link) or None,
        "link_error": list(both.link_error) or None,
        "task_id": both.task_id,
    }
    return with_options(
        signature, **{name: value for name, value in changed.items() if value is not None}
    )


def chord_of(header: Signature, body: Signature) -> Signature:
    """Return a chord as Celery writes it."""
    return _of(CHORD, {"header": header, "body": body, "kwargs": {}})


def group_of(signatures: Sequence[Signature]) -> Signature:
    """Return a group as Celery writes it."""
    return _of(GROUP, {"tasks": list(signatures)})


def _of(kind: str | None, kwargs: dict[str, Any], task: str = "") -> Signature:
    return {
        "task": task or f"celery.{kind}",
        "args": [],
        "kwargs": kwargs,
        "options": {},
        "subtask_type": kind,
        "immutable": False,
    }


def joined(own: Mapping[str, Any], then: Then) -> Then:
    """Return what follows a signature: what its options say, and `then`."""
    index = then.group_index
    return Then(
        chain=(*then.chain, *listed(own.get(CHAIN))),
        chord=then.chord or own.get(CHORD) or None,
        group_id=then.group_id or own.get("group_id"),
        group_index=own.get("group_index") if index is None else index,
        link=(*listed(own.get("link")), *then.link),
        link_error=(*listed(own.get("link_error")), *then.link_error),
        task_id=own.get("task_id") or then.task_id,
    )


def closed(signature: Signature, then: Then) -> Signature:
    """Return a chain or chord whose last task has its links, and every task its errbacks."""
    rest = {**options_of(signature)}
    for name in ("group_id", "group_index", "link", "link_error", CHAIN, CHORD):
        rest.pop(name, None)
    if kind_of(signature) == CHORD:
        header = signature["kwargs"]["header"]
        own = rest.pop("task_id", None)
        if own and (not isinstance(header, dict) or options_of(header).get("task_id") == own):
            # Celery freezes a chord so: its own id is the header's.
            then = msgspec.structs.replace(then, task_id=None)
            if not isinstance(header, dict):
                header = with_options(group_of(header), task_id=own)
                signature = with_kwargs(signature, header=header)
        return {**put(signature, then), "options": rest}
    rest.pop("task_id", None)
    steps = steps_of(parts_of(signature))
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
    return chord_of(header, chain[-1] if chain else _of(None, {"index": 0}, GATHER))


def single(signature: Signature) -> Signature:
    """Return `signature` with one task at its end: a group there gets one that gathers it."""
    kind = kind_of(signature)
    if kind == GROUP:
        return gathered(signature, ())
    if kind == CHORD:
        return with_kwargs(signature, body=single(body_of(signature)))
    if kind == CHAIN and parts_of(signature):
        *first, last = parts_of(signature)
        return with_kwargs(signature, tasks=[*first, single(last)])
    return signature


def after_group(then: Then) -> Then:
    """Return what follows the chord that `gathered` made of a group followed by `then`."""
    return msgspec.structs.replace(then, chain=then.chain[:-1], task_id=None)


def refuse_link(then: Then) -> None:
    """Raise MessageError if a group has a link."""
    if then.link:
        raise MessageError("a group has no link: use a chord, whose body gets all its results")
