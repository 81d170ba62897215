"""Which trace a message belongs to: two headers, carried even if nothing traces here.

A trace that another program began goes on through retries and what a task calls. What is no
trace context is left out, and never fails a task.

Source: W3C, "Trace Context", level 2, sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

PARENT = "traceparent"
STATE = "tracestate"
MAX_PARENT_LENGTH = 256  # of a version to come; the present one's is 55
MAX_STATE_LENGTH = 512
MAX_STATE_MEMBERS = 32

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]*)?")
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[ -+\--<>-~]{1,256}")


class TraceContext(msgspec.Struct, frozen=True):
    """trace_id: of the whole trace, 32 hex digits. span_id: of what caused this, 16."""

    trace_id: str
    span_id: str


def read_context(headers: Mapping[str, Any]) -> TraceContext | None:
    """Return the trace that `headers` name; None if they name none, or a malformed one."""
    value = headers.get(PARENT)
    if not isinstance(value, str) or len(value) > MAX_PARENT_LENGTH:
        return None
    found = _PARENT.fullmatch(value)
    if found is None:
        return None
    version, trace_id, span_id, more = found.groups()
    is_wrong = version == "ff" or (version == "00" and more is not None)
    if is_wrong or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceContext(trace_id, span_id)


def trace_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return those of `headers` that name a trace, as they are carried on."""
    if read_context(headers) is None:
        return {}
    carried = {PARENT: headers[PARENT]}
    state = headers.get(STATE)
    if isinstance(state, str) and _is_state(state):
        carried[STATE] = state
    return carried


def _is_state(text: str) -> bool:
    if not 0 < len(text) <= MAX_STATE_LENGTH:
        return False
    members = [one.strip(" \t") for one in text.split(",")]
    return len(members) <= MAX_STATE_MEMBERS and all(
        not one or _MEMBER.fullmatch(one) for one in members
    )
