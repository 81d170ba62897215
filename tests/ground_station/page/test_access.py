"""Who gets in: a token, our own address, our own pages; and who may only look."""

import contextlib
import http.client
import os
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from blimp.clock import ManualClock
from ground_station.page.server import STATIC
from ground_station.page.sign_in import WITHIN_S, SignIn
from tests.ground_station.page.client import Served
from tests.ground_station.page.conftest import serving
from tests.ground_station.ship import FlyingShip
from tests.http_client import token_of


def test_nobody_gets_in_without_a_token_and_the_viewers_one_commands_nothing(
    served: Served,
) -> None:
    for token in (None, "", "x" * 32, "ä"):
        status, answer = served.ask("/api/state", token=token)
        assert (status, answer["state"]) == (401, "FAILURE")
        assert served.ask("/api/estop", {}, token=token)[0] == 401
        for path in ("/api/ships", "/api/fleet", "/api/setup", "/api/log", "/api/nothing"):
            assert served.ask(path, token=token)[0] == 401
        # The page's files are everybody's: a token is in its storage, which no navigation sends.
        assert served.ask("/", token=token) == (200, (STATIC / "index.html").read_bytes())
    # A person's browser asks for a page, and is answered in words.
    browser = {"Accept": "text/html,*/*;q=0.8"}
    words = served.ask("/api/state", token="x" * 32, headers=browser)[1].decode()
    assert words.startswith("this token is of another run: ")
    view_url = served.page.view_url or ""
    for address in (None, view_url):
        assert served.ask("/api/state", token="viewer", address=address)[0] == 200
        for path in ("/api/estop", "/api/command/arm", "/api/command/estop"):
            status, answer = served.ask(path, {}, token="viewer", address=address)
            assert (status, answer["state"]) == (403, "FAILURE")
            assert "read-only" in answer["reason"]
    assert token_of(view_url) == served.page.tokens.viewer
    road = f"ws://127.0.0.1:{served.page.port}/api/stop?token={served.page.tokens.viewer}"
    with connect(road) as viewer, pytest.raises(ConnectionClosed, match="1008"):
        viewer.recv(timeout=20.0)
    # The operator's token is of no use on the address that the room has.
    assert served.ask("/api/estop", {}, address=view_url)[0] == 401
    snapshot = served.ship.mailbox.snapshot()
    assert snapshot is not None
    assert not snapshot.armed
    assert not snapshot.killed


def test_another_origin_and_another_name_are_refused_in_words(served: Served) -> None:
    port = served.page.port
    for headers, expected in (
        ({"Host": f"evil.example:{port}"}, 421),
        ({"Host": "127.0.0.1"}, 421),  # another port's
        ({"Host": f"192.0.2.7:{port}"}, 421),  # it listens on loopback alone
        ({"Host": "[::1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": f"http://localhost:{port + 1}"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
    ):
        status, answer = served.ask("/api/command/arm", {}, headers=headers)
        assert (status, answer["state"]) == (expected, "FAILURE"), headers
        assert answer["reason"]
    own = {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}
    assert served.ask("/api/state", headers=own)[0] == 200


def test_no_cookie_is_set_or_taken_as_a_browser_sends_it_to_every_port(served: Served) -> None:
    page = served.page
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", page.port, timeout=30.0)
    ) as link:
        link.request("GET", f"/?token={page.tokens.operator}")
        answer = link.getresponse()
        assert answer.status == 200
        assert b"<script" in answer.read()
        assert answer.headers["set-cookie"] is None
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        cookie = f"blimp-page-{page.port}={page.tokens.operator}"
        link.request("GET", "/api/state", headers={"Cookie": cookie})
        assert link.getresponse().status == 401


def test_a_code_is_good_once_within_a_minute_and_for_the_same_user(
    twin: FlyingShip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(twin, tmp_path) as served:

        def exchange(code: str) -> tuple[int, Any]:
            return served.ask("/api/sign-in", {"code": code}, token=None)

        code = served.page.browser_url().partition("#code=")[2]
        assert served.page.tokens.operator not in served.page.browser_url()
        assert exchange("x" * len(code))[0] == 403
        other = os.getuid() + 1  # has read the arguments
        monkeypatch.setattr("os.getuid", lambda: other)
        assert exchange(code)[0] == 403
        monkeypatch.undo()
        assert exchange(code) == (200, {"token": served.page.tokens.operator})
        assert exchange(code)[0] == 403
        for wrong in (None, 7, "", [code]):
            assert served.ask("/api/sign-in", {"code": wrong}, token=None)[0] == 403
    clock = ManualClock()
    sign_in = SignIn(token="t", clock=clock)
    code = sign_in.new_code()
    assert sign_in.known(code) == code
    clock.advance(WITHIN_S)
    assert sign_in.known(code) is None


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/nothing"])
def test_no_other_file_is_served(served: Served, path: str) -> None:
    assert served.ask(path)[0] == 404
