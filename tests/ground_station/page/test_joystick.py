"""Flying by hand: the newest stick wins, and who lets go leaves a ship that holds."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from blimp.clock import ManualClock
from blimp.types import Snapshot
from ground_station.page import joystick
from tests.browser import looking
from tests.ground_station.page.client import WITHIN_S, Served
from tests.ground_station.page.test_server import open_socket
from tests.queue.conftest import wait_until
from tests.repeating import repeating

FORWARD = {"forward_percent": 40.0, "right_percent": 0.0, "up_percent": 0.0, "turn_percent": 0.0}
EAST = {"north_mps": 0.0, "east_mps": 0.3, "up_mps": 0.0}
FAKE_PADS = """
window.fakePads = [];
navigator.getGamepads = () => window.fakePads;
window.push = (axes) => {
  window.fakePads = [{ index: 0, connected: true, axes, buttons: [] }];
};
window.unplug = () => {
  window.fakePads = [];
  window.dispatchEvent(new Event("gamepaddisconnected"));
};
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine is silent for longer than a pilot may be, and answers later."""
    for name, seconds in (
        ("SILENT_S", 12.5 * joystick.SILENT_S),
        ("ANSWER_S", 10.0),
        ("TTL_S", 20.0),
        ("REST_S", 20.0),
        ("DROP_S", 20.0),
    ):
        monkeypatch.setattr(joystick, name, seconds)


def fly(served: Served) -> None:
    assert served.ask("/api/command/arm", {})[1]["state"] == "SUCCESS"
    assert served.ask("/api/command/takeoff", {"altitude_m": 3})[1]["state"] == "SUCCESS"


def snapshot(served: Served) -> Snapshot:
    found = served.ship.mailbox.snapshot()
    assert found is not None
    return found


def wait_for(served: Served, is_so: Callable[[Snapshot], bool], what: str) -> None:
    wait_until(lambda: is_so(snapshot(served)), what)


class Viewer:
    """A viewer that keeps on sending its sticks, and hears what becomes of them."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.heard: list[dict[str, Any]] = []
        self.others: list[str] = []
        self.sent = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for text in self._socket:
                message = json.loads(text)
                if message["kind"] == "joystick":
                    self.heard.append(message["content"])
                elif message["kind"] == "command":
                    self.others.append(message["content"]["command"])
        except ConnectionClosed:
            return

    def send(self, **sticks: Any) -> None:
        self._socket.send(json.dumps({"kind": "sticks", "content": sticks}))
        self.sent += 1

    @contextmanager
    def holding(self, **sticks: Any) -> Iterator[None]:
        """Send the same sticks 20 times a second during the block, then be silent."""
        with repeating(partial(self.send, **sticks), period_s=0.05):
            yield

    def reason(self) -> str:
        """Return why the last grip ended, as soon as it has."""
        wait_until(lambda: bool(self.heard) and not self.heard[-1]["flying"], "it is still flown")
        return str(self.heard[-1]["reason"])


def test_sticks_push_the_ship_and_it_holds_when_they_are_let_go_or_fall_silent(
    served: Served,
) -> None:
    fly(served)
    with open_socket(served) as socket:
        viewer = Viewer(socket)
        with viewer.holding(grip="a", mode="STABILIZE", values=FORWARD):
            wait_for(served, lambda ship: ship.mode == "STABILIZE", "no stick arrives")
            wait_for(served, lambda ship: ship.actuators["left"] > 0.2, "no stick pushes")
        assert "silent" in viewer.reason()
        wait_for(served, lambda ship: ship.mode == "HOLD", "it does not hold")
        with (  # the first grip has ended: what it still sends moves nothing
            viewer.holding(grip="a", mode="STABILIZE", values=FORWARD),
            viewer.holding(grip="b", mode="VELOCITY", values=EAST),
        ):
            wait_for(served, lambda ship: ship.mode == "VELOCITY", "no velocity arrives")
        viewer.send(grip="b", mode="VELOCITY", release=True)
        assert viewer.reason() == ""
        wait_for(served, lambda ship: ship.mode == "LOITER", "it does not stay")
        # A stream of setpoints is no list of commands: of "mode" and "hold" the page tells.
        assert "stick" not in viewer.others
        assert "velocity" not in viewer.others


def test_a_second_grip_does_not_take_over_from_the_first() -> None:
    sticks = joystick.Joystick(pytest.fail, clock=ManualClock())
    for grip in ("a", "b"):
        sticks.take({"grip": grip, "mode": "STABILIZE", "values": FORWARD})
    assert sticks._newest is not None
    assert sticks._newest.grip == "a"


