"""Each view is one screen, dark or light, on a laptop, a projector and a phone."""

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser import WITHIN_MS, errors_of, serious_findings
from tests.ground_station.page.client import Served

VIEWS = ("present", "pilot", "engineer", "queue", "fleet", "setup")
LAPTOP = ViewportSize(width=1280, height=720)
BIG = ViewportSize(width=3840, height=2160)
PHONE = ViewportSize(width=390, height=844)
# How far the page, and the parts that must not scroll, reach beyond what is seen of them.
BELOW_PX = """() => {
  const parts = [document.documentElement, document.getElementById("panels")];
  const below = parts.map((one) => one.scrollHeight - one.clientHeight);
  const panels = [...document.querySelectorAll("section.panel")];
  const ends = panels.map((one) => one.getBoundingClientRect().bottom - innerHeight);
  return Math.max(...below, ...ends);
}"""
SMALL = """(least_px) => {
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data, parentElement: box } = texts.currentNode;
    const px = parseFloat(getComputedStyle(box).fontSize);
    if (data.trim() && box.checkVisibility() && px < least_px) found.add(`${px}: ${data}`);
  }
  return [...found];
}"""


def opened(page: Page, served: Served, view: str, query: str = "") -> Page:
    page.goto("about:blank")  # another fragment alone loads nothing
    page.goto(f"{served.page.url}{query}#{view}")
    expect(page.get_by_test_id("simulated")).to_be_visible(timeout=WITHIN_MS)
    expect(page.locator(f'#views [data-view="{view}"]')).to_have_attribute("aria-current", "page")
    return page


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_every_view_is_one_screen_in_both_themes(
    served: Served, chromium: Browser, theme: str
) -> None:
    context = chromium.new_context(viewport=LAPTOP, color_scheme=theme)  # type: ignore[arg-type]
    context.set_default_timeout(WITHIN_MS)
    page = context.new_page()
    wrong = errors_of(page)
    for view in VIEWS:
        opened(page, served, view)
        assert page.evaluate("() => document.documentElement.dataset.theme") == theme
        assert page.evaluate(BELOW_PX) <= 0, view
        for name in ("estop", "caption"):
            expect(page.get_by_test_id(name)).to_be_in_viewport(ratio=1)
        assert serious_findings(page) == [], view
    other = {"dark": "light", "light": "dark"}[theme]
    page.get_by_test_id("theme").click()
    opened(page, served, "pilot")  # the choice outlives a reload
    assert page.evaluate("() => document.documentElement.dataset.theme") == other
    context.close()
    assert wrong == []


def test_a_stage_has_no_text_below_a_45th_of_its_height(served: Served, chromium: Browser) -> None:
    for size in (LAPTOP, BIG):
        context = chromium.new_context(viewport=size)
        context.set_default_timeout(WITHIN_MS)
        page = context.new_page()
        for view in VIEWS:
            opened(page, served, view, "&stage=1")
            assert page.evaluate(SMALL, size["height"] / 45) == [], view
            assert page.evaluate(BELOW_PX) <= 0, view
        context.close()


def test_a_phone_has_what_a_pilot_needs_and_no_more(served: Served, chromium: Browser) -> None:
    context = chromium.new_context(viewport=PHONE, has_touch=True)
    context.set_default_timeout(WITHIN_MS)
    page = context.new_page()
    page.goto(served.page.url)  # which opens the pilot's view
    for name in ("estop", "mode", "caption", "map", "command-arm", "command-goto"):
        expect(page.get_by_test_id(name)).to_be_in_viewport(ratio=1, timeout=WITHIN_MS)
    for name in ("scene", "journey", "joystick-take"):
        expect(page.get_by_test_id(name)).to_be_hidden()
    for view in VIEWS:
        opened(page, served, view)
        assert page.evaluate(BELOW_PX) <= 0, view
    assert serious_findings(page) == []
    context.close()
