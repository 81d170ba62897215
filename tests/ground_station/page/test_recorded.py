"""The page on a recording: what it shows at each place, and that nobody is commanded."""

import json
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcap.writer import Writer
from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from blimp.cli import app
from blimp.clock import ManualClock, SystemClock
from blimp.errors import LogError
from blimp.recording.log_file import LogFile
from blimp.recording.recording import open_recording
from blimp.recording.topics import Message
from ground_station.page.recorded import RecordedShip
from tests.browser import looking, misfits, serious_findings
from tests.ground_station.page.client import WITHIN_S
from tests.recording.conftest import flown

__all__ = ["flown"]

# Sent as the page itself would send it: with the cookie, from its origin.
POST = "path => page.post(path)"


@contextmanager
def playing(path: Path) -> Iterator[tuple[RecordedShip, ManualClock, Callable[..., Any]]]:
    """Yield a recording, its clock, and what waits for the next of a kind, with these values."""
    clock, real = ManualClock(), SystemClock()
    heard: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def wait_for(kind: str, **values: Any) -> Any:
        deadline_s = real.now_s() + WITHIN_S
        while real.now_s() < deadline_s:
            found, content = heard.get(timeout=WITHIN_S)
            if found == kind and all(content[name] == values[name] for name in values):
                return content
        raise AssertionError(f"no {kind} with {values} within {WITHIN_S} s")

    with open_recording(path) as log, RecordedShip(log, speed=2.0, clock=clock) as ship:
        ship.start(lambda kind, content: heard.put((kind, content)))
        yield ship, clock, wait_for


def test_it_plays_stands_still_and_goes_to_any_place_with_all_that_led_there(flown: Path) -> None:
    with playing(flown) as (ship, clock, wait_for):
        about = wait_for("recording")
        marks = {one["text"].partition(":")[0]: one["is_fault"] for one in about["marks"]}
        assert marks["takeoff altitude_m 2"] is False
        assert marks["baro"] is True
        clock.advance(3.0)
        assert wait_for("replay") == {"position_s": 0.0, "speed": 0.0}, "nobody looks yet"
        ship.ask("begin", {})
        wait_for("replay", speed=2.0)
        clock.advance(2.0)
        wait_for("replay", position_s=pytest.approx(4.0))
        ship.ask("begin", {})  # a second browser changes nothing
        ship.ask("play", {"speed": 0.0})
        wait_for("replay", speed=0.0)
        clock.advance(60.0)
        first, second = wait_for("state"), wait_for("state")
        assert first == second, "what stands still does not age"
        assert first["age_s"] < 0.2

        ship.ask("seek", {"t_s": 8.0})
        past = wait_for("past")
        assert past[0]["altitude_m"] < 0.1 < past[-1]["altitude_m"]
        assert len(wait_for("trail")) > 1
        assert [one["command"] for one in wait_for("commands")][:2] == ["arm", "takeoff"]
        later = wait_for("state")
        assert later["altitude_m"] > first["altitude_m"] + 0.1
        ship.ask("seek", {"t_s": 0.0})
        assert wait_for("commands") == []
        assert wait_for("state")["t_s"] < first["t_s"]

        ship.ask("play", {"speed": 20.0})
        wait_for("replay", speed=20.0)
        clock.advance(60.0)
        wait_for("replay", position_s=about["duration_s"], speed=0.0)
        ship.ask("play", {"speed": 1.0})  # at its end it begins again
        wait_for("replay", position_s=0.0, speed=1.0)
        for kind, content in (("play", {"speed": 1001}), ("seek", {"t_s": "x"}), ("play", {})):
            with pytest.raises(msgspec.ValidationError):
                ship.ask(kind, content)


def test_what_cannot_be_shown_is_refused_in_words(flown: Path, tmp_path: Path) -> None:
    data = flown.read_bytes()
    with open_recording(flown) as log:
        session, (_, chunk) = log.session, log.chunks[1]
    (tmp_path / "text").write_text("no log\n")
    (tmp_path / "damaged").write_bytes(
        data[: chunk.offset + 200] + bytes(50) + data[chunk.offset + 250 :]
    )
    with (tmp_path / "foreign").open("wb") as file:
        writer = Writer(file)
        writer.start(library="another")
        writer.finish()  # type: ignore[no-untyped-call]
    with LogFile(tmp_path / "empty", session):
        pass
    with LogFile(tmp_path / "odd", session) as new:
        new.add(Message("/status", 10**18, b'{"t_s": "noon"}'))
    for name, reason in (
        ("none", "No such file"),
        ("text", "is no MCAP file"),
        ("foreign", "of another program"),
        ("damaged", "is damaged"),
        ("empty", "no status is in it"),
        ("odd", "the description of its flight"),
    ):
        said = CliRunner().invoke(app, ["log", "replay", str(tmp_path / name)])
        assert said.exit_code == 1
        assert isinstance(said.exception, LogError), said.output
        assert reason in str(said.exception)
        assert said.stdout == ""
    for speed in ("nan", "-1", "1001"):
        said = CliRunner().invoke(app, ["log", "replay", str(flown), "--speed", speed])
        assert said.exit_code == 2
        assert "must be 0 to 1000 times real time" in said.output


def test_a_browser_plays_a_recording_and_commands_nobody(flown: Path, chromium: Browser) -> None:
    command = [sys.executable, "-m", "blimp", "log", "replay", str(flown), "--json", "--speed", "0"]
    before = flown.read_bytes()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            event = json.loads(process.stdout.readline())
            assert event["event"] == "page"
            look_at(event["url"], chromium)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    assert flown.read_bytes() == before


def look_at(url: str, chromium: Browser) -> None:
    with looking(chromium, viewport={"width": 640, "height": 480}) as page:
        page.goto(url)
        by = page.get_by_test_id
        for badge in ("recording", "simulated"):
            expect(by(badge)).to_be_visible()
        expect(by("estop")).to_be_disabled()
        expect(by("estop")).to_have_text("No ship to stop")
        expect(by("command-arm")).to_be_hidden()
        expect(page.get_by_role("button", name="Fleet")).to_be_hidden()
        for path in ("api/command/arm", "api/estop"):
            outcome = page.evaluate(POST, path)
            assert outcome["state"] == "REFUSED"
            assert "there is no ship" in outcome["reason"]
        altitude = by("altitude").locator("output")
        expect(altitude).to_have_text("0.0")

        by("replay-slider").focus()
        page.keyboard.press("End")
        expect(altitude).not_to_have_text("0.0")
        page.keyboard.press("Home")
        expect(altitude).to_have_text("0.0")
        expect(by("journey")).to_contain_text("No command yet")
        by("replay-after").focus()
        page.keyboard.press("Enter")
        expect(by("replay-mark")).to_contain_text("takeoff")
        by("replay-speed").select_option("20")
        by("replay-play").focus()
        page.keyboard.press("Enter")
        expect(by("journey")).to_contain_text("goto")  # by its end, refused
        expect(by("replay-play")).to_have_text("Play")
        expect(altitude).not_to_have_text("0.0")
        expect(page.locator("#lost")).to_be_hidden()
        assert serious_findings(page) == []
        assert misfits(page) == []
