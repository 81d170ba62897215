"""The chaos panel: who may do harm, what is refused, and what is shown of it."""

import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

from blimp import airframe as airframes
from blimp.errors import BlimpError
from blimp.service.show.chaos import ChaosReport
from blimp.service.show.chaos_offers import offers
from blimp.service.show.reaction import Seen
from blimp.sim.wire import Truth
from blimp.types import VehicleState
from ground_station.page.chaos import NOW
from tests.browser import looking, serious_findings, too_wide_px
from tests.ground_station.page.client import WITHIN_S, Served
from tests.ground_station.page.conftest import serving
from tests.ground_station.ship import FlyingShip

BUTTONS = (
    "kill-worker", "kill-flight", "stop-broker", "cut-link", "blind-position", "gust", "heat",
    "leak", "blind-sensor", "freeze-sensor", "lie-sensor", "replay-command",
)  # fmt: skip


def test_each_offer_has_a_caption_that_says_what_a_person_sees() -> None:
    offered = {one.name for one in NotedHarm().offers()}
    assert offered - set(NOW) == set()


class NotedHarm:
    """Notes what was asked of it; the limits are those of a real ship."""

    def __init__(self) -> None:
        self.done: list[tuple[str, float | None, str | None]] = []
        self.began, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()
        self._offers = offers(airframes.load("twin"), Truth(VehicleState(t_s=0.0), {}, False))

    def offers(self) -> Sequence[Any]:
        return self._offers

    def act(self, name: str, *, amount: float | None = None, device: str | None = None) -> Any:
        offer = next((one for one in self._offers if one.name == name), None)
        if offer is None:
            raise BlimpError(f"no action {name}")
        offer.checked(amount, device)
        self.done.append((name, amount, device))
        self.began.set()
        assert self.may_end.wait(WITHIN_S)
        seen = (Seen(40.0, "link lost: <b>holding</b>"),)
        sentence = "It broke: a command was answered after 0.7 s; armed in HOLD, 2.7 m up."
        return ChaosReport(action=name, down_s=0.7, back_ms=712.0, sentence=sentence, seen=seen)


@pytest.fixture
def harm() -> NotedHarm:
    return NotedHarm()


@pytest.fixture
def harmed(twin: FlyingShip, tmp_path: Path, harm: NotedHarm) -> Iterator[Served]:
    with serving(twin, tmp_path, harm=harm) as found:
        yield found


def test_harm_is_for_the_operator_of_this_page_alone(harmed: Served, harm: NotedHarm) -> None:
    path, port = "/api/chaos/kill-worker", harmed.page.port
    strangers: tuple[tuple[dict[str, Any], int, str], ...] = (
        ({"token": None}, 401, "token"),
        ({"token": "x" * 32}, 401, "token"),
        ({"token": "viewer"}, 403, "read-only"),
        ({"token": "viewer", "address": harmed.page.view_url}, 403, "read-only"),
        ({"token": "operator", "address": harmed.page.view_url}, 401, "token"),
        ({"headers": {"Origin": "http://evil.example"}}, 403, "evil.example"),
        ({"headers": {"Host": f"evil.example:{port}"}}, 421, "evil.example"),
        (
            {"headers": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}},
            403,
            "another",
        ),
    )
    for options, expected, word in strangers:
        status, answer = harmed.ask(path, {}, **options)
        assert (status, answer["state"]) == (expected, "FAILURE"), options
        assert word in answer["reason"]
    assert harmed.ask("/api/chaos", token="viewer")[0] == 403
    assert harm.done == []
    status, answer = harmed.ask(path, {})
    assert (status, answer["state"], answer["result"]["back_ms"]) == (200, "SUCCESS", 712.0)
    assert harm.done == [("kill-worker", None, None)]


