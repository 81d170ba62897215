"""A client of the page that sends anything, right or wrong."""

import http.client
import json
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from ground_station.page.server import Page
from tests.ground_station.ship import FlyingShip

WITHIN_S = 120.0  # a takeoff is flown in it, on a machine that does much else


class Served(msgspec.Struct):
    """A page, its ship, and the event that silences the ship while it is set."""

    page: Page
    ship: FlyingShip
    silence: threading.Event

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        token: str | None = "operator",
        address: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Send a request; return its status and the JSON of its answer.

        token: "operator", "viewer", another text as it is, or None for none.
        """
        parts = urlsplit(address or self.page.url)
        tokens = self.page.tokens
        sent = dict(headers or {})
        if token is not None:
            known = {"operator": tokens.operator, "viewer": tokens.viewer}
            sent.setdefault("Authorization", f"Bearer {known.get(token, token)}")
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=WITHIN_S)
        try:
            link.request(method or ("GET" if body is None else "POST"), path, data, sent)
            answer = link.getresponse()
            text = answer.read()
        finally:
            link.close()
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else text


def token_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["token"][0]


def stopped(url: str, token: str, *, within_s: float, vehicle: str = "") -> bool:
    """Press the emergency stop of a page that is served elsewhere; return whether it confirms.

    vehicle: "" for every ship.
    """
    parts = urlsplit(url)
    link = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=within_s)
    try:
        body = json.dumps({"vehicle": vehicle})
        link.request("POST", "/api/estop", body, {"Authorization": f"Bearer {token}"})
        return bool(json.loads(link.getresponse().read())["state"] == "SUCCESS")
    finally:
        link.close()
