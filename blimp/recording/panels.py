"""What pictures are drawn on: panels on one time axis, modes and events above them, colours.

All pictures of a flight have the same width, margins and limits of time, so that they line up below
each other. No text lies in a panel: legends stand beside it, words above and below. What a line
stands for decides its colour, in every picture alike; colours can be read on white and on black.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from blimp.distribution import needing
from blimp.recording.flight_data import FlightData, Listed, Span, Values

with needing("plot", "pictures need"):
    import matplotlib as mpl
    import numpy as np
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 4_000  # of a line, four a pixel
INK = "#24292f"  # text and axes; a page replaces it by the colour of its own text
ESTIMATE, SETPOINT, TRUTH = "#2f7ed8", "#e8820c", "#1a9e5c"
CONTROL_ERROR, ESTIMATE_ERROR = "#8a5cd6", "#c2478f"
LIMIT, MEASURED = "#d5373b", "#7a828c"
NORTH, EAST = "#0f8f9e", "#a8792b"
CYCLE, PERIOD = "#0f8f9e", "#8a5cd6"
# Sensors and models, by the names in their votes.
SENSORS = {
    "baro": "#2f7ed8", "ranger": "#e8820c", "sonar": "#1a9e5c", "tag": "#8a5cd6",
    "camera": "#6a7a1e", "gps": "#c2478f", "imu": "#0f8f9e", "magnetometer": "#a8792b",
    "thrust": "#7a828c",
    "accelerometer": "#0f8f9e", "gyro": "#a8792b", "position": "#8a5cd6",
}  # fmt: skip
MODES = {
    "LAND": "#c2478f", "MANUAL": "#7a828c", "VELOCITY": "#0f8f9e", "LOITER": "#2f7ed8",
    "RTL": "#e8820c", "AUTO": "#1a9e5c", "HOLD": "#a8a032", "STABILIZE": "#8a5cd6",
    "ALTHOLD": "#a8792b", "FOLLOW": "#6b9e1a",
}  # fmt: skip
KIND_COLOURS = {
    "command": "#2f7ed8", "refusal": "#e8820c", "failsafe": "#d5373b", "fault": "#c2478f",
    "process": "#8a5cd6", "message": "#7a828c",
}  # fmt: skip
SET, IS, TRUE = "setpoint", "estimate", "truth"  # in legends
WIDTH_IN, LEFT_IN, RIGHT_IN = 11.0, 0.95, 1.55
_TITLE_IN, _STRIP_IN, _BOTTOM_IN, _GAP_IN = 0.42, 0.34, 0.5, 0.2
_FONT_PT, _SMALL_PT = 8.0, 7.0
_DIGIT_IN, _PAD_IN = 0.066, 0.05  # widths at _SMALL_PT in DejaVu Sans
_SHORTEST_S = 1.0  # of a time axis
STYLE: dict[str, Any] = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": _FONT_PT, "axes.labelsize": _FONT_PT, "xtick.labelsize": _SMALL_PT,
    "ytick.labelsize": _SMALL_PT, "legend.fontsize": _SMALL_PT, "legend.frameon": False,
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.facecolor": "none", "axes.linewidth": 0.6, "lines.linewidth": 1.1,
    "grid.color": "#8b949e", "grid.alpha": 0.3, "grid.linewidth": 0.5,
    "axes.spines.top": False, "axes.spines.right": False, "text.parse_math": False,
    "svg.fonttype": "none", "axes.unicode_minus": False,
}  # fmt: skip


class Label(NamedTuple):
    """The numbers of happenings that stand together, from `t_s` on."""

    t_s: float
    text: str


@contextmanager
def style(salt: str = "") -> Iterator[None]:
    """Draw in the style of these pictures. salt: of the ids in an SVG, one a picture of a page."""
    options: Any = STYLE | {"svg.hashsalt": salt or "blimp"}
    with mpl.rc_context(options):
        yield


def stacked(
    heights_in: Sequence[float], *, strip: bool = True, gap_in: float = _GAP_IN
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels below each other; the first one is the strip, if there is one."""
    above = _TITLE_IN + (_STRIP_IN + 0.06 if strip else 0.0)
    height = above + sum(heights_in) + gap_in * (len(heights_in) - 1) + _BOTTOM_IN
    figure = Figure(figsize=(WIDTH_IN, height))
    axes: list[Axes] = []

    def add(top_in: float, height_in: float) -> None:
        place = (
            LEFT_IN / WIDTH_IN, 1.0 - (top_in + height_in) / height,
            (WIDTH_IN - LEFT_IN - RIGHT_IN) / WIDTH_IN, height_in / height,
        )  # fmt: skip
        axes.append(figure.add_axes(place))

    if strip:
        add(_TITLE_IN, _STRIP_IN)
    top_in = above
    for height_in in heights_in:
        add(top_in, height_in)
        top_in += height_in + gap_in
    return figure, axes


