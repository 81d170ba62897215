"""The table of actions as a page: `python -m benchmarks.actions_page`.

Writes docs/actions.md from blimp/actions.py.
"""

from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from blimp.ability import SENSORS
from blimp.actions import ACTIONS, MODE_NEEDS, Absent, Action, Progress
from blimp.forms import Argument, arguments_of

PAGE = Path(__file__).parents[1] / "docs" / "actions.md"

_HEAD = """# What a ship can be asked to do

Made by `python -m benchmarks.actions_page` from the one table, `blimp/actions.py`. Tasks, command
line, page, HTTP API, MAVLink's commands and the legs of missions are made from the same rows, and
the methods of Python are checked against them. A task is `blimp.NAME`; a request is `POST
api/command/NAME`, with the arguments by their names ([page.md](page.md)); the methods are in
[python.md](python.md).

A command that acts carries a time to live of 5 s, on the broker's clock: one that has not begun by
then does not begin. `estop`, and what only asks, needs none. A limit of the airframe is narrower
than that of any ship, and the ship itself checks it.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "| action | what it does | it needs | asks a person | per cent | its end is waited for |"
    yield "|---|---|---|---|---|---|"
    for action in ACTIONS.values():
        waits = f"{action.wait_s:g} s" + " and its seconds" * (action.progress is Progress.TIME)
        words = (
            f"`{action.name}`",
            action.about,
            "; ".join(action.needs) or "-",
            _asks(action),
            action.progress,
            waits,
        )
        yield f"| {' | '.join(words)} |"
    yield ""
    yield "| mode | number | it needs, beside what `arm` does |"
    yield "|---|---|---|"
    for mode, needs in MODE_NEEDS.items():
        yield f"| {mode.name} | {mode.value} | {'; '.join(needs) or '-'} |"
    yield ""
    yield "| it needs | one of these chips' roles measures it |"
    yield "|---|---|"
    for need, roles in SENSORS.items():
        yield f"| {need} | {', '.join(roles.values())} |"
    yield ""
    yield "| action | `ground` | HTTP | Python | MAVLink | leg of a mission |"
    yield "|---|---|---|---|---|---|"
    for action in ACTIONS.values():
        yield f"| `{action.name}` | {' | '.join(map(_face, _faces(action).values()))} |"
    yield ""
    yield "What is `-` there has a reason:"
    yield ""
    for action in ACTIONS.values():
        why = [f"{n}: {f.why}" for n, f in _faces(action).items() if isinstance(f, Absent)]
        yield from (f"- `{action.name}`, {one}." for one in why)
    yield ""
    yield f"Anybody may send {_names('needs_control', False)} while another pilot has the ship."
    yield f"No doubt about clock or boot keeps out {_names('comes_to_rest', True)}."
    yield ""
    yield "| action | argument | | unit | limits of any ship | limits of the airframe |"
    yield "|---|---|---|---|---|---|"
    for action in ACTIONS.values():
        for argument in arguments_of(action.arguments):
            yield f"| `{action.name}` | {_argument(argument)} |"


def _faces(action: Action) -> dict[str, str | Absent]:
    """Return what each face calls it."""
    mavlink = action.mavlink
    return {
        "`ground`": action.examples if isinstance(action.examples, Absent) else action.name,
        "HTTP": action.http or action.name,
        "Python": action.python or action.name,
        "MAVLink": mavlink if isinstance(mavlink, Absent) else f"{mavlink.number} {mavlink.name}",
        "mission": action.leg if isinstance(action.leg, Absent) else action.name,
    }


def _face(found: str | Absent) -> str:
    return "-" if isinstance(found, Absent) else f"`{found}`"


def _argument(argument: Argument) -> str:
    default = "" if argument.is_required else f" Default: {_default(argument)}."
    limits = "-"
    if isfinite(argument.low):
        limits = f"{argument.low:g} to {argument.high:g}"
    ship = " to ".join(f"`{one}`" if one else f"{argument.low:g}" for one in argument.ship)
    ship = ship if any(argument.ship) else "-"
    words = (f"`{argument.name}`", argument.about + default, argument.unit or "-", limits, ship)
    return " | ".join(words)


def _default(argument: Argument) -> str:
    words = {True: "yes", False: "no", None: "none", (): "none"}
    found = argument.default
    return words[found] if found in words and not isinstance(found, float) else f"{found:g}"


def _asks(action: Action) -> str:
    if action.name == "estop":
        return "never"
    return "yes" if action.asks else "-"


def _names(flag: str, value: bool) -> str:
    return ", ".join(f"`{n}`" for n, action in ACTIONS.items() if getattr(action, flag) is value)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
