"""The queue's command line: a file for the commands of a kind, and what they share.

Tested by test_main.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from blimp.queue.log import printable

A_TASK = "f01f6ece-cd76-4e80-ac2e-8048a488811a"


def add_command(
    commands: Any,
    name: str,
    run: Callable[..., int] | None = None,
    *,
    meaning: str,
    typed: str,
    about: str = "",
    then: str = "",
    has_verbs: bool = False,
) -> Any:
    """Add a command to an argparse parser's `commands`; return its parser.

    run: called with the app and the options; None for a group of commands. typed: its words in the
    example of its help, which `then` follows. has_verbs: the app may come after a verb as well.
    """
    parser = commands.add_parser(
        name,
        help=meaning,
        description=about or meaning,
        epilog=f"example: python -m blimp.queue {typed} -A weather:app{then}",
    )
    if run is not None:
        parser.set_defaults(run=run)
        parser.add_argument(
            "-A",
            "--app",
            required=not has_verbs,
            default=argparse.SUPPRESS if has_verbs else None,
            metavar="MODULE:APP",
            help="the TaskApp, by its module and name: weather:app",
        )
    return parser


def add_queues(parser: Any) -> None:
    parser.add_argument(
        "--queues", type=names, default="", metavar="A,B", help="default: the app's queue"
    )


def add_json(parser: Any) -> None:
    parser.add_argument("-j", "--json", action="store_true", help="print a JSON document")


def names(text: str) -> list[str]:
    """Return the names in `A,B`, as argparse reads them."""
    return [name for name in text.split(",") if name]


def a_name(text: str) -> str:
    """Return a name that is not empty, as argparse reads one."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: must be a name")
    return text


def positive(text: str) -> int:
    """Return a number of 1 or more, as argparse reads one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, 1 or more")
    return int(text)


def seconds(text: str, *, least_s: float = 0.0, most_s: float = 1e6) -> float:
    """Return seconds, as argparse reads them."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least_s <= value <= most_s:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be seconds, from {least_s:g} to {most_s:,.0f}"
        )
    return value


def say(line: str) -> None:
    """Print a line. What others chose (a task's name, a reason) reaches no terminal raw."""
    print(printable(line))


def say_json(document: Any) -> None:
    print(json.dumps(document, default=repr))


def say_error(error: object) -> None:
    print(f"error: {printable(str(error))}", file=sys.stderr)
