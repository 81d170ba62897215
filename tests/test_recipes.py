"""The recipes of CONTRIBUTING.md: followed word for word in a copy of the tree, and without a part.

A part is a fenced block below the name of its file and a colon; a block of `console` is what the
recipe runs at its end. A part of a file that is there begins with lines of it, the first of which
stands there once; the rest goes below those that follow one another there.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants.__main__ import copy_to

ROOT = Path(__file__).parents[1]
RECIPE = re.compile(r"^## (Add .*)\n((?:(?!^## ).*\n)+)", re.MULTILINE)
BLOCK = re.compile(r"(?:`([^`\n]+)`[^`]*?:\s*\n)?^( *)```(\w+)\n(.*?)^\2```$", re.M | re.DOTALL)
NAMED = re.compile(r"`(\w+)` of\s+`((?:blimp|ground_station|tests)/[\w./]+)`")
WITHIN_S = 240.0  # alone 10 s


class Part(NamedTuple):
    file: str
    text: str

    def add_to(self, root: Path) -> None:
        """Write the file, or add to it. Raises AssertionError if there is no place for it."""
        path = root / self.file
        if not path.exists():
            path.write_text(self.text, "utf-8")
            return
        there, lines = path.read_text("utf-8").splitlines(), self.text.splitlines()
        at = [number for number, line in enumerate(there) if line == lines[0]]
        assert len(at) == 1, f"{self.file} has {lines[0]!r} {len(at)} times, not once"
        known = 1
        while known < len(lines) and there[at[0] + known] == lines[known]:
            known += 1
        # Where what follows there begins as the part does, it is the part that comes first.
        while not (lines[known - 1] and _compiles(_put(there, at[0], lines, known), path)):
            known -= 1
            assert known, f"{self.file}: no place for this part"
        path.write_text(_put(there, at[0], lines, known), "utf-8")


def _put(there: list[str], at: int, lines: list[str], known: int) -> str:
    """Return the text with the lines of a part, of which so many are there, from line `at` on."""
    return "\n".join([*there[: at + known], *lines[known:], *there[at + known :]]) + "\n"


def _compiles(text: str, path: Path) -> bool:
    try:
        ast.parse(text if path.suffix == ".py" else "")
    except SyntaxError:
        return False
    return True


class Recipe(NamedTuple):
    text: str
    parts: tuple[Part, ...]
    commands: str


def _recipe(text: str) -> Recipe:
    parts, commands = [], ""
    for file, indent, language, body in BLOCK.findall(text):
        body = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
        if language == "console":
            commands += body
        else:
            parts.append(Part(file, body))
    return Recipe(text, tuple(parts), commands)


RECIPES = {
    title: _recipe(text)
    for title, text in RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
}
FOLLOWED = {title: recipe for title, recipe in RECIPES.items() if recipe.parts}


def follow(recipe: Recipe, root: Path, *, without: Part | None = None) -> tuple[bool, str]:
    """Follow a recipe in a copy; return whether it worked, and what was printed."""
    copy_to(root)
    for part in recipe.parts:
        if part is not without:
            part.add_to(root)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", recipe.commands], cwd=root, capture_output=True, text=True, check=False,
        timeout=WITHIN_S, stdin=subprocess.DEVNULL,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(root), "PYTEST_ADDOPTS": "-x"},
    )  # fmt: skip
    return done.returncode == 0, done.stdout + done.stderr


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("title", FOLLOWED)
def test_a_recipe_works(title: str, tmp_path: Path) -> None:
    is_done, printed = follow(FOLLOWED[title], tmp_path)
    assert is_done, printed
    for command in ("check", "format --check"):
        files = {one.file for one in FOLLOWED[title].parts if one.file.endswith(".py")}
        words = [sys.executable, "-m", "ruff", *command.split(), *files]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize(
    ("title", "number"),
    [(title, n) for title, recipe in FOLLOWED.items() for n in range(len(recipe.parts))],
)
def test_a_recipe_needs_each_of_its_parts(title: str, number: int, tmp_path: Path) -> None:
    recipe = FOLLOWED[title]
    is_done, printed = follow(recipe, tmp_path, without=recipe.parts[number])
    assert not is_done, f"works without {recipe.parts[number]}:\n{printed}"


def test_these_have_code() -> None:
    wanted = ("a chip", "a failsafe row", "an action", "a command", "a broker option")
    assert {f"Add {one}" for one in wanted} <= set(FOLLOWED)


@pytest.mark.parametrize("title", RECIPES)
def test_what_a_recipe_names_is_in_the_file_that_it_names(title: str) -> None:
    for name, file in NAMED.findall(RECIPES[title].text):
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text("utf-8")), f"{name} of {file}"
