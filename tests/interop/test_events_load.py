"""Celery's own receiver gets every event; 100,000 tasks are `make events`."""

import pytest

from benchmarks.events import POOLS, campaign
from tests.interop.guest import find_guest

find_guest()
TASKS = 300


@pytest.mark.parametrize("pool", POOLS)
def test_no_event_is_lost(pool: str) -> None:
    found = campaign(tasks=TASKS, pools=[pool])["pools"][pool]
    counts = {what: found[what] for what in ("received", "started", "succeeded")}
    assert counts == {"received": TASKS, "started": TASKS, "succeeded": TASKS}
    assert (found["lost"], found["out_of_order"], found["twice"]) == (0, 0, 0)
