"""What the page's server takes and gives: JSON objects, within limits, and reasons."""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from blimp.nesting import shallow
from blimp.web.outcome import Outcome

MAX_BODY_BYTES = 64 * 1024
BODY_S = 5.0  # for a whole body to come


def refused_command(request: Request, name: str) -> Response | None:
    if request.state.role == "operator":
        return None
    return failed_answer(name, "this address is read-only: it cannot command", 403)


async def arguments_of(request: Request) -> dict[str, Any] | Response:
    """Return the JSON object in a request's body, {} for none, or the answer that refuses it."""
    body = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    return failed_answer(
                        "", f"the body is over the limit of {MAX_BODY_BYTES} bytes", 413
                    )
        found = msgspec.json.decode(shallow(body), type=dict[str, Any]) if body.strip() else {}
    except TimeoutError:
        return failed_answer("", f"the body did not come within {BODY_S:g} s", 408)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return failed_answer("", f"the body is not an object of JSON: {error}", 400)
    return found


def json_answer(document: Any, *, status: int = 200) -> Response:
    data = msgspec.json.encode(document)
    return Response(data, status_code=status, media_type="application/json")


def failed_answer(name: str, reason: str, status: int) -> Response:
    task = f"blimp.{name}"[:80] if name else ""
    failed = Outcome(id=None, task=task, state="FAILURE", reason=reason)
    return json_answer(failed, status=status)
