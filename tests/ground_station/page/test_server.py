"""What the page answers: the state, commands and stops as `ground` prints them, and limits."""

import gc
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from benchmarks.page_strangers import HANDSHAKE
from blimp.airframe import load
from blimp.clock import SystemClock
from blimp.errors import ConfigError
from blimp.service.show.demo_page import demo_page, wait_until_opened
from blimp.web.answers import MAX_BODY_BYTES
from blimp.web.listening import listening_socket
from blimp.web.serving import MAX_SOCKET_BYTES
from ground_station.page.journey import STAGES
from tests.ground_station.page.client import WITHIN_S, Served
from tests.ground_station.page.conftest import serving
from tests.ground_station.ship import FlyingShip
from tests.http_client import token_of
from tests.queue.conftest import wait_until


def open_socket(served: Served, *, token: str | None = None) -> ClientConnection:
    token = token or served.page.tokens.operator
    url = f"ws://127.0.0.1:{served.page.port}/api/socket?token={token}"
    return connect(url, open_timeout=WITHIN_S, close_timeout=1.0)


def test_a_port_that_is_taken_is_named_with_its_cure_and_stops_no_demo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    said: list[str] = []
    events: list[dict[str, Any]] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{taken}: .*; --port takes another"):
            listening_socket("127.0.0.1", taken)
        monkeypatch.setattr("blimp.service.show.demo_page.PORT", taken)
        with demo_page(
            wanted=True, read_only=True, broker="redis://127.0.0.1:1", vehicle="twin",
            airframe=load("twin"), clock=SystemClock(), say=said.append, tell=events.append,
        ) as page:  # fmt: skip
            assert page is not None
            assert page.port != taken
            assert [one for one in said if f"port {taken} is taken" in one]
            assert events == [{"event": "page", "url": page.url, "read_only_url": page.view_url}]
            assert token_of(events[0]["read_only_url"]) == page.tokens.viewer


def test_the_state_is_that_of_ground_status_with_the_ages(served: Served) -> None:
    status, state = served.ask("/api/state")
    assert status == 200
    assert state["vehicle"] == "twin"
    assert state["simulated"] is True
    assert state["mode"] == "HOLD"
    assert 0.0 <= state["age_s"] < WITHIN_S
    assert all(age_s >= state["age_s"] for age_s in state["ages"].values())
    assert {"altitude_m", "battery_v", "mode"} <= set(state["ages"])
    assert "imu" in state["sensors"]


def test_commands_are_answered_as_ground_answers_and_limits_are_its_own(served: Served) -> None:
    status, answer = served.ask("/api/command/arm", {})
    assert (status, answer["state"], answer["task"]) == (200, "SUCCESS", "blimp.arm")
    assert answer["result"]["armed"] is True
    status, answer = served.ask("/api/command/takeoff", {"altitude_m": 400})
    assert (status, answer["state"]) == (200, "REFUSED")
    assert "30 m" in answer["reason"]
    for name, arguments, word in (
        ("takeoff", {"altitude_m": "high"}, "altitude_m must be a finite number, 0.5 to 10000 m"),
        ("takeoff", {}, "altitude_m is missing"),
        ("takeoff", {"altitude": 3}, "'altitude' (did you mean 'altitude_m'?)"),
        ("takeoff", {"altitude_m": [3]}, "a finite number"),
        ("goto", {"north_m": 1, "east_m": 1, "altitude_m": 1, "yaw_deg": 999}, "-360 to 360"),
        ("arm", {"force": "yes"}, "true or false"),
        ("mode", {"name": "--help"}, "no mode"),
    ):
        status, answer = served.ask(f"/api/command/{name}", arguments)
        assert (status, answer["state"]) == (400, "FAILURE"), (name, arguments, answer)
        assert word in answer["reason"]
    for name in ("trajectory", "watch", "page", "nonsense", "mission"):
        status, answer = served.ask(f"/api/command/{name}", {"file": "/etc/passwd"})
        assert (status, answer["state"]) == (404, "FAILURE")
    for asked in ({"name": ["limits.speed_mps"]}, {"nam": "limits.speed_mps"}, {"name": 10**400}):
        status, answer = served.ask("/api/command/param", asked)
        assert (status, answer["state"]) == (400, "FAILURE"), answer
        assert "name" in answer["reason"]
    reason = served.ask("/api/command/take-off", {"altitude_m": 3})[1]["reason"]
    assert "'take-off' here (did you mean 'takeoff'?)" in reason


def test_an_emergency_stop_is_confirmed_by_the_ship_whatever_stands_beside_it(
    served: Served,
) -> None:
    served.ask("/api/command/arm", {})
    named = json.dumps({"vehicle": served.ship.vehicle}).encode()
    for body in (named, b"", b"[1]", b'{"vehicle": "all"}'):
        answer = confirmed_stop(served, body)
        assert answer["task"] == "blimp.estop"
        assert answer["result"]["killed"] is True
    assert served.ask("/api/state?vehicle=nobody")[0] == 503


