"""Signatures in messages: Celery's dicts. They come from others, so every field is checked.

`{"task", "args", "kwargs", "options", "subtask_type", "immutable"}`. A chain and a group have
their parts in `kwargs["tasks"]`, a chord in `kwargs["header"]` and `kwargs["body"]`. The options
hold the ids of a frozen signature and what follows it (`link`, `link_error`, `chain`, `chord`).
Source: Celery 5.7 `canvas.py`. Tested by test_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from blimp.errors import MessageError
from blimp.queue.protocol.message import MAX_NAME_LENGTH
from blimp.reading import ready

MOST_CALLBACKS = 100
MOST_SIGNATURES = 20_000  # in one canvas, at all depths
MOST_DEEP = 50

CHAIN, GROUP, CHORD = "chain", "group", "chord"
# Tasks that Celery's workers have and ours.
GATHER = "celery.accumulate"  # with `index=0` it returns its first argument
MAP, STARMAP = "celery.map", "celery.starmap"
NO_REDIS = "chords need a Redis server to count on: as the broker, or for the results"

Signature = dict[str, Any]
_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]


class _Options(msgspec.Struct):
    """The options of a signature that this package reads."""

    task_id: _Name | None = None
    queue: _Name | None = None
    group_id: _Name | None = None
    group_index: int | None = None
    root_id: _Name | None = None
    parent_id: _Name | None = None
    link: list[Any] | Signature | None = None
    link_error: list[Any] | Signature | None = None
    chain: list[Any] | Signature | None = None
    chord: Signature | None = None
    replaced_task_nesting: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    blimp_delivery: Annotated[int, Meta(ge=0, lt=2**31)] | None = None


@ready
class _Signature(msgspec.Struct):
    task: _Name
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    options: _Options | None = None
    subtask_type: Literal["chain", "group", "chord"] | None = None


@ready
class _Tasks(msgspec.Struct):
    """The `kwargs` of a chain or a group."""

    tasks: list[Any]


@ready
class _Chord(msgspec.Struct):
    """The `kwargs` of a chord."""

    header: list[Any] | Signature
    body: Signature


def read_callbacks(embed: Mapping[str, Any], what: str) -> tuple[Signature, ...]:
    """Return the signatures under `what`. Raises MessageError that says what is wrong."""
    found = embed.get(what)
    if not found:
        return ()
    most = MOST_SIGNATURES if what == CHAIN else MOST_CALLBACKS
    if not isinstance(found, list) or len(found) > most:
        raise MessageError(f"body: {what!r} must be a list of at most {most} signatures")
    _check((f"body: {what}[{number}]", one) for number, one in enumerate(found))
    return tuple(found)


def read_chord(embed: Mapping[str, Any]) -> Signature | None:
    """Return the body of the chord that the message is a part of. Raises MessageError."""
    found = embed.get(CHORD)
    return check_signature(found, where="body: chord") if found else None


def check_signature(signature: Any, *, where: str) -> Signature:
    """Return `signature` if it and all signatures in it are valid. Raises MessageError."""
    _check([(where, signature)])
    found: Signature = signature
    return found


def _check(signatures: Iterable[tuple[str, Any]]) -> None:
    """Check one canvas. A place is the path to its signature."""
    left = [(where, one, 0) for where, one in signatures]
    count = 0
    while left:
        where, signature, depth = left.pop()
        count += 1
        if count > MOST_SIGNATURES:
            raise MessageError(f"{where}: more than {MOST_SIGNATURES} signatures in one canvas")
        if depth > MOST_DEEP:
            raise MessageError(f"{where[:200]}: nested deeper than {MOST_DEEP}")
        try:
            read = msgspec.convert(signature, _Signature)
            if read.subtask_type is not None or signature.get("options"):  # else none is in it
                for part, one in _inner(read):
                    left.append((f"{where}.{part}", one, depth + 1))
        except msgspec.ValidationError as error:
            raise MessageError(f"{where} is no signature: {error}") from None


def _inner(signature: _Signature) -> Iterator[tuple[str, Any]]:
    """Yield the signatures directly in one, each with its place. Raises ValidationError."""
    parts: tuple[tuple[str, Any], ...] = ()
    if signature.subtask_type == CHORD:
        chord = msgspec.convert(signature.kwargs or {}, _Chord)
        parts = (("header", chord.header), ("body", chord.body))
    elif signature.subtask_type is not None:
        parts = (("tasks", msgspec.convert(signature.kwargs or {}, _Tasks).tasks),)
    if (own := signature.options) is not None:
        followers = (("link", own.link), ("link_error", own.link_error), (CHAIN, own.chain))
        parts += (*followers, (CHORD, own.chord))
    for part, value in parts:
        if isinstance(value, list):
            yield from ((f"{part}[{number}]", one) for number, one in enumerate(value))
        elif value:
            yield part, value


def kind_of(signature: Signature) -> str | None:
    """Return chain, group or chord; None for a single task."""
    return signature.get("subtask_type") or None


def called_task(name: str, kwargs: Mapping[str, Any] | None) -> str:
    """Return the name of a task; for `celery.map` and `starmap`, of the task they call."""
    called = (kwargs or {}).get("task") if name in (MAP, STARMAP) else None
    return str(called.get("task")) if isinstance(called, dict) else name


def options_of(signature: Signature) -> dict[str, Any]:
    return signature.get("options") or {}


def parts_of(signature: Signature) -> tuple[Signature, ...]:
    """Return the parts of a chain or a group, or the header of a chord."""
    kwargs = signature.get("kwargs") or {}
    if kind_of(signature) != CHORD:
        return tuple(kwargs["tasks"])
    header = kwargs["header"]
    if not isinstance(header, dict):
        return tuple(header)
    return tuple(header["kwargs"]["tasks"]) if kind_of(header) == GROUP else (header,)


def body_of(chord: Signature) -> Signature:
    body: Signature = chord["kwargs"]["body"]
    return body


def listed(value: Any) -> tuple[Signature, ...]:
    """Return the signatures of an option that may hold one or several."""
    if not value:
        return ()
    return (value,) if isinstance(value, dict) else tuple(value)


def with_options(signature: Signature, **options: Any) -> Signature:
    """Return a copy of `signature` with these options; None removes an option."""
    both = {**options_of(signature), **options}
    kept = {name: value for name, value in both.items() if value is not None}
    return {**signature, "options": kept}


def with_kwargs(signature: Signature, **kwargs: Any) -> Signature:
    """Return a copy of `signature` with these keyword arguments."""
    return {**signature, "kwargs": {**(signature.get("kwargs") or {}), **kwargs}}


def members(signatures: Iterable[Signature]) -> list[Signature]:
    """Return the parts of a group: inner groups flattened, empty chains left out."""
    found: list[Signature] = []
    for one in signatures:
        kind = kind_of(one)
        if kind == GROUP:
            common = passed_on(options_of(one))
            found.extend(
                with_options(inner, **common) if common else inner
                for inner in members(parts_of(one))
            )
        elif kind != CHAIN or parts_of(one):
            found.append(one)
    return found


# Options that hold for one signature and not for its parts.
_OWN = frozenset(
    {"task_id", "group_id", "group_index", "root_id", "parent_id", "reply_to"}
    | {"link", "link_error", CHAIN, CHORD, "stamped_headers", "blimp_delivery"}
)


def passed_on(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a chain, group or chord that hold for its tasks."""
    return {name: value for name, value in options.items() if name not in _OWN}
