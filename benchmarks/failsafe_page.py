"""The tables of flight and the flown matrix as a page: `python -m benchmarks.failsafe_page`.

Writes docs/failsafe.html from blimp/control/failsafe.py, response.py and landing.py,
blimp/ship/failures.py and benchmarks/results/matrix.json, lines of `blimp sim matrix --json`.
"""

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from blimp import airframe as airframes
from blimp.control.failsafe import Action, Times, rules
from blimp.control.landing import LANDING, LandingEvidence
from blimp.control.response import RESPONSE_TO, Stance
from blimp.ship.failures import FAILURES
from blimp.ship.matrix import MODES, conditions

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "failsafe.html"
RESULTS = ROOT / "benchmarks" / "results" / "matrix.json"

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #bbb; padding: .25em .5em; text-align: left; vertical-align: top }
th { background: #eef } td.safe { background: #dfd } td.unsafe { background: #fbb }
td.none { color: #999 } small { color: #555 }
"""


def page() -> str:
    """Return the whole page."""
    cells = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    return "\n".join(_lines(cells)) + "\n"


def _lines(cells: list[dict[str, Any]]) -> Iterator[str]:
    unsafe = sum(not cell["safe"] for cell in cells)
    yield "<!doctype html><html lang=en><meta charset=utf-8><title>Failsafes</title>"
    yield f"<style>{STYLE}</style><h1>Failsafes of the twin</h1>"
    yield (
        f"<p>{len(cells)} flights, simulated with chips and drivers: {len(cells) - unsafe} safe, "
        f"{unsafe} unsafe. <code>blimp sim matrix</code> flies them; a cell that is empty has not "
        "been flown. Safe: not flown away, no touchdown above 0.5 m/s, no light ship let go, none "
        "let go above 0.3 m, and no motor left running on the ground under a heavy ship.</p>"
    )
    yield from _table_of_rules()
    yield from _table_of_responses()
    yield from _table_of_landing()
    for seed in sorted({cell["seed"] for cell in cells}):
        yield from _matrix([cell for cell in cells if cell["seed"] == seed], seed)


def _table_of_rules() -> Iterator[str]:
    yield "<h2>The table, worst first</h2><table><tr><th>row<th>needs<th>after<th>action<th>it says"
    yield "<th>a light ship<th>a heavy ship</tr>"
    for rule in rules(airframes.load("twin"), Times()):
        after = f"{rule.after_s:g} s" if rule.after_s else ""
        latched = ", until an arm" if rule.latched else ""
        needs = "; ".join(rule.needs)
        columns = (
            rule.name,
            needs,
            after,
            rule.action.name + latched,
            rule.text,
            rule.light,
            rule.heavy,
        )
        yield "<tr>" + "".join(f"<td>{escape(column)}" for column in columns) + "</tr>"
    yield "</table>"


def _table_of_responses() -> Iterator[str]:
    yield "<h2>What is done: contact by action</h2><table><tr><th>contact<th>the ship"
    yield "".join(f"<th>{action.name}" for action in Action) + "</tr>"
    for stance in Stance:
        yield f"<tr><td>{stance.contact}<td>{stance.name}<br><small>{escape(stance.text)}</small>"
        for action in Action:
            row = RESPONSE_TO[stance, action]
            why = f"<b>{row.name}</b>: {row.why}"
            yield f"<td>{escape(row.does.value)}<br><small>{why}</small>"
        yield "</tr>"
    yield "</table>"


def _table_of_landing() -> Iterator[str]:
    yield "<h2>A landing</h2><p>A phase goes on until one of its rows is met.</p><table>"
    yield "<tr><th>phase<th>row<th>when<th>next<th>once<th>why</tr>"
    for phase, rows in LANDING.items():
        name = f"{phase.name}<br><small>{escape(phase.text)}</small>"
        for k, row in enumerate(rows):
            first = f"<td rowspan={len(rows)}>{name}" if k == 0 else ""
            done = "; ".join(does.value for does in row.does)
            columns = (row.name, _evidence(row.when), row.next.name, done, row.why)
            yield f"<tr>{first}" + "".join(f"<td>{escape(column)}" for column in columns) + "</tr>"
        if not rows:
            yield f"<tr><td>{name}<td colspan=5></tr>"
    yield "</table>"


def _evidence(when: LandingEvidence) -> str:
    wanted = when._asdict().items()
    return ", ".join(name if wish else f"not {name}" for name, wish in wanted if wish is not None)


def _matrix(cells: list[dict[str, Any]], seed: int) -> Iterator[str]:
    wind_mps, load = conditions(seed)
    yield f"<h2>Seed {seed}: wind {wind_mps:g} m/s, {1e2 * load:+.1f} % of its displaced mass</h2>"
    yield "<table><tr><th>failure" + "".join(f"<th>{mode}" for mode in MODES) + "</tr>"
    flown = {(cell["mode"], cell["failure"]): cell for cell in cells}
    for failure in FAILURES:
        row = [_cell(flown.get((mode, failure.name))) for mode in MODES]
        name = f"<td>{escape(failure.text)}<br><small>{failure.name}</small>"
        yield "<tr>" + name + "".join(row) + "</tr>"
    yield "</table>"


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "<td class=none>not flown"
    kind = "safe" if cell["safe"] else "unsafe"
    let_go = cell["disarmed_at_m"]
    numbers = (
        f"{cell['max_distance_m']:.1f} m out, {cell['max_altitude_m']:.1f} m up, "
        f"down at {cell['touchdown_mps']:.2f} m/s"
        + ("" if let_go is None else f", let go at {let_go:.2f} m")
    )
    return f"<td class={kind}>{escape(cell['outcome'])}<br><small>{numbers}</small>"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
