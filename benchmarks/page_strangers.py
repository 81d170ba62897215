"""Strangers who keep connections: `python -m benchmarks.page_strangers HOST PORT KIND N`.

They keep N connections open, each in a way that costs the server something and them nothing, and
open those again that the server closes. Every half second (`--report-s`) a line says how many are
open and how many were opened. They end with their standard input.
"""

import argparse
import contextlib
import itertools
import resource
import select
import socket
import sys
import threading
import time

BATCH = 64  # connections that are opened between two looks at the others
DRIP_S = 1.0  # between two bytes of each connection
HEAD = "POST /api/estop HTTP/1.1\r\nHost: {host}:{port}\r\n"
HANDSHAKE = (
    "GET /api/socket?token={token} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
# What each sends at first, and whether a byte follows every DRIP_S.
KINDS = {
    "head": (HEAD + "X: ", True),
    "body": (HEAD + "Content-Length: 1000\r\n\r\n", True),
    "command-body": (HEAD + "Authorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n", True),
    "handshake": (HANDSHAKE, True),
    "reader": (HANDSHAKE + "\r\n", False),
    "deaf": ("GET /static/vendor/three.js HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n", False),
    "idle": ("", False),
    "keep-alive": ("GET / HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n", False),
    "huge": (HEAD + "X: " + "x" * 200_000, True),
    "garbage": ("\x00\x01\x02 garbage\r\n\r\n", False),
    "request": ("GET /api/state HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n", False),
    "close": (None, False),
}


class Strangers:
    """Connections to one address. addresses: how many of 127.0.0.0/8 they come from."""

    def __init__(self, host: str, port: int, kind: str, *, token: str, addresses: int) -> None:
        first, self._drips = KINDS[kind]
        text = None if first is None else first.format(host=host, port=port, token=token)
        self._first = None if text is None else text.encode("latin-1")
        self._peer = (host, port)
        self._poll = select.poll()
        self._open: dict[int, socket.socket] = {}
        self._sources = itertools.cycle(range(1, addresses + 1)) if addresses > 1 else None
        self.opened = 0

    def open(self, count: int) -> None:
        """Open as many as are missing, a batch at most."""
        for _ in range(min(BATCH, count - len(self._open))):
            one = socket.socket()
            try:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if self._sources is not None:
                    one.bind((f"127.0.0.{next(self._sources)}", 0))
                one.settimeout(0.2)
                one.connect(self._peer)
                self.opened += 1
                if self._first is None:
                    one.close()
                    continue
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    one.send(self._first)
            except OSError:
                one.close()
                return
            self._open[one.fileno()] = one
            self._poll.register(one, select.POLLRDHUP | select.POLLHUP | select.POLLERR)

    def drip(self) -> None:
        if self._drips:
            for one in list(self._open.values()):
                with contextlib.suppress(OSError):
                    one.send(b"a")

    def sweep(self, wait_s: float) -> None:
        """Forget those that the server has closed."""
        for number, _ in self._poll.poll(1e3 * wait_s):
            self._poll.unregister(number)
            self._open.pop(number).close()

    def __len__(self) -> int:
        return len(self._open)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_strangers")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("count", type=int)
    parser.add_argument("--addresses", type=int, default=1)
    parser.add_argument("--token", default="", help="a token, of those who have one")
    parser.add_argument("--report-s", type=float, default=0.5, help="between two lines")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    count = min(options.count, hard - 64)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    strangers = Strangers(
        options.host, options.port, options.kind, token=options.token, addresses=options.addresses
    )
    dripped_s = said_s = time.monotonic()
    while not ended.is_set():
        strangers.open(count)
        strangers.sweep(0.0 if len(strangers) < count else 0.05)
        now_s = time.monotonic()
        if now_s - dripped_s >= DRIP_S:
            strangers.drip()
            dripped_s = now_s
        if now_s - said_s >= options.report_s:
            print(len(strangers), strangers.opened, flush=True)
            said_s = now_s


if __name__ == "__main__":
    main()
