"""Requests to a page, right or wrong."""

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.repeating import PATIENCE_S


def token_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["token"][0]


def asked(
    url: str,
    path: str,
    body: Any = None,
    *,
    token: str | None = None,
    method: str | None = None,
    headers: dict[str, str] | None = None,
    within_s: float = PATIENCE_S,
) -> tuple[int, Any]:
    """Send a request to the server of this URL; return its status and the JSON of its answer.

    body: bytes as they are, or what is sent as JSON. An answer that is no JSON comes as bytes.
    """
    parts = urlsplit(url)
    sent = {} if token is None else {"Authorization": f"Bearer {token}"}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=within_s)
    with closing(connection) as link:
        link.request(
            method or ("GET" if body is None else "POST"), path, data, sent | (headers or {})
        )
        answer = link.getresponse()
        text = answer.read()
    is_json = answer.headers.get("content-type", "").startswith("application/json")
    return answer.status, json.loads(text) if is_json else text


def stopped(url: str, token: str, *, within_s: float, vehicle: str = "") -> bool:
    """Press the emergency stop of a page that is served elsewhere; return whether it confirms.

    vehicle: "" for every ship.
    """
    body = {"vehicle": vehicle}
    _, answer = asked(url, "/api/estop", body, token=token, within_s=within_s)
    return bool(answer["state"] == "SUCCESS")
