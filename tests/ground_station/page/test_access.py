"""Who gets in: a token, our own address, our own pages; and who may only look."""

import http.client

import pytest

from tests.ground_station.page.client import Served, token_of


def test_nobody_gets_in_without_a_token_and_the_viewers_one_commands_nothing(
    served: Served,
) -> None:
    for token in (None, "", "x" * 32, "ä"):
        status, answer = served.ask("/api/state", token=token)
        assert (status, answer["state"]) == (401, "FAILURE")
        assert served.ask("/api/estop", {}, token=token)[0] == 401
        assert served.ask("/", token=token)[0] == 401
    view_url = served.page.view_url or ""
    for address in (None, view_url):
        assert served.ask("/api/state", token="viewer", address=address)[0] == 200
        for path in ("/api/estop", "/api/command/arm", "/api/command/estop"):
            status, answer = served.ask(path, {}, token="viewer", address=address)
            assert (status, answer["state"]) == (403, "FAILURE")
            assert "read-only" in answer["reason"]
    assert token_of(view_url) == served.page.tokens.viewer
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


def test_the_token_of_the_address_becomes_a_cookie_that_no_other_page_can_use(
    served: Served,
) -> None:
    page = served.page
    link = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30.0)
    link.request("GET", f"/?token={page.tokens.operator}")
    answer = link.getresponse()
    assert answer.status == 200
    assert b"<script" in answer.read()
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    link.request("GET", "/api/state", headers={"Cookie": cookie.partition(";")[0]})
    assert link.getresponse().status == 200
    link.close()


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/nothing"])
def test_no_other_file_is_served(served: Served, path: str) -> None:
    assert served.ask(path)[0] == 404
