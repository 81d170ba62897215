"""A client of the page that sends anything, right or wrong."""

import threading
from typing import Any

import msgspec

from ground_station.page.server import Page
from tests.ground_station.ship import FlyingShip
from tests.http_client import asked

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
        tokens = self.page.tokens
        known = {"operator": tokens.operator, "viewer": tokens.viewer}
        return asked(
            address or self.page.url, path, body, token=token and known.get(token, token),
            method=method, headers=headers, within_s=WITHIN_S,
        )  # fmt: skip
