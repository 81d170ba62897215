"""Anything as what JSON can hold. Never raises: a log must not fail whoever writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

MAX_TEXT_LENGTH = 10_000
MAX_ITEMS = 100
MAX_DEPTH = 6
MAX_BITS = 64


def to_line(fields: Mapping[str, Any]) -> str:
    """Return `fields` as one line of JSON, in ASCII: no value can forge a line."""
    return json.dumps({str(name): plain(value) for name, value in fields.items()})


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value`, or as much of it as JSON can hold and a person will read."""
    try:
        return _plain(value, depth)
    except Exception as error:  # its own methods may raise, or another thread change it
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return value if len(value) <= MAX_TEXT_LENGTH else f"{value[:MAX_TEXT_LENGTH]}…"
    if type(value) is int:
        return value if value.bit_length() <= MAX_BITS else f"<int of {value.bit_length()} bits>"
    if type(value) is float:
        return value if math.isfinite(value) else repr(value)
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS]
        return {_name(name): plain(item, depth + 1) for name, item in items}
    if depth < MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in list(value)[:MAX_ITEMS]]
    text = str(value) if isinstance(value, str) else repr(value)
    return plain(str.__str__(text))


def _name(value: Any) -> str:
    return value if type(value) is str else str(plain(value, MAX_DEPTH))
