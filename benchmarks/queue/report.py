"""Many rounds made into one line a peer, and the lines into a table with ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.queue.bench import Backlog, Idle
from benchmarks.queue.catalogue import CELERY, FLOOR, TASKIQ

LEAST_WORK_S = 3.0


class Rounds(msgspec.Struct, kw_only=True):
    """What was measured of one peer. A backlog of less than 3 s of work sizes the next."""

    idle: list[Idle] = []
    latencies_ms: list[list[float]] = []
    backlogs: list[Backlog] = []


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    median: float
    least: float
    most: float


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of the rounds of one peer, with the least and the most of them."""

    peer: str
    messages_paced: int
    p50_ms: Spread | None
    p99_ms: Spread | None
    executed_per_s: Spread | None
    processor_us: Spread | None
    enqueued_per_s: Spread | None
    memory_mb: Spread | None
    proportional_mb: Spread | None
    memory_after_work_mb: Spread | None
    processes: int | None
    threads: int | None
    wake_ups_per_s: Spread | None
    commands_per_s: Spread | None


def summarise(peer: str, rounds: Rounds) -> Line:
    paced = [sorted(one) for one in rounds.latencies_ms]
    long = [one for one in rounds.backlogs if one.span_s >= LEAST_WORK_S] or rounds.backlogs
    return Line(
        peer=peer,
        messages_paced=sum(map(len, paced)),
        p50_ms=_spread([_at(one, 0.50) for one in paced]),
        p99_ms=_spread([_at(one, 0.99) for one in paced]),
        executed_per_s=_spread([one.executed_per_s for one in long]),
        processor_us=_spread([one.processor_us for one in long]),
        enqueued_per_s=_spread([one.enqueued_per_s for one in rounds.backlogs]),
        memory_mb=_spread([one.memory_mb for one in rounds.idle]),
        proportional_mb=_spread([one.proportional_mb for one in rounds.idle]),
        memory_after_work_mb=_spread([one.memory_mb for one in long]),
        processes=rounds.idle[-1].processes if rounds.idle else None,
        threads=rounds.idle[-1].threads if rounds.idle else None,
        wake_ups_per_s=_spread([one.wake_ups_per_s for one in rounds.idle]),
        commands_per_s=_spread([one.commands_per_s for one in rounds.idle]),
    )


def table(lines: Sequence[Line]) -> str:
    """Return the lines in Markdown: medians, and the range of what varies most."""
    by_name = {line.peer: line for line in lines}
    head = (
        "peer", "p50 / p99 ms at 50 Hz", "x floor", "executed/s (range)", "x taskiq",
        "x Celery threads", "CPU µs a task", "enqueued/s", "x Celery",
        "idle MB: RSS · PSS (processes)", "idle wake-ups/s · commands/s",
    )  # fmt: skip
    rows = [head, ("---",) * len(head)]
    for line in lines:
        executed, idle = line.executed_per_s, line.memory_mb
        rows.append((
            line.peer,
            f"{_text(line.p50_ms, 2)} / {_text(line.p99_ms, 1)}",
            _ratio(line, by_name, FLOOR, "p50_ms"),
            f"{executed.median:,.0f} ({executed.least:,.0f}-{executed.most:,.0f})"
            if executed else "-",
            _ratio(line, by_name, TASKIQ, "executed_per_s"),
            _ratio(line, by_name, CELERY, "executed_per_s"),
            _text(line.processor_us, 0),
            _text(line.enqueued_per_s, 0),
            _ratio(line, by_name, CELERY, "enqueued_per_s"),
            f"{idle.median:.1f} · {_text(line.proportional_mb, 1)} ({line.processes})"
            if idle else "-",
            f"{_text(line.wake_ups_per_s, 1)} · {_text(line.commands_per_s, 1)}",
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _at(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(
        median=round(statistics.median(values), 3),
        least=round(min(values), 3),
        most=round(max(values), 3),
    )


def _text(spread: Spread | None, digits: int) -> str:
    return "-" if spread is None else f"{spread.median:,.{digits}f}"


def _ratio(line: Line, by_name: Mapping[str, Line], base: str, field: str) -> str:
    mine: Spread | None = getattr(line, field)
    other: Spread | None = getattr(by_name[base], field) if base in by_name else None
    if mine is None or other is None or not other.median:
        return "-"
    return f"{mine.median / other.median:.2f}"