def votes_of(operator: ClientConnection, counts: dict[str, int]) -> int:
    """Wait until the page has these votes; return their round."""
    while True:
        message = json.loads(operator.recv(timeout=WITHIN_S))
        if message["kind"] == "votes":
            assert "kill-flight" not in message["content"]["counts"], "nobody in the room wants it"
            if message["content"]["counts"] == counts:
                return int(message["content"]["round"])


def test_a_room_votes_for_the_next_fault_and_causes_none(harmed: Served, harm: NotedHarm) -> None:
    def socket(url: str, token: str) -> ClientConnection:
        address = f"{url.split('/?')[0].replace('http:', 'ws:')}/api/socket?token={token}"
        return connect(address, open_timeout=WITHIN_S)

    def send(viewer: ClientConnection, kind: str, content: Any) -> None:
        viewer.send(json.dumps({"kind": kind, "content": content}))

    tokens, room = harmed.page.tokens, harmed.page.view_url or ""
    with (
        socket(harmed.page.url, tokens.operator) as operator,
        socket(harmed.page.url, tokens.viewer) as elsewhere,  # looks, and is not in the room
        socket(room, tokens.viewer) as first,
        socket(room, tokens.viewer) as second,
    ):
        assert json.loads(first.recv(timeout=WITHIN_S))["content"]["votable"]
        assert not json.loads(elsewhere.recv(timeout=WITHIN_S))["content"]["votable"]
        readers = [
            threading.Thread(target=deque, args=(viewer, 0))
            for viewer in (first, second, elsewhere)
        ]
        for reader in readers:  # one who does not read is dropped, and its vote with it
            reader.start()
        send(elsewhere, "vote", {"action": "kill-flight"})
        for viewer in (first, elsewhere):  # only the room's own process counts
            send(viewer, "votes", {"round": 0, "counts": {"kill-flight": 40}})
        for action in ("cut-link", "kill-worker", "cut-link"):
            send(first, "vote", {"action": action})
        send(second, "vote", {"action": "cut-link"})
        begun = votes_of(operator, {"cut-link": 2})
        for content in ({"action": "gust"}, {"action": 7}, {}, {"action": "cut-link", "count": 9}):
            with socket(room, tokens.viewer) as hostile:
                send(hostile, "vote", content)
                with pytest.raises(ConnectionClosedError, match="not understood"):
                    deque(hostile, maxlen=0)
        with socket(room, tokens.viewer) as hostile:
            for _ in range(2000):
                send(hostile, "vote", {"action": "blind-position"})
            votes_of(operator, {"cut-link": 2, "blind-position": 1})
            hostile.socket.shutdown(SHUT_RDWR)  # in order, it would wait behind its own flood
        votes_of(operator, {"cut-link": 2})  # who is gone wants nothing
        assert harm.done == []
        assert harmed.ask("/api/chaos/kill-worker", {})[1]["state"] == "SUCCESS"
        assert votes_of(operator, {}) == begun + 1
        with socket(room, tokens.viewer) as third:
            votes_of(third, {})
            send(third, "vote", {"action": "stop-broker"})
            assert votes_of(operator, {"stop-broker": 1}) == begun + 1
    for reader in readers:
        reader.join()
    assert harm.done == [("kill-worker", None, None)]


def test_the_counts_of_the_phones_stand_on_the_operators_buttons(
    harmed: Served, chromium: Browser
) -> None:
    with (
        looking(chromium) as operator,
        looking(chromium, viewport={"width": 390, "height": 844}, has_touch=True) as phone,
    ):
        operator.goto(harmed.page.url)
        phone.goto(harmed.page.view_url or "")
        vote = phone.get_by_test_id("vote-cut-link")
        vote.click()
        expect(operator.get_by_test_id("chaos-cut-link")).to_have_text("Cut the link 1")
        expect(vote).to_have_text("Cut the link 1")
        expect(vote).to_have_attribute("aria-pressed", "true")
        expect(phone.get_by_test_id("journey")).to_be_in_viewport(ratio=1)
        expect(phone.get_by_test_id("chaos-cut-link")).to_have_count(0)
        assert too_wide_px(phone) <= 0
        assert serious_findings(phone) == []
        operator.get_by_test_id("chaos-cut-link").click()
        expect(vote).to_have_attribute("aria-pressed", "false")
        for button in (vote, operator.get_by_test_id("chaos-cut-link")):
            expect(button).to_have_text("Cut the link")


