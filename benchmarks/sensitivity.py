"""Which constants of the control stand on a cliff: `python -m benchmarks.sensitivity --jobs N`.

Each number in `blimp/control` that a module gives a name to is moved by 30 % either way, alone, and
a few healthy flights of `benchmarks.campaign` (--flights) are flown that were good with it as it
is: drawn ships, weight, drag, thrust, and wind to what the ship can hold. Listed is what made a
flight bad or raised an error. A constant that is not listed may be moved so far, as far as these
flights show. Tables and what a module computes when it is loaded are not moved.

One JSON line a constant and direction, then the list. Simulated, in Lockstep. Exit status 0.
"""

import ast
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import msgspec

import blimp.control
from benchmarks import campaign
from benchmarks.campaign import Draw


class Constant(msgspec.Struct, frozen=True):
    """One number with a name. line: where it stands in its file."""

    module: str
    name: str
    value: float
    line: int

    @property
    def place(self) -> str:
        return f"{self.module.removeprefix('blimp.control.')}:{self.line} {self.name}"


def constants(only: str = "") -> Iterator[Constant]:
    """Yield the named numbers of the control, in the order of its files."""
    (root,) = map(Path, blimp.control.__path__)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        module = ".".join(("blimp.control", *parts)).removesuffix(".__init__")
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            value: Any = getattr(importlib.import_module(module), name, None)
            if type(value) in (int, float) and only in f"{module}.{name}":
                yield Constant(module, name, value, node.lineno)


def move(constant: Constant, factor: float) -> None:
    """Give it another value, in each module that has taken it."""
    here = getattr(sys.modules[constant.module], constant.name)
    moved: float = constant.value * factor
    for name, module in list(sys.modules.items()):
        if name.startswith("blimp.") and getattr(module, constant.name, None) is here:
            setattr(module, constant.name, round(moved) if isinstance(here, int) else moved)


def flown(case: tuple[Constant, float], *, draws: Sequence[Draw]) -> tuple[Constant, float, Any]:
    """Fly all of `draws`; return what went wrong. In a process of its own: the value stays."""
    constant, factor = case
    move(constant, factor)
    wrong: list[str] = []
    for draw in draws:
        try:
            bad = campaign.fly_healthy(draw).bad
        except Exception as error:  # any: that is what it is flown for
            bad = (f"{type(error).__name__}: {error}"[:100],)
        if bad:
            wrong.append(f"{draw.airframe} {draw.seed}: {', '.join(bad)}")
    return constant, factor, wrong


def draw_good(flights: int, *, ships: Sequence[str], seed: int, jobs: int) -> list[Draw]:
    """Draw flights that are good with all constants as they are."""
    draws = [
        campaign.draw_healthy(number, seed=seed, ships=ships, watch_s=0.0)
        for number in range(2 * flights)
    ]
    with Pool(jobs) as pool:
        found = pool.map(campaign.fly_healthy, draws)
    return [one.draw for one in found if not one.bad][:flights]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = campaign.make_parser("benchmarks.sensitivity", __doc__, flights=4)
    parser.add_argument("--by", type=float, default=0.3, help="share by which each is moved")
    parser.add_argument("--only", default="", help="constants with this in module.NAME")
    options = parser.parse_args(arguments)
    ships = campaign.choose_ships(options.airframes, options.random_ships, seed=options.seed)
    draws = draw_good(options.flights, ships=ships, seed=options.seed, jobs=options.jobs)
    cases = [(one, f) for one in constants(options.only) for f in (1 - options.by, 1 + options.by)]
    cliffs: list[str] = []
    with Pool(options.jobs, maxtasksperchild=1) as pool:
        for constant, factor, wrong in pool.imap(partial(flown, draws=draws), cases):
            row = {"constant": constant.place, "value": constant.value, "factor": factor}
            print(json.dumps(row | {"wrong": wrong, "simulated": True}), flush=True)
            if wrong:
                cliffs.append(f"{constant.place} x {factor:g}: {'; '.join(wrong)}")
    print(f"{len(cases)} moves, {len(draws)} flights each; on a cliff: {len(cliffs)}")
    print("\n".join(cliffs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
