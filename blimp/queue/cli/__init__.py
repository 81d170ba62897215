"""The queue's command line: a file for the commands of a kind, and what their help shares."""

from __future__ import annotations

import argparse
from typing import Any

A_TASK = "f01f6ece-cd76-4e80-ac2e-8048a488811a"


def example(typed: str) -> str:
    """Return the line of a help text that shows a command, with `typed` as its words."""
    return f"example: python -m blimp.queue {typed} -A weather:app"


def add_app(parser: Any) -> None:
    parser.add_argument(
        "-A",
        "--app",
        required=True,
        metavar="MODULE:APP",
        help="the TaskApp, by its module and name: weather:app",
    )


def add_json(parser: Any) -> None:
    parser.add_argument("-j", "--json", action="store_true", help="print a JSON document")


def positive(text: str) -> int:
    """Return a number of 1 or more, as argparse reads one."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 1 or more")
    return value


def seconds(text: str) -> float:
    """Return seconds, as argparse reads them."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: must be seconds, from 0 to 1,000,000")
    return value
