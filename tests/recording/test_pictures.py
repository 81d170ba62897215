"""Pictures of a flight: words that can be read, and one colour for one thing."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from math import radians
from pathlib import Path

import msgspec
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from blimp.recording.deviations import beside_deg, unwrapped_deg
from blimp.recording.flight_data import KINDS, FlightData, Happening, Span, Table, read_flight
from blimp.recording.panels import (
    ESTIMATE,
    MAX_POINTS,
    SETPOINT,
    TRUTH,
    joined,
    numbers,
    style,
    thinned,
)
from blimp.recording.pictures import PICTURES, picture
from blimp.recording.recording import open_recording

ROLES = {"setpoint": SETPOINT, "estimate": ESTIMATE, "truth": TRUTH}
TOUCH_PX = 1.0  # boxes of neighbouring words may touch


@pytest.fixture(scope="session")
def flight(flown: Path) -> FlightData:
    with open_recording(flown) as log:
        return read_flight(log)


@pytest.fixture(scope="session")
def figures(flight: FlightData) -> dict[str, Figure]:
    return {name: drawn(name, flight) for name in PICTURES}


def drawn(name: str, flight: FlightData) -> Figure:
    with style():
        figure = picture(name, flight)
        FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure


def ticks(axes: Axes) -> list[Text]:
    """Return the labels of an axis that are in view."""
    found = []
    for axis, which in ((axes.xaxis, 0), (axes.yaxis, 1)):
        low, high = sorted(axis.get_view_interval())
        margin = 1e-6 * (high - low)
        found += [
            label
            for label in axis.get_ticklabels()
            if low - margin <= label.get_position()[which] <= high + margin
        ]
    return found


def words(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return every word that is drawn, with its box in pixels."""
    with style():  # what is asked of an axis is written again
        return list(_words(figure))


