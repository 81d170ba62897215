"""A proxy on a Unix socket between workers and their server that knows each command.

Every command and every reply passes one thread, which counts them by what they are and asks
the fault, if one is set, before it passes anything on.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections import Counter, deque
from hashlib import sha1
from pathlib import Path
from typing import Protocol

import msgspec

from blimp.queue.broadcast.listener import LOOK
from blimp.queue.brokers.streams.store import SCRIPTS
from blimp.queue.results.redis_backend import STORE
from tests.faults import resp

SUBSCRIBED = b">3\r\n$9\r\nsubscribe\r\n"  # what answers SUBSCRIBE in RESP3


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command: what it is, and the how manieth of its kind since `restart`."""

    kind: str
    ordinal: int

    def __str__(self) -> str:
        return f"{self.kind}#{self.ordinal}"


class Fault(Protocol):
    """Asked in the proxy's thread: before a command goes up, after its reply came down.

    True: it is passed on. False: it is not, and the connection ends. None: it is not, and
    the connection stays open.
    """

    def before(self, command: Command) -> bool | None: ...

    def after(self, command: Command) -> bool | None: ...


class _Pair:
    """One client's connection and ours to the server for it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.from_client, self.from_server = bytearray(), bytearray()
        self.asked: deque[Command] = deque()
        self.is_dead = False


class Proxy:
    """Listens at `path` for the server at `upstream`. Close is idempotent.

    swallow: while it is set, nothing passes either way and no connection ends: the link is half
        open. Connections that were in use then never pass anything again.
    """

    def __init__(self, *, path: Path, upstream: Path) -> None:
        self.commands: list[Command] = []
        self.fault: Fault | None = None
        self.swallow = False
        self._upstream = str(upstream)
        self._names = _script_names()
        self._counts: Counter[str] = Counter()
        self._pairs: dict[socket.socket, _Pair] = {}
        self._chosen = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen(128)
        self._wake_out, self._wake_in = os.pipe()
        self._chosen.register(self._door, selectors.EVENT_READ)
        self._chosen.register(self._wake_out, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._thread.start()

    def restart(self, fault: Fault | None = None) -> None:
        """Count from nothing, and set `fault`; let go of every connection there is."""
        with self._lock:
            for pair in set(self._pairs.values()):
                self._drop(pair)
            self.commands, self._counts, self.fault = [], Counter(), fault

    def settle(self) -> None:
        """Return when no command or reply is under way inside the proxy."""
        with self._lock:
            return

    def cut(self) -> None:
        """Close every connection, as a server does that ends."""
        with self._lock:
            for pair in set(self._pairs.values()):
                self._drop(pair)

    def close(self) -> None:
        if self._wake_in >= 0:
            os.close(self._wake_in)
            self._wake_in = -1
            self._thread.join()
            os.close(self._wake_out)
            self._chosen.close()
            self.cut()
            self._door.close()

    # --- its thread --------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            for key, _ in self._chosen.select():
                if key.fileobj == self._wake_out:
                    return
                with self._lock:
                    if key.fileobj is self._door:
                        self._accept()
                        continue
                    assert isinstance(key.fileobj, socket.socket)
                    pair = self._pairs.get(key.fileobj)
                    if pair is not None:
                        try:
                            self._pass_on(pair, upwards=key.fileobj is pair.client)
                        except OSError:
                            self._drop(pair)

    def _accept(self) -> None:
        client, server = self._door.accept()[0], socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._upstream)
        except OSError:
            client.close()
            server.close()
            return
        pair = _Pair(client, server)
        for one in (client, server):
            self._pairs[one] = pair
            self._chosen.register(one, selectors.EVENT_READ)

    def _pass_on(self, pair: _Pair, *, upwards: bool) -> None:
        source, target = (pair.client, pair.server) if upwards else (pair.server, pair.client)
        data = source.recv(1 << 20)
        if self.swallow or pair.is_dead:
            pair.is_dead = True
            if not data:  # one end is gone, and the other does not learn of it
                self._chosen.unregister(source)
            return
        if not data:
            self._drop(pair)
            return
        gathered = pair.from_client if upwards else pair.from_server
        gathered += data
        for value in resp.split(gathered):
            passes = self._ask(pair, value) if upwards else self._answer(pair, value)
            if passes is None:
                pair.is_dead = True
                return
            if not passes:
                self._drop(pair)
                return
            target.sendall(value)

    def _ask(self, pair: _Pair, request: bytes) -> bool | None:
        kind = self._kind(resp.words(request))
        self._counts[kind] += 1
        command = Command(kind=kind, ordinal=self._counts[kind])
        self.commands.append(command)
        pair.asked.append(command)
        return self.fault is None or self.fault.before(command)

    def _answer(self, pair: _Pair, reply: bytes) -> bool | None:
        is_push = reply[0] == resp.PUSH and not reply.startswith(SUBSCRIBED)
        if is_push or not pair.asked:
            return True
        command = pair.asked.popleft()
        return self.fault is None or self.fault.after(command)

    def _kind(self, asked: list[bytes]) -> str:
        name = asked[0].decode().upper()
        if name == "EVALSHA":
            return self._names.get(asked[1].decode(), name)
        if name == "EVAL":
            return self._names.get(sha1(asked[1], usedforsecurity=False).hexdigest(), name)
        if name in ("CLIENT", "SCRIPT", "XGROUP", "CONFIG"):
            return f"{name} {asked[1].decode().upper()}"
        return name

    def _drop(self, pair: _Pair) -> None:
        for one in (pair.client, pair.server):
            if self._pairs.pop(one, None) is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._chosen.unregister(one)
                one.close()


def _script_names() -> dict[str, str]:
    """Return the name of each script by its hash."""
    return {
        script.digest: name for name, script in {**SCRIPTS, "store": STORE, "look": LOOK}.items()
    }
