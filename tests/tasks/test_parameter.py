"""A parameter of the ship is checked in the worker before the flight process hears of it."""

from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import DEADLINE_S
from tests.tasks.ship import FlightSide


def test_a_number_with_which_the_ship_cannot_fly_never_reaches_it(
    ship: FlightSide, ground: VehicleClient, directory: Path
) -> None:
    (directory / "airframe.json").write_bytes(msgspec.json.encode(airframes.load("twin")))
    reply = ground.send("param", {"name": "limits.speed_mps", "value": -1.0}).wait(DEADLINE_S)
    assert (reply.state, ship.named("param")) == ("REFUSED", [])
    assert "limits.speed_mps" in reply.reason
