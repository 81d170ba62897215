"""What a worker may say of itself."""

import pytest

from blimp.queue import TaskApp
from blimp.queue.celery.control.handlers import INSPECT_COMMANDS
from blimp.queue.extras.page.queue_room import QueueRoom
from tests.queue.conftest import working


@pytest.mark.parametrize("value", [10**400, -(2**53), 1e300, "many", None])
def test_a_worker_that_says_an_impossible_number_is_shown_without_it(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    said = {"pid": 7, "uptime": value, "rusage": {"maxrss": value, "utime": value}}
    monkeypatch.setitem(INSPECT_COMMANDS, "stats", lambda _: said)
    with working(app), QueueRoom(lambda _: app, clock=app.clock) as room:
        (worker,) = room.look("")["workers"].values()
    assert (worker["pid"], worker["uptime_s"], worker["memory_mb"], worker["cpu_s"]) == (7, 0, 0, 0)