def test_no_more_than_the_airframe_can_fly_and_one_at_a_time(
    harmed: Served, harm: NotedHarm
) -> None:
    most = {one["name"]: one.get("most") for one in harmed.ask("/api/chaos")[1]["offers"]}
    for wish in ({"amount": most["gust"] + 0.01}, {"amount": 0}, {"amount": -1}, {"amount": 1e300}):
        answer = harmed.ask("/api/chaos/gust", wish)[1]
        assert answer["state"] == "REFUSED"
        assert f"to {most['gust']:g} m/s" in answer["reason"]
    for name, wish in (
        ("gust", {"amount": "9"}),
        ("gust", {"much": 1}),
        ("lie-sensor", {"device": 7}),
    ):
        assert harmed.ask(f"/api/chaos/{name}", wish)[0] == 400
    for name, wish in (("lie-sensor", {}), ("lie-sensor", {"device": "wing"}), ("nothing", {})):
        assert harmed.ask(f"/api/chaos/{name}", wish)[1]["state"] == "REFUSED"
    assert harm.done == []
    harm.may_end.clear()
    first = threading.Thread(target=harmed.ask, args=("/api/chaos/cut-link", {}))
    first.start()
    try:
        assert harm.began.wait(WITHIN_S)
        answer = harmed.ask("/api/chaos/kill-flight", {})[1]
        assert (answer["state"], answer["reason"]) == ("REFUSED", "cut-link goes on")
    finally:
        harm.may_end.set()
        first.join()
    assert [name for name, _, _ in harm.done] == ["cut-link"]


def test_without_chaos_every_request_says_so(served: Served) -> None:
    for token in ("operator", "viewer"):
        for path, body in (("/api/chaos", None), ("/api/chaos/kill-worker", {})):
            status, answer = served.ask(path, body, token=token)
            assert (status, answer["state"]) == (404, "FAILURE")
            assert "--chaos" in answer["reason"]


def test_the_panel_shows_what_the_ship_did_and_a_replayed_command_does_nothing(
    harmed: Served, harm: NotedHarm, chromium: Browser
) -> None:
    with looking(chromium, viewport={"width": 1280, "height": 720}) as page:
        page.goto(harmed.page.url)
        by = page.get_by_test_id
        for name in BUTTONS:
            expect(by(f"chaos-{name}")).to_be_enabled()
        expect(by("chaos-gust-cap")).to_contain_text("twin holds")
        harm.may_end.clear()
        by("chaos-kill-worker").click()
        worker = page.locator(".station", has_text="worker")
        expect(worker).to_contain_text("down")
        expect(by("caption")).to_contain_text("commands wait in the queue")
        harm.may_end.set()
        expect(worker).to_contain_text("runs")
        expect(by("chaos-reports")).to_contain_text("armed in HOLD, 2.7 m up")
        expect(by("chaos-reports")).to_contain_text("<b>holding</b>")
        expect(by("caption")).to_contain_text("armed in HOLD, 2.7 m up")
        by("chaos-sensor").select_option("sonar")
        expect(by("chaos-freeze-sensor")).to_be_disabled()  # nobody has seen a frozen sonar
        by("chaos-lie-sensor").click()
        expect(by("chaos-reports").locator("li strong").first).to_have_text("Lie with it: sonar")
        assert serious_findings(page) == []

        page.get_by_role("button", name="Pilot").click()
        by("command-arm").click()
        expect(by("armed")).to_contain_text("ARMED")
        by("command-disarm").click()
        expect(by("armed")).to_contain_text("disarmed")
        # The ship tells that it is disarmed on another way than the queue.
        expect(by("journey")).to_contain_text("disarm")
        page.get_by_role("button", name="Present").click()
        # What happened before a view was opened is in it.
        expect(by("journey")).to_contain_text("disarm")
        expect(page.locator(".waterfall")).to_contain_text("arm")
        expect(by("chaos-reports")).to_contain_text("It broke")
        by("chaos-replay-command").click()
        expect(by("chaos-reports")).to_contain_text("without effect")
        expect(by("chaos-reports")).to_contain_text("disarm was sent again")
        assert [name for name, _, _ in harm.done] == ["kill-worker", "lie-sensor"]


