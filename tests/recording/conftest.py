"""A flight in Lockstep that is recorded once."""

from pathlib import Path

import pytest

from blimp.recording.flight_data import FlightData, read_flight
from blimp.recording.recording import open_recording
from blimp.ship import Lockstep
from blimp.types import Heartbeat

FLIGHT_S = 9.0


@pytest.fixture(scope="session")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a flight with all that Lockstep can do to a ship."""
    path = tmp_path_factory.mktemp("flown") / "flight.mcap"
    with Lockstep("twin", seed=3, wind_mps=0.2, log=path) as ship:
        ship.command("arm")
        ship.command("takeoff", altitude_m=2.0)
        ship.step(4.0)
        ship.fault("baro", "no_answer")
        ship.begin_gusts(0.1)
        ship.relay(Heartbeat(session="pilot", sequence=1, authority=0))
        ship.step(2.0)
        ship.link_up = False
        ship.hold(True)
        ship.step(0.5)
        ship.hold(False)
        ship.step(FLIGHT_S - 6.5)
        ship.command("goto", check=False, north_m=9000.0, east_m=0.0, altitude_m=2.0)
        ship.crash(down_s=0.3)
        ship.step(0.5)
    return path


@pytest.fixture(scope="session")
def flight(flown: Path) -> FlightData:
    with open_recording(flown) as log:
        return read_flight(log)
