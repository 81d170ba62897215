"""A flight on one page, HTML and PDF: in words, in figures, in pictures; or two flights compared.

The page needs nothing but itself: pictures are in it as SVG, and no address is. Needs matplotlib,
the extra `plot`; raises ConfigError when it is imported without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from io import StringIO
from pathlib import Path
from re import sub
from typing import TYPE_CHECKING

from blimp.errors import LogError
from blimp.files import write_atomically
from blimp.recording import pictures_compare
from blimp.recording.findings import findings
from blimp.recording.flight_data import FlightData
from blimp.recording.panels import INK, KIND_COLOURS, style
from blimp.recording.pictures import PICTURES, picture
from blimp.recording.pictures_compare import Named
from blimp.recording.pictures_events import event_rows
from blimp.recording.summary import (
    ROWS,
    Figures,
    Row,
    failsafes_in_words,
    figures_of,
    in_words,
    refusals_in_words,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What each picture shows, where its panels do not say it themselves.
CAPTIONS = {
    "events": "Modes, and what happened: the numbers are those of the list of events.",
    "track": "From above, north up, in equal scales.",
    "altitude": "Height, and how far it is from setpoint and truth.",
    "position": "Place, and its horizontal distance from setpoint and truth.",
    "velocity": "A setpoint is drawn where velocity itself is asked for, and no place.",
    "attitude": "The heading goes on beyond north: it is labelled as a compass reads it.",
    "actuators": "Throttle of motors, from -1 to 1, and angle of servos.",
    "wind": "As flight has shown it: where it blows to.",
    "battery": "With the limits of the airframe.",
    "votes": "Which sensor agrees with the estimate of which quantity, and which is outvoted.",
    "innovations": "Measurement minus estimate; of attitude, position and velocity its size.",
    "timing": "Time of each cycle and time between cycles; the limit is the period of the loop.",
}
MOST = 12  # findings; a list that nobody reads to its end hides its first lines
_FACTS = ("started", "airframe", "rate_hz", "seed", "wind_mps", "blimp", "machine", "boot_id")
_CSS = """
:root { color-scheme: light dark; --ink: #24292f; --paper: #ffffff; --line: #d0d7de;
        --soft: #57606a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #d7dde3; --paper: #14181d; --line: #3a424b; --soft: #9aa4af; } }
body { color: var(--ink); background: var(--paper); font: 15px/1.45 sans-serif; margin: 0 auto;
       padding: 1rem 1.5rem 3rem; max-width: 1100px; }
h1 { font-size: 1.5rem; margin: .2rem 0; } h2 { font-size: 1.15rem; margin: 1.8rem 0 .3rem; }
p, li { max-width: 70ch; } .soft { color: var(--soft); } .bad { color: #d5373b; }
nav a, ol a { color: inherit; margin-right: .9rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .15rem .8rem .15rem 0;
       border-bottom: 1px solid var(--line); vertical-align: top; font-weight: normal; }
td.number, .two th + th { text-align: right; padding-left: .8rem; white-space: nowrap;
       font-variant-numeric: tabular-nums; }
.figures { columns: 2; column-gap: 2.5rem; } .figures.two { columns: 1; }
.figures table { width: 100%; } .figures tr { break-inside: avoid; }
svg { width: 100%; height: auto; display: block; } figure { margin: 0; overflow-x: auto; }
@media (max-width: 700px) { .figures { columns: 1; } svg { min-width: 700px; } }
@media print { body { max-width: none; } figure, h2 { break-inside: avoid; } }
"""


def write_html(
    flight: FlightData,
    out: Path,
    *,
    other: FlightData | None = None,
    progress: Callable[[float], object] = lambda _: None,
) -> None:
    """Write a page on a flight, and on how another one differs. Raises LogError.

    progress: called with the share of the pictures that is drawn, 0 to 1.
    """
    write(out, page(flight, other=other, progress=progress).encode("utf-8"))


def page(
    flight: FlightData,
    *,
    other: FlightData | None = None,
    progress: Callable[[float], object] = lambda _: None,
) -> str:
    """Return the page. progress: as for `write_html`."""
    return "\n".join(_page(flight, other, progress))


def _page(
    flight: FlightData, other: FlightData | None, progress: Callable[[float], object]
) -> Iterator[str]:
    figures = figures_of(flight)
    name = escape(heading(flight))
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{name}</title><style>{_CSS}</style></head><body>"
    yield f"<h1>{name}</h1>"
    yield f'<p class="soft">{escape(Path(flight.path).name)}, {escape(origin(flight))}</p>'
    sections = ["findings", "summary", "comparison" if other else "figures", *PICTURES, "list"]
    links = "".join(f'<a href="#{one}">{one}</a>' for one in sections)
    yield f"<nav>{links}</nav>"
    yield from _findings(flight, figures)
    yield '<h2 id="summary">Summary</h2>'
    yield f"<p>{escape(' '.join(in_words(flight, figures)))}</p>"
    yield from _bullets("Failsafes", failsafes_in_words(flight))
    yield from _bullets("Refusals", refusals_in_words(flight))
    if other is not None:
        yield from _comparison(flight, other, figures)
    else:
        yield from _figures(figures)
    for number, title in enumerate(PICTURES):
        progress(number / len(PICTURES))
        with style(title):
            drawn = (
                event_rows(flight) if title == "events" else picture(title, flight, titled=False)
            )
            yield from _figure(title, CAPTIONS[title], drawn)
    yield from _events(flight)
    yield "</body></html>\n"


def _findings(flight: FlightData, figures: Figures) -> Iterator[str]:
    """Yield what is worth a look, the worst first, each with a link to its picture."""
    yield '<h2 id="findings">Findings</h2>'
    found = findings(flight, figures)
    if not found:
        yield "<p>None: no failsafe, no fault, no process that died, no late cycles.</p>"
        return
    items = "".join(
        f'<li><a href="#{one.picture}">{escape(one.words)}</a></li>' for one in found[:MOST]
    )
    yield f"<ol>{items}</ol>"
    if len(found) > MOST:
        yield f'<p>{len(found) - MOST} more are in the <a href="#list">list of events</a>.</p>'


def _figures(figures: Figures) -> Iterator[str]:
    yield '<h2 id="figures">Figures</h2><div class="figures"><table>'
    for row in ROWS:
        yield (
            f'<tr><th scope="row">{escape(row.words)}</th>'
            f'<td class="number">{escape(shown(row, figures))}</td></tr>'
        )
    yield "</table></div>"


def heading(flight: FlightData) -> str:
    """Return the title of a flight's report."""
    simulated = " (simulated)" if flight.session.simulated else ""
    return f"Flight of {flight.session.vehicle}{simulated}"


def origin(flight: FlightData) -> str:
    """Return what a log says of its flight and its writer."""
    facts = flight.facts
    return ", ".join(f"{name} {facts[name]}" for name in _FACTS if facts.get(name))


def _bullets(title: str, lines: list[str]) -> Iterator[str]:
    if not lines:
        yield f"<p>{title}: none.</p>"
        return
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    yield f'<p class="bad">{title}:</p><ul>{items}</ul>'


def _figure(title: str, caption: str, drawn: Figure) -> Iterator[str]:
    yield f'<h2 id="{title}">{title.capitalize()}</h2><p class="soft">{escape(caption)}</p>'
    yield f'<figure role="img" aria-label="{title}">{svg(drawn)}</figure>'


def svg(drawn: Figure) -> str:
    """Return a picture as an element of a page: in the page's width and its colour of text."""
    stream = StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawn.savefig(stream, format="svg", transparent=True, metadata=nothing)
    text = stream.getvalue()
    head, body = text[text.index("<svg") :].split(">", 1)
    head = sub(r' (xmlns(:\w+)?|width|height)="[^"]*"', "", head)
    # A page has one of each id: those that nothing refers to go.
    body = sub(r' id="(figure|axes|patch|line2d|text|legend|matplotlib|xtick|ytick|\w*Collection)'
               r'[\w.]*"', "", body)  # fmt: skip
    # Places to a hundredth of a point: more cannot be seen, and is half of a page.
    body = sub(r' (?:d|x|y)="[^"]*"', lambda found: sub(r"(\.\d\d)\d+", r"\1", found[0]), body)
    return f"{head}>{body}".replace(INK, "currentColor")


def _comparison(flight: FlightData, other: FlightData, figures: Figures) -> Iterator[str]:
    one, two = named(flight, other)
    others = figures_of(other)
    yield '<h2 id="comparison">Comparison</h2>'
    yield f"<p>A: {escape(Path(flight.path).name)}. B: {escape(Path(other.path).name)}, "
    yield f"{escape(origin(other))}.</p>"
    if flight.session.vehicle != other.session.vehicle:
        vehicles = f"{flight.session.vehicle} and {other.session.vehicle}"
        yield f'<p class="bad">These are two ships, {escape(vehicles)}.</p>'
    yield f"<p>B: {escape(' '.join(in_words(other, others)))}</p>"
    yield from _bullets("Failsafes of B", failsafes_in_words(other))
    yield from _bullets("Refusals of B", refusals_in_words(other))
    yield '<div class="figures two"><table><tr><th></th><th>A</th><th>B</th><th>B - A</th></tr>'
    for row in ROWS:
        cells = (shown(row, figures), shown(row, others), difference(row, figures, others))
        numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
        yield f'<tr><th scope="row">{escape(row.words)}</th>{numbers}</tr>'
    yield "</table></div>"
    with style("tracks"):
        drawn = pictures_compare.tracks((one, two))
        yield f'<figure role="img" aria-label="both tracks">{svg(drawn)}</figure>'
    with style("both"):
        drawn = pictures_compare.over_time((one, two))
        yield f'<figure role="img" aria-label="both over time">{svg(drawn)}</figure>'


def named(flight: FlightData, other: FlightData) -> tuple[Named, Named]:
    """Return two flights as they are called in a comparison."""
    return (
        Named("A", pictures_compare.FIRST, flight),
        Named("B", pictures_compare.SECOND, other),
    )


def difference(row: Row, figures: Figures, others: Figures) -> str:
    """Return how much more the other flight has, with its sign; "-" if one does not tell it."""
    before, after = row.get(figures), row.get(others)
    if before is None or after is None:
        return "-"
    more = f"{after - before:+{row.form}}"
    zero = more.lstrip("+-0.") == ""
    return f"{more.lstrip('+-') if zero else more} {row.unit}".rstrip()


def _events(flight: FlightData) -> Iterator[str]:
    yield '<h2 id="list">List of events</h2><table>'
    yield "<tr><th>number</th><th>s</th><th>kind</th><th>what</th></tr>"
    for one in flight.happenings:
        yield (
            f'<tr><td class="number">{one.number}</td><td class="number">{one.t_s:.1f}</td>'
            f'<td style="color:{KIND_COLOURS[one.kind]}">{one.kind}</td>'
            f"<td>{escape(one.words)}</td></tr>"
        )
    yield "</table>"


def write(out: Path, data: bytes) -> None:
    """Write a report whole or not at all; its directory is made. Raises LogError."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, data, mode=0o644)
    except OSError as error:
        raise LogError(f"report {out}: {error.strerror}") from error
