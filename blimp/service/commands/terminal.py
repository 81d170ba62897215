"""What the commands of `blimp` share: how they speak, ask and stop."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import typer

from blimp.errors import BlimpError, ConfigError

WRONG_CONFIGURATION = 2  # RestartPreventExitStatus= of the units; a wrong command line, too
SILENT_S = 1.0  # what takes less than this needs no bar


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


@contextmanager
def progress(words: str, *, silent: bool = False) -> Iterator[Callable[[float], object]]:
    """Yield what draws a bar on standard error, called with the share that is done, 0 to 1.

    Nothing is drawn in the first second, without a terminal, or if `silent`.
    """
    from blimp.clock import SystemClock

    clock = SystemClock()
    until_s = clock.now_s() + SILENT_S
    is_seen = not silent and sys.stderr.isatty()
    draw: Callable[[float], object] | None = None
    with ExitStack() as stack:

        def update(share: float) -> None:
            nonlocal draw
            if is_seen and clock.now_s() >= until_s:
                draw = draw or stack.enter_context(_bar(words))
                draw(share)

        yield update
        is_seen = False  # also for one who keeps it


@contextmanager
def _bar(words: str) -> Iterator[Callable[[float], object]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def no_restart_cures() -> Iterator[None]:
    """End with WRONG_CONFIGURATION for a ConfigError, so that systemd does not restart it for ever.

    A file that cannot be read may be there the next time: that error is raised.
    """
    try:
        yield
    except ConfigError as error:
        if isinstance(error.__cause__ or error.__context__, OSError):
            raise
        say(f"blimp: {error}")
        raise typer.Exit(WRONG_CONFIGURATION) from None


def demand_root(command: str) -> None:
    """Raise BlimpError before anything is half done."""
    if os.geteuid() != 0:
        raise BlimpError(f"{command} needs root: sudo blimp {command}")


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, Ctrl-C and a closed terminal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop())


def interrupt() -> None:
    """End a command the way Ctrl-C does: in order."""
    raise KeyboardInterrupt