@pytest.mark.parametrize("query", ["", "&stage=1"])
def test_the_end_card_fits_a_window_of_720_px_with_its_cause_and_each_fault(
    served: Served, chromium: Browser, query: str
) -> None:
    sentence = "The broker stood still for 5 s: a command was answered after 0.4 s; armed in GOTO, "
    fault = (f"{sentence}2.7 m up, 0.05 m off its place (at most 0.21 m).", True)
    card = {
        "title": "twin ended early (simulated)",
        "cause": "fly did not answer for 0.62 s and was restarted: this machine is too busy",
        "rows": [("pings, two a second", "195 of 198 answered, 3 EXPIRED")] * 7,
        "faults": [fault, fault, (fault[0], False)],
    }
    with looking(chromium, viewport={"width": 1280, "height": 720}) as page:
        page.goto(f"{served.page.url}{query}#present")
        served.page.tell("end", card)
        end = page.get_by_test_id("end-card")
        expect(end).to_contain_text("too busy")
        expect(end).to_be_in_viewport(ratio=1)
        for button in end.get_by_role("button").all():
            expect(button).to_be_in_viewport(ratio=1)
        assert end.evaluate("(one) => one.scrollHeight - one.clientHeight") <= 0
        assert serious_findings(page) == []


DOTS = """() => {
  const { dots } = page.mounted.find((one) => one.dots);
  return [...dots].map(([id, { goal, root }]) => [id, goal, root.classList.contains("refused")]);
}"""


def test_on_the_journey_messages_queue_die_and_come_back(served: Served, chromium: Browser) -> None:
    def message(id: str, state: str, *stages: str, kind: str = "command") -> None:
        content = {
            "id": id, "command": "goto", "arguments": {}, "source": "", "state": state,
            "stages": dict.fromkeys(stages, 1.0), "reason": "", "fraction": None, "done_ms": None,
        }  # fmt: skip
        served.page.tell(kind, content)

    def shows(*dots: tuple[str, int, bool]) -> None:
        page.wait_for_function(
            f"dots => JSON.stringify(({DOTS})()) === JSON.stringify(dots)",
            arg=[list(one) for one in dots],
        )

    with looking(chromium, viewport={"width": 1280, "height": 720}) as page:
        page.goto(f"{served.page.url}#present")
        by = page.get_by_test_id
        expect(by("journey")).to_be_visible()
        for name in ("altitude", "battery"):
            expect(by(name)).to_be_hidden()  # they stand once, beside the other numbers
        half_m = page.evaluate(
            "page.mounted.find((one) => one.needed).needed(page.state, 400, 300).half"
        )
        assert half_m < 3.0, "a ship on its pad needs no larger map"
        message("leg", "PROGRESS", "keyboard", "queue", "worker", "mailbox", "flight", "motor")
        message("ping", "QUEUED", "keyboard", "queue", kind="question")
        shows(("leg", 5, False), ("ping", 1, False))
        served.page.tell("down", ["worker"])
        shows(("leg", 1, False), ("ping", 1, False))
        message("ping", "EXPIRED", "keyboard", "queue", kind="question")
        shows(("leg", 1, False), ("ping", 1, True))
        served.page.tell("down", [])
        message("leg", "PROGRESS", "keyboard", "queue", "worker", "mailbox", "flight", "motor")
        shows(("leg", 5, False))  # the one that fell is gone
