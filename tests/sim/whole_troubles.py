"""The troubles that take long: `make troubles`; no part of `make test`.

All that `test_troubles*.py` and `test_stop_table.py` try in part, as a whole: two minutes.
"""

import time
from pathlib import Path

import pytest

from tests.sim.running import RunningStack
from tests.sim.test_stop_table import ROADS, STATES, Table, table
from tests.sim.test_troubles import fight, stack
from tests.sim.test_troubles_broker import directory, step_clocks

__all__ = ["directory", "stack", "table"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

FIGHT_S = 60.0


def test_the_whole_table_of_stops(table: Table) -> None:
    table.open_page()
    off_s = {(state, road): table.try_one(state, road) for state in STATES for road in ROADS}
    slowest = max(off_s, key=lambda cell: off_s[cell])
    print(f"\n{len(off_s)} stops; slowest {slowest}: motors off after {off_s[slowest]:.3f} s")


def test_two_pilots_fight_for_control_for_a_minute(stack: RunningStack, tmp_path: Path) -> None:
    until_s = time.monotonic() + FIGHT_S
    changes = fight(stack, tmp_path, is_over=lambda: time.monotonic() > until_s)
    print(f"\ncontrol changed {changes} times in {FIGHT_S:g} s")


@pytest.mark.parametrize("key", [None, "k" * 32], ids=["unsigned", "signed"])
def test_every_clock_steps_with_and_without_a_key(directory: Path, key: str | None) -> None:
    step_clocks(directory, key=key)
