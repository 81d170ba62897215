"""A TCP connection to a server that a test can cut, or freeze half-open."""

import contextlib
import heapq
import itertools
import random
import selectors
import socket
import threading
import time
from math import inf
from typing import Self

CHUNK_BYTES = 65_536
PACKET_BYTES = 1448  # of TCP on Ethernet
LEAST_TIMEOUT_S = 0.2  # Linux' TCP_RTO_MIN


class TcpLink:
    """Forwards what comes to `port` to the server's, on a thread. A context manager.

    server: its port on this machine, or the path of its Unix socket.
    cut: ends every connection, and those to come, until `mend`. freeze: forwards nothing and
    ends nothing, as a radio out of range, until `mend`; what was sent meanwhile is lost.
    delay_s: what each way takes. handshake: a connection takes a round trip before its first byte,
    as it does where no proxy accepts it nearby. loss: the share of packets that is lost; each is
    sent again after a retransmission timeout, which doubles (RFC 6298), and what follows waits.
    bytes_per_s: what each way carries, of all connections together, in packets.
    """

    def __init__(
        self, *, server: int | str, delay_s: float = 0.0, handshake: bool = False,
        loss: float = 0.0, bytes_per_s: float = inf, seed: int = 1,
    ) -> None:  # fmt: skip
        self._delay_s = delay_s
        self._handshake_s = 2 * delay_s if handshake else 0.0
        self._loss, self._chance = loss, random.Random(seed)
        self._bytes_per_s = bytes_per_s
        self._free_s = {True: 0.0, False: 0.0}  # when each way, to the server or back, is free
        self._to_server: set[socket.socket] = set()
        self._due_s: dict[socket.socket, float] = {}  # of the newest that goes to a socket
        self._under_way: list[tuple[float, int, socket.socket, bytes]] = []
        self._numbers = itertools.count()
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._mode = "open"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="tcp-link", daemon=True)

    def cut(self) -> None:
        with self._lock:
            self._mode = "cut"
            self._drop_all()

    def freeze(self) -> None:
        with self._lock:
            self._mode = "frozen"

    def mend(self) -> None:
        with self._lock:
            if self._mode == "frozen":
                self._drop_all()
            self._mode = "open"

    def __enter__(self) -> Self:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._drop_all()
        self._listener.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.02 if self._delay_s == 0.0 else 0.005):
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif isinstance(key.fileobj, socket.socket):
                        self._forward(key.fileobj)
            while self._under_way and self._under_way[0][0] <= time.monotonic():
                _, _, target, data = heapq.heappop(self._under_way)
                with contextlib.suppress(OSError):
                    target.sendall(data)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        if self._mode == "cut":
            near.close()
            return
        try:
            if isinstance(self._server, str):
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._server)
            else:
                far = socket.create_connection(("127.0.0.1", self._server))
        except OSError:  # the server is down
            near.close()
            return
        self._to_server.add(far)
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
            begun_s = time.monotonic() + self._handshake_s + self._lost_s()
            self._due_s[one] = begun_s + self._delay_s
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        target = self._pairs.get(source)
        if target is None:
            return
        try:
            data = source.recv(CHUNK_BYTES)
            if data and self._mode == "frozen":
                return
            if data and self._delay_s > 0.0:
                self._delay(target, data)
                return
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        self._drop(source)

    def _delay(self, target: socket.socket, data: bytes) -> None:
        size = CHUNK_BYTES if self._bytes_per_s == inf else PACKET_BYTES
        for start in range(0, len(data), size):
            packet = data[start : start + size]
            begun_s = max(time.monotonic(), self._due_s.get(target, 0.0) - self._delay_s)
            way = target in self._to_server
            sent_s = max(time.monotonic(), self._free_s[way]) + len(packet) / self._bytes_per_s
            self._free_s[way] = sent_s
            due_s = max(begun_s, sent_s) + self._delay_s + self._lost_s()
            self._due_s[target] = due_s
            heapq.heappush(self._under_way, (due_s, next(self._numbers), target, packet))

    def _lost_s(self) -> float:
        """Return by how much a packet is later for being lost, perhaps several times."""
        lost_s, timeout_s = 0.0, max(LEAST_TIMEOUT_S, 2 * self._delay_s)
        while self._chance.random() < self._loss:
            lost_s, timeout_s = lost_s + timeout_s, 2 * timeout_s
        return lost_s

    def _drop(self, one: socket.socket) -> None:
        for each in (one, self._pairs.pop(one)):
            self._due_s.pop(each, None)
            self._to_server.discard(each)
            self._pairs.pop(each, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()

    def _drop_all(self) -> None:
        while self._pairs:
            self._drop(next(iter(self._pairs)))
