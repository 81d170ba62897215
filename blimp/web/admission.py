"""Who may hold a connection to the page, and for how long.

A request's head is read here, at the price of a few system calls, and only a whole one reaches
the server. A connection on which no token was seen is a stranger's. Strangers share a fixed number
of connections: one more closes the oldest of the address that has most, so that nobody is locked
out by those who are there already, and many honest ones behind one address get in as long as they
are prompt. A connection with a token leaves that crowd.

All of it runs in the server's loop and never waits.
"""

import asyncio
import ipaddress
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from blimp.clock import Clock

MAX_HEAD_BYTES = 16 * 1024  # browsers send under 2 KiB, and servers take 8 to 64
BATCH = 16  # accepted in one turn of the loop: under 1 ms, so that no press waits longer for it
SWEEP_S = 0.5
# Between two batches of strangers who push each other out: some 4,000 a second are accepted then,
# for a fourth of the processor, and who is there already is served in between.
CROWDED_S = 0.003
DEAF_S = 0.1  # for which nobody is accepted when the system is out of files


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much strangers may have.

    Chosen: far below the 1,024 files of a normal login, of which commands, brokers and static
    files take some dozens; a browser opens 6 connections to a server, so an address of a
    conference may have ten browsers that load the page in the same instant.
    """

    strangers: int = 256
    strangers_of_an_address: int = 64
    known: int = 384
    head_s: float = 5.0  # until the head of a request is there
    stranger_s: float = 60.0  # until a stranger's answer is read, or a token is seen
    # Requests of strangers, each some 1 ms: the page's files, some 40 for a browser, and what is
    # refused. More wait for their turn.
    requests_hz: float = 100.0
    requests_at_once: int = 50
    requests_wait_s: float = 2.0


OPERATORS = Limits()
# In the room's process nobody waits for a stop, and 48 phones may load the page in one instant.
ROOMS = Limits(requests_hz=500.0, requests_at_once=500, requests_wait_s=4.0)


class Visit:
    """One connection. `head` is what came before the server has it."""

    __slots__ = (
        "_crowds",
        "address",
        "began_s",
        "has_turn",
        "head",
        "is_over",
        "sock",
        "transport",
    )

    def __init__(self, sock: socket.socket, address: str, began_s: float, crowds: "Crowds") -> None:
        self.sock: socket.socket | None = sock
        self.transport: asyncio.Transport | None = None
        self.address = address
        self.began_s = began_s
        self.head = b""
        self.has_turn = False  # at the rate of strangers' requests, for its first one
        self.is_over = False
        self._crowds = crowds

    def connected(self, transport: asyncio.Transport) -> bytes:
        """Return the head for the protocol that serves it from now on."""
        self.transport = transport
        if self.is_over:  # ended on the way here
            transport.abort()
        head, self.head = self.head, b""
        return head

    def known(self) -> None:
        """Take it out of the strangers' crowd: it has shown a token."""
        self._crowds.known(self)

    def left(self) -> None:
        self._crowds.forget(self)


class Crowd:
    """Visits, the oldest of each address first."""

    def __init__(self, *, most: int, most_of_an_address: int) -> None:
        self._most, self._most_of_an_address = most, most_of_an_address
        self._by_address: dict[str, dict[Visit, None]] = {}
        self._count = 0

    def add(self, visit: Visit) -> Visit | None:
        """Return the visit that has to end for this one, if one has."""
        same = self._by_address.setdefault(visit.address, {})
        same[visit] = None
        self._count += 1
        if len(same) > self._most_of_an_address:
            return next(iter(same))
        if self._count > self._most:
            return self.oldest()
        return None

    def oldest(self) -> Visit | None:
        """Return the oldest visit of the address that has most."""
        most = max(self._by_address.values(), key=len, default=None)
        return None if most is None else next(iter(most))

    def discard(self, visit: Visit) -> None:
        same = self._by_address.get(visit.address)
        if same is not None and visit in same:
            del same[visit]
            self._count -= 1
            if not same:
                del self._by_address[visit.address]

    def __contains__(self, visit: Visit) -> bool:
        return visit in self._by_address.get(visit.address, ())

    def __iter__(self) -> Iterator[Visit]:
        for same in self._by_address.values():
            yield from same


class Crowds:
    """Strangers, and those who have shown a token."""

    def __init__(self, limits: Limits, *, end: Callable[[Visit], None]) -> None:
        self.strangers = Crowd(
            most=limits.strangers, most_of_an_address=limits.strangers_of_an_address
        )
        self._known = Crowd(most=limits.known, most_of_an_address=limits.known)
        self._end = end

    def enter(self, visit: Visit) -> bool:
        """Return whether another had to end for it."""
        ended = self.strangers.add(visit)
        self._let_end(ended)
        return ended is not None

    def known(self, visit: Visit) -> None:
        if visit in self.strangers:
            self.strangers.discard(visit)
            self._let_end(self._known.add(visit))

    def forget(self, visit: Visit) -> None:
        self.strangers.discard(visit)
        self._known.discard(visit)

    def _let_end(self, visit: Visit | None) -> None:
        if visit is not None:
            self.forget(visit)
            self._end(visit)


