"""Signatures in messages: Celery's dicts. They come from others, so every field is checked.

`{"task", "args", "kwargs", "options", "subtask_type", "immutable"}`. A chain and a group have
their parts in `kwargs["tasks"]`, a chord in `kwargs["header"]` and `kwargs["body"]`. The options
hold the ids of a frozen signature and what follows it (`link`, `link_error`, `chain`, `chord`).
Source: Celery 5.7 `canvas.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from blimp.errors import MessageError
from blimp.queue.protocol.message import MAX_NAME_LENGTH

MOST_CALLBACKS = 100
MOST_SIGNATURES = 20_000  # in one canvas, at all depths
MOST_DEEP = 50

CHAIN, GROUP, CHORD = "chain", "group", "chord"
# Tasks that Celery's workers have and ours.
GATHER = "celery.accumulate"  # with `index=0` it returns its first argument
MAP, STARMAP = "celery.map", "celery.starmap"
TASK = None
NO_REDIS = "chords need a Redis server to count on: as the broker, or for the results"
KINDS = (TASK, CHAIN, GROUP, CHORD)
NAMES = ("task_id", "queue", "group_id", "root_id", "parent_id")  # the options that are names
_TYPES: dict[str, tuple[type, ...]] = {"args": (list, tuple), "kwargs": (dict,), "options": (dict,)}

Signature = dict[str, Any]


def read_callbacks(embed: Mapping[str, Any] | None, what: str) -> tuple[Signature, ...]:
    """Return the signatures under `what`. Raises MessageError that says what is wrong."""
    found = (embed or {}).get(what)
    if not found:
        return ()
    most = MOST_SIGNATURES if what == CHAIN else MOST_CALLBACKS
    if not isinstance(found, list) or len(found) > most:
        raise MessageError(f"body: {what!r} must be a list of at most {most} signatures")
    check = _Check()
    return tuple(check.signature(one, f"body: {what}[{n}]", 0) for n, one in enumerate(found))


def read_chord(embed: Mapping[str, Any]) -> Signature | None:
    """Return the body of the chord that the message is a part of. Raises MessageError."""
    found = embed.get(CHORD)
    return check_signature(found, where="body: chord") if found else None


def check_signature(signature: object, *, where: str) -> Signature:
    """Return `signature` if it and all signatures in it are valid. Raises MessageError."""
    return _Check().signature(signature, where, 0)


class _Check:
    """Checks one canvas and counts its signatures."""

    def __init__(self) -> None:
        self._left = MOST_SIGNATURES

    def signature(self, signature: object, where: str, depth: int) -> Signature:
        if not isinstance(signature, dict):
            raise MessageError(f"{where} is {type(signature).__name__}, must be a signature")
        self._left -= 1
        if self._left < 0:
            raise MessageError(f"{where}: more than {MOST_SIGNATURES} signatures in one canvas")
        if depth > MOST_DEEP:
            raise MessageError(f"{where[:200]}: nested deeper than {MOST_DEEP}")
        name = signature.get("task")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
            raise MessageError(f"{where}: 'task' must be 1 to {MAX_NAME_LENGTH} letters")
        for part, kinds in _TYPES.items():
            value = signature.get(part)
            if value is not None and not isinstance(value, kinds):
                raise MessageError(
                    f"{where}: {part} is {type(value).__name__}, must be {kinds[0].__name__}"
                )
        kind = signature.get("subtask_type")
        if kind not in KINDS:
            raise MessageError(f"{where} is a {kind!r:.40}: there are task, chain, group and chord")
        self._options(signature.get("options") or {}, where, depth)
        kwargs = signature.get("kwargs") or {}
        if kind in (CHAIN, GROUP):
            self._several(kwargs.get("tasks"), f"{where}.tasks", depth)
        elif kind == CHORD:
            self._chord(kwargs, where, depth)
        return signature

    def _chord(self, kwargs: Mapping[str, Any], where: str, depth: int) -> None:
        header = kwargs.get("header")
        if isinstance(header, dict):
            self.signature(header, f"{where}.header", depth + 1)
        else:
            self._several(header, f"{where}.header", depth)
        if kwargs.get("body") is None:
            raise MessageError(f"{where}: a chord needs a body, and has none")
        self.signature(kwargs["body"], f"{where}.body", depth + 1)

    def _options(self, options: Mapping[str, Any], where: str, depth: int) -> None:
        if not options:
            return
        for part in NAMES:
            value = options.get(part)
            if value is not None and (
                not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_LENGTH
            ):
                raise MessageError(f"{where}: {part} must be 1 to {MAX_NAME_LENGTH} letters")
        index = options.get("group_index")
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            raise MessageError(f"{where}: group_index is {index!r:.40}, must be an integer")
        for part in ("link", "link_error", CHAIN):
            value = options.get(part)
            if isinstance(value, dict):
                self.signature(value, f"{where}.{part}", depth + 1)
            elif value:
                self._several(value, f"{where}.{part}", depth)
        if options.get(CHORD):
            self.signature(options[CHORD], f"{where}.{CHORD}", depth + 1)

    def _several(self, signatures: object, where: str, depth: int) -> None:
        if not isinstance(signatures, list | tuple):
            raise MessageError(f"{where} is {type(signatures).__name__}, must be a list")
        for number, one in enumerate(signatures):
            self.signature(one, f"{where}[{number}]", depth + 1)


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
    | {"link", "link_error", CHAIN, CHORD, "stamped_headers"}
)


def passed_on(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a chain, group or chord that hold for its tasks."""
    return {name: value for name, value in options.items() if name not in _OWN}
