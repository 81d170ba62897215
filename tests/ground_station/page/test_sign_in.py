"""Signing in with a real browser: by the printed address, by a code, and what a reload keeps."""

import http.server
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from blimp.airframe import load
from blimp.clock import SystemClock
from blimp.service.show.demo_page import demo_page
from tests.browser import browser, context_of
from tests.ground_station.page.client import Served
from tests.queue.conftest import wait_until
from tests.stopwatch import Stopwatch
from tests.tcp_link import TcpLink


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    with context_of(chromium) as found:
        yield found


def is_operators(page: Page) -> None:
    expect(page.get_by_test_id("simulated")).to_be_visible()
    expect(page.get_by_test_id("command-arm")).to_be_enabled()


def test_a_browser_is_opened_with_a_code_that_is_good_once(
    served: Served, context: BrowserContext, chromium: Browser
) -> None:
    page = context.new_page()
    url = served.page.browser_url()
    assert served.page.tokens.operator not in url
    page.goto(url)
    is_operators(page)
    assert "code" not in page.url
    page.reload()
    is_operators(page)
    with context_of(chromium) as another:
        late = another.new_page()
        late.goto(url)
        expect(late.locator("#lost")).to_contain_text("not signed in")
        expect(late.locator("#lost")).to_contain_text("open the address")
        late.goto(served.page.url)
        is_operators(late)


def test_another_port_of_this_host_gets_nothing_of_the_token(
    served: Served, context: BrowserContext
) -> None:
    """A program of another user that listens on this host, and whose page the operator opens."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(str(self.headers))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>hello")

        def log_message(self, *_: object) -> None:
            pass

    page = context.new_page()
    page.goto(served.page.url)
    is_operators(page)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{stranger.server_port}/")
        assert page.evaluate("Object.keys(localStorage)") == []
        stranger.shutdown()
    assert seen
    assert not any(served.page.tokens.operator in one for one in seen)


def test_a_browser_that_a_demo_opens_has_no_token_in_its_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Everybody on a machine can read the arguments of every program."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("blimp.service.show.demo_page.has_screen", lambda: True)
    arguments = tmp_path / "arguments"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$@" > {arguments}\n')
    program.chmod(0o700)
    webbrowser.register("test", None, webbrowser.GenericBrowser(str(program)), preferred=True)
    with demo_page(
        wanted=True, read_only=False, broker="redis://127.0.0.1:1", vehicle="twin",
        airframe=load("twin"), clock=SystemClock(), say=lambda _: None, tell=lambda _: None,
    ) as page:  # fmt: skip
        assert page is not None
        wait_until(arguments.exists, "no browser was opened")
        wait_until(lambda: "\n" in arguments.read_text(), "no browser was opened")
        assert arguments.read_text().startswith(f"http://127.0.0.1:{page.port}/#code=")
        assert page.tokens.operator not in arguments.read_text()


def test_the_stop_passes_six_requests_that_wait(served: Served, context: BrowserContext) -> None:
    """A browser has six connections to a server: what is wanted beyond them waits for one."""
    page = context.new_page()
    page.goto(served.page.url)
    is_operators(page)
    page.wait_for_function("() => page.stop.isOpen()")
    held = threading.Event()
    command = served.page._ships.command

    def hold(vehicle: str, name: str, arguments: object) -> tuple[int, dict[str, object]]:
        held.wait(60.0)
        return 0, {"state": "SUCCESS"}

    served.page._ships.command = hold  # type: ignore[method-assign]
    try:
        page.evaluate("() => { for (let i = 0; i < 9; i += 1) page.command('hold'); }")
        watch = Stopwatch()
        page.get_by_test_id("estop").click()
        expect(page.locator("#stop-answer")).to_contain_text("confirms")
        assert watch.undisturbed_s() < 5.0
    finally:
        held.set()
        served.page._ships.command = command  # type: ignore[method-assign]


@pytest.mark.long  # the page is loaded through that link
def test_a_slow_link_has_its_socket_for_stops(served: Served) -> None:
    """A round trip of 1.6 s, of which opening a socket takes two."""
    here = f"127.0.0.1:{served.page.port}"
    with (
        TcpLink(server=served.page.port, delay_s=0.8, handshake=True) as link,
        browser(f"--host-resolver-rules=MAP {here} 127.0.0.1:{link.port}") as chromium,
        context_of(chromium) as context,
    ):
        page = context.new_page()
        page.goto(served.page.url)
        page.wait_for_function("() => page.stop.isOpen()")
        since_ms = page.evaluate("performance.now()")
        page.wait_for_function("since => performance.now() - since > 5000", arg=since_ms)
        assert page.evaluate("() => page.stop.isOpen()")
