"""A flight on one page: what it says, what it needs, and what it does with half a log."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from blimp.cli import app
from blimp.errors import LogError
from blimp.recording.flight_data import FlightData, Listed, read_flight
from blimp.recording.log_file import LogFile
from blimp.recording.pictures import PICTURES
from blimp.recording.recording import Recording, open_recording
from blimp.recording.report import page
from blimp.recording.summary import ROWS, figures_of, shown
from blimp.ship import Lockstep

run = CliRunner().invoke
VOID = {"meta", "br", "hr", "img", "link", "input"}


@pytest.fixture(scope="module")
def html(flight: FlightData) -> str:
    return page(flight)


class Reader(HTMLParser):
    """Reads a page: every element is closed, ids are there once, and its text is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [
            value or "" for name, value in attrs if name in ("href", "xlink:href", "src")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


def test_the_page_needs_no_network(html: str) -> None:
    assert "://" not in html
    assert not re.search(r"@import|<script|<link|<img", html)
    assert all(link.startswith("#") for link in read(html).links)
    assert all(one.startswith("#") for one in re.findall(r"url\(([^)]*)\)", html))


def test_the_page_says_what_happened_in_words_and_figures(html: str, flight: FlightData) -> None:
    text = " ".join(read(html).text)
    figures = figures_of(flight)
    for row in ROWS:
        assert row.words in text
        assert shown(row, figures) in text
    assert "goto refused: distance from the pad is 9000 m, the limit is 100 m" in text
    for span in flight.failsafes:
        assert f"{span.from_s:.1f} s: {span.name}" in text
    for one in flight.happenings:
        assert one.words in text


def test_words_of_others_stay_text(flight: FlightData) -> None:
    nasty = "</td><script>alert(1)</script>$x_1$"
    bad = flight._replace(
        happenings=[Listed(1, 1.0, "refusal", nasty)],
        session=msgspec.structs.replace(flight.session, vehicle=nasty),
    )
    html = page(bad)
    assert "<script" not in html
    assert "".join(read(html).text).count(nasty) >= 3


@pytest.mark.long
def test_report_writes_html_and_pdf_and_says_what_next(
    flown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(app, ["log", "report", str(flown), "--pdf"])
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines() == ["flight-report.html", "flight-report.pdf"]
    assert "open flight-report.html" in said.stderr
    data = (tmp_path / "flight-report.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", data)) > len(PICTURES)  # and the words
    assert (tmp_path / "flight-report.html").stat().st_size < 3_000_000


@pytest.mark.long
def test_two_flights_are_compared(flown: Path, tmp_path: Path, flight: FlightData) -> None:
    other = tmp_path / "other.mcap"
    with Lockstep("twin", seed=4, log=other) as ship:
        ship.command("arm")
        ship.command("takeoff", altitude_m=1.0)
        ship.step(8.0)
    out = tmp_path / "both.html"
    said = run(app, ["log", "report", str(flown), str(other), "--out", str(out), "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout) == {"path": str(out)}
    with open_recording(other) as log:
        second = figures_of(read_flight(log))
    first = figures_of(flight)
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</th>(.*?)</tr>", out.read_text("utf-8"))
    cells = {name: re.findall(r">([^<]*)</td>", text) for name, text in rows}
    more_m = second.highest_m - first.highest_m
    assert cells["Highest"] == [
        f"{first.highest_m:.2f} m", f"{second.highest_m:.2f} m", f"{more_m:+.2f} m",
    ]  # fmt: skip
    assert 'aria-label="both tracks"' in out.read_text("utf-8")


@contextmanager
def copied(flown: Path, path: Path, *, metadata: dict[str, str] | None = None) -> Iterator[LogFile]:
    """Write a log that begins as another one; its messages are added in the block."""
    with Recording(flown) as log, LogFile(path, log.session, metadata or log.metadata) as new:
        yield new


def test_a_log_that_was_cut_says_so(flown: Path, tmp_path: Path) -> None:
    data = flown.read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(data[: len(data) * 2 // 3])
    with open_recording(cut) as log:
        assert "The log was cut" in page(read_flight(log))


def test_a_log_without_cycles_or_of_another_version_is_an_error(
    flown: Path, tmp_path: Path
) -> None:
    with copied(flown, tmp_path / "none.mcap"):
        pass
    said = run(app, ["log", "report", str(tmp_path / "none.mcap")])
    assert isinstance(said.exception, LogError)
    assert "no cycle is in it, so there is nothing to draw" in str(said.exception)
    with Recording(flown) as log:
        facts = {**log.metadata, "format": "7"}
    with copied(flown, tmp_path / "newer.mcap", metadata=facts):
        pass
    said = run(app, ["log", "report", str(flown), str(tmp_path / "newer.mcap")])
    assert isinstance(said.exception, LogError)
    assert "its format is '7', this program reads 1" in str(said.exception)
