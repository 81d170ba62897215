"""Who may look at the page, and who may command from it.

Three checks come before every request. Its Host names this server by an address, so a foreign
name that was bound to our address by DNS reaches nothing. Its Origin, where a browser sends one,
is this page, so no other page commands in its reader's name. Its token is one of two: the
operator's, or the viewer's, who may only look.

A browser keeps its token in the page's own storage, which belongs to the page's origin, port
included. A cookie would be sent to every port of this host, so there is none. What has no secret
in it, the page's files, is served without a token.
"""

import asyncio
import hmac
import ipaddress
import re
import secrets
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blimp.web.admission import Rate, Visit
from blimp.web.answers import json_answer
from blimp.web.outcome import Outcome

Role = Literal["operator", "viewer", "relay"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
# Browsers take it of this machine alone, as there is no TLS; of others they call it an error.
OPENER = {"cross-origin-opener-policy": "same-origin"}
CURE = "open the address that was printed when the page began"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OPEN = re.compile(r"/|/static/.*|/api/sign-in")  # no secret in it, or a check of its own
PROTOCOL = "blimp"  # of a WebSocket; a browser's cannot send other headers, so
_TOKEN_PROTOCOL = "blimp.token."  # the token stands beside it
_WORD = re.compile(rb"[\w-]+")


class Tokens:
    """The tokens of one run of the page.

    relay: what the audience's own process looks with; it may do what a viewer may, and say how the
    room votes.
    known: those whose bearers the server is there for, whatever strangers do.
    """

    def __init__(
        self, *, operator: str | None = None, viewer: str | None = None, is_audience: bool = False
    ) -> None:
        self.operator = operator or secrets.token_urlsafe(24)
        self.viewer = viewer or secrets.token_urlsafe(24)
        self.relay = secrets.token_urlsafe(24)
        self.is_audience = is_audience
        self._known = (self.viewer,) if is_audience else (self.operator, self.relay)

    def role(self, token: str | None) -> Role | None:
        """Return what the bearer of `token` may do; None for nobody we know."""
        given = (token or "").encode(errors="replace")
        is_operator = hmac.compare_digest(given, self.operator.encode())
        is_viewer = hmac.compare_digest(given, self.viewer.encode())
        is_relay = hmac.compare_digest(given, self.relay.encode())
        if is_relay:
            return "relay"
        return "operator" if is_operator else "viewer" if is_viewer else None

    def are_in(self, head: bytes) -> bool:
        """Return whether a token of `known` stands anywhere in the head of a request."""
        known = [one.encode() for one in self._known]
        return any(
            hmac.compare_digest(word, one)
            for word in _WORD.findall(head)
            if len(word) == len(known[0])
            for one in known
        )


class Access:
    """ASGI middleware: refuses what may not pass, and leaves the role in the scope's state.

    is_open: it listens on the network, where it is called by any address of this machine.
    rate: of the requests of strangers, all together. Who has a token does not wait.
    """

    def __init__(self, app: ASGIApp, *, tokens: Tokens, is_open: bool, rate: Rate) -> None:
        self._app = app
        self._tokens = tokens
        self._is_open = is_open
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        port = int(scope["server"][1] or 0)
        refusal = self._foreign(headers, port)
        token = _token_of(scope, headers)
        role = self._tokens.role(token)
        is_known = token is not None and self._tokens.are_in(token.encode(errors="replace"))
        visit: Visit = scope["state"]["visit"]
        if is_known:
            visit.known()
        elif visit.has_turn:
            visit.has_turn = False
        elif (delay_s := self._rate.take()) is None:
            refusal = (429, "too many requests without a token")
        elif delay_s > 0.0:
            await asyncio.sleep(delay_s)
        is_free = scope["type"] == "http" and _OPEN.fullmatch(scope["path"])
        if refusal is None and role is None and not is_free:
            missing = token is None
            refusal = (401, f"{'no token' if missing else 'this token is of another run'}: {CURE}")
        if refusal is not None:
            await _refuse(*refusal)(scope, receive, send)
            return
        scope["state"]["role"] = role
        scope["state"]["is_known"] = is_known
        is_local = _split(headers.get("host", ""))[0] in LOOPBACK
        await self._app(
            scope, receive, _with_headers(send, HEADERS | OPENER if is_local else HEADERS)
        )

    def _foreign(self, headers: Headers, port: int) -> tuple[int, str] | None:
        """Return status and reason for a request that was meant for another server, or by one."""
        host = headers.get("host", "")
        name, its_port = _split(host)
        if its_port != port or not self._is_our_name(name):
            return 421, f"host {host[:60]!r} is not this page: call it by its address"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, f"origin {origin[:60]!r} is not this page"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
            headers.get("sec-fetch-mode") != "navigate"
        ):
            return 403, "asked for by another page"
        return None

    def _is_our_name(self, name: str) -> bool:
        if name in LOOPBACK:
            return True
        if not self._is_open:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _token_of(scope: Scope, headers: Headers) -> str | None:
    try:
        query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=16)
    except ValueError:
        return None
    if "token" in query:
        return str(query["token"][0])
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return str(bearer)
    for protocol in scope.get("subprotocols", ()):
        if protocol.startswith(_TOKEN_PROTOCOL):
            return str(protocol.removeprefix(_TOKEN_PROTOCOL))
    return None


def _split(host: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname or "", parts.port or 80
    except ValueError:
        return "", 0


def _with_headers(send: Send, sent: dict[str, str]) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in sent.items():
                headers.setdefault(name, value)
        await send(message)

    return send_more


def _refuse(status: int, reason: str) -> ASGIApp:
    """Return what answers with a reason; a WebSocket gets it as the response to its handshake.

    It closes the connection: there each further try would cost less than a new one.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
            return
        failed = Outcome(id=None, task="", state="FAILURE", reason=reason)
        # A person who opened a wrong address reads words; a program reads JSON.
        if "text/html" in Headers(scope=scope).get("accept", ""):
            response: Response = PlainTextResponse(f"{reason}\n", status_code=status)
        else:
            response = json_answer(failed, status=status)
        await response(scope, receive, _with_headers(send, HEADERS | {"connection": "close"}))

    return answer
