"""Tasks that never return beside the ship's own: as many as its worker has threads, and more."""

import threading

import pytest

from blimp.queue import TaskApp
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.tasks.ship import FlightSide

THREADS = 8  # of a ship's worker


@pytest.mark.parametrize("endless", [1, THREADS + 4])
def test_a_task_that_never_returns_keeps_no_stop_out(
    ship: FlightSide, app: TaskApp, url: str, endless: int
) -> None:
    """Expected: beside one the ship's commands go on; with all threads taken a stop still does."""
    never, begun = threading.Event(), []

    @app.task(name="endless")
    def run() -> None:
        begun.append(1)
        never.wait(DEADLINE_S)

    with working(app, name="twin", sync_workers=THREADS, grace_s=0.1, log=Silence()):
        for _ in range(endless):
            app.send_task("endless", ignore_result=True)
        wait_until(lambda: len(begun) == min(endless, THREADS), "not begun")
        with VehicleClient(url, "twin") as client:
            if endless < THREADS:
                assert client.send("hold").wait(DEADLINE_S).state == "SUCCESS"
            assert client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        never.set()
    assert len(ship.named("estop")) >= 1
