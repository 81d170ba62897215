"""Signatures made anew with what is to follow them: groups become chords, chains are opened."""

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
    """What a part of a canvas is followed by, and belongs to.

    chain: the links after it, last first. chord: the body of the chord that it is a part of.
    task_id: of its result, where it has none of its own.
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
    """Return the links of a chain: chains in it opened, groups made chords with what follows."""
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
    """Return a copy of `signature` that is followed by `then`."""
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
    """Return a chord as Celery writes one."""
    return {
        "task": "celery.chord",
        "args": [],
        "kwargs": {"header": header, "body": body, "kwargs": {}},
        "options": {},
        "subtask_type": CHORD,
        "immutable": False,
    }


def group_of(signatures: Sequence[Signature]) -> Signature:
    """Return a group as Celery writes one."""
    return {
        "task": "celery.group",
        "args": [],
        "kwargs": {"tasks": list(signatures)},
        "options": {},
        "subtask_type": GROUP,
        "immutable": False,
    }


def joined(own: Mapping[str, Any], then: Then) -> Then:
    """Return what follows a signature with the options `own` where `then` follows it, too."""
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
    """Return a chain or chord with what belongs to its end put there, and errbacks to all."""
    rest = {**options_of(signature)}
    for name in ("group_id", "group_index", "link", "link_error", CHAIN, CHORD):
        rest.pop(name, None)
    if kind_of(signature) == CHORD:
        header = signature["kwargs"]["header"]
        own = rest.pop("task_id", None)
        if own and (not isinstance(header, dict) or options_of(header).get("task_id") == own):
            # As Celery freezes it: a chord's own id is its header's.
            then = msgspec.structs.replace(then, task_id=None)
            if not isinstance(header, dict):
                header = with_options(group_of(header), task_id=own)
                signature = with_kwargs(signature, header=header)
        return {**put(signature, then), "options": rest}
    rest.pop("task_id", None)
    steps = steps_of(parts_of(signature))
    if steps:
        errors = Then(link_error=then.link_error)
        # What follows the chain goes on with it; see `Planner._chain`.
        last = msgspec.structs.replace(then, chain=(), link_error=())
        steps = [put(one, errors) for one in steps]
        steps[-1] = put(steps[-1], last)
    return {**with_kwargs(signature, tasks=steps), "options": rest}


def gathered(group: Signature, chain: Sequence[Signature]) -> Signature:
    """Return a chord of `group` and the next link, or of a task that returns its results."""
    options = passed_on(options_of(group)) | {"task_id": options_of(group).get("task_id")}
    body: Signature = {"task": GATHER, "args": [], "kwargs": {"index": 0}, "options": {},
                       "subtask_type": None, "immutable": False}  # fmt: skip
    tasks = [
        with_options(one, group_id=None, group_index=None, chord=None) for one in parts_of(group)
    ]
    header = {**with_kwargs(group, tasks=tasks), "options": options}
    return chord_of(header, chain[-1] if chain else body)


def after_group(then: Then) -> Then:
    """Return what follows the chord that `gathered` made of a group that `then` followed."""
    return msgspec.structs.replace(then, chain=then.chain[:-1], task_id=None)


def refuse_link(then: Then) -> None:
    """Raise MessageError where a group is to have a link."""
    if then.link:
        raise MessageError("a group has no link: use a chord, whose body gets all its results")
