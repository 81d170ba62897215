"""The room's address: a process of its own that sees what the page sees, and ends with it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.sync.client import connect

from blimp.airframe import load
from blimp.clock import SystemClock
from blimp.service.show.demo_page import demo_page
from blimp.web import listening
from tests.ground_station.page.client import WITHIN_S, Served
from tests.ground_station.ship import FlyingShip
from tests.http_client import stopped, token_of
from tests.process_table import children, command_line, lives
from tests.queue.conftest import wait_until


def rooms(page: int) -> list[int]:
    """Return the processes that serve the room of the page with this number."""
    return [one for one in children(page) if any("audience" in word for word in command_line(one))]


def view_socket(view_url: str) -> str:
    return view_url.replace("http:", "ws:").replace("/?", "/api/socket?")


def test_viewers_see_what_the_page_tells_and_ask_what_panels_ask(served: Served) -> None:
    view_url = served.page.view_url or ""
    with connect(view_socket(view_url)) as viewer:
        hello = json.loads(viewer.recv(timeout=WITHIN_S))["content"]
        assert (hello["vehicle"], hello["may_command"]) == (served.ship.vehicle, False)
        assert hello["about"]["link_loss"]
        served.page.tell("caption", {"text": "hello, room"})
        seen: set[str] = set()
        while not {"state", "caption", "trail", "commands"} <= seen:
            seen.add(json.loads(viewer.recv(timeout=WITHIN_S))["kind"])
    ships = served.ask("/api/ships", token="viewer", address=view_url)[1]
    assert served.ship.vehicle in ships["vehicles"]
    assert served.ask("/api/state", token="viewer", address=view_url)[1]["mode"] == "HOLD"
    for path in ("/api/fleet", "/api/queue", "/api/setup"):
        status, answer = served.ask(path, token="viewer", address=view_url)
        assert (status, bool(answer)) == (200, True), path
        assert served.ask(path, token=None, address=view_url)[0] == 401
    assert served.ask("/api/log", token="viewer", address=view_url)[0] in (403, 404)
    for path in ("/api/queue/drop", "/api/control/take", "/api/chaos/gust", "/api/setup/check"):
        assert served.ask(path, {}, token="viewer", address=view_url)[0] == 403


def test_the_operator_gets_the_rooms_address_as_a_code_for_each_network_or_why_there_is_none(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    view_url = served.page.view_url or ""
    other = view_url.replace("127.0.0.1", "192.0.2.7")
    monkeypatch.setattr(listening, "reachable_addresses", lambda: ["127.0.0.1", "192.0.2.7"])
    codes = served.ask("/api/room")[1]["codes"]
    assert [one["url"] for one in codes] == [view_url, other]
    assert all(one["code"].startswith("data:image/svg+xml") for one in codes)
    assert codes[0]["code"] != codes[1]["code"]
    for token, expected in (("viewer", 403), (None, 401)):
        assert served.ask("/api/room", token=token)[0] == expected
    monkeypatch.setattr(listening, "reachable_addresses", list)
    assert served.ask("/api/room")[1] == {"codes": [], "reason": listening.UNREACHABLE}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with demo_page(
        wanted=True, read_only=False, broker="redis://127.0.0.1:1", vehicle="twin",
        airframe=load("twin"), clock=SystemClock(), say=lambda _: None, tell=lambda _: None,
    ) as page:  # fmt: skip
        assert page is not None
        address = page.url
        answer = served.ask("/api/room", token=page.tokens.operator, address=address)[1]
    assert answer["codes"] == []
    assert "start it again with --read-only" in answer["reason"]


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_the_room_comes_back_and_ends_with_the_page_however_that_ends(
    twin: FlyingShip, death: signal.Signals
) -> None:
    command = [sys.executable, "-m", "ground_station", "--json", "--broker", twin.broker.url]
    command += ["--vehicle", twin.vehicle, "page", "--port", "0", "--read-only"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            event = json.loads(process.stdout.readline())
            view_url, url = event["read_only_url"], event["url"]
            wait_until(lambda: len(rooms(process.pid)) == 1, "no process serves the room")
            first = rooms(process.pid)
            arguments = command_line(first[0])
            assert not any(token_of(url) in one or token_of(view_url) in one for one in arguments)
            with connect(view_socket(view_url), open_timeout=WITHIN_S) as viewer:
                viewer.recv(timeout=WITHIN_S)
            os.kill(first[0], signal.SIGKILL)
            assert stopped(url, token_of(url), within_s=WITHIN_S, vehicle=twin.vehicle)
            wait_until(lambda: rooms(process.pid) not in ([], first), "it did not come back")
            second = rooms(process.pid)[0]
            with connect(view_socket(view_url), open_timeout=WITHIN_S) as viewer:
                viewer.recv(timeout=WITHIN_S)
        finally:
            process.send_signal(death)
        process.wait(WITHIN_S)
    wait_until(lambda: not lives(second), "it lives on")