def test_a_command_ends_the_joystick_and_what_the_ship_refuses_is_said(served: Served) -> None:
    with open_socket(served) as socket:
        viewer = Viewer(socket)
        with viewer.holding(grip="a", mode="STABILIZE", values=FORWARD):
            assert "not armed" in viewer.reason()
        fly(served)
        with viewer.holding(grip="b", mode="VELOCITY", values=EAST):
            wait_for(served, lambda ship: ship.mode == "VELOCITY", "no velocity arrives")
            assert served.ask("/api/command/hold", {})[1]["state"] == "SUCCESS"
            assert "another command" in viewer.reason()
            assert snapshot(served).mode == "HOLD"
            held, sent = len(viewer.heard), viewer.sent
            wait_until(lambda: viewer.sent > sent + 20, "the viewer is stuck")
            assert (snapshot(served).mode, len(viewer.heard)) == ("HOLD", held)


def test_only_an_operator_has_sticks_and_what_is_none_ends_the_connection(served: Served) -> None:
    fly(served)
    for wrong in (
        {"grip": "a", "mode": "AUTO", "values": FORWARD},
        {"grip": "a", "mode": "STABILIZE", "values": {"forward_percent": 101}},
        {"grip": "a", "mode": "STABILIZE", "values": {"forward_percent": "full"}},
        {"grip": "", "mode": "STABILIZE", "values": FORWARD},
        {"mode": "STABILIZE", "values": FORWARD},
        {"grip": "a", "mode": "STABILIZE", "values": FORWARD, "more": 1},
    ):
        with open_socket(served) as socket:
            socket.send(json.dumps({"kind": "sticks", "content": wrong}))
            closed = None
            while closed is None:
                try:
                    socket.recv(timeout=WITHIN_S)
                except ConnectionClosed as end:
                    closed = end.rcvd
            assert closed.code == 1003, wrong
    with open_socket(served, token=served.page.tokens.viewer) as socket:
        watching = Viewer(socket)
        with watching.holding(grip="a", mode="STABILIZE", values=FORWARD), open_socket(served) as o:
            # The operator's sticks take effect; the viewer's never did.
            operator = Viewer(o)
            with operator.holding(grip="b", mode="ALTHOLD", values=FORWARD):
                wait_for(served, lambda ship: ship.mode == "ALTHOLD", "no stick arrives")
            operator.reason()
            assert {one["grip"] for one in watching.heard} == {"b"}


def test_a_gamepad_and_the_keyboard_fly_the_ship_in_a_browser(
    served: Served, chromium: Browser
) -> None:
    fly(served)
    with looking(chromium, viewport={"width": 1280, "height": 720}) as page:
        page.add_init_script(FAKE_PADS)
        page.goto(served.page.url)
        by = page.get_by_test_id
        expect(by("joystick-take")).to_be_enabled()
        page.evaluate("push([0, 0, 0, -1])")
        assert snapshot(served).mode == "LOITER"  # a pad moves nothing before it is asked to

        by("joystick-mode").select_option("VELOCITY")
        by("joystick-take").click()
        wait_for(served, lambda ship: ship.mode == "VELOCITY", "the pad does not fly it")
        page.evaluate("push([0.05, 0, 0, 0])")
        wait_for(served, lambda ship: ship.mode == "LOITER", "let go, it does not stay")
        page.keyboard.down("ArrowUp")
        wait_for(served, lambda ship: ship.target_ned_m[2] is not None, "no height")
        wait_for(served, lambda ship: ship.mode == "VELOCITY", "the keyboard does not fly it")
        page.evaluate("window.dispatchEvent(new Event('blur'))")
        expect(by("joystick-words")).to_contain_text("lost the focus")
        wait_for(served, lambda ship: ship.mode == "LOITER", "without focus it does not stay")
        page.keyboard.up("ArrowUp")

        by("joystick-mode").select_option("STABILIZE")
        by("joystick-take").click()
        page.evaluate("push([0, 0, 0, -0.8])")
        wait_for(served, lambda ship: ship.mode == "STABILIZE", "the pad does not push it")
        wait_for(served, lambda ship: ship.actuators["left"] > 0.2, "the pad does not push it")
        page.evaluate("unplug()")
        expect(by("joystick-words")).to_contain_text("gamepad is gone")
        wait_for(served, lambda ship: ship.mode == "HOLD", "without a pad it does not hold")
        expect(by("joystick-take")).to_have_attribute("aria-pressed", "false")
