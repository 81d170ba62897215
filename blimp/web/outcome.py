"""How a command ended, as a page answers and `ground --json` prints it."""

from typing import Any

import msgspec

from blimp.reading import ready


@ready
class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The object that a page answers a command with, and that one prints with --json."""

    id: str | None
    task: str
    state: str
    result: Any = None
    reason: str = ""
    latency_ms: float | None = None
