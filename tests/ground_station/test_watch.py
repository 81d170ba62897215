"""What is watched: ages that go on, the trail, and a broker that goes and comes back."""

import io
import json
import subprocess
import sys

import msgspec
import pytest
from rich.console import Console

from blimp.clock import ManualClock, SystemClock
from blimp.link.telemetry import TelemetryReader
from ground_station.flyer import MissionEvent
from ground_station.mission_file import load_mission
from ground_station.report import Report
from ground_station.screen import MissionScreen
from ground_station.watch import Watch
from tests.ground_station.ship import FlyingShip
from tests.ground_station.terminal import Terminal
from tests.ground_station.test_view import SHIP


class TerminalText(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_age_goes_on_while_nothing_comes() -> None:
    clock = ManualClock()
    state = Watch(clock=clock)
    state.take(SHIP, 0.3)
    clock.advance(2.0)
    assert state.age_s == pytest.approx(2.3)
    state.take(SHIP, 0.1)
    assert state.age_s == pytest.approx(0.1)


def test_the_trail_grows_with_the_way_and_restarts_with_another_flight() -> None:
    state = Watch(clock=ManualClock())
    for north_m in (0.0, 0.05, 0.2, 0.21, 0.4):
        state.take(msgspec.structs.replace(SHIP, position_ned_m=(north_m, 0.0, -1.0)), 0.0)
    assert list(state.trail) == [(0.0, 0.0), (0.2, 0.0), (0.4, 0.0)]
    state.take(msgspec.structs.replace(SHIP, boot_id="b2", position_ned_m=(9.0, 0.0, 0.0)), 0.0)
    assert list(state.trail) == [(9.0, 0.0)]


def test_watch_outlives_its_broker(mortal: FlyingShip) -> None:
    mortal.publish()
    command = [sys.executable, "-m", "ground_station", "--json"]
    command += ["--broker", mortal.broker.url, "--vehicle", "mortal", "watch"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            before = json.loads(process.stdout.readline())
            mortal.broker.stop()
            assert "no broker" in process.stderr.readline()
            mortal.broker.start()
            mortal.ship.step(1.0)
            mortal.publish()
            while (line := process.stdout.readline()) and json.loads(line)["age_s"] > 1.0:
                pass
            assert json.loads(line)["vehicle"] == before["vehicle"]
        finally:
            process.terminate()


def test_a_key_stops_the_ship_in_a_terminal(twin: FlyingShip) -> None:
    with Terminal(twin, "watch", "--look-only") as terminal:
        terminal.read_until("! stops every motor")
        assert not twin.ship.snapshot().killed
        terminal.type("x!")
        terminal.read_until("emergency stop: SUCCESS")
        assert "broadcast" in terminal.text
        twin.ship.step(0.1)
        assert twin.ship.snapshot().killed


def test_the_mission_screen_shows_the_leg_that_is_flown(parked: FlyingShip) -> None:
    parked.publish()
    console = Console(file=TerminalText(), width=100, height=30, force_terminal=True)
    with TelemetryReader(parked.broker.url, parked.vehicle) as reader:
        screen = MissionScreen(
            mission=load_mission("square"),
            vehicle=parked.vehicle,
            reader=reader,
            clock=SystemClock(),
            console=console,
        )
        assert screen.view().snapshot is None
        with screen:
            screen.hear(
                MissionEvent(
                    leg=4, legs=7, do="goto", words="goto 10 10 3", stage="executing", fraction=0.4
                )
            )
            while screen.view().snapshot is None:
                pass
        view = screen.view()
    assert view.current is not None
    assert view.current.end == (10.0, 10.0, 3.0)
    assert view.altitude_set_m == 3.0
    assert view.progress == "leg 4/7 goto 10 10 3: executing 40 %"


def report() -> tuple[Report, io.StringIO]:
    err = io.StringIO()
    return Report(as_json=False, out=io.StringIO(), err=err), err
