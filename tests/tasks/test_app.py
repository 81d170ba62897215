"""The app of a ship: its table of tasks, its queue, its link."""

import pytest

from blimp.actions import ACTIONS
from blimp.clock import SystemClock
from blimp.queue import TaskApp
from blimp.queue.protocol.message import EMERGENCY
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S, wait_until
from tests.tasks.ship import FlightSide


def test_every_command_has_its_task_and_two_may_not_run_twice(app: TaskApp) -> None:
    names = {name.removeprefix("blimp.") for name in app.tasks}
    flown = [name for name, action in ACTIONS.items() if action.flies]
    assert names == {*flown, "status", "airframe"}
    options = {name.removeprefix("blimp."): task.options for name, task in app.tasks.items()}
    assert [name for name in flown if not options[name].idempotent] == ["arm", "wires"]
    assert [name for name in flown if options[name].priority == EMERGENCY] == ["estop"]
    assert app.queue == "blimp.twin"


def test_positional_arguments_are_refused(
    ship: FlightSide, app: TaskApp, ground: VehicleClient
) -> None:
    record = app.send_task("blimp.goto", (1.0,), ttl_s=5.0).wait(DEADLINE_S)
    assert "positional argument" in record.reason


def test_the_ship_hears_that_the_link_stands(ship: FlightSide, ground: VehicleClient) -> None:
    # From its start on it counts as linked for a moment: only a greeting makes the age smaller.
    wait_until(lambda: ship.server._link_s is not None, "not greeted")
    assert ship.server.link_age_s(SystemClock().now_s()) < DEADLINE_S


def test_the_ship_hears_that_no_stop_would_come(
    ship: FlightSide, app: TaskApp, ground: VehicleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "deaf", lambda: "its listener is stuck")
    wait_until(lambda: ship.server.deaf(SystemClock().now_s()) == "its listener is stuck", "unsaid")
