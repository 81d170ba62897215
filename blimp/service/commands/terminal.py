"""What the commands of `blimp` share: how they speak, ask and stop."""

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer


def say(text: str) -> None:
    """Print lines on standard error; what others chose in them reaches no terminal raw."""
    from blimp.queue.log import printable

    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)


def prompt(text: str, default: str) -> str:
    """Ask on standard error: typer's prompt would put a blank among the data."""
    print(f"{text} [{default}]: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise typer.Abort
    return line.strip() or default


def print_json(value: dict[str, Any]) -> None:
    """Print one object on one line of standard output."""
    print(json.dumps(value, allow_nan=False), flush=True)


def builtins(value: object) -> Any:
    """Return a struct as what JSON knows."""
    import msgspec

    return msgspec.to_builtins(value)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, Ctrl-C and a closed terminal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop())


def interrupt() -> None:
    """End a command the way Ctrl-C does: in order."""
    raise KeyboardInterrupt