def timed(
    flight: FlightData, labels: Sequence[str], *, height_in: float = 1.55
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each label, over the time of the flight."""
    figure, (strip, *panels) = stacked([height_in] * len(labels))
    draw_strip(strip, flight)
    for panel, label in zip(panels, labels, strict=True):
        over_time(panel, flight, label, is_last=panel is panels[-1])
    return figure, panels


def over_time(panel: Axes, flight: FlightData, label: str, *, is_last: bool) -> None:
    """Prepare a panel over time: limits, grid, modes and events behind it."""
    panel.set_xlim(0.0, max(flight.end_s, _SHORTEST_S))
    panel.set_ylabel(label)
    panel.grid(visible=True)
    panel.margins(y=0.08)
    if is_last:
        panel.set_xlabel("time, s")
    else:
        panel.tick_params(labelbottom=False)
    for span in flight.modes:
        panel.axvspan(span.from_s, span.to_s, color=mode_colour(span.name), alpha=0.09, lw=0)
    for kind, colour in KIND_COLOURS.items():
        times = [one.t_s for one in flight.happenings if one.kind == kind]
        strong = kind in ("failsafe", "refusal")
        if times:  # all lines of a kind are one path: thousands of them, each alone, took a minute
            panel.plot(
                np.repeat(times, 3), [0.0, 1.0, np.nan] * len(times), color=colour, lw=0.8,
                alpha=0.8 if strong else 0.45, ls=":", zorder=0.5,
                transform=panel.get_xaxis_transform(),
            )  # fmt: skip


def draw_strip(strip: Axes, flight: FlightData) -> None:
    """Draw the modes with their names where these fit, and the numbers of the events above."""
    end_s = max(flight.end_s, _SHORTEST_S)
    strip.set(xlim=(0.0, end_s), ylim=(0.0, 2.0))
    strip.set_axis_off()
    _mode_band(strip, flight.modes, end_s, bottom=0.0)
    for label in numbers(flight.happenings, end_s):
        strip.text(label.t_s, 1.2, label.text, fontsize=_SMALL_PT, va="bottom", clip_on=False)


def _mode_band(axes: Axes, modes: Iterable[Span], end_s: float, *, bottom: float) -> None:
    for span in modes:
        width_s = span.to_s - span.from_s
        axes.broken_barh(
            [(span.from_s, width_s)], (bottom, 0.9), color=mode_colour(span.name), alpha=0.35, lw=0
        )
        if len(span.name) * _DIGIT_IN * 1.35 + _PAD_IN < width_s / end_s * drawn_in():
            middle_s = span.from_s + width_s / 2
            axes.text(
                middle_s, bottom + 0.42, span.name, fontsize=_SMALL_PT, ha="center", va="center"
            )


def numbers(happenings: Sequence[Listed], end_s: float) -> list[Label]:
    """Return the numbers of happenings as labels that do not overlap: near ones share a label."""
    labels: list[Label] = []
    group: list[int] = []
    for one in happenings:
        if labels and one.t_s < _right_s(labels[-1], end_s):
            group.append(one.number)
            labels[-1] = Label(labels[-1].t_s, joined(group))
        else:
            group = [one.number]
            labels.append(Label(one.t_s, joined(group)))
    return labels


def joined(group: Sequence[int]) -> str:
    """Return numbers as short words: "3", "3,5", "3-6", and with gaps "3..9"."""
    first, last = group[0], group[-1]
    if len(group) <= 2:
        return ",".join(map(str, group))
    return f"{first}-{last}" if last - first == len(group) - 1 else f"{first}..{last}"


def _right_s(label: Label, end_s: float) -> float:
    width_in = len(label.text) * _DIGIT_IN + _PAD_IN
    return label.t_s + width_in / drawn_in() * end_s


def drawn_in() -> float:
    """Return the width of a panel, inches."""
    return WIDTH_IN - LEFT_IN - RIGHT_IN


def mode_colour(name: str) -> str:
    return MODES.get(name, MEASURED)


def line(
    panel: Axes,
    t_s: Values,
    values: Values,
    label: str,
    colour: str,
    *,
    points: int = MAX_POINTS,
    **options: Any,
) -> None:
    """Draw a line over time with as many points as can be seen; nothing if no value is known."""
    if np.isfinite(values).any():
        panel.plot(*thinned(t_s, values, points=points), label=label, color=colour, **options)


def legend(panel: Axes) -> None:
    """Write the legend beside the panel, where it hides nothing."""
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        known = dict(zip(labels, handles, strict=True))
        panel.legend(
            known.values(), known.keys(), loc="upper left", bbox_to_anchor=(1.005, 1.04),
            handlelength=1.6, borderaxespad=0.0, labelspacing=0.3,
        )  # fmt: skip


def say(panel: Axes, words: str) -> None:
    """Say in an empty panel why it is empty."""
    panel.text(0.5, 0.5, words, transform=panel.transAxes, ha="center", va="center", style="italic")
    panel.set_yticks([])


def thinned(t_s: Values, values: Values, *, points: int = MAX_POINTS) -> tuple[Values, Values]:
    """Return the lowest and the highest value of each stretch of time, so that no peak is lost."""
    step = -(-len(values) * 2 // points)
    if step <= 2:
        return t_s, values
    whole = len(values) // step * step
    blocks = values[:whole].reshape(-1, step)
    unknown = np.isnan(blocks)
    ends = np.stack(
        (np.where(unknown, np.inf, blocks).argmin(1), np.where(unknown, -np.inf, blocks).argmax(1)),
        axis=1,
    )
    ends.sort(axis=1)
    picked = (ends + np.arange(0, whole, step)[:, np.newaxis]).ravel()
    picked = np.append(picked, np.arange(whole, len(values)))
    return t_s[picked], values[picked]
