"""How every campaign reports: one JSON line with its command and its figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def print_figures(module: str, figures: Mapping[str, Any], *, one_line: bool = True) -> str:
    """Print `figures` with the command that measured them; return the text."""
    command = " ".join(["python -m", module, *sys.argv[1:]])
    text = json.dumps({"command": command, **figures}, indent=None if one_line else 2)
    print(text, flush=True)
    return text


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
