"""Help: an example for every command of the queue, which can be typed; and what `help` tells."""

import argparse
import pkgutil
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import blimp.queue
from blimp.queue.cli.main import make_parser

PROGRAM = "python -m blimp.queue"


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every command below `parser`, groups included, by the words that call it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, child in action.choices.items():
                yield (*words, word), child
                yield from commands(child, (*words, word))


COMMANDS = dict(commands(make_parser(())))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_has_an_example_that_can_be_typed(words: tuple[str, ...]) -> None:
    epilog = COMMANDS[words].epilog or ""
    assert epilog.startswith(f"example: {PROGRAM} {' '.join(words)} "), epilog
    example = epilog.partition(";")[0].removeprefix(f"example: {PROGRAM} ")
    read = make_parser(()).parse_args(shlex.split(example))
    assert callable(read.run)


def test_what_the_package_has_is_listed_and_has_a_docstring() -> None:
    assert set(blimp.queue.__all__) <= set(dir(blimp.queue))
    for name in blimp.queue.__all__:
        assert (getattr(blimp.queue, name).__doc__ or "").strip(), name


def test_the_command_runs_the_module_and_has_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    run = pkgutil.resolve_name(project["scripts"]["blimp-queue"])
    monkeypatch.setattr(sys, "argv", ["/usr/bin/blimp-queue", "--help"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: blimp-queue ")
