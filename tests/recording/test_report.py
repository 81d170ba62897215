"""A flight on one page: what it says, what it needs, and what it does with half a log."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from blimp.cli import app
from blimp.errors import LogError
from blimp.recording.flight_data import KINDS, FlightData, Happening, Table, read_flight
from blimp.recording.log_file import LogFile
from blimp.recording.panels import INK
from blimp.recording.pictures import PICTURES
from blimp.recording.recording import Recording, open_recording
from blimp.recording.report import page
from blimp.recording.summary import ROWS, figures_of, shown
from blimp.recording.topics import Message
from blimp.ship import Lockstep
from tests.test_cli import Terminal

run = CliRunner().invoke
VOID = {"meta", "br", "hr", "img", "link", "input"}


@pytest.fixture(scope="module")
def flight(flown: Path) -> FlightData:
    with open_recording(flown) as log:
        return read_flight(log)


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


def test_everything_that_a_page_refers_to_is_in_it_once(html: str) -> None:
    found = read(html)
    assert len(found.ids) == len(set(found.ids))
    asked = {link[1:] for link in found.links} | set(re.findall(r"url\(#([^)]*)\)", html))
    assert asked <= set(found.ids)
    assert set(PICTURES) <= set(found.ids)


def test_the_page_can_be_read_on_white_and_on_black(html: str) -> None:
    assert "prefers-color-scheme: dark" in html
    pictures = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "currentColor" in pictures
    assert INK not in pictures
    assert not re.search(r"fill: #(000000|ffffff)", pictures)


def longer(flight: FlightData, *, times: int, events: int) -> FlightData:
    """Return the flight so many times in a row, with other events."""
    end_s = times * flight.end_s

    def repeated(table: Table) -> Table:
        after_s = np.repeat(np.arange(times) * flight.end_s, len(table.t_s))
        columns = {name: np.tile(column, times) for name, column in table.columns.items()}
        return Table(np.tile(table.t_s, times) + after_s, columns)

    return flight._replace(
        cycles=repeated(flight.cycles),
        status=repeated(flight.status),
        truth=repeated(flight.truth),
        votes={name: repeated(votes) for name, votes in flight.votes.items()},
        happenings=[
            Happening(i, i * end_s / (events + 1), KINDS[i % 5], "what happened")
            for i in range(1, events + 1)
        ],
        end_s=end_s,
    )


@pytest.mark.slow
def test_the_page_of_a_long_log_with_many_events_has_a_bounded_size(flight: FlightData) -> None:
    few, many = (len(page(longer(flight, times=400, events=n))) for n in (10, 1000))  # an hour
    assert few < 4_000_000  # measured: 3.7 MB
    assert (many - few) / 990 < 2_000  # an event, in all pictures and in the list: 1.5 kB
    assert many < 5_500_000  # measured: 5.2 MB


def test_a_bar_shows_how_much_is_drawn(
    flown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("blimp.service.commands.terminal.SILENT_S", 0.0)
    for words, bar, last in (
        (["report", str(flown), "--out", str(tmp_path)], "drawing", 90),
        (["report", str(flown), "--out", str(tmp_path / "a.pdf")], "drawing the PDF", 90),
        (["plot", str(flown), str(tmp_path)], "drawing", 100),
    ):
        monkeypatch.setattr(sys, "stderr", err := Terminal())
        app(["log", *words], standalone_mode=False)
        drawn = err.getvalue().rpartition(bar)[2]
        assert int(re.findall(r"(\d+)%", drawn)[-1]) >= last, words


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
        happenings=[Happening(1, 1.0, "refusal", nasty)],
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
    assert len(re.findall(rb"/Type /Page\b", data)) == len(PICTURES) + 1
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


@pytest.mark.long
def test_where_a_report_goes(flown: Path, tmp_path: Path) -> None:
    said = run(app, ["log", "report", str(flown), "--out", str(tmp_path / "new"), "--json"])
    assert json.loads(said.stdout) == {"path": str(tmp_path / "new" / "flight-report.html")}
    said = run(app, ["log", "report", str(flown), "--out", str(tmp_path / "a.odt")])
    assert said.exit_code == 2
    assert "a.odt': must be a directory, or end in .html or .pdf" in said.output
    said = run(app, ["log", "report", str(flown), "--out", "/proc/none/a.html"])
    assert isinstance(said.exception, LogError)
    assert "/proc/none/a.html" in str(said.exception)


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


def test_a_log_of_two_seconds_and_one_that_never_flew(flown: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.mcap"
    with Recording(flown) as log, copied(flown, short) as new:
        for number in range(len(log.chunks)):
            for message in log.messages(number):
                if message.time_ns < log.start_ns + 2_000_000_000:
                    new.add(message)
    with open_recording(short) as log:
        flight = read_flight(log)
    assert flight.end_s == pytest.approx(2.0, abs=0.05)
    text = " ".join(read(page(flight)).text)
    assert "did not leave the ground" in text


def test_a_log_without_position_wind_battery_votes_or_truth_says_what_is_missing(
    flown: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.mcap"
    with Recording(flown) as log, copied(flown, bare) as new:
        for number in range(len(log.chunks)):
            for topic, time_ns, data in log.messages(number):
                if topic == "/truth":
                    continue
                fields = msgspec.json.decode(data)
                if topic == "/status":
                    for name in ("wind_ned_mps", "battery_v", "health"):
                        fields.pop(name, None)
                new.add(Message(topic, time_ns, msgspec.json.encode(fields)))
    with open_recording(bare) as log:
        flight = read_flight(log)
    assert len(flight.truth.t_s) == 0
    text = " ".join(read(page(flight)).text)
    for words in (
        "no sensor gave a position in this flight", "flight has shown no wind",
        "no sensor measured the battery", "no votes are in this log", "No sensor gave a position",
    ):  # fmt: skip
        assert words in text


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
