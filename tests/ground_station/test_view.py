"""The live view at every age and size, and what it must never hide."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from blimp.types import Attitude, LoopStatus, SensorStatus, Snapshot
from ground_station.map import draw_map
from ground_station.view import FlightView, flight_line
from tests.snapshot import SNAPSHOT


def sensor(value: Any, unit: str, age_s: float | None, *, error: str = "") -> SensorStatus:
    return SensorStatus(value=value, unit=unit, age_s=age_s, healthy=not error, error=error)


SHIP = msgspec.structs.replace(
    SNAPSHOT,
    t_s=12.3,
    boot_id="b1",
    position_ned_m=(7.2, 9.6, -2.96),
    velocity_ned_mps=(0.52, 0.03, 0.01),
    altitude_m=2.96,
    attitude_rad=Attitude(roll=0.01, pitch=-0.03, yaw=1.57),
    battery_v=7.91,
    actuators={"left": 0.42, "right": 0.38, "tail": -0.11, "tilt": 0.6},
    servos=("tilt",),
    sensors={
        "imu": sensor((0.02, -0.03, -9.81, 0.0, 0.1, -0.2), "m/s², rad/s", 0.01),
        "baro": sensor(101288.0, "Pa", 0.03),
        "ranger": sensor(2.95, "m", 1.7),
        "sonar": sensor(None, "m", None, error="no answer"),
        "tag": sensor((7.2, 9.6, 2.96), "m", 4.2, error="frozen"),
        "power": sensor((7.91, 0.6), "V, A", 0.1),
    },
    messages=("tag: frozen",),
    active_command="goto 1234",
)


def but(**fields: Any) -> Snapshot:
    return msgspec.structs.replace(SHIP, **fields)


def page(
    snapshot: Snapshot | None = SHIP,
    *,
    age_s: float = 0.1,
    width: int = 80,
    height: int = 24,
    **more: Any,
) -> list[Text]:
    view = FlightView(vehicle="twin", snapshot=snapshot, age_s=age_s, **more)
    return view.lines(width=width, height=height)


def text(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


def styles(line: Text, part: str) -> str:
    """Return every style that lies on `part` of a line."""
    at = line.plain.index(part)
    found = [str(span.style) for span in line.spans if span.start <= at < span.end]
    return " ".join([str(line.style), *found])


def test_old_values_carry_their_age() -> None:
    before, after = text(page(age_s=3.4)), page(age_s=3.5)
    assert "NO LINK" not in before
    assert "NO LINK 3.5 s" in after[0].plain
    assert "white on red" in styles(after[0], "NO LINK")
    for part in ("map, north up", "flight", "actuators", "sensors"):
        assert f"{part} 3.5 s old" in text(after)
    assert "3.5 s old  101288 Pa" in text(after)
    assert "NO LINK 10 min" in text(page(age_s=600.0))


def test_danger_is_at_the_top() -> None:
    assert "KILLED" in page(but(killed=True, armed=False))[0].plain
    assert "disarmed" in page(but(armed=False))[0].plain
    failsafe = page(but(failsafe="link lost: holding"), progress="square")
    assert "FAILSAFE link lost: holding" in failsafe[1].plain
    assert "3 overruns" in page(but(loop=LoopStatus(rate_hz=99.0, overruns=3)), width=100)[0].plain
    assert "SIMULATED" not in text(page(but(simulated=False)))
    assert "battery ?" in text(page(but(battery_v=None)))


@given(
    numbers=st.lists(st.floats(), min_size=6, max_size=6),
    age_s=st.floats(min_value=0.0, max_value=1e6),
)
def test_no_value_breaks_the_view(numbers: list[float], age_s: float) -> None:
    """Not even those that a ship must never send."""
    ship = but(
        position_ned_m=tuple(numbers[:3]),
        velocity_ned_mps=tuple(numbers[3:]),
        altitude_m=numbers[0],
        attitude_rad=Attitude(roll=numbers[1], pitch=numbers[2], yaw=numbers[3]),
        actuators={"left": numbers[4], "tilt": numbers[5]},
    )
    lines = page(ship, age_s=age_s)
    assert len(lines) == 24
    assert max(line.cell_len for line in lines) <= 80
    assert flight_line(ship, age_s)


# --- the map --------------------------------------------------------------------------------


def find(rows: list[list[Any]], character: str) -> tuple[int, int]:
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            if cell.character == character:
                return x, y
    raise AssertionError(f"{character!r} is not on the map")


def test_north_is_up_and_east_is_right() -> None:
    picture = draw_map(columns=40, rows=20, ship=(8.0, 8.0), yaw_rad=0.0)
    home, ship = find(picture.rows, "H"), find(picture.rows, "↑")
    assert ship[0] > home[0]
    assert ship[1] < home[1]
    across, up = ship[0] - home[0], home[1] - ship[1]
    assert across == pytest.approx(2 * up, abs=2)  # a cell is twice as high as wide
