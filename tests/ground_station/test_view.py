"""The live view at every age and size, and what it must never hide."""

import io
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from blimp.types import Attitude, LoopStatus, SensorStatus, Snapshot
from ground_station.braille import Canvas
from ground_station.map import draw_map
from ground_station.mission_file import load_mission
from ground_station.track import TrackLeg
from ground_station.view import FlightView, flight_line, status_table


def sensor(value: Any, unit: str, age_s: float | None, *, error: str = "") -> SensorStatus:
    return SensorStatus(value=value, unit=unit, age_s=age_s, healthy=not error, error=error)


SHIP = Snapshot(
    t_s=12.3,
    boot_id="b1",
    vehicle="twin",
    mode="LOITER",
    armed=True,
    killed=False,
    failsafe="",
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
    loop=LoopStatus(rate_hz=100.0),
    simulated=True,
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


def line_with(lines: list[Text], part: str) -> Text:
    return next(line for line in lines if part in line.plain)


@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 24), (120, 30), (200, 60)])
def test_it_fills_its_page_and_no_more(width: int, height: int) -> None:
    lines = page(width=width, height=height)
    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width


def test_everything_that_matters_is_on_eighty_by_twenty_four() -> None:
    shown = text(page(progress="square: leg 3 of 7", altitude_set_m=3.0))
    for words in (
        "twin", "SIMULATED", "LOITER", "ARMED", "7.9 V", "100 Hz", "link 0.1 s",
        "square: leg 3 of 7", "map, north up", "altitude   2.96 m of 3",
        "position N +7.20  E +9.60 m", "velocity N +0.52  E +0.03  up -0.01 m/s",
        "roll +0.6°  pitch -1.7°  yaw 90°", "left", "+42 %", "-11 %", "+34°",
        "101288 Pa", "7.91 V, 0.60 A", "tag: frozen",
    ):  # fmt: skip
        assert words in shown


def test_it_is_the_same_each_time() -> None:
    assert [line.markup for line in page()] == [line.markup for line in page()]


def test_fresh_values_are_plain_and_stale_ones_grey() -> None:
    assert "bright_black" not in styles(line_with(page(age_s=0.9), "position"), "position")
    stale = page(age_s=1.0)
    assert "bright_black" in styles(line_with(stale, "position"), "position")
    assert "bright_black" in styles(line_with(stale, "left"), "left")
    assert "bright_black" in styles(stale[0], "7.9 V")
    assert "link 1.0 s" in stale[0].plain


def test_old_values_carry_their_age() -> None:
    before, after = text(page(age_s=3.4)), page(age_s=3.5)
    assert "NO LINK" not in before
    assert "NO LINK 3.5 s" in after[0].plain
    assert "white on red" in styles(after[0], "NO LINK")
    for part in ("map, north up", "flight", "actuators", "sensors"):
        assert f"{part} 3.5 s old" in text(after)
    assert "3.5 s old  101288 Pa" in text(after)
    assert "NO LINK 10 min" in text(page(age_s=600.0))


def test_a_sensor_has_the_age_of_its_sample_and_of_the_link() -> None:
    lines = page(age_s=0.5)
    assert "2.95 m  2.2 s" in line_with(lines, "ranger").plain
    assert "frozen  4.7 s old" in line_with(lines, " tag ").plain
    assert "no answer no sample" in line_with(lines, "sonar").plain
    assert "✗" in line_with(lines, "sonar").plain
    assert "bold red" in styles(line_with(lines, "sonar"), "no answer")
    assert "●" in line_with(lines, "baro").plain


def test_danger_is_at_the_top() -> None:
    assert "KILLED" in page(but(killed=True, armed=False))[0].plain
    assert "disarmed" in page(but(armed=False))[0].plain
    failsafe = page(but(failsafe="link lost: holding"), progress="square")
    assert "FAILSAFE link lost: holding" in failsafe[1].plain
    assert "3 overruns" in page(but(loop=LoopStatus(rate_hz=99.0, overruns=3)), width=100)[0].plain
    assert "SIMULATED" not in text(page(but(simulated=False)))
    assert "battery ?" in text(page(but(battery_v=None)))


