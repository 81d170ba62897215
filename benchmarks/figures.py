"""What every benchmark is asked and reports: one JSON line with its command and its figures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def make_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark, whose help is its docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def exit_status(module: str, figures: Mapping[str, Any]) -> int:
    """Print `figures`; return 1 unless they are `ok`."""
    print_figures(module, figures)
    return int(not figures["ok"])


def print_figures(module: str, figures: Mapping[str, Any], *, one_line: bool = True) -> str:
    """Print `figures` with the command that measured them; return the text."""
    command = " ".join(["python -m", module, *sys.argv[1:]])
    text = json.dumps({"command": command, **figures}, indent=None if one_line else 2)
    print(text, flush=True)
    return text


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the longest; of nothing, nothing."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    places = {"p50_s": len(ordered) // 2, "p99_s": int(0.99 * len(ordered)), "max_s": last}
    return {name: round(ordered[min(last, at)], 4) for name, at in places.items() if ordered}
