"""Every client that flies missions flies the same flight, whatever becomes of a leg."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import nan
from pathlib import Path
from typing import Any

import pytest

from blimp.airframe import load
from blimp.clock import SystemClock
from blimp.errors import BlimpError, Interrupted
from blimp.tasks.client import Pending, VehicleClient
from blimp.types import Command, Outcome
from ground_station import cli, plain
from ground_station.mission import MissionRunner
from ground_station.mission_file import load_mission
from ground_station.ship import Ship
from tests.ground_station.conftest import parked, twin
from tests.ground_station.mavlink.test_gateway import gateway, opened
from tests.ground_station.mavlink.test_plan_file import place
from tests.ground_station.ship import FlyingShip, LockstepMailbox

__all__ = ["parked", "twin"]
pytestmark = pytest.mark.long  # seconds of computing each
_HOME = load("twin").home
HOME = (_HOME.latitude_deg, _HOME.longitude_deg)
ITEMS = [(22, 6, 0, 0, 0, nan, *HOME, 1), (16, 6, 0, 0, 0, nan, *place(2, 0, 1, HOME))]
FILE = """
name = "there"
[[leg]]
do = "arm"
[[leg]]
do = "takeoff"
altitude_m = 1
[[leg]]
do = "goto"
north_m = 2
east_m = 0
altitude_m = 1
"""


def command_line(ship: FlyingShip, file: str, *words: str) -> None:
    where = ["--broker", ship.broker.url, "--vehicle", ship.vehicle, "--yes"]
    cli.run([*where, *(words or ("mission", "run")), file])


def dispatched(ship: FlyingShip, file: str) -> None:
    command_line(ship, file, "dispatch")


def demo(ship: FlyingShip, file: str) -> None:
    """What of `blimp demo` flies: its world and its stack are another process each."""
    with VehicleClient(ship.broker.url, ship.vehicle) as client:
        MissionRunner(client=client, mission=load_mission(file), clock=SystemClock()).run()


def coroutines(ship: FlyingShip, file: str) -> None:
    async def fly() -> None:
        async with Ship.connect(ship.vehicle, broker=ship.broker.url) as twin:
            await twin.mission(file)

    with suppress(BlimpError):
        asyncio.run(fly())


def threads(ship: FlyingShip, file: str) -> None:
    with suppress(BlimpError), plain.Ship.connect(ship.vehicle, broker=ship.broker.url) as twin:
        twin.mission(file)


def mavlink(ship: FlyingShip, _: str) -> None:
    with gateway(ship) as port, opened(port) as station:
        assert station.upload(0, ITEMS) == 0
        station.command(300, 0, 0)
        station.text("mission: ")


CLIENTS = {one.__name__: one for one in (
    command_line, dispatched, demo, coroutines, threads, mavlink,
)}  # fmt: skip


class Leg:
    """What becomes of the first `goto`, by the part of the queue that it happens in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch.setattr
        self.reached: list[str] = []  # names of the commands that the ship got, each id once
        self._ids: set[str] = set()
        self._call, self._wait = LockstepMailbox.call, LockstepMailbox.wait
        self._send = VehicleClient.send
        self.patch(LockstepMailbox, "call", self._note())

    def is_first(self) -> bool:
        return self.reached.count("goto") == 1

    def _note(self) -> Callable[..., Outcome | None]:
        def call(mailbox: LockstepMailbox, command: Command, *, timeout_s: float) -> Outcome | None:
            if command.id not in self._ids and command.name not in ("ping", "limits"):
                self._ids.add(command.id)
                self.reached.append(command.name)
            return self._call(mailbox, command, timeout_s=timeout_s)

        return call

    def interrupted(self) -> None:
        """As the worker says of a flight process that was restarted, or of one that died."""

        def wait(mailbox: LockstepMailbox, id: str, *, timeout_s: float) -> Outcome | None:
            if self.reached[-1] == "goto" and self.is_first():
                raise Interrupted("of the contract")
            return self._wait(mailbox, id, timeout_s=timeout_s)

        self.patch(LockstepMailbox, "wait", wait)

    def expired(self) -> None:
        """By the worker, before the ship hears of it."""
        sent: list[str] = []

        def send(client: VehicleClient, task: str, *given: Any, **options: Any) -> Pending:
            sent.append(task)
            if task == "goto" and sent.count("goto") == 1:
                options["ttl_s"] = 1e-6
            return self._send(client, task, *given, **options)

        self.patch(VehicleClient, "send", send)

    def replaced(self) -> None:
        """By the command of somebody else, who lands it."""

        def wait(mailbox: LockstepMailbox, id: str, *, timeout_s: float) -> Outcome | None:
            if self.reached[-1] == "goto":
                mailbox.call(Command(id="other", name="land"), timeout_s=timeout_s)
            return self._wait(mailbox, id, timeout_s=timeout_s)

        self.patch(LockstepMailbox, "wait", wait)

    def refused(self) -> None:
        """By a ship that cannot fly there any more."""

        def call(mailbox: LockstepMailbox, command: Command, *, timeout_s: float) -> Outcome | None:
            if command.name == "goto":
                command.arguments["north_m"] = 9999.0
            return noted(mailbox, command, timeout_s=timeout_s)

        noted = LockstepMailbox.call
        self.patch(LockstepMailbox, "call", call)


@pytest.fixture
def leg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Leg:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Leg(monkeypatch)


@pytest.mark.parametrize(
    ("ends", "flight"),
    [
        (Leg.interrupted, ["arm", "takeoff", "goto", "goto"]),
        (Leg.expired, ["arm", "takeoff", "goto"]),  # the ship has heard of one
        (Leg.replaced, ["arm", "takeoff", "goto", "land"]),
        (Leg.refused, ["arm", "takeoff", "goto", "hold"]),
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_all_fly_the_same(
    twin: FlyingShip,
    leg: Leg,
    tmp_path: Path,
    client: str,
    ends: Callable[[Leg], None],
    flight: list[str],
) -> None:
    file = tmp_path / "there.toml"
    file.write_text(FILE)
    ends(leg)
    CLIENTS[client](twin, str(file))
    assert leg.reached == flight
