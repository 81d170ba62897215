""" "Did you mean": the known name that is nearest to what somebody wrote."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, get_args

import msgspec

_UNKNOWN = re.compile(r"unknown field `([^`]*)`(?: - at `\$([^`]*)`)?")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'name'?)" for the nearest known name, "" if none is near."""
    near = get_close_matches(word.lower()[:64], list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def with_suggestion(message: str, form: Any) -> str:
    """Add what was perhaps meant to msgspec's message of an unknown field.

    form: the struct that was read.
    """
    match = _UNKNOWN.search(message)
    if match is None:
        return message
    word, path = match.group(1), match.group(2) or ""
    for name in re.findall(r"\.(\w+)", path):
        fields = {f.encode_name: f.type for part in _structs(form) for f in _fields(part)}
        form = fields.get(name)
    known = [f.encode_name for part in _structs(form) for f in _fields(part)]
    return message + suggestion(word, known)


def _fields(form: Any) -> tuple[Any, ...]:
    return msgspec.structs.fields(form)


def _structs(form: Any) -> list[Any]:
    """Return every struct in a type: in a tuple, a union or an annotation, too."""
    if isinstance(form, type) and issubclass(form, msgspec.Struct):
        return [form]
    return [one for part in get_args(form) for one in _structs(part)]
