"""`blimp page`: from the address in the QR code to a hover, with a phone and no terminal."""

import io
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout, suppress
from pathlib import Path

import pytest
import segno
from playwright.sync_api import Browser, ViewportSize, expect

from blimp.clock import ManualClock
from blimp.errors import ConfigError
from blimp.service.commands.page import on
from blimp.service.computer import page_switch
from blimp.service.computer.page_switch import key_path, read_key, switch_off, switch_on
from blimp.service.computer.systemd import PAGE
from blimp.service.notify import READY, NotifyListener
from ground_station.page.pilots import SILENT_S, Pilots
from tests.browser import (
    SIDEWAYS,
    UPRIGHT,
    chromium,
    context_of,
    errors_of,
    hover_by_touch,
    serious_findings,
    stop_is_in_reach,
)
from tests.forked import forked
from tests.ground_station.page.pictures import PICTURE_OF, save
from tests.http_client import asked
from tests.needs import needs_root
from tests.sim.running import RunningStack

__all__ = ["chromium"]

HOVER_WITHIN_S = 120.0
PICTURES = Path(__file__).parents[3] / "build" / "pictures"
FLIGHT_MS = 120_000.0  # a takeoff is flown in it, on a machine that does much else


class OwnPage:
    """`blimp page serve` beside a simulated ship, as its unit runs it."""

    def __init__(self, stack: RunningStack, directory: Path) -> None:
        config = directory / "blimp.toml"
        config.write_text(f'vehicle = "twin"\nbroker = "{stack.ready["broker"]}"\n')
        self.key = "k" * 32
        key_path(config).write_text(self.key)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._listener = NotifyListener(path=stack.home / "notify")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "blimp", "page", "serve", "--config", str(config),
             "--host", "127.0.0.1", "--port", str(self.port)],
            env={**stack.environment, "NOTIFY_SOCKET": str(self._listener.path)},
        )  # fmt: skip
        stack.wait_until(self._is_ready, within_s=60.0)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, "it has ended"
        return (self._process.pid, READY) in self._listener.received()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.key}"

    def close(self) -> None:
        self._process.terminate()
        assert self._process.wait(60.0) == 0
        self._listener.close()


@pytest.fixture
def stack() -> Iterator[RunningStack]:
    with RunningStack("--seed", "3") as running:
        yield running


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a computer with the unit, and no systemd that runs."""
    monkeypatch.setattr(page_switch, "UNIT_DIR", tmp_path)
    monkeypatch.setattr("blimp.service.computer.systemd._BOOTED", tmp_path / "none")
    (tmp_path / PAGE).touch()
    return tmp_path / "blimp.toml"


def test_the_key_is_made_once_kept_changed_on_demand_and_gone_when_it_is_off(
    installed: Path,
) -> None:
    path = key_path(installed)
    key = switch_on(installed)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path) == key == switch_on(installed)
    assert switch_on(installed, new_key=True) == read_key(path) != key
    switch_off(installed)
    assert not path.exists()
    switch_off(installed)


@needs_root("blimp page on")
def test_what_switches_it_on_draws_the_code_of_an_address_with_the_key(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blimp.web.listening.reachable_addresses", lambda: ["192.0.2.7"])
    person, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as typed, redirect_stdout(typed):
        on(config=installed)
    printed = ""
    with os.fdopen(person, "rb", buffering=0) as seen, suppress(OSError):  # EIO at its end
        while some := seen.read(65_536):
            printed += some.decode()
    url = f"http://192.0.2.7:8421/?token={read_key(key_path(installed))}"
    assert url in printed.splitlines()
    code = io.StringIO()
    segno.make(url, error="l").terminal(out=code, compact=True)
    assert [line for line in code.getvalue().splitlines() if line not in printed] == []


def test_without_the_unit_no_key_is_made_and_the_cure_is_named(installed: Path) -> None:
    installed.with_name(PAGE).unlink()
    with pytest.raises(ConfigError, match="sudo blimp install-service"):
        switch_on(installed)
    assert not key_path(installed).exists()


def test_a_bad_key_is_refused_and_never_shown(installed: Path) -> None:
    path = key_path(installed)
    for bad, why in ((b"secret", "6 characters"), (b"secret" * 9, "54"), (b"\xff", "ASCII")):
        path.write_bytes(bad)
        with pytest.raises(ConfigError, match=why) as caught:
            switch_on(installed)
        assert "secret" not in str(caught.value)


@needs_root("becomes another user")
@pytest.mark.parametrize("word", ["on", "off"])
def test_only_root_may_switch_it(word: str) -> None:
    status, _, said = forked("blimp", "page", word, environment={}, user="nobody")
    assert (status, said) == (1, f"blimp: page {word} needs root: sudo blimp page {word}\n")


def test_a_page_whose_browsers_are_silent_or_that_ends_has_no_pilot() -> None:
    clock = ManualClock()
    pilots = Pilots(clock=clock)
    assert not pilots.are_present(), "nobody was there yet"
    pilots.heard()
    clock.advance(SILENT_S - 0.1)
    assert pilots.are_present()
    clock.advance(0.2)
    assert not pilots.are_present()
    pilots.heard()
    pilots.leave()
    assert not pilots.are_present(), "its goodbye would be theirs"


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("size", [UPRIGHT, SIDEWAYS], ids=["upright", "sideways"])
def test_a_phone_alone_takes_the_ship_from_the_code_to_a_hover(
    stack: RunningStack, chromium: Browser, tmp_path: Path, size: ViewportSize
) -> None:
    stack.status()
    with ExitStack() as own:
        served = OwnPage(stack, tmp_path)
        own.callback(served.close)
        context = own.enter_context(
            context_of(chromium, viewport=size, has_touch=True, is_mobile=True)
        )
        page = context.new_page()
        wrong = errors_of(page)
        step = page.get_by_test_id("step")
        began_s = time.monotonic()
        hover_by_touch(page, served.url, within_ms=FLIGHT_MS)
        took_s = time.monotonic() - began_s
        PICTURES.mkdir(parents=True, exist_ok=True)
        save(page.screenshot(), PICTURES / PICTURE_OF[size["width"]])
        print(f"from the address to a hover: {took_s:.1f} s")
        assert took_s < HOVER_WITHIN_S
        assert served.key not in page.url
        assert serious_findings(page) == []

        if size is UPRIGHT:  # the phone leaves, and comes back
            assert asked(served.url, "/api/state")[0] == 401
            assert asked(served.url, "/api/command/land", {})[0] == 401
            page.goto("about:blank")
            stack.wait_until(lambda: "link lost" in stack.status()["failsafe"], within_s=60.0)
            page.goto(served.url)
            stack.wait_until(lambda: not stack.status()["failsafe"], within_s=60.0)
            expect(step).to_contain_text("It hovers", timeout=FLIGHT_MS)

        page.get_by_test_id("estop").tap()
        expect(page.locator("#stop-answer")).to_contain_text("confirms")
        expect(step).to_contain_text("Stopped")
        stop_is_in_reach(page)
        boot_id = page.evaluate("() => page.state.boot_id")
        stack.kill("flight", signal.SIGKILL)  # the page goes on, and finds the next one
        page.wait_for_function("old => page.state.boot_id !== old", arg=boot_id)
        context.close()
        assert [one for one in wrong if "WebSocket" not in one] == []
