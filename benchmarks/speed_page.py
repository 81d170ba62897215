"""The tables of docs/speed.md: `python -m benchmarks.speed_page`.

Writes what stands between the two marks there from the kept run, which is made by

    python -m benchmarks.queue --json > benchmarks/results/queue-two-shared-cores.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.queue.catalogue import CELERY, FLOOR, TASKIQ
from benchmarks.queue.report import Line, table

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "speed.md"
RESULTS = PROJECT / "benchmarks" / "results" / "queue-two-shared-cores.json"
BEGIN, END = "<!-- made by python -m benchmarks.speed_page -->\n", "<!-- end -->\n"

# What the queue is held to: its figure, of what, and the limit. Chosen: the goals of the project.
GOALS = (
    ("executed/s", "executed_per_s", FLOOR, "at least", 0.5),
    ("executed/s", "executed_per_s", TASKIQ, "at least", 4.0),
    ("executed/s", "executed_per_s", CELERY, "at least", 10.0),
    ("enqueued/s, one by one", "enqueued_per_s", FLOOR, "at least", 0.9),
    ("p50 at 50 Hz", "p50_ms", FLOOR, "at most", 1.2),
)


def page() -> str:
    """Return the whole page, with its tables made from the results."""
    text = PAGE.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} must have the marks {BEGIN.strip()} and {END.strip()}")
    made = "\n".join(_lines(json.loads(RESULTS.read_text("utf-8"))))
    return f"{before}{begin}{made}\n{end}{after}"


def _lines(document: dict[str, Any]) -> Iterator[str]:
    lines = msgspec.convert(document["lines"], list[Line])
    machine = document["machine"]
    loads = ", ".join(f"{load:.1f}" for load in machine["load_before_each_round"])
    commit = machine.get("commit") or "not noted"
    yield ""
    yield (
        f"{document['rounds']} rounds on {machine['cores']} cores, {machine['system']}, Python "
        f"{machine['python']}, {machine['server']}; commit {commit}; load before each round: "
        f"{loads}."
    )
    if max(machine["load_before_each_round"]) > machine["cores"]:
        yield "More ran than the cores could: these figures compare little."
    yield ""
    yield table(lines)
    yield ""
    yield "| blimp's | goal | found | |"
    yield "|---|---|---|---|"
    by_name = {line.peer: line for line in lines}
    for label, field, base, word, limit in GOALS:
        found = _ratio(by_name, field, base)
        if found is not None:
            reached = found >= limit if word == "at least" else found <= limit
            words = "reached" if reached else "**not reached**"
            yield f"| {label} | {word} {limit:g} x {base} | {found:.2f} | {words} |"
    yield ""


def _ratio(by_name: dict[str, Line], field: str, base: str) -> float | None:
    mine, other = (getattr(by_name.get(name), field, None) for name in ("blimp", base))
    return mine.median / other.median if mine and other and other.median else None


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