def _words(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    texts = list(figure.texts)
    for axes in figure.axes:
        texts += axes.texts
        legend = axes.get_legend()
        texts += legend.get_texts() if legend else []
        if axes.axison:
            texts += [axes.xaxis.label, axes.yaxis.label, *ticks(axes)]
    for text in texts:
        if text.get_visible() and text.get_text().strip():
            yield text.get_text(), text.get_window_extent()


def crowded(flight: FlightData) -> FlightData:
    """Return the flight with 90 events in a few seconds, and modes of a moment."""
    long = "a message of the ship that is much longer than a line of the list could ever be " * 3
    return flight._replace(
        happenings=[Happening(i, 1.0 + i / 30, KINDS[i % 5], long) for i in range(1, 91)],
        modes=[Span(i / 10, (i + 1) / 10, ("HOLD", "LOITER")[i % 2]) for i in range(90)],
    )


@pytest.mark.parametrize("name", PICTURES)
def test_no_word_lies_over_another_or_is_cut(
    name: str, flight: FlightData, figures: dict[str, Figure]
) -> None:
    for figure in (figures[name], drawn(name, crowded(flight))):
        found = words(figure)
        assert len(found) > 5
        width, height = figure.canvas.get_width_height()
        for text, box in found:
            assert box.x0 >= 0 and box.y0 >= 0, f"{name}: {text!r} is cut"  # noqa: PT018
            assert box.x1 <= width and box.y1 <= height, f"{name}: {text!r} is cut"  # noqa: PT018
        for (text, box), (other, over) in combinations(found, 2):
            shared = Bbox.intersection(box, over)
            apart = shared is None or min(shared.width, shared.height) <= TOUCH_PX
            assert apart, f"{name}: {text!r} lies over {other!r}"


def test_a_role_has_one_colour_in_every_picture(figures: dict[str, Figure]) -> None:
    seen = set()
    for name, figure in figures.items():
        for axes in figure.axes:
            for line in axes.get_lines():
                label = str(line.get_label())
                if label in ROLES:
                    assert to_hex(line.get_color()) == ROLES[label], f"{name}: {label}"
                    seen.add((name, label))
    for name in ("track", "altitude", "position", "attitude"):
        assert {(name, label) for label in ROLES} <= seen
    assert len(set(ROLES.values())) == len(ROLES)


def test_a_heading_goes_on_beyond_north_and_its_setpoint_stays_beside_it() -> None:
    yaw = np.array([radians(deg) for deg in (350.0, 358.0, 4.0, 10.0, 359.0)])
    yaw[yaw > np.pi] -= 2 * np.pi
    heading = unwrapped_deg(yaw)
    assert heading.tolist() == pytest.approx([350.0, 358.0, 364.0, 370.0, 359.0])
    around = unwrapped_deg(np.radians([170.0, -170.0, -90.0]))
    assert around.tolist() == pytest.approx([170.0, 190.0, 270.0])
    wanted = beside_deg(np.radians([355.0, 2.0, 2.0, 15.0, 340.0]), heading)
    assert wanted.tolist() == pytest.approx([355.0, 362.0, 362.0, 375.0, 340.0])


def test_the_heading_has_an_axis_of_its_own_without_a_step_at_north(flight: FlightData) -> None:
    turning = Table(
        flight.cycles.t_s,
        {**flight.cycles.columns, "yaw": np.angle(np.exp(1j * flight.cycles.t_s))},
    )
    figure = drawn("attitude", flight._replace(cycles=turning))
    (axes,) = [axes for axes in figure.axes if axes.get_ylabel().startswith("heading")]
    (line,) = [line for line in axes.get_lines() if line.get_label() == "estimate"]
    values = np.asarray(line.get_ydata())
    assert np.abs(np.diff(values)).max() < 30.0  # 0.3 s without a flight process are 17 degrees
    assert values.max() - values.min() == pytest.approx(np.degrees(flight.end_s), rel=0.02)
    labels = [label.get_text() for label in ticks(axes)]
    assert labels
    assert all(0.0 <= float(label) < 360.0 for label in labels)


def test_every_time_picture_has_the_same_axis_and_the_modes_behind_it(
    flight: FlightData, figures: dict[str, Figure]
) -> None:
    places = set()
    for name, figure in figures.items():
        for axes in figure.axes:
            if axes.get_xlim() == (0.0, flight.end_s) and axes.axison:
                box = axes.get_position()
                places.add((round(box.x0, 6), round(box.x1, 6)))
                assert len(axes.patches) >= len(flight.modes), name
    assert len(places) == 1


def test_each_actuator_has_a_panel_of_its_own(
    flight: FlightData, figures: dict[str, Figure]
) -> None:
    panels = figures["actuators"].axes
    labels = {axes.get_ylabel().partition(",")[0] for axes in panels} - {""}
    assert labels == set(flight.session.actuators)


def test_the_limit_of_a_cycle_is_marked_in_the_histogram(flight: FlightData) -> None:
    timed = flight._replace(session=msgspec.structs.replace(flight.session, lockstep=False))
    spread = drawn("timing", timed).axes[-1]
    (limit,) = [line for line in spread.get_lines() if "limit" in str(line.get_label())]
    assert list(np.asarray(limit.get_xdata())) == [10.0, 10.0]
    assert spread.get_xlim()[1] > 10.0


def test_near_numbers_share_a_label() -> None:
    happenings = [
        Happening(i, t_s, "command", "") for i, t_s in enumerate((0.0, 0.1, 0.2, 50.0), 1)
    ]
    assert [label.text for label in numbers(happenings, 100.0)] == ["1-3", "4"]
    assert [joined(group) for group in ([3], [3, 5], [3, 4, 5], [3, 4, 9])] == [
        "3", "3,5", "3-5", "3..9",
    ]  # fmt: skip


def test_two_hours_are_drawn_with_as_many_points_as_can_be_seen_and_every_peak() -> None:
    t_s = np.arange(720_000) / 100.0
    values = np.sin(t_s / 60.0)
    values[123_456], values[500_001] = 9.0, -9.0
    values[600_000:650_000] = np.nan
    few_s, few = thinned(t_s, values)
    assert len(few) <= MAX_POINTS + 400
    assert np.nanmax(few) == 9.0
    assert np.nanmin(few) == -9.0
    assert all(before <= after for before, after in pairwise(few_s))
    assert np.isnan(few).any()


def test_the_truth_of_a_simulated_flight_is_in_its_log(flight: FlightData) -> None:
    truth, cycles = flight.truth, flight.cycles
    assert len(truth.t_s) == pytest.approx(10 * flight.end_s, abs=12)
    apart = cycles.at("down", truth.t_s) - truth["down"]
    assert 0.0 < np.nanmedian(np.abs(apart)) < 0.1
    assert truth["down"].min() == pytest.approx(cycles["down"].min(), abs=0.2)
