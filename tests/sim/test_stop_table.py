"""An emergency stop in every state of a ship, by every road to it: docs/pilots.md has the table.

Expected of each: the motors are off within a second, the ship is killed, whatever moves it is
refused, and a fresh arm undoes that.
"""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from blimp.clock import SystemClock
from blimp.link.stop_socket import StopSocket
from blimp.queue import TaskApp
from blimp.sim.remote import RemoteWorld
from blimp.tasks.client import Pending, VehicleClient, vehicle_queue
from tests.http_client import stopped, token_of
from tests.sim.running import DEADLINE_S, RunningStack
from tests.stopwatch import Stopwatch

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

OFF_S = 1.0
HIGH_M = 2.0  # a stopped ship sinks a few centimetres until the next state
ENOUGH_M = 0.8
ROADS = ("command line", "page", "VehicleClient", "task", "socket")


class Table:
    """One ship, tied to nothing, that may be armed by force: so it is armed again in the air."""

    def __init__(self, stack: RunningStack, using: ExitStack) -> None:
        self.stack = stack
        self.world: RemoteWorld = using.enter_context(stack.world())
        broker = stack.ready["broker"]
        self.client = using.enter_context(VehicleClient(broker, "twin"))
        self._plain = using.enter_context(TaskApp("plain", broker=broker, result_backend=broker))
        self._socket = using.enter_context(StopSocket(stack.paths.flight, clock=SystemClock()))
        self._page = stack.start_ground("--json", "page", "--port", "0")
        self._presses = using.enter_context(ThreadPoolExecutor(1))
        self._url = ""
        self._flight: Pending | None = None

    # --- the roads ------------------------------------------------------------------------

    def press(self, road: str) -> bool:
        """Send a stop; return whether it was confirmed."""
        if road == "command line":
            return self.stack.ground("--timeout", "30", "estop").status == 0
        if road == "page":
            return stopped(self._url, token_of(self._url), within_s=DEADLINE_S)
        if road == "VehicleClient":
            return self.client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        if road == "task":
            queue = vehicle_queue("twin")
            self._plain.send_task("blimp.estop", queue=queue).get(DEADLINE_S)
            return True
        outcomes: list[object] = []
        id = f"press {time.monotonic()}"
        self._socket.fire(id=id, source="table", on_outcome=outcomes.append)
        self.stack.wait_until(lambda: outcomes, within_s=DEADLINE_S)
        return True

    def open_page(self) -> None:
        assert self._page.stdout is not None
        self._url = json.loads(self._page.stdout.readline())["url"]

    # --- the states -----------------------------------------------------------------------

    def do(self, task: str, /, **arguments: Any) -> str:
        return self.client.send(task, arguments, ttl_s=30.0).wait(DEADLINE_S).state

    def arm(self) -> None:
        assert self.do("arm", force=True) == "SUCCESS"

    def begin(self, task: str, /, **arguments: Any) -> None:
        """Begin what takes longer than the stop that ends it."""
        self._flight = self.client.send(task, arguments, ttl_s=30.0)

    def turning(self) -> bool:
        return any(abs(self.world.outputs()[name]) > 0.02 for name in ("left", "right", "tail"))

    def status(self) -> dict[str, Any]:
        found = self.client.send("status", ttl_s=30.0).wait(DEADLINE_S)
        assert found.state == "SUCCESS", found
        assert isinstance(found.result, dict)
        return found.result

    def until(self, holds: Callable[[], Any]) -> None:
        self.stack.wait_until(holds, within_s=DEADLINE_S)

    def disarmed(self) -> None:
        assert self.do("disarm") == "SUCCESS"
        self.until(lambda: not self.status()["armed"])

    def on_the_pad(self) -> None:
        self.arm()
        self.until(lambda: self.status()["armed"])

    def taking_off(self) -> None:
        self.arm()
        self.begin("takeoff", altitude_m=HIGH_M)
        self.until(lambda: self.world.truth().altitude_m > 0.1 and self.turning())

    def _aloft(self) -> None:
        self.arm()
        if self.world.truth().altitude_m < ENOUGH_M:
            self.begin("takeoff", altitude_m=HIGH_M)
            self.until(lambda: self.world.truth().altitude_m > HIGH_M - 0.5)

    def holding(self) -> None:
        self._aloft()
        assert self.do("hold") == "SUCCESS"
        self.until(self.turning)

    def mission_leg(self) -> None:
        self._aloft()
        self.begin("goto", north_m=8.0, east_m=0.0, altitude_m=HIGH_M)
        self.until(lambda: self.status()["active_command"].startswith("goto"))
        self.until(self.turning)

    def landing(self) -> None:
        self._aloft()
        self.begin("land")
        self.until(lambda: self.status()["mode"] == "LAND")

    def failsafe_return(self) -> None:
        self._aloft()
        self.world.fault("power", "no_answer")
        assert self.do("hold") == "SUCCESS"
        self.until(lambda: self.status()["failsafe"] == "battery unknown: returning")

    def manual(self) -> None:
        self._aloft()
        assert self.do("mode", name="MANUAL") == "SUCCESS"
        self.begin("motor", name="tail", percent=-40.0, seconds=20.0)
        self.until(self.turning)

    def killed_already(self) -> None:
        assert self.client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"

    def bench(self) -> None:
        self.disarmed()
        self.begin("motor", name="tail", percent=-40.0, seconds=20.0)
        self.until(self.turning)

    # --- what must hold -------------------------------------------------------------------

    def try_one(self, state: str, road: str) -> float:
        """Enter the state, stop, and arm again; return how long the motors turned after that."""
        enter: Callable[[], None] = getattr(self, state)
        enter()
        watch, began_s = Stopwatch(), time.monotonic()
        pressed = self._presses.submit(self.press, road)
        self.until(lambda: self.world.report().outputs_safe and not self.turning())
        off_s = time.monotonic() - began_s
        assert watch.undisturbed_s() <= OFF_S, (state, road, off_s)
        assert pressed.result(DEADLINE_S), (state, road)
        self.until(lambda: self.status()["killed"])
        for name, arguments in (("motor", {"name": "tail", "percent": 9.0, "seconds": 1.0}),
                                ("takeoff", {"altitude_m": 2.0}), ("hold", {})):  # fmt: skip
            assert self.do(name, **arguments) == "REFUSED", (state, road, name)
        if self._flight is not None:
            ended = self._flight.wait(DEADLINE_S)
            assert ended.state in ("REFUSED", "FAILURE", "INTERRUPTED"), (state, road, ended)
            self._flight = None
        assert self.do("disarm") == "SUCCESS"
        status = self.status()
        assert status["killed"], (state, road)
        assert self.world.report().outputs_safe, (state, road)
        self.arm()
        self.until(lambda: not self.status()["killed"])
        return off_s


STATES = (
    "disarmed", "bench", "on_the_pad", "killed_already", "taking_off",
    "holding", "mission_leg", "landing", "manual", "failsafe_return",
)  # fmt: skip
SLOW = "failsafe_return"  # it begins five seconds after the battery's monitor fails
ROADS_OF_SLOW = ("page", "socket")  # the others: tests/sim/whole_troubles.py


@pytest.fixture
def table() -> Iterator[Table]:
    with RunningStack("--bench", "--seed", "3") as stack, ExitStack() as using:
        yield Table(stack, using)


def test_a_stop_in_every_state_by_every_road(table: Table) -> None:
    """Each is alone on its road: off within a second, killed, and only an arm undoes it."""
    table.open_page()
    for state in STATES:
        for road in ROADS_OF_SLOW if state == SLOW else ROADS:
            table.try_one(state, road)
