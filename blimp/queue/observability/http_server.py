"""One page over HTTP: what a scraper reads. Whatever else comes is answered or hung up on."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from blimp.closing import Closing
from blimp.errors import ConfigError

MOST_AT_ONCE = 4
REQUEST_S = 5.0  # how long a part of a request may take to come, or one of an answer to be taken
WHOLE_S = 10.0  # how long all of it may take: a byte now and then keeps nobody out
PATH = "/metrics"

# Called with the header `Accept`; returns the content type and the page.
Page = Callable[[str], tuple[str, bytes]]


class PageServer(Closing):
    """Serves `page` at /metrics, from threads of its own. Close is idempotent.

    port: 0 for any that is free; `port` says which. Nothing wakes it but a request.
    on_start: called once, in the server's thread, before the first request.
    Raises ConfigError where the address is taken or is none of this machine's.
    """

    def __init__(
        self, *, page: Page, address: str, port: int, on_start: Callable[[], object]
    ) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        kind = type("Server", (_Server,), {"address_family": family})
        try:
            self._server: _Server = kind((address, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"metrics at {address}:{port}: {error}") from error
        self._server.page = page
        self._on_start = on_start
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for a request
        if self._thread.is_alive():
            self._thread.join(timeout=REQUEST_S)
        self._server.server_close()

    def _serve(self) -> None:
        self._on_start()
        while not self._closed:
            self._server.handle_request()


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16
    page: Page

    def __init__(self, *arguments: Any) -> None:
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without asking for this machine's name
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            end = threading.Timer(WHOLE_S, hang_up, (request,))
            end.daemon = True
            end.start()
            try:
                super().process_request_thread(request, client_address)
            finally:
                end.cancel()
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: it is the client's, and it has gone."""


def hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S
    server_version = "blimp"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, explain=f"only {PATH} is here")
            return
        kind, page = self.server.page(self.headers.get("Accept") or "")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if with_body:
            self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Nothing: a line for each scrape tells nobody anything."""
