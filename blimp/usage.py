"""How a mistake on a command line is said: "--wind must be 0 to 20 m/s, not 25"."""

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from blimp.distribution import described

_UNITS = {"MB": " MB"}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INVALID = re.compile(r"Invalid value for '?(?P<name>[^':]+)'?: (?P<what>must be .*)", re.DOTALL)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(described())
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        is_eager=True,
        callback=_print_version,
        help="Print version and commit, and end.",
    ),
]


def example(text: Callable[[], str]) -> Any:
    """Return the option `--example`, which prints a sample of the file and ends the command.

    It is read first, so that a command can be asked without the file that it needs.
    """

    def show(wanted: bool) -> None:
        if wanted:
            print(text(), end="")
            raise typer.Exit

    return typer.Option(
        "--example", is_eager=True, callback=show, help="Print a sample file, and end."
    )


def number(
    *, unit: str = "", low: float = -math.inf, high: float = math.inf, above: bool = False
) -> Callable[[str | float], float]:
    """Return a reader of finite decimal numbers from `low` to `high` (above `low` only).

    typer's own limits let nan pass. Without limits, the ship says its own.
    """
    first = f"more than {low:g}" if above else f"{low:g}"
    ask = (
        f"{first} to {high:g} {unit}"
        if math.isfinite(high)
        else f"a finite decimal number{unit and f' ({unit})'}"
    )

    def read(given: str | float) -> float:
        text = str(given)
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        inside = low < value <= high if above else low <= value <= high
        if not inside or math.isinf(value):
            said = text[:40] if text.isprintable() else repr(text[:40])
            raise typer.BadParameter(f"must be {ask.rstrip()}, not {said}")
        return value

    read.__name__ = unit or "number"  # the name that click prints for the type
    return read


def plain(error: Any) -> Any:
    """Return a usage error that names the option first, and both of its limits."""
    words = _words(error)
    if words:
        error.format_message = lambda: words
    return error


def _words(error: Any) -> str:
    found: str = error.format_message()
    match = _INVALID.fullmatch(found)
    if match is not None:
        return f"{match['name']} {match['what']}"
    parameter = getattr(error, "param", None)
    # typer 0.29 keeps the limits beside its type, those before it in the type itself.
    later = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
    info = later or getattr(parameter, "type", None)
    low, high = getattr(info, "min", None), getattr(info, "max", None)
    if parameter is None or (low is None and high is None):
        return ""
    name = max(parameter.opts, key=len)
    unit = _UNITS.get(parameter.metavar or "", "")
    if high is None:
        return f"{name} must be at least {low:g}{unit}"
    return f"{name} must be {low:.12g} to {high:.12g}{unit}"