def test_what_has_no_room_is_counted() -> None:
    many = {f"s{n}": sensor(1.0, "m", 0.0) for n in range(40)}
    shown = text(page(but(sensors=many)))
    assert "… " in shown
    assert " more" in shown


def test_nothing_heard_yet() -> None:
    assert text(page(None)).startswith(" twin: no snapshot yet")


def test_it_prints_on_a_console_of_the_given_size() -> None:
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    with console.capture() as capture:
        console.print(FlightView(vehicle="twin", snapshot=SHIP, age_s=0.1), height=24)
    assert capture.get().rstrip("\n").count("\n") == 23
    plain = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, no_color=True)
    with plain.capture() as capture:
        plain.print(FlightView(vehicle="twin", snapshot=SHIP, age_s=5.0), height=24)
    assert "\x1b[9" not in capture.get()


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


def test_one_line_and_one_table() -> None:
    line = flight_line(but(failsafe="battery low: landing"), 0.14)
    assert line == (
        "12.3 s  twin  LOITER  armed  altitude 2.96 m  north 7.20 m east 9.60 m  yaw 90 deg  "
        "7.9 V  age 0.1 s  FAILSAFE battery low: landing  SIMULATED"
    )
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        console.print(status_table(but(velocity_ned_mps=(-0.001, 0.0, 0.001)), 0.1))
    shown = capture.get()
    assert "twin  (SIMULATED)" in shown
    assert "north 0.00, east 0.00, up 0.00 m/s" in shown  # never -0.00
    assert "0.02 -0.03 -9.81 m/s², 0.00 0.10 -0.20 rad/s" in shown
    assert "message" in shown


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


@pytest.mark.parametrize(
    ("yaw_deg", "arrow"), [(0, "↑"), (44, "↗"), (90, "→"), (180, "↓"), (-90, "←"), (359, "↑")]
)
def test_the_arrow_points_where_the_ship_does(yaw_deg: float, arrow: str) -> None:
    picture = draw_map(columns=30, rows=10, ship=(3.0, 0.0), yaw_rad=math.radians(yaw_deg))
    find(picture.rows, arrow)


def test_the_whole_mission_is_on_the_map_and_the_scale_stands_still() -> None:
    track = load_mission("square").track()
    legs = list(track.values())
    pictures = [
        draw_map(columns=36, rows=20, ship=(n, e), yaw_rad=0.0, legs=legs, current=track[4])
        for n, e in [(0.5, 0.5), (5.0, 5.0), (9.5, 9.5)]
    ]
    assert len({(p.bar_m, p.bar_columns) for p in pictures}) == 1
    for picture in pictures:
        find(picture.rows, "x")
        assert sum(cell.character != " " for row in picture.rows for cell in row) > 40


def test_a_ship_that_has_flown_away_is_still_on_the_map() -> None:
    picture = draw_map(columns=36, rows=20, ship=(-4000.0, 900.0), yaw_rad=0.0)
    find(picture.rows, "H")
    find(picture.rows, "↑")
    assert picture.bar_m >= 500.0


def test_canvas_dots() -> None:
    canvas = Canvas(columns=2, rows=1)
    for x, y in [(0, 0), (1, 3), (2, 0), (3, 1), (9, 9), (-1, 0)]:
        canvas.dot(x, y)
    assert [cell.character for cell in canvas.cells()[0]] == ["⢁", "⠑"]
    canvas.mark(3, 0, "H", "bold")
    assert canvas.cells()[0][1] == ("H", "bold")


def test_canvas_line() -> None:
    canvas = Canvas(columns=2, rows=1)
    canvas.line((0, 0), (3, 3))
    assert [cell.character for cell in canvas.cells()[0]] == ["⠑", "⢄"]
    assert TrackLeg((0, 0, 0), (1, 1, 1)).end == (1, 1, 1)
