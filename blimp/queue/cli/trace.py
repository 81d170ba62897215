"""`trace`: the spans of a BLIMP_TRACE_FILE as trees, with start and length."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from blimp.errors import ConfigError


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One span of a file. Times are seconds since the epoch."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    began_s: float
    ended_s: float
    service: str = ""
    state: str = ""


def add_command(commands: Any) -> None:
    """Add `trace` to an argparse parser's commands."""
    trace = commands.add_parser(
        "trace",
        help="show the traces of a BLIMP_TRACE_FILE",
        epilog="example: python -m blimp.queue trace /tmp/trace.jsonl",
    )
    trace.set_defaults(run=show, app=None)
    trace.add_argument("file", type=Path, help="the file that BLIMP_TRACE_FILE names")
    trace.add_argument("--id", default="", help="only traces whose id begins with this")


def show(_: object, options: argparse.Namespace) -> int:
    try:
        text = options.file.read_text(errors="replace")
    except OSError as error:
        raise ConfigError(f"trace {str(options.file)!r}: {error}") from error
    traces: dict[str, list[Line]] = defaultdict(list)
    wrong = 0
    for raw in text.splitlines():
        line = read_line(raw)
        if line is None:
            wrong += 1
        elif line.trace_id.removeprefix("0x").startswith(options.id.removeprefix("0x")):
            traces[line.trace_id].append(line)
    for trace_id, lines in traces.items():
        print(f"trace {trace_id.removeprefix('0x')}")
        print("\n".join(tree(lines)))
    if wrong:
        print(f"{wrong} lines are not spans", file=sys.stderr)
    return 0


def read_line(raw: str) -> Line | None:
    """Return the span on a line of a file, None for anything else."""
    try:
        span = json.loads(raw)
        attributes, resource = span["attributes"] or {}, span["resource"]["attributes"]
        failed = span["status"]["status_code"] == "ERROR"
        state = attributes.get("blimp.state") or ("ERROR" if failed else "")
        found = {
            "name": span["name"],
            "trace_id": span["context"]["trace_id"],
            "span_id": span["context"]["span_id"],
            "parent_id": span["parent_id"],
            "began_s": datetime.fromisoformat(span["start_time"]).timestamp(),
            "ended_s": datetime.fromisoformat(span["end_time"]).timestamp(),
            "service": resource.get("service.name", ""),
            "state": state,
        }
        return msgspec.convert(found, Line)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None  # msgspec's errors are ValueErrors


def tree(lines: list[Line]) -> list[str]:
    """Return one trace as text: children below their parents, in order of time."""
    known = {line.span_id for line in lines}
    children: dict[str | None, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.began_s):
        children[line.parent_id if line.parent_id in known else None].append(line)
    began_s = min(line.began_s for line in lines)
    shown: list[str] = []
    open_ = [(line, 0) for line in reversed(children[None])]
    while open_:
        line, depth = open_.pop()
        name = _printable(f"{'  ' * depth}{line.name}")
        after_ms = (line.began_s - began_s) * 1000.0
        long_ms = (line.ended_s - line.began_s) * 1000.0
        tail = _printable(f"{line.service} {line.state}".rstrip())
        shown.append(f"{after_ms:10.1f} ms {long_ms:10.1f} ms  {name:<40} {tail}".rstrip())
        open_ += [(child, depth + 1) for child in reversed(children.pop(line.span_id, []))]
    return shown


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)
