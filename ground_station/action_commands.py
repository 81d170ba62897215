"""The commands of `ground` that are made from the table of actions, `blimp/actions.py`."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from blimp.actions import ACTIONS, Absent, Action
from blimp.forms import Argument, arguments_of
from blimp.usage import number
from ground_station import names
from ground_station.arguments import NumbersCommand
from ground_station.options import session
from ground_station.report import DONE

MORE_THAN_A_ROW = ("param", "trajectory", "estop", "photo")  # see ground_station/commands.py
_LISTED = ("sensor", "motor", "servo")  # without a name, the ship's are listed
_BY_KEYS = "stick"  # without an option, on a terminal: see ground_station/stick_command.py
_METAVARS = {"s": "S", "m": "M", "m/s": "MPS", "degrees": "DEG"}
_COMPLETE = {
    "mode": names.modes, "sensor": names.sensors, "motor": names.motors, "servo": names.servos,
}  # fmt: skip


def add_actions(app: typer.Typer) -> None:
    """Give `app` a command for each action that has one."""
    for action in ACTIONS.values():
        if not isinstance(action.examples, Absent) and action.name not in MORE_THAN_A_ROW:
            app.command(action.name, cls=NumbersCommand, help=help_of(action))(command_of(action))


def help_of(action: Action) -> str:
    """Return the help of an action's command, with its examples."""
    parts = [action.about + (" Asks on a terminal." if action.asks else ""), action.more]
    if _listed(action):
        parts.append(f"Without a name it lists the {action.name}s.")
    if action.name == _BY_KEYS:
        parts.append(
            "Without options, on a terminal, its keys fly the ship; they are printed there."
        )
    examples = () if isinstance(action.examples, Absent) else action.examples
    lines = [f"ground {example}" for example in examples]
    if len(lines) == 1:
        parts.append(f"Example: {lines[0]}")
    elif lines:
        parts.append("\n  ".join(["\b\nExamples:", *lines]))
    return "\n\n".join(part for part in parts if part)


def command_of(action: Action) -> Callable[..., int]:
    """Return the function of an action's command; of a group, for what has no word of it."""
    arguments = arguments_of(action.arguments)
    listed = _listed(action)

    def run(context: typer.Context, **given: Any) -> int:
        if context.invoked_subcommand is not None:
            return DONE
        asked = {
            one.name: given[one.name]
            for one in arguments
            if given[one.name] is not None and given[one.name] != one.default
        }
        if listed and "name" not in asked:
            return names.list_names(session(context), action.name)
        if action.name == _BY_KEYS and not asked and session(context).has_person:
            from ground_station.stick_command import fly

            return fly(session(context))
        missing = [_word(one) for one in arguments if one.is_required and one.name not in asked]
        if missing:
            raise typer.BadParameter(f"say {' and '.join(missing)}, too", param_hint=missing[0])
        try:
            from ground_station.perform import act

            return act(session(context), action, action.checked(asked))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    is_optional = listed or action.name == _BY_KEYS
    parameters = [_parameter(one, optional=is_optional) for one in arguments]
    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    vars(run)["__signature__"] = inspect.Signature([context, *parameters])
    run.__annotations__ = {one.name: one.annotation for one in (context, *parameters)}
    return run


def _parameter(argument: Argument, *, optional: bool) -> inspect.Parameter:
    """Return an argument as typer takes it. optional: the command may stand without any."""
    form: dict[str, Any] = {"help": argument.about}
    kind: Any = argument.kind
    if kind is float:
        form["parser"] = number(low=argument.low, high=argument.high, unit=argument.unit)
    elif kind is int:
        form |= {"min": int(argument.low), "max": int(argument.high)}
    if argument.names in _COMPLETE:
        form["autocompletion"] = _COMPLETE[argument.names]
    if argument.names == "mode":
        form["parser"] = _known(argument)
    if kind is bool:
        info, default = typer.Option(_word(argument), **form), argument.default
    elif _is_option(argument):
        metavar = argument.metavar or _METAVARS.get(argument.unit, argument.name.upper())
        info, default = typer.Option(_word(argument), metavar=metavar, **form), None
    else:
        info, default = typer.Argument(metavar=_word(argument), **form), None
    if kind is not bool and (optional or not argument.is_required):
        kind = kind | None
    elif kind is not bool:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        argument.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, info],
    )


def _known(argument: Argument) -> Callable[[str], str]:
    def read(given: str) -> str:
        if problem := argument.problem(given):
            raise typer.BadParameter(problem)
        return given.upper()

    read.__name__ = "name"  # the name that click prints for the type
    return read


def _is_option(argument: Argument) -> bool:
    return bool(argument.option) or not argument.is_required


def _word(argument: Argument) -> str:
    """Return how a command line names it."""
    if _is_option(argument):
        return argument.option or f"--{argument.name.replace('_', '-')}"
    return argument.metavar or argument.name.upper()


def _listed(action: Action) -> bool:
    return any(one.names in _LISTED for one in arguments_of(action.arguments))
