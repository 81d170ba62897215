"""uvicorn as the page uses it: `admission.py` says whom it serves, before it costs much."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from blimp.clock import Clock
from blimp.web.admission import Admission, FewLines, Limits, Rate, Visit

MAX_SOCKET_BYTES = 64 * 1024
PING_S = 5.0  # a viewer that does not answer within as long again is gone
LOGGERS = ("uvicorn.error", "asyncio")  # what they say is often a stranger's doing


class Server(uvicorn.Server):
    """Serves an application on one listening socket.

    has_token: whether the head of a request names a token of those whom it is there for.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        listening: socket.socket,
        has_token: Callable[[bytes], bool],
        rate: Rate,
        limits: Limits,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Http,
                ws=_WebSocket,
                ws_max_size=MAX_SOCKET_BYTES,
                ws_per_message_deflate=False,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PING_S,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._loop = loop
        self._few_lines = FewLines(clock=clock)
        self._admission = Admission(
            listening, has_token=has_token, serve=self._protocol, rate=rate, limits=limits,
            clock=clock, loop=loop,
        )  # fmt: skip

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:  # noqa: ARG002
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._few_lines)
        await super().startup([])  # none of its own: it would accept without a limit
        self._admission.open()

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:  # noqa: ARG002
        self._admission.close()
        await super().shutdown([])

    def serve_to_end(self) -> None:
        """Serve until it is asked to end; then end what is left, and the loop.

        Connections and tasks are left where a client does not read what was sent to it.
        """
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self.serve())
        finally:
            self._loop.run_until_complete(self._end_rest())
            self._loop.close()
            # The loop tells of its last requests while it is closed.
            for name in LOGGERS:
                logging.getLogger(name).removeFilter(self._few_lines)

    async def _end_rest(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0)  # in which the transports close their sockets

    def _protocol(self, visit: Visit) -> asyncio.Protocol:
        return _Http(self.config, self.server_state, {"visit": visit}, self._loop)


class _Http(H11Protocol):
    """uvicorn's, on a connection whose first head has been read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        visit: Visit = self.app_state["visit"]
        self.data_received(visit.connected(transport))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state["visit"].left()


class _WebSocket(WebSocketsSansIOProtocol):
    """uvicorn's, with an end for a peer that does not read: closing would wait for it."""

    async def run_asgi(self) -> None:
        self.scope["state"]["abort"] = self.transport.abort
        await super().run_asgi()

    def keepalive_timeout(self) -> None:
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state["visit"].left()
