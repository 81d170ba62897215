"""Each view is one screen, dark or light, on a laptop, a projector and a phone."""

import pytest
from playwright.sync_api import Browser, Error, Page, ViewportSize, expect

from tests.browser import looking, misfits, serious_findings, too_wide_px
from tests.ground_station.page.client import Served
from tests.ground_station.page.test_browser import CARD

pytestmark = pytest.mark.long

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
PLOTS_BELOW_PX = """(() => {
  const body = document.querySelector(".plots > .body");
  const plots = document.querySelectorAll(".uplot");
  return plots.length ? body.scrollHeight - body.clientHeight : 1;
})()"""
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
SCENE = "page.mounted.find((one) => one.renderer)"
# Where the picture has the top of a ship that is found 20 m up, as by who opens the page: 1 is the
# upper edge.
HIGH_SHIP = f"""() => {{
  const scene = {SCENE};
  Object.assign(scene, {{ at: null, isFramed: false }});
  scene.draw(scene.drawnS + 0.03);
  scene.take({{ ...page.state, position_ned_m: [4, 3, -20], target_ned_m: [4, 3, -20] }});
  scene.draw(scene.drawnS + 0.03);
  const top = scene.at.here.clone();
  top.y += scene.standing_m;
  return top.project(scene.camera).y;
}}"""


def opened(page: Page, served: Served, view: str, query: str = "") -> Page:
    page.goto("about:blank")  # another fragment alone loads nothing
    page.goto(f"{served.page.url}{query}#{view}")
    expect(page.get_by_test_id("simulated")).to_be_visible()
    expect(page.locator(f'#views [data-view="{view}"]')).to_have_attribute("aria-current", "page")
    return page


def fits(page: Page, view: str) -> None:
    """Wait until nothing reaches below the screen: parts come late on a busy machine."""
    try:
        # A pixel is what is rounded: heights of rows are fractions.
        page.wait_for_function(f"() => ({BELOW_PX})() <= 1")
    except Error:
        caption = page.get_by_test_id("caption").inner_text()
        pytest.fail(f"{view}: {page.evaluate(BELOW_PX):.0f} px below the screen: {caption}")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_every_view_is_one_screen_in_both_themes(
    served: Served, chromium: Browser, theme: str
) -> None:
    with looking(chromium, viewport=LAPTOP, color_scheme=theme) as page:
        began_s = served.ship.publish().t_s
        for view in VIEWS:
            opened(page, served, view)
            if view == "engineer":  # which begins with what was before
                page.wait_for_function("t_s => page.samples.rows[0]?.t_s <= t_s", arg=began_s)
            assert page.evaluate("() => document.documentElement.dataset.theme") == theme
            fits(page, view)
            for name in ("estop", "caption"):
                expect(page.get_by_test_id(name)).to_be_in_viewport(ratio=1)
            assert serious_findings(page) == [], view
        other = {"dark": "light", "light": "dark"}[theme]
        page.get_by_test_id("theme").click()
        opened(page, served, "pilot")  # the choice outlives a reload
        assert page.evaluate("() => document.documentElement.dataset.theme") == other


def test_a_stage_has_no_text_below_a_45th_of_its_height(served: Served, chromium: Browser) -> None:
    for size in (LAPTOP, BIG):
        with looking(chromium, viewport=size) as page:
            for view in VIEWS:
                opened(page, served, view, "&stage=1")
                assert page.evaluate(SMALL, size["height"] / 45) == [], view
                fits(page, view)
                if view == "engineer":
                    page.wait_for_function(f"() => {PLOTS_BELOW_PX} <= 0")
            opened(page, served, "pilot", "&stage=1")
            served.silence.set()  # a lost link needs a sentence more, and ages beside its numbers
            page.wait_for_function("() => page.isLost && page.ageS > 5")
            fits(page, "pilot, link lost")
            served.silence.clear()


def test_the_present_view_shows_the_rooms_address_as_a_large_code_while_it_is_switched_on(
    served: Served, chromium: Browser
) -> None:
    with looking(chromium, viewport=LAPTOP) as page:
        opened(page, served, "present")
        switch, room = page.get_by_test_id("room-switch"), page.get_by_test_id("room")
        expect(room).to_be_hidden()
        switch.click()
        code = room.get_by_role("img").first
        expect(code).to_be_in_viewport(ratio=1)
        assert code.evaluate("(one) => one.naturalWidth") > 0, "the browser draws no code"
        assert code.evaluate("(one) => one.clientHeight") > LAPTOP["height"] / 2
        for name in ("estop", "caption"):
            expect(page.get_by_test_id(name)).to_be_in_viewport(ratio=1)
        assert serious_findings(page) == []
        page.get_by_role("button", name="Pilot").click()
        expect(room).to_be_hidden()
        expect(switch).to_be_hidden()
        page.get_by_role("button", name="Present").click()
        switch.click()
        expect(room).to_be_hidden()
    with looking(chromium, viewport=LAPTOP) as page:  # who only looks has the address already
        page.goto(f"{served.page.view_url}#present")
        expect(page.get_by_test_id("simulated")).to_be_visible()
        expect(page.get_by_test_id("room-switch")).to_be_hidden()


def test_a_camera_has_the_ship_in_its_picture_from_the_first_one(
    served: Served, chromium: Browser
) -> None:
    with looking(chromium, viewport=LAPTOP) as page:
        opened(page, served, "present")
        page.wait_for_function(f"() => {SCENE}?.at")
        assert page.evaluate(HIGH_SHIP) < 1.0, "the top of the hull is above the picture"


def test_a_phone_has_what_a_pilot_needs_and_no_more(served: Served, chromium: Browser) -> None:
    with looking(chromium, viewport=PHONE, has_touch=True) as page:
        page.goto(served.page.url)  # which opens the pilot's view
        for name in ("estop", "mode", "caption", "map", "command-arm", "command-goto"):
            expect(page.get_by_test_id(name)).to_be_in_viewport(ratio=1)
        for name in ("scene", "journey", "joystick-take"):
            expect(page.get_by_test_id(name)).to_be_hidden()
        for view in VIEWS:
            opened(page, served, view)
            fits(page, view)
            assert too_wide_px(page) <= 0, view
            for button in page.locator("#views button").all():
                expect(button).to_be_in_viewport(ratio=1)
            assert serious_findings(page) == [], view


@pytest.mark.parametrize("state", ["flying", "lost", "read-only", "end"])
def test_every_view_bends_to_every_size(served: Served, chromium: Browser, state: str) -> None:
    url = served.page.url if state != "read-only" else str(served.page.view_url)
    with looking(chromium) as page:
        page.goto(url)
        expect(page.get_by_test_id("simulated")).to_be_visible()
        if state == "lost":
            served.silence.set()
            expect(page.locator("body.lost #lost")).to_be_visible()
        elif state == "end":
            served.page.tell("end", CARD)
            expect(page.get_by_test_id("end-card")).to_be_visible()
        for view in VIEWS if state == "flying" else ("pilot", "engineer"):
            page.evaluate(
                "name => document.querySelector(`#views [data-view=${name}]`).click()", view
            )
            assert misfits(page) == [], view
