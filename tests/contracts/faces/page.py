"""The operator's page: requests, and the socket on which its button's stops go."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.contracts.faces.face import WITHIN_S, Face, Trouble, before_and_after, flooding
from tests.contracts.faces.rig import Rig
from tests.http_client import asked, token_of

SILENT = 300  # connections: the page has room for 256 of strangers
VIEWERS = 60  # the page shows itself to 48
BEARER = "who has the token is the operator: a request has nothing else that could be worn out"


class _OnThePage(Face):
    hears: ClassVar[tuple[str, ...]] = ("page tcp", "audience tcp")

    def __init__(self, rig: Rig) -> None:
        self._url = rig.urls["url"]
        self._port = urlsplit(self._url).port or 0
        self._token = token_of(self._url)
        self._viewer = token_of(rig.urls["read_only_url"])
        self._false = self._token[:-1] + ("a" if self._token[-1] != "a" else "b")

    def _ask(self, path: str, token: str, **headers: str) -> tuple[int, Any]:
        return asked(
            self._url, path, {"vehicle": "twin"}, token=token or None, headers=headers,
            within_s=WITHIN_S,
        )  # fmt: skip

    def _opened(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=WITHIN_S)

    @contextmanager
    def half(self) -> Iterator[None]:
        """A head, and a body, that do not come to their end."""
        head = f"POST /api/command/arm HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        body = f"{head}Authorization: Bearer {self._viewer}\r\nContent-Length: 2\r\n\r\n{{"
        with ExitStack() as own:
            for text in (head, body) * 20:
                own.enter_context(self._opened()).sendall(text.encode())
            yield

    @contextmanager
    def silence(self) -> Iterator[None]:
        with ExitStack() as own:
            for _ in range(SILENT):
                own.enter_context(self._opened())
            yield

    def flood(self) -> Trouble:
        request = f"POST /api/estop HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode()

        def ask() -> None:
            with self._opened() as link:
                link.sendall(request)

        return flooding(ask)


class Http(_OnThePage):
    name = "HTTP"
    without: ClassVar[Mapping[str, str]] = {"replayed": BEARER, "old": BEARER}

    def stop(self) -> None:
        status, answer = self._ask("/api/estop", self._token)
        if (status, answer["state"]) != (200, "SUCCESS"):
            raise TimeoutError(f"the stop is answered by {status}: {answer}")

    def _refused(self, token: str, expected: int, **headers: str) -> None:
        status, answer = self._ask("/api/command/arm", token, **headers)
        assert (status, answer["state"]) == (expected, "FAILURE"), (status, answer)

    def strangers(self) -> Trouble:
        def ask() -> None:
            self._refused("", 401)
            self._refused(self._viewer, 403)
            self._refused(self._token, 403, Origin="http://evil.example")

        return before_and_after(ask)

    def forged(self) -> Trouble:
        return before_and_after(lambda: self._refused(self._false, 401))


class Page(_OnThePage):
    """Its arms go by HTTP: on this socket there is nothing but stops."""

    name = "page"
    without: ClassVar[Mapping[str, str]] = {
        "replayed": "nothing on it arms, and a stop that comes again stops",
        "old": "nothing on it arms, and a stop is never too old",
    }

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._own = ExitStack()
        self._road = self._own.enter_context(self._connected(self._token))
        self._presses = 0

    def _connected(self, token: str, path: str = "/api/stop") -> ClientConnection:
        headers = {"Authorization": f"Bearer {token}"}
        return connect(
            f"ws://127.0.0.1:{self._port}{path}", additional_headers=headers, close_timeout=0.1
        )

    def stop(self) -> None:
        self._presses += 1
        answer = _press(self._road, self._presses)
        if answer["id"] != self._presses or answer["outcome"]["state"] != "SUCCESS":
            raise TimeoutError(f"the stop is answered by {answer}")

    @contextmanager
    def strangers(self) -> Iterator[None]:
        """Viewers who look, more than there is room for, and one who presses the stop."""
        with ExitStack() as own:
            for _ in range(VIEWERS):
                own.enter_context(self._connected(self._viewer, "/api/socket"))
            with self._connected(self._viewer) as road, pytest.raises(ConnectionClosed):
                _press(road, 1)
            yield

    def forged(self) -> Trouble:
        def ask() -> None:
            with (
                pytest.raises(InvalidStatus, match="HTTP 403"),
                self._connected(self._false),
            ):
                pass

        return before_and_after(ask)

    def close(self) -> None:
        self._own.close()


def _press(road: ClientConnection, number: int) -> dict[str, Any]:
    """Return the answer to a stop that is sent on an open socket."""
    road.send(json.dumps({"id": number, "vehicle": "twin"}))
    found: dict[str, Any] = json.loads(road.recv(timeout=WITHIN_S))
    return found
