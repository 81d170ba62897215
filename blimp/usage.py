"""How a mistake on a command line is said: "--wind must be 0 to 20 m/s, not 25"."""

import re
from typing import Annotated, Any

import typer

from blimp import __version__

_UNITS = {"HZ": " Hz", "MPS": " m/s", "M": " m", "S": " s", "N": ""}
_INVALID = re.compile(r"Invalid value for '?(?P<name>[^':]+)'?: (?P<what>must be .*)", re.DOTALL)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", is_eager=True, callback=_print_version, help="Print the version and end."
    ),
]


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
