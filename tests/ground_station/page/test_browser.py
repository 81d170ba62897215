"""The page in a real browser: what it shows, what it sends, and what it does without a link."""

import re

from playwright.sync_api import Browser, Locator, expect

from blimp.actions import ACTIONS
from blimp.forms import STEPS, arguments_of
from tests.browser import looking, serious_findings, too_wide_px
from tests.ground_station.page.client import Served

PAST_NORTH = """async () => {
  const panel = page.mounted.find((one) => one.plots);
  const { plot } = panel.plots.find((one) => one.title.includes("heading"));
  const state = page.state;
  page.samples.clear();
  for (let t_s = 0; t_s < 60; t_s += 0.05) {
    const attitude_rad = { roll: 0, pitch: 0, yaw: 0.2 * Math.sin(t_s) };
    page.samples.add({ ...state, t_s, attitude_rad });
  }
  panel.draw();
  await null; // uPlot draws in a microtask
  const green = (from, to) => {
    const at = (value) => Math.round(plot.valToPos(value, "heading", true));
    const [low, high] = [from, to].map(at);
    const { data } = plot.ctx.getImageData(plot.bbox.left, high, plot.bbox.width, low - high);
    const near = (n) => [0x2b, 0xc2, 0x97].every((one, i) => Math.abs(data[n + i] - one) < 40);
    return Array.from({ length: data.length / 4 }, (_, i) => near(4 * i)).filter(Boolean).length;
  };
  return [green(340, 360) > 50, green(0, 20) > 50, green(60, 300)];
}"""
CARD = {
    "title": "ship ended early (simulated)",
    "cause": "fly did not answer for 0.62 s and was restarted: this machine is too busy",
    "rows": [("pings, two a second", "195 of 198 answered, 3 EXPIRED")] * 7,
    "faults": [("The broker stood still for 5 s: a command was answered after 0.4 s.", True)] * 4,
}


def test_every_form_has_the_fields_of_the_table_of_actions(
    served: Served, chromium: Browser
) -> None:
    with looking(chromium) as page:
        page.goto(served.page.url)
        expect(page.get_by_test_id("command-send")).to_be_enabled()
        page.get_by_text("All commands").click()
        choice = page.get_by_test_id("command-name")
        offered = set(choice.locator("option").all_text_contents())
        assert offered == {
            name
            for name, row in ACTIONS.items()
            if row.http is None and name != "geofence" and not row.asks
        }
        for name in sorted(offered):
            choice.select_option(name)
            inputs = page.get_by_test_id("command-fields").locator("input")
            assert choice.get_attribute("title") == ACTIONS[name].about
            fields = {one.get_attribute("name"): one for one in inputs.all()}
            table = {one.name: one for one in arguments_of(ACTIONS[name].arguments)}
            assert list(fields) == list(table)
            for argument in table.values():
                field = fields[argument.name]
                assert field.get_attribute("title") == argument.about
                assert (field.get_attribute("data-unit") or "") == argument.unit
                assert field.get_attribute("type") == ("text" if argument.kind is str else "number")
                given = [field.get_attribute(word) for word in ("min", "max")]
                limits = [argument.low, argument.high] if argument.is_bounded else [None, None]
                assert [None if one is None else float(one) for one in given] == limits
                if argument.unit:
                    step = STEPS.get(argument.unit, "any")
                    assert field.get_attribute("step") == (step if step == "any" else f"{step:g}")
                if isinstance(argument.default, int | float):
                    assert float(field.input_value()) == argument.default
        said = page.locator("#said")
        choice.select_option("goto")
        speed = page.get_by_test_id("command-fields").locator("[name=speed_mps]")
        speed.fill("11")
        page.get_by_test_id("command-send").click()
        expect(said).to_have_text("goto: not sent: speed, m/s: 11, must be 0.05 to 10")
        choice.select_option("ping")
        page.get_by_test_id("command-send").click()
        expect(said).to_have_text("ping: done")


# The panel of commands on the page of a ship that has neither tag nor GPS.
WITHHELD = """async () => {
  const { panel } = await import("./static/panels/commands.js");
  const box = document.createElement("div");
  const airframe = { lacks: { "a position": "no tag or GPS" } };
  const { get } = await import("./static/lib/connection.js");
  const mounted = panel.mount(box, { about: { airframe }, get, able() {} });
  await mounted.hear("hello");
  const buttons = [...box.querySelectorAll("button[data-testid^=command-]")];
  const why = (one) => (one.dataset.off ? one.title : "");
  const named = buttons.map((one) => [one.dataset.testid.slice(8), why(one)]);
  return Object.fromEntries(named.filter(([name]) => name !== "send"));
}"""