class Rate:
    """So many a second, so many at once after a pause; more wait for their turn, up to `wait_s`.

    Honest browsers that load the page at the same time come a little later then, not in vain.
    """

    def __init__(self, *, per_s: float, at_once: int, wait_s: float, clock: Clock) -> None:
        self._every_s, self._at_once, self._wait_s = 1.0 / per_s, at_once, wait_s
        self._clock = clock
        self._last_s = -float("inf")  # the turn of the newest, at an even pace

    def take(self) -> float | None:
        """Take a turn; return in how many seconds it comes, None if that is too late."""
        delay_s = self._delay_s()
        if delay_s > self._wait_s:
            return None
        self._last_s += self._every_s
        return delay_s

    def _delay_s(self) -> float:
        now_s = self._clock.now_s()
        self._last_s = max(self._last_s, now_s - self._at_once * self._every_s)
        return max(0.0, self._last_s + self._every_s - now_s)


class Admission:
    """Accepts the connections of one address and passes each on with a whole head of a request.

    has_token: whether a head names a token; those pass whatever strangers do. serve: makes the
    protocol that serves a connection; it takes the visit's head when it is connected.
    rate: of strangers' requests; what is over it is closed before it costs more.
    """

    def __init__(
        self,
        listening: socket.socket,
        *,
        has_token: Callable[[bytes], bool],
        serve: Callable[[Visit], asyncio.Protocol],
        rate: Rate,
        limits: Limits,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._listening = listening
        self._has_token, self._serve = has_token, serve
        self._rate, self._limits, self._clock, self._loop = rate, limits, clock, loop
        self._crowds = Crowds(limits, end=self._end)
        self._passing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False

    def open(self) -> None:
        self._listening.setblocking(False)
        self._is_open = True
        self._listen()
        self._sweep()

    def close(self) -> None:
        """Accept nobody any more, and end the strangers. Idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._listening)
        if self._timer is not None:
            self._timer.cancel()
        for visit in list(self._crowds.strangers):
            self._crowds.forget(visit)
            self._end(visit)

    def _listen(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        is_crowded = False
        for _ in range(BATCH):
            try:
                sock, peer = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # out of files, which strangers cannot cause: their number is limited
                self._pause(DEAF_S)
                if (oldest := self._crowds.strangers.oldest()) is not None:
                    self._crowds.forget(oldest)
                    self._end(oldest)
                return
            sock.setblocking(False)
            visit = Visit(sock, network_of(peer[0]), self._clock.now_s(), self._crowds)
            is_crowded |= self._crowds.enter(visit)
            if not self._read(visit):
                self._loop.add_reader(sock, self._read, visit)
        if is_crowded:
            self._pause(CROWDED_S)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening)
        self._loop.call_later(seconds, self._listen)

    def _read(self, visit: Visit) -> bool:
        """Read what is there of a head; return whether the visit is over or the server's by now."""
        sock = visit.sock
        if sock is None:
            return True
        try:
            data = sock.recv(MAX_HEAD_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        visit.head += data
        if b"\r\n\r\n" in visit.head:
            self._pass_on(visit, sock)
            return True
        if data and len(visit.head) < MAX_HEAD_BYTES:
            return False
        visit.left()
        self._end(visit)
        return True

    def _pass_on(self, visit: Visit, sock: socket.socket) -> None:
        """Pass a whole head to the server; a stranger's when its turn comes."""
        self._loop.remove_reader(sock)
        if self._has_token(visit.head):
            visit.known()
            self._serve_now(visit)
            return
        delay_s = self._rate.take()
        if delay_s is None:
            visit.left()
            self._end(visit)
            return
        visit.has_turn = True
        self._loop.call_later(delay_s, self._serve_now, visit)

    def _serve_now(self, visit: Visit) -> None:
        sock = visit.sock
        if sock is None:
            return  # it was ended meanwhile
        visit.sock = None
        visit.began_s = self._clock.now_s()
        task = self._loop.create_task(self._connect(visit, sock))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _connect(self, visit: Visit, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._serve(visit), sock)
        except OSError:
            visit.left()
            sock.close()

    def _end(self, visit: Visit) -> None:
        visit.is_over = True
        if visit.sock is not None:
            self._loop.remove_reader(visit.sock)
            visit.sock.close()
            visit.sock = None
        elif visit.transport is not None:
            visit.transport.abort()

    def _sweep(self) -> None:
        """End the strangers whose time is over."""
        now_s = self._clock.now_s()
        for visit in list(self._crowds.strangers):
            limit_s = self._limits.head_s if visit.sock is not None else self._limits.stranger_s
            if now_s - visit.began_s > limit_s:
                self._crowds.forget(visit)
                self._end(visit)
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)


def network_of(address: str) -> str:
    """Return whom an address belongs to: with IPv6 one has a network of 64 bits at least."""
    if ":" not in address:
        return address
    name = address.partition("%")[0]
    return str(ipaddress.ip_network((name, 64), strict=False).network_address)


class FewLines(logging.Filter):
    """Lets a library's logger write so many lines a minute: a stranger can cause each of them."""

    def __init__(self, *, clock: Clock, most: int = 10, within_s: float = 60.0) -> None:
        super().__init__()
        self._clock, self._within_s = clock, within_s
        self._written_s: deque[float] = deque(maxlen=most)
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = self._clock.now_s()
        written = self._written_s
        if len(written) == written.maxlen and now_s - written[0] < self._within_s:
            self._left_out += 1
            return False
        written.append(now_s)
        if self._left_out:
            record.msg, record.args = f"{record.getMessage()} ({self._left_out} more before)", ()
            self._left_out = 0
        return True
