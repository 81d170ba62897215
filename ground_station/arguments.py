"""How `ground` reads its command line: negative numbers, and options in any place.

Negative numbers are arguments, not options (`ground goto -3 4 5`), and the options that
belong to every command may stand before it or after it.
"""

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)", re.ASCII | re.IGNORECASE)

MAX_PILOT_LETTERS = 80

# The options of every command, by whether a value follows.
GLOBAL_OPTIONS = {
    "--broker": True,
    "--vehicle": True,
    "--signing-key-file": True,
    "--timeout": True,
    "--json": False,
    "--yes": False,
    "--dry-run": False,
    "--wait": False,
    "--no-wait": False,
}
WAITS_SECONDS = ("control", "dispatch")


def pilot_name(text: str) -> str:
    """Return `text` if it is one line that every terminal can print."""
    if not 0 < len(text) <= MAX_PILOT_LETTERS or not text.isprintable():
        raise typer.BadParameter(f"{text[:40]!r}: 1 to {MAX_PILOT_LETTERS} letters to be read")
    return text


def looks_negative(word: str) -> bool:
    return _NEGATIVE.match(word) is not None


def hoist_global_options(args: list[str]) -> list[str]:
    """Return `args` with the options of every command moved before it.

    Words after `--` stay where they are, and so does the `--wait` of a command that waits for
    so many seconds: its own.
    """
    own = ("--wait",) if _command(args) in WAITS_SECONDS else ()
    hoisted: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name not in GLOBAL_OPTIONS or name in own:
            rest.append(word)
        else:
            hoisted.append(word)
            if GLOBAL_OPTIONS[name] and not equals:
                hoisted += [value for value in [next(words, None)] if value is not None]
    return hoisted + rest


def _command(args: list[str]) -> str:
    """Return the first word that is neither an option of every command nor its value."""
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if not word.startswith("-"):
            return word
        if GLOBAL_OPTIONS.get(name) and not equals:
            next(words, None)
    return ""


class GroundGroup(TyperGroup):
    """The top level: takes the options of every command from wherever they stand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, hoist_global_options(args))


class NumbersCommand(TyperCommand):
    """A command some of whose arguments may be negative numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {
            name: not getattr(option, "is_flag", False)
            for option in self.params
            if option.param_type_name == "option"
            for name in (*option.opts, *option.secondary_opts)
        }
        options: list[str] = []
        arguments: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                arguments += words
            elif word.startswith("-") and len(word) > 1 and not looks_negative(word):
                options.append(word)
                if takes_value.get(word):
                    options += [value for value in [next(words, None)] if value is not None]
            else:
                arguments.append(word)
        return super().parse_args(ctx, [*options, "--", *arguments])