def test_a_flight_is_seen_and_commanded_and_a_lost_link_is_shown(
    served: Served, chromium: Browser
) -> None:
    with looking(chromium, viewport={"width": 1280, "height": 900}) as page:
        page.goto(served.page.url)
        by = page.get_by_test_id
        expect(by("simulated")).to_be_visible()
        assert "token" not in page.url
        for name in ("estop", "mode", "armed", "altitude", "battery", "link-age", "scene", "map",
                     "journey", "command-arm", "command-takeoff", "command-land", "command-hold",
                     "command-return"):  # fmt: skip
            expect(by(name)).to_be_visible()
        expect(by("chaos-kill-worker")).to_have_count(0)  # this page was opened without it
        # What has no number says why, and what a button answers is in sight of it.
        expect(by("wind")).to_contain_text("known once it flies")
        withheld = page.evaluate(WITHHELD)
        assert withheld["takeoff"] == "takeoff needs a position: this ship has no tag or GPS"
        assert [name for name, why in withheld.items() if not why] == [
            "arm",
            "hold",
            "land",
            "disarm",
        ]
        said = page.locator("#said")
        page.locator("[name=north_m]").first.fill("")
        by("command-goto").click()  # an empty field is no 0, which is the pad
        expect(said).to_have_text("goto: not sent: north, m: no number")
        expect(said).to_be_in_viewport()
        page.locator("[name=altitude_m]").first.fill("25")
        by("command-arm").click()
        expect(by("armed")).to_contain_text("ARMED")
        by("command-takeoff").click()
        under_way = re.compile(r"takeoff 25: \d+ %")  # for a minute
        expect(by("journey")).to_contain_text(under_way)
        # A command that another replaces has not failed, and does not talk over that one.
        by("command-hold").click()
        expect(page.locator(".waterfall")).to_contain_text("superseded by hold")
        expect(page.locator(".waterfall .bad")).to_have_count(0)
        expect(said).to_have_text("hold: done")
        expect(page.locator(".what")).to_contain_text("hold: done")
        page.set_viewport_size({"width": 1280, "height": 720})
        page.goto(f"{served.page.url}&stage=1#pilot")
        expect(page.locator("body")).to_have_class(re.compile(r"\bstage\b"))
        for name in ("altitude", "journey", "command-disarm"):
            expect(by(name)).to_be_in_viewport(ratio=1)
        page.evaluate("() => document.body.classList.remove('stage')")

        by("map").click(position={"x": 60, "y": 60})
        expect(by("goto-confirm")).to_be_visible()
        served.page.tell("caption", {"text": "<b>worker</b> died"})
        expect(by("caption")).to_have_text("<b>worker</b> died")
        assert serious_findings(page) == []

        place = by("estop").bounding_box()
        page.evaluate("() => { document.getElementById('stop-whom').hidden = false; }")
        assert by("estop").bounding_box() == place, "a second ship moves the stop button"
        page.evaluate("() => { document.getElementById('stop-whom').hidden = true; }")
        served.silence.set()
        expect(page.locator("#lost")).to_contain_text("On board")
        expect(by("command-land")).to_be_disabled()
        expect(by("estop")).to_be_enabled()
        assert by("estop").bounding_box() == place, "who presses must not miss what has moved"
        page.wait_for_function(  # the link's age is not the altitude's: either may be the older
            "() => Number(document.querySelector('[data-testid=altitude]').dataset.ageS) >= 3.5"
        )
        before = age_s(by("altitude"))
        page.wait_for_function(
            "old => Number(document.querySelector('[data-testid=altitude]').dataset.ageS) > old",
            arg=before,
        )
        assert "old" in (by("altitude").get_attribute("class") or "")
        served.silence.clear()
        expect(by("command-land")).to_be_enabled()
        expect(by("caption")).to_have_text("<b>worker</b> died")
        page.evaluate("() => { page.pastMs = 0; }")  # a minute later
        expect(by("caption")).to_have_text("twin: armed, in HOLD.")

        page.evaluate("() => { page.connection.open = () => {}; page.connection.socket.close(); }")
        by("estop").click()
        expect(page.locator("#stop-answer")).to_contain_text("confirms")
        snapshot = served.ship.mailbox.snapshot()
        assert snapshot is not None
        assert snapshot.killed


def test_the_room_looks_from_a_phone_and_cannot_command(served: Served, chromium: Browser) -> None:
    with looking(chromium, viewport={"width": 390, "height": 844}, has_touch=True) as page:
        page.goto(served.page.view_url or "")
        expect(page.get_by_test_id("simulated")).to_be_visible()
        expect(page.get_by_test_id("estop")).to_be_hidden()
        expect(page.get_by_test_id("command-arm")).to_be_hidden()
        assert too_wide_px(page) <= 0, "a phone must not have to scroll sideways"
        assert serious_findings(page) == []
        page.get_by_role("button", name="Engineer").click()
        expect(page.locator(".uplot").first).to_be_visible()
        assert page.evaluate(PAST_NORTH) == [True, True, 0], "a stroke from 360 to 0"
        served.page.tell("end", CARD)
        card = page.get_by_test_id("end-card")
        for words in ("this machine is too busy", "195 of 198", "The broker stood still"):
            expect(card).to_contain_text(words)
        expect(page.locator("#end-title")).to_be_in_viewport(ratio=1)
        assert serious_findings(page) == []


def age_s(value: Locator) -> float:
    return float(value.get_attribute("data-age-s") or "nan")
