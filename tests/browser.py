"""A real browser, and what a test asks of each page in it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tests.needs import not_run

# Of whatever a test waits for. Two pages that draw in three dimensions without a graphics card have
# needed more than 30 s for their first picture, on two busy cores.
WITHIN_MS = 90_000
expect.set_options(timeout=WITHIN_MS)
AXE = Path(__file__).parent / "axe.min.js"  # axe-core 4.14.1 of npm, MPL 2.0
CHROMIUM = Path("/usr/bin/chromium")
# Without a network and without a graphics card: WebGL 2 in software.
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
]  # fmt: skip

# Of the window, in CSS pixels: a wall, two screens, a laptop and the same at 200 % zoom, tablets, a
# phone held sideways and upright, and two that are small.
SIZES = (
    (3840, 2160), (1920, 1080), (1366, 768), (1280, 720), (640, 360),
    (1024, 768), (768, 1024), (844, 390), (390, 844), (360, 640), (320, 568),
)  # fmt: skip
UPRIGHT, SIDEWAYS = ViewportSize(width=390, height=844), ViewportSize(width=844, height=390)
# px: of a window for fingers at most; of a control there, of a map and of letters at least.
LIMITS = {"fingers": 800, "control": 40, "map": 160, "text": 11}
MISFITS = Path(__file__).parent / "misfits.js"


@contextlib.contextmanager
def browser(*options: str) -> Iterator[Browser]:
    """Start a real browser. Under CI it must be there."""
    if not CHROMIUM.exists():
        raise not_run(f"no {CHROMIUM} here: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=[*OPTIONS, *options])
        yield started
        started.close()


@pytest.fixture
def chromium() -> Iterator[Browser]:
    """For one test: while Playwright's own event loop runs, no other test can run one."""
    with browser() as started:
        yield started


def serious_findings(page: Page) -> list[str]:
    """Return what axe finds that keeps people from using the page."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("() => window.axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def too_wide_px(page: Page) -> int:
    """Return how far the page is wider than its window: above 0 it scrolls sideways."""
    return int(page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth"))


def misfits(page: Page) -> list[str]:
    """Return what is wrong with the page as it is shown now in any of SIZES."""
    found: list[str] = []
    ask = MISFITS.read_text("utf-8").rstrip().removesuffix(";")
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        asked = [width, LIMITS]
        with contextlib.suppress(PlaywrightTimeout):  # a plot takes its time to be fitted
            within_ms = 1 if found else WITHIN_MS
            page.wait_for_function(f"asked => !({ask})(asked).length", arg=asked, timeout=within_ms)
        found += [f"{width} x {height}: {one}" for one in page.evaluate(ask, asked)]
    return found


def errors_of(page: Page) -> list[str]:
    """Return a list that grows with each error that the page reports."""
    found: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            found.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


@contextlib.contextmanager
def context_of(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """Open a context, which waits for WITHIN_MS at most."""
    with contextlib.closing(browser.new_context(**options)) as context:
        context.set_default_timeout(WITHIN_MS)
        yield context


@contextlib.contextmanager
def looking(browser: Browser, **options: Any) -> Iterator[Page]:
    """Open a page in a context of its own; in the end it must have reported no error.

    options: of the context.
    """
    with context_of(browser, **options) as context:
        page = context.new_page()
        wrong = errors_of(page)
        yield page
    assert wrong == []


def stop_is_in_reach(page: Page) -> None:
    """Fail unless the emergency stop is seen whole, wherever the page was scrolled to."""
    for place in ("0", "document.documentElement.scrollHeight"):
        page.evaluate(f"() => scrollTo(0, {place})")
        expect(page.get_by_test_id("estop")).to_be_in_viewport(ratio=1)
        expect(page.get_by_test_id("estop")).to_be_enabled()
    page.evaluate("() => scrollTo(0, 0)")


def hover_by_touch(page: Page, url: str, *, within_ms: float) -> None:
    """Open a ship's page on a phone, and touch what it says is next until the ship hovers.

    within_ms: outside, for a step.
    """
    page.goto(url)
    seen = [("arm", "Then Arm"), ("takeoff", "Take off climbs"), ("land", "It hovers")]
    for button, words in seen:
        expect(page.get_by_test_id("step")).to_contain_text(words, timeout=within_ms)
        wanted = page.get_by_test_id(f"command-{button}")
        expect(wanted).to_be_in_viewport(ratio=1)
        expect(wanted).to_contain_class("next")
        stop_is_in_reach(page)
        assert too_wide_px(page) <= 0
        if button != "land":
            wanted.tap()
