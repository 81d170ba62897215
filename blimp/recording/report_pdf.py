"""A flight as a PDF: a page of words and figures, then a page for each picture."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

from blimp.distribution import needing
from blimp.recording import pictures_compare
from blimp.recording.findings import findings
from blimp.recording.flight_data import FlightData
from blimp.recording.panels import WIDTH_IN, style
from blimp.recording.pictures import PICTURES, picture
from blimp.recording.report import MOST, difference, heading, named, origin, write
from blimp.recording.summary import (
    ROWS,
    failsafes_in_words,
    figures_of,
    in_words,
    refusals_in_words,
    shown,
)

with needing("plot", "reports need"):
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

_PAGE_IN = 8.0  # high: a page of text
_LINE_IN, _TOP_IN, _LEFT = 0.17, 0.5, 0.06
_COLUMNS = (0.0, 0.42, 0.6, 0.78)  # of the table, shares of the width
_WRAP = 120


def write_pdf(
    flight: FlightData,
    out: Path,
    *,
    other: FlightData | None = None,
    progress: Callable[[float], object] = lambda _: None,
) -> None:
    """Write the report as a PDF. Raises LogError. progress: as for `write_html`."""
    data = BytesIO()
    about = {"Title": heading(flight), "CreationDate": None}
    with style(), PdfPages(data, metadata=about) as pages:
        for drawn in _pages(flight, other, progress):
            pages.savefig(drawn)
    write(out, data.getvalue())


def _pages(
    flight: FlightData, other: FlightData | None, progress: Callable[[float], object]
) -> Iterator[Figure]:
    yield from _words(flight, other)
    if other is not None:
        both = named(flight, other)
        yield pictures_compare.tracks(both)
        yield pictures_compare.over_time(both)
    for number, name in enumerate(PICTURES):
        progress(number / len(PICTURES))
        yield picture(name, flight)


def _words(flight: FlightData, other: FlightData | None) -> Iterator[Figure]:
    """Write the words, as many pages as they need."""
    flights = [flight] if other is None else [flight, other]
    figures = [figures_of(one) for one in flights]
    lines: list[tuple[str, ...]] = []
    for name, one, found in zip("AB", flights, figures, strict=False):
        prefix = f"{name}: " if other is not None else ""
        lines.append((f"{prefix}{Path(one.path).name}, {origin(one)}",))
        lines.append((" ".join(in_words(one, found)),))
        for title, said in (
            ("Findings", [each.words for each in findings(one, found)[:MOST]]),
            ("Failsafes", failsafes_in_words(one)),
            ("Refusals", refusals_in_words(one)),
        ):
            lines.append((f"{title}: " + ("none." if not said else ""),))
            lines += [(f"   {sentence}",) for sentence in said]
        lines.append(("",))
    if other is not None:
        lines.append(("", "A", "B", "B - A"))
    for row in ROWS:
        values = [shown(row, found) for found in figures]
        if other is not None:
            values.append(difference(row, *figures))
        lines.append((row.words, *values))
    wrapped = [part for cells in lines for part in _wrapped(cells)]
    room = int((_PAGE_IN - 2 * _TOP_IN) / _LINE_IN)
    for begin in range(0, len(wrapped), room):
        drawn = Figure(figsize=(WIDTH_IN, _PAGE_IN))
        drawn.text(_LEFT, 1.0 - 0.3 / _PAGE_IN, heading(flight), fontsize=13, weight="bold")
        for i, cells in enumerate(wrapped[begin : begin + room]):
            y = 1.0 - (_TOP_IN + (i + 1) * _LINE_IN) / _PAGE_IN
            for x, cell in zip(_COLUMNS, cells, strict=False):
                drawn.text(_LEFT + x * (1.0 - 2 * _LEFT), y, cell, fontsize=8)
        yield drawn


def _wrapped(cells: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Break a line that is wider than the page; a row of the table stays as it is."""
    if len(cells) > 1:
        yield cells
    else:
        for part in textwrap.wrap(cells[0], _WRAP, subsequent_indent="   ") or [""]:
            yield (part,)
