"""The claim of a unique task: while one task has it, the same is not sent again.

It is in the header `blimp_unique` of every message of the task, its retries and its replacement
too, so that whatever ends the task frees the claim in the same step: a worker's completion, or a
script on the server that drops the message. Tested by test_unique.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

HEADER = "blimp_unique"
Until = Literal["start", "end"]
_CLAIM = re.compile(r"(start|end|\d{1,12}):([0-9a-f]{32}):(.{1,255})")


class UniqueClaim(msgspec.Struct, frozen=True):
    """lasts: "start" or "end", of the task that has it, or milliseconds after it was sent.

    digest: of the task and what makes two calls the same. queue: where it was sent first.
    """

    lasts: str
    digest: str
    queue: str

    @property
    def header(self) -> str:
        return f"{self.lasts}:{self.digest}:{self.queue}"

    def outlives(self, *, success: bool) -> bool:
        """Whether it lasts longer than its task, which has ended."""
        return success and self.lasts.isdigit()


def claim_of(headers: Mapping[str, Any]) -> UniqueClaim | None:
    """Return the claim that `headers` name, None for none or one that cannot be read."""
    found = headers.get(HEADER)
    parts = _CLAIM.fullmatch(found) if isinstance(found, str) else None
    return None if parts is None else UniqueClaim(*parts.groups())
