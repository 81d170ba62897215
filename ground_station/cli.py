"""`ground`: command a ship through the queue, and see what it says.

Runs one command line and returns its exit status. Data goes to standard output, messages to
standard error; see `ground_station/report.py` for the exit statuses and the JSON. The
commands are in `ground_station/commands.py`.
"""

import io
import sys
from collections.abc import Sequence
from typing import Any

import typer

from blimp.errors import BlimpError, ConfigError
from blimp.usage import plain
from ground_station import report
from ground_station.commands import app
from ground_station.report import Outcome, Report
from ground_station.session import status_of

# Every mistake on a command line is one; typer exports only its child.
_UsageError: Any = typer.BadParameter.__bases__[0]

_GROUPS = ("mission", "control", "photo")
_INTERRUPTED = 130  # typer's status after a Ctrl-C that nobody caught


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit status; errors are printed, not raised."""
    try:
        _check_text(arguments)
        status = app(args=list(arguments), prog_name="ground", standalone_mode=False)
        if status == _INTERRUPTED:
            return _failed(arguments, "stopped by Ctrl-C: outcome unknown", report.UNKNOWN)
        return status if isinstance(status, int) else report.DONE
    except _UsageError as error:
        plain(error).show()
        return _failed(arguments, error.format_message(), report.USAGE, is_printed=True)
    except typer.Abort:
        return _failed(arguments, "aborted", report.NOT_CONFIRMED)
    except BlimpError as error:
        return _failed(arguments, str(error), status_of(error))


def main() -> None:
    """The console script `ground`."""
    for stream in (sys.stdout, sys.stderr):
        # A ship's texts may contain characters that this terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(run(sys.argv[1:]))
    except BrokenPipeError:
        # The reader of our output has ended: print nothing when the interpreter flushes.
        sys.stdout = None
        sys.exit(report.UNKNOWN)


def _failed(arguments: Sequence[str], reason: str, status: int, *, is_printed: bool = False) -> int:
    """Print why nothing was done; with --json also as the object that a program expects."""
    as_json = "--json" in arguments
    this = Report(as_json=as_json)
    if not is_printed:
        this.say(f"ground: {reason}")
    task = _task_of(arguments)
    if as_json and task not in ("status", "watch"):
        this.json(Outcome(id=None, task=task, state="FAILURE", reason=reason))
    return status


def _check_text(arguments: Sequence[str]) -> None:
    """Raise ConfigError for an argument that is not UTF-8: no message can carry it."""
    for position, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"argument {position}, {argument[:40]!a}, is not UTF-8") from None


def _task_of(arguments: Sequence[str]) -> str:
    """Return the task that a command line names, "" if it names none."""
    names = {command.name or _function_name(command) for command in app.registered_commands}
    word = next((word for word in arguments if word in names or word in _GROUPS), "")
    return word if word in ("", "status", "watch", "dispatch", *_GROUPS) else f"blimp.{word}"


def _function_name(command: Any) -> str:
    return str(command.callback.__name__)


if __name__ == "__main__":
    main()
