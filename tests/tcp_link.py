"""A TCP connection to a server that a test can cut, or freeze half-open."""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from typing import Self

CHUNK_BYTES = 65_536


class TcpLink:
    """Forwards what comes to `port` to the server's, on a thread. A context manager.

    server: its port on this machine, or the path of its Unix socket.
    cut: ends every connection, and those to come, until `mend`. freeze: forwards nothing and
    ends nothing, as a radio out of range, until `mend`; what was sent meanwhile is lost.
    delay_s: what each way takes.
    """

    def __init__(self, *, server: int | str, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._under_way: deque[tuple[float, socket.socket, bytes]] = deque()
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
                _, target, data = self._under_way.popleft()
                with contextlib.suppress(OSError):
                    target.sendall(data)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        if self._mode == "cut":
            near.close()
            return
        if isinstance(self._server, str):
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._server)
        else:
            far = socket.create_connection(("127.0.0.1", self._server))
        for one, other in ((near, far), (far, near)):
            self._pairs[one] = other
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
                self._under_way.append((time.monotonic() + self._delay_s, target, data))
                return
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        for each in (one, self._pairs.pop(one)):
            self._pairs.pop(each, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()

    def _drop_all(self) -> None:
        while self._pairs:
            self._drop(next(iter(self._pairs)))
