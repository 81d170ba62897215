"""Commands from the page, run as `ground --json NAME` runs them.

The table of commands is that of `ground`: its names, arguments, limits and answers are defined in
`ground_station/commands.py` and nowhere else.
"""

import io
from collections.abc import Callable
from typing import Any

import msgspec
import typer
from typer.main import get_command

from blimp.errors import BlimpError
from blimp.suggest import suggestion
from blimp.usage import plain
from ground_station import cli, report
from ground_station.commands import app
from ground_station.report import Outcome, Report
from ground_station.session import Session

# They read files of this machine, or do not end by themselves.
NOT_HERE = ("watch", "page", "trajectory", "dispatch", "estop")
MAX_TEXT = 200

_UsageError: Any = typer.BadParameter.__bases__[0]


def run_command(
    name: str, arguments: dict[str, Any], *, open_session: Callable[[Report], Session]
) -> tuple[int, dict[str, Any]]:
    """Run one command; return its exit status, and the object that it prints.

    arguments: by the names in the command's signature, such as altitude_m.
    """
    out = io.StringIO()
    printed = Report(as_json=True, out=out, err=io.StringIO())
    try:
        command = _find(name)
        words = command_words(command, arguments)
        context = command.make_context(name, words, obj=open_session(printed))
        with context:
            status = command.invoke(context)
    except _UsageError as error:
        return _failed(name, plain(error).format_message(), report.USAGE)
    except BlimpError as error:
        return _failed(name, str(error), cli.status_of(error))
    found = out.getvalue().strip()
    document = msgspec.json.decode(found) if found else {}
    return (status if isinstance(status, int) else report.DONE), document


def command_names() -> tuple[str, ...]:
    """Return the commands that the page can run."""
    names = (name for name, one in _group().commands.items() if not hasattr(one, "commands"))
    return tuple(sorted(name for name in names if name not in NOT_HERE))


def command_words(command: Any, arguments: dict[str, Any]) -> list[str]:
    """Return the words of a command line. Raises BadParameter for what cannot be one."""
    known = {parameter.name.rstrip("_"): parameter for parameter in command.params}
    known.pop("help", None)
    options: list[str] = []
    values: list[str] = []
    for name in arguments:
        if name not in known:
            raise typer.BadParameter(
                f"{command.name} has no argument {name[:40]!r}{suggestion(name, known)}; "
                f"it has {', '.join(known) or 'none'}"
            )
    for name, parameter in known.items():
        value = arguments.get(name)
        if value is None:
            continue
        if getattr(parameter, "is_flag", False):
            if not isinstance(value, bool):
                raise typer.BadParameter(f"{name}: must be true or false")
            options += parameter.opts[:1] if value else parameter.secondary_opts[:1]
        elif parameter.param_type_name == "option":
            options.append(f"{parameter.opts[0]}={_word(name, value)}")
        else:
            values.append(_word(name, value))
    return [*options, "--", *values]


def _word(name: str, value: Any) -> str:
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise typer.BadParameter(f"{name}: must be a number, or a text of up to {MAX_TEXT} letters")


def _find(name: str) -> Any:
    if name not in command_names():
        raise typer.BadParameter(no_command(name))
    return _group().commands[name]


def no_command(name: str) -> str:
    """Say that the page runs no such command, and which it does."""
    known = command_names()
    return f"no command {name[:40]!r} here{suggestion(name, known)}; there are {', '.join(known)}"


def _group() -> Any:
    return get_command(app)


def _failed(name: str, reason: str, status: int) -> tuple[int, dict[str, Any]]:
    outcome = Outcome(id=None, task=f"blimp.{name}"[:80], state="FAILURE", reason=reason)
    return status, msgspec.to_builtins(outcome)