def confirmed_stop(served: Served, body: bytes) -> dict[str, Any]:
    """Press as the page does: again, until it is confirmed. A loaded machine may need that."""
    found: dict[str, Any] = {}

    def press() -> bool:
        status, answer = served.ask("/api/estop", body, method="POST")
        assert status == 200
        # Of all those that other tests have left are silent: this ship's own answer counts.
        found.update(answer.get("ships", {}).get(served.ship.vehicle, answer))
        return bool(found["state"] == "SUCCESS")

    wait_until(press, "the emergency stop is not confirmed")
    return found


def test_garbage_and_floods_are_refused_in_words_and_stop_nothing(served: Served) -> None:
    for body, expected in (
        (b"{", 400), (b"[]", 400), (b"\xff\xfe", 400), (b"[" * 50_000, 400),
        (b" " * (MAX_BODY_BYTES + 1), 413),
    ):  # fmt: skip
        status, answer = served.ask("/api/command/arm", body)
        assert (status, answer["state"]) == (expected, "FAILURE"), body[:10]
    hundred_mb = {"Content-Length": str(100_000_000)}
    with socket.create_connection(("127.0.0.1", served.page.port), timeout=WITHIN_S) as raw:
        head = (
            f"POST /api/command/arm?token={served.page.tokens.operator} HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{served.page.port}\r\n"
            f"Content-Length: {hundred_mb['Content-Length']}\r\n\r\n"
        )
        raw.sendall(head.encode() + b" " * (2 * MAX_BODY_BYTES))
        assert b"413" in raw.recv(4096)
    for message in ("{", "[1]", '{"kind": 7}', b"\x00\x01", "x" * (MAX_SOCKET_BYTES + 1)):
        with open_socket(served) as viewer:
            viewer.send(message)
            end = None
            while end is None:
                try:
                    viewer.recv(timeout=WITHIN_S)
                except ConnectionClosed as closed:
                    end = closed
            assert end.rcvd is not None
            assert end.rcvd.code in (1003, 1009)
    confirmed_stop(served, b"{}")


def test_every_viewer_hears_the_ship_and_the_way_of_each_command(served: Served) -> None:
    with open_socket(served) as one, open_socket(served, token=served.page.tokens.viewer) as two:
        heard: list[dict[str, Any]] = []
        hello = json.loads(one.recv(timeout=WITHIN_S))
        assert (hello["kind"], hello["content"]["may_command"]) == ("hello", True)
        assert json.loads(two.recv(timeout=WITHIN_S))["content"]["may_command"] is False

        def is_heard() -> bool:
            """Arm, and read on; what is sent before the page follows the queue is not shown."""
            id = served.ask("/api/command/arm", {})[1]["id"]
            for _ in range(100):
                heard.append(json.loads(two.recv(timeout=WITHIN_S)))
                journey = heard[-1]["content"]
                if heard[-1]["kind"] != "command" or journey["id"] != id:
                    continue
                # Two threads tell of it: the last word of one may come before the other's.
                if journey["state"] == "SUCCESS" and set(STAGES) <= set(journey["stages"]):
                    return True
            return False

        wait_until(is_heard, "no way of a command is shown")
        journey = heard[-1]["content"]
        assert journey["command"] == "arm"
        stages = list(journey["stages"].values())
        assert stages == sorted(stages)
        assert {"state", "trail", "commands"} <= {str(one["kind"]) for one in heard}


def test_a_demo_waits_for_the_browser_that_opens_its_page(served: Served) -> None:
    page = served.page
    assert not page.is_opening, "nobody is waited for who has asked for nothing"
    assert served.ask("/", token=None)[0] == 200
    began = threading.Event()

    def begin() -> None:
        wait_until_opened(page, clock=SystemClock())
        began.set()

    wait_until(lambda: page.is_opening, "the page was asked for")
    threading.Thread(target=begin).start()
    assert not began.is_set()
    with open_socket(served):
        assert began.wait(WITHIN_S)


def test_a_viewer_that_does_not_read_leaves_nothing_open_when_the_page_ends(
    twin: FlyingShip, tmp_path: Path
) -> None:
    with serving(twin, tmp_path) as served, socket.socket() as viewer:
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        viewer.connect(("127.0.0.1", served.page.port))
        opening = HANDSHAKE.format(
            host="127.0.0.1", port=served.page.port, token=served.page.tokens.operator
        )
        viewer.sendall(f"{opening}\r\n".encode())
        heard = b""
        while b'"hello"' not in heard:
            heard += viewer.recv(4096)
        served.page.tell("caption", {"text": "." * 9_000_000})  # above what the system buffers
        served.page.close()
    del served
    gc.collect()  # of what is open Python warns now, and a warning is an error
