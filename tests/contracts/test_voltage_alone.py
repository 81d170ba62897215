"""A chip that knows the battery's voltage alone: the ship flies by it, and no face says amperes."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from rich.console import Console

from blimp.chips import CHIPS
from blimp.hardware.ina219 import Ina219
from blimp.recording.export import as_csv
from blimp.recording.flight_data import read_flight
from blimp.recording.pictures_systems import battery
from blimp.recording.recording import open_recording
from blimp.recording.summary import ROWS, figures_of, shown
from blimp.ship import Lockstep
from blimp.types import PowerSample, Snapshot
from ground_station.mavlink.telemetry import Seen, battery_status, sys_status
from ground_station.page.state import state_object
from ground_station.view import status_table

pytestmark = pytest.mark.slow  # a flight


class Voltmeter(Ina219):
    UNIT: ClassVar[str] = "V"

    def _felt(self, now_s: float, **measured: float) -> PowerSample:
        return msgspec.structs.replace(super()._felt(now_s, **measured), current_a=None)


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Snapshot]]:
    """A flight that takes off on a full battery and is ended by an empty one; its log."""
    path = tmp_path_factory.mktemp("volts") / "flight.mcap"
    row = msgspec.structs.replace(CHIPS["ina219"], driver=f"{__name__}:Voltmeter")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CHIPS, "ina219", row)
        with Lockstep("twin", seed=1, log=path) as ship:
            ship.complete("arm", within_s=5.0)
            ship.complete("takeoff", within_s=30.0, altitude_m=2.0)
            ship.step(15.0)  # longer than a current may fail to follow its motors
            hovering = ship.snapshot()
            assert hovering.failsafe == ""
            assert hovering.sensors["power"].healthy
            ship.fault("power", "stuck", value=6.0)
            ship.step(60.0)
            assert ship.truth.on_ground
            assert not ship.snapshot().armed
        yield path, hovering


def test_command_line_and_page_say_that_it_is_not_measured(flown: tuple[Path, Snapshot]) -> None:
    snapshot = flown[1]
    console = Console(width=100)
    with console.capture() as said:
        console.print(status_table(snapshot, 0.1))
    assert f"{snapshot.battery_v:.2f} V, current not measured" in said.get()
    assert state_object(snapshot, 0.1)["current_a"] is None
    assert state_object(msgspec.structs.replace(snapshot, current_a=0.5), 0.1)["current_a"] == 0.5


@pytest.mark.parametrize(("amps", "wanted"), [(None, -1), (0.42, 42), (-0.01, 0), (1e9, 2**15 - 1)])
def test_mavlink_has_the_number_of_the_standard(
    flown: tuple[Path, Snapshot], amps: float | None, wanted: int
) -> None:
    with Lockstep("twin", seed=1) as ship:
        seen = Seen(msgspec.structs.replace(flown[1], current_a=amps), ship.airframe.home)
    for message in (sys_status(seen), battery_status(seen)):
        assert message.current_battery == wanted


def test_log_table_and_report_have_no_current(flown: tuple[Path, Any], tmp_path: Path) -> None:
    table = tmp_path / "flight.csv"
    with open_recording(flown[0]) as log:
        with table.open("w") as out:
            as_csv(log, out)
        flight = read_flight(log)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert any(row["battery_v"] for row in rows)
    assert {row["current_a"] for row in rows} == {""}
    assert any("battery empty" in span.name for span in flight.failsafes)
    figures = figures_of(flight)
    (charge,) = (row for row in ROWS if row.words == "Charge used")
    assert shown(charge, figures) == "not measured"
    assert "not measured" in [
        text.get_text() for axes in battery(flight).axes for text in axes.texts
    ]
