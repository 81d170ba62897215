"""A connection that sends before it is answered: for what must not wait for a round trip.

redis-py's connection waits for the answer to each part of its greeting. On a link with a round trip
of a second that is five seconds before the first command. Here greeting and commands go out in one
packet, so the first command arrives one and a half round trips after the start, and half a one
later if the connection is there. It speaks RESP3, in which one connection both subscribes and asks.
Tested by test_listener.py.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import hiredis

from blimp.closing import Closing
from blimp.queue.redis.address import SEVERAL
from blimp.queue.redis.urls import DEFAULT_PORT, SCHEMES, address_of, tcp_keepalive
from blimp.system import readable

if TYPE_CHECKING:
    from blimp.queue.redis.address import Address

READ_BYTES = 65_536
CONNECT_S = 30.0  # to an address; TCP itself gives up after two minutes
SENTINEL_S = 1.0  # for each sentinel that is asked
SEND_S = 5.0  # for what the kernel has no room for
READ_S = 0.02  # for what is there already
FIRST_ANSWER_S = 60.0  # on a link that loses packets TCP sends again, ever later
ROUND_TRIPS = 4  # that an answer may take, before a dead connection is the better explanation
_GREETING = "greeting"
_NOTHING = object()  # the parser has no whole answer

Command = tuple[str, Sequence[Any]]  # its tag, its words
Event = tuple[str, Any]  # the tag of a command and its answer; or a channel and what came on it


class EagerConnection(Closing):
    """One connection. One thread's, but for `close`, which is idempotent.

    url: of one server. A connection may take CONNECT_S, as TCP tries for longer.
    `open`, `send` and `read` raise OSError if it is lost, and PermissionError, which is one, if
    the server does not let this user in.
    round_trip_s: of the newest answer, or of connecting, at most; None before that.
    database: the number of the server's database that the URL names.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._socket: Any = None
        self._reader: Any = None
        self._asked: deque[tuple[str, float]] = deque()  # tag and time of what is not answered
        self.round_trip_s: float | None = None
        self.database = 0
        self._has_answered = False

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        return int(self._socket.fileno())

    def open(self, first: Callable[[], Sequence[Command]] = tuple) -> None:
        """Connect; send the greeting and `first()` in one packet, and wait for no answer."""
        self.close()
        began_s = time.monotonic()
        self._socket, address = _connect(self._url)
        self.round_trip_s = time.monotonic() - began_s
        self._has_answered = False
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._asked.clear()
        hello: list[Any] = ["HELLO", 3]
        if address.password is not None:
            hello += ["AUTH", address.username or "default", address.password]
        greeting: list[Command] = [(_GREETING, hello)]
        if address.database:
            greeting.append((_GREETING, ("SELECT", address.database)))
        self.database = address.database
        self.send(*greeting, *first())

    def send(self, *commands: Command) -> None:
        """Send commands; `read` returns the answer of each with its tag.

        SUBSCRIBE and UNSUBSCRIBE name one channel each.
        """
        if not commands:
            return
        now_s = time.monotonic()
        data = b"".join(hiredis.pack_command(tuple(words)) for _, words in commands)
        self._asked.extend((tag, now_s) for tag, _ in commands)
        try:
            self._socket.settimeout(SEND_S)
            self._socket.sendall(data)
        except AttributeError:  # closed by another thread
            raise ConnectionError("the connection is closed") from None

    @property
    def silent_s(self) -> float:
        """For how long the oldest question has had no answer; 0 if there is none."""
        return time.monotonic() - self._asked[0][1] if self._asked else 0.0

    def is_overdue(self, least_s: float) -> bool:
        """Return whether the server has been silent for longer than its link explains.

        least_s: of a server that has answered before, however fast its link is.
        """
        if not self._has_answered:
            return self.silent_s > FIRST_ANSWER_S
        return self.silent_s > max(least_s, ROUND_TRIPS * (self.round_trip_s or 0.0))

    @property
    def has_answered(self) -> bool:
        """Whether anything came on this connection."""
        return self._has_answered

    def read(self) -> list[Event]:
        """Return what has come: call it when it is readable. It may be no whole answer yet.

        An error is the answer to its command, as hiredis.ReplyError.
        """
        try:
            self._socket.settimeout(READ_S)
            data = self._socket.recv(READ_BYTES)
        except AttributeError:
            raise ConnectionError("the connection is closed") from None
        except TimeoutError:  # TLS has a part of a record, which is nothing to read
            return []
        if not data:
            raise ConnectionError("the server closed the connection")
        self._has_answered = True
        self._reader.feed(data)
        events: list[Event] = []
        while (answer := self._reader.gets()) is not _NOTHING:
            events += self._events(answer)
        return events

    def _events(self, answer: Any) -> list[Event]:
        if isinstance(answer, hiredis.PushNotification):
            kind = answer[0]
            if kind == b"message":
                return [(answer[1].decode(errors="replace"), answer[2])]
            if kind in (b"subscribe", b"unsubscribe"):  # it stands where the answer would
                self._answered()
            return []
        tag = self._answered()
        if tag != _GREETING:
            return [(tag, answer)]
        if isinstance(answer, hiredis.ReplyError):
            raise PermissionError(f"the server refuses: {answer}")
        return []

    def _answered(self) -> str:
        tag, sent_s = self._asked.popleft()
        self.round_trip_s = time.monotonic() - sent_s
        return tag

    def wait(self, timeout_s: float, *others: int) -> list[int]:
        """Return the descriptors, of this connection and `others`, that are readable in time."""
        has_more = getattr(self._socket, "pending", None)
        if has_more is not None and has_more():  # decrypted already: the kernel knows nothing of it
            return [self.fileno()]
        return readable((self.fileno(), *others), max(0.0, timeout_s))

    def close(self) -> None:
        channel, self._socket = self._socket, None
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
            channel.close()


def _connect(url: str) -> tuple[Any, Address]:
    """Return a connected socket, and what the URL says of the user and the database."""
    address = address_of(url, schemes=(*SCHEMES, "socket"))
    if address.is_tls or address.scheme in SEVERAL:
        return _connect_by_redis_py(url), address
    if address.path:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.settimeout(CONNECT_S)
        try:
            channel.connect(address.path)
        except OSError:
            channel.close()
            raise
        return channel, address
    ((host, port),) = address.hosts
    channel = socket.create_connection((host, port or DEFAULT_PORT), timeout=CONNECT_S)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in tcp_keepalive().items():
        channel.setsockopt(socket.IPPROTO_TCP, option, value)
    return channel, address


def _connect_by_redis_py(url: str) -> Any:
    """Connect with TLS, or to the master that a sentinel or a cluster names."""
    import redis

    from blimp.queue.redis.client import open_redis

    pool: Any = open_redis(url, timeout_s=SENTINEL_S).connection_pool
    given, kind = dict(pool.connection_kwargs), pool.connection_class
    try:
        if url.startswith(("sentinel://", "cluster://")):
            given["host"], given["port"] = pool.get_master_address()
            del given["connection_pool"]
            is_tls = issubclass(kind, redis.SSLConnection)
            kind = redis.SSLConnection if is_tls else redis.Connection
        given |= {"socket_timeout": CONNECT_S, "socket_connect_timeout": CONNECT_S}
        return kind(**given)._connect()
    except redis.RedisError as error:
        raise ConnectionError(str(error)) from error
