"""Celery's own receiver hears all of it; 100,000 tasks are `make events`."""

import pytest

from benchmarks.events import EXECUTORS, campaign
from tests.interop.guest import find_guest

find_guest()
TASKS = 300


@pytest.mark.parametrize("executor", EXECUTORS)
def test_no_event_is_lost(executor: str) -> None:
    found = campaign(tasks=TASKS, executors=[executor], both=False)["executors"][executor]
    heard = {what: found[what] for what in ("received", "started", "succeeded")}
    assert heard == {"received": TASKS, "started": TASKS, "succeeded": TASKS}
    assert (found["lost"], found["out_of_order"], found["twice"]) == (0, 0, 0)
