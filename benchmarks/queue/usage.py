"""What a process and its descendants use, as /proc tells it."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

PROC = Path("/proc")


def tree(pid: int) -> list[int]:
    """Return `pid` and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def memory_mb(pids: list[int]) -> tuple[float, float]:
    """Return resident and proportional memory, each summed, in MB of 10^6 bytes."""
    totals = {"Rss": 0, "Pss": 0}
    for pid in pids:
        with contextlib.suppress(OSError):
            text = (PROC / str(pid) / "smaps_rollup").read_text()
            for name in totals:
                found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
                totals[name] += int(found.group(1)) * 1024 if found else 0
    return totals["Rss"] / 1e6, totals["Pss"] / 1e6


def processor_s(pids: list[int]) -> float:
    """Return the processor time used so far, in user and system, summed."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def wake_ups(pids: list[int]) -> dict[str, int]:
    """Return how often each thread has gone to sleep so far: voluntary context switches."""
    counts = {}
    for pid in pids:
        for path in (PROC / str(pid) / "task").glob("*/status"):
            with contextlib.suppress(OSError):
                found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", path.read_text(), re.M)
                if found:
                    counts[str(path)] = int(found.group(1))
    return counts
