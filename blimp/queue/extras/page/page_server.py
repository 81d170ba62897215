"""Serves the page of one app until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from blimp.queue.extras.page.queue_room import QueueRoom
from blimp.web.access import LOOPBACK, Access, Tokens
from blimp.web.admission import OPERATORS, Rate
from blimp.web.answers import failed_answer
from blimp.web.listening import listening_socket, shown_address
from blimp.web.serving import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from blimp.queue.app import TaskApp

STATIC = Path(__file__).parent / "static"


def serve(
    app: TaskApp, *, host: str, port: int, read_only: bool, say_url: Callable[[str], None]
) -> None:
    """Serve the page of `app` until Ctrl-C or SIGTERM.

    port: 0 takes any free port. read_only: nobody can change anything. say_url: called with
    the address to be opened, with its token, as soon as it answers. Raises ConfigError if the
    address cannot be listened on.
    """
    tokens, clock, loop = Tokens(), app.clock, asyncio.new_event_loop()
    rate = Rate(
        per_s=OPERATORS.requests_hz,
        at_once=OPERATORS.requests_at_once,
        wait_s=OPERATORS.requests_wait_s,
        clock=clock,
    )
    is_open = host not in LOOPBACK

    with (
        listening_socket(host, port) as listening,
        app,
        QueueRoom(lambda _: nullcontext(app), clock=clock) as room,
    ):
        starlette = Starlette(
            routes=[
                Route("/", _index),
                *room.routes(),
                Route("/api/{path:path}", _nothing, methods=["GET", "POST"]),
                Mount("/static", StaticFiles(directory=STATIC, packages=[("blimp.web", "static")])),
            ],
            middleware=[Middleware(Access, tokens=tokens, is_open=is_open, rate=rate)],
        )
        server = Server(
            starlette, listening=listening, has_token=tokens.are_in, rate=rate,
            limits=OPERATORS, clock=clock, loop=loop,
        )  # fmt: skip
        token = tokens.viewer if read_only else tokens.operator
        address = f"{shown_address(host)}:{listening.getsockname()[1]}"
        loop.call_soon(say_url, f"http://{address}/?token={token}")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):  # the server has ended in order, and raises what ended it
            server.serve_to_end()


async def _index(_: Request) -> Response:
    return FileResponse(STATIC / "queue.html")


async def _nothing(request: Request) -> Response:
    return failed_answer("", f"nothing is at {request.url.path[:60]!r}", 404)
