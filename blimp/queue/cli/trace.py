"""`trace`: the spans of a BLIMP_TRACE_FILE as trees, with start and length.

Tested by test_tracing.py.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec

from blimp.errors import ConfigError
from blimp.queue.cli import say

# Without a zone, two times could not be compared.
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Ids(msgspec.Struct):
    trace_id: str
    span_id: str


class Status(msgspec.Struct):
    status_code: str


class Resource(msgspec.Struct):
    attributes: dict[str, Any]


class Line(msgspec.Struct):
    """One span of a file, as OpenTelemetry writes it."""

    name: str
    context: Ids
    parent_id: str | None
    start_time: _Time
    end_time: _Time
    status: Status
    attributes: dict[str, Any] | None
    resource: Resource

    @property
    def tail(self) -> str:
        """Its service and its state."""
        failed = "ERROR" if self.status.status_code == "ERROR" else ""
        state = (self.attributes or {}).get("blimp.state") or failed
        return f"{self.resource.attributes.get('service.name', '')} {state}"


_decode = msgspec.json.Decoder(Line).decode


def add_commands(commands: Any) -> None:
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
        rows = options.file.read_text(errors="replace").splitlines()
    except OSError as error:
        raise ConfigError(f"trace {str(options.file)!r}: {error}") from error
    traces: dict[str, list[Line]] = defaultdict(list)
    wrong = 0
    for row in rows:
        try:
            line = _decode(row)
        except (msgspec.DecodeError, RecursionError):
            wrong += 1
            continue
        if line.context.trace_id.removeprefix("0x").startswith(options.id.removeprefix("0x")):
            traces[line.context.trace_id].append(line)
    for trace_id, lines in traces.items():
        say(f"trace {trace_id.removeprefix('0x')}")
        for shown in tree(lines):
            say(shown)
    if wrong:
        print(f"{wrong} lines are not spans", file=sys.stderr)
    return 0


def tree(lines: list[Line]) -> Iterator[str]:
    """Yield one trace as text: children below their parents, in order of time."""
    known = {line.context.span_id for line in lines}
    children: dict[str | None, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.start_time):
        children[line.parent_id if line.parent_id in known else None].append(line)
    began, ms = min(line.start_time for line in lines), timedelta(milliseconds=1)
    waiting = [(line, 0) for line in reversed(children[None])]
    while waiting:
        line, depth = waiting.pop()
        name = f"{'  ' * depth}{line.name}"
        after_ms, long_ms = (line.start_time - began) / ms, (line.end_time - line.start_time) / ms
        yield f"{after_ms:10.1f} ms {long_ms:10.1f} ms  {name:<40} {line.tail}".rstrip()
        waiting += [
            (child, depth + 1) for child in reversed(children.pop(line.context.span_id, []))
        ]
