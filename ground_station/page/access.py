"""Who may look at the page, and who may command from it.

Three checks come before every request. Its Host names this server by an address, so a foreign
name that was bound to our address by DNS reaches nothing. Its Origin, where a browser sends one,
is this page, so no other page commands in its reader's name. Its token is one of two: the
operator's, or the viewer's, who may only look.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ground_station.report import Outcome

Role = Literal["operator", "viewer"]

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
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OPEN = ("/static/",)  # no secret in it


class Tokens:
    """The two tokens of one run of the page."""

    def __init__(self, *, operator: str | None = None, viewer: str | None = None) -> None:
        self.operator = operator or secrets.token_urlsafe(24)
        self.viewer = viewer or secrets.token_urlsafe(24)

    def role(self, token: str | None) -> Role | None:
        """Return what the bearer of `token` may do; None for nobody we know."""
        given = (token or "").encode(errors="replace")
        is_operator = hmac.compare_digest(given, self.operator.encode())
        is_viewer = hmac.compare_digest(given, self.viewer.encode())
        return "operator" if is_operator else "viewer" if is_viewer else None


class Access:
    """ASGI middleware: refuses what may not pass, and leaves the role in the scope's state.

    view_only: the ports on which nobody commands, whatever the token.
    is_open: it listens on the network, where it is called by any address of this machine.
    """

    def __init__(
        self, app: ASGIApp, *, tokens: Tokens, view_only: Collection[int], is_open: bool
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._view_only = view_only
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        port = int(scope["server"][1] or 0)
        refusal = self._foreign(headers, port)
        token, is_cookie = self._token(scope, headers, port)
        role = self._tokens.role(token)
        if port in self._view_only and role == "operator":
            role = None  # the operator's token does not belong on the network in the clear
        is_free = scope["type"] == "http" and scope["path"].startswith(_OPEN)
        if refusal is None and role is None and not is_free:
            refusal = (401, "no token, or not that of this run: open the address that was printed")
        if refusal is not None:
            await _refuse(*refusal)(scope, receive, send)
            return
        scope.setdefault("state", {})["role"] = role
        cookie = None
        if role is not None and not is_cookie and scope["type"] == "http":
            cookie = f"{cookie_name(port)}={token}; Path=/; HttpOnly; SameSite=Strict"
        is_local = _split(headers.get("host", ""))[0] in LOOPBACK
        sent = HEADERS | OPENER if is_local else HEADERS
        await self._app(scope, receive, _with_headers(send, cookie, sent))

    def _foreign(self, headers: Headers, port: int) -> tuple[int, str] | None:
        """Return status and reason for a request that was meant for another server, or by one."""
        host = headers.get("host", "")
        name, its_port = _split(host)
        if its_port != port or not self._is_our_name(name, port):
            return 421, f"host {host[:60]!r} is not this page: call it by its address"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, f"origin {origin[:60]!r} is not this page"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
            headers.get("sec-fetch-mode") != "navigate"
        ):
            return 403, "asked for by another page"
        return None

    def _is_our_name(self, name: str, port: int) -> bool:
        if name in LOOPBACK:
            return True
        if not (self._is_open or port in self._view_only):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _token(self, scope: Scope, headers: Headers, port: int) -> tuple[str | None, bool]:
        """Return the token of a request, and whether the browser has it as its cookie."""
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=16)
        except ValueError:
            return None, False
        if "token" in query:
            return query["token"][0], False
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return bearer, True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return None, False
        found = cookies.get(cookie_name(port))
        return (None if found is None else found.value), True


def cookie_name(port: int) -> str:
    """Return the cookie of the page on `port`: browsers do not tell ports apart."""
    return f"blimp-page-{port}"


def _split(host: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname or "", parts.port or 80
    except ValueError:
        return "", 0


def _with_headers(send: Send, cookie: str | None, sent: dict[str, str] = HEADERS) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in sent.items():
                headers.setdefault(name, value)
            if cookie is not None:
                headers.append("set-cookie", cookie)
        await send(message)

    return send_more


def _refuse(status: int, reason: str) -> ASGIApp:
    """Return what answers with a reason; a WebSocket gets it as the response to its handshake."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
            return
        document: Any = Outcome(id=None, task="", state="FAILURE", reason=reason)
        response = JSONResponse(_plain(document), status_code=status)
        await response(scope, receive, _with_headers(send, None))

    return answer


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)
