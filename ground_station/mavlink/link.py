"""Links of MAVLink: a UDP port that stations find, an address to send to, TCP, a serial line.

Each ends in `Peer`s, one for a station's address, a connection or a line. Who only connects, or
sends noise, shuts nobody out: strangers make room for the newest, and what they send for messages.
"""

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from blimp.errors import LinkError
from blimp.system import TerminalError
from blimp.web.admission import network_of
from ground_station.mavlink.bulk import Bulk
from ground_station.mavlink.frames import Frame, frames_in
from ground_station.mavlink.peer import MAX_WAITING_BYTES, Bucket, Peer
from ground_station.mavlink.places import Place, speed_of
from ground_station.mavlink.signing import INVALID, Signing

MAX_PEERS = 16  # addresses from which messages come, and as many connections
MAX_STRANGERS = 64  # connections from which no message has come
BACKLOG = 16  # connections in one turn of the loop: the newest is read before it has to go
FORGET_S = 15.0  # after this silence nothing more is sent to an address
ALL_HZ, ALL_AT_ONCE = 800.0, 200.0  # messages of all peers: stops and what may wait are not counted
READ_BYTES = 1024  # of a connection in one turn
DATAGRAMS = 64  # of a port in one turn
RETRY_S = 1.0


class Links:
    """All links of one process, in one event loop.

    on_frame: called with each message. on_refused: with why some were none, once for some bytes.
    has_ship: whether a peer of this name has a ship, and never makes room.
    """

    def __init__(
        self,
        *,
        on_frame: Callable[[Peer, Frame], object],
        on_refused: Callable[[str], object],
        now_s: Callable[[], float],
        signing: Signing | None = None,
        has_ship: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._on_frame, self._on_refused = on_frame, on_refused
        self._now_s = now_s
        self._signing = signing
        self._has_ship = has_ship
        self._peers: dict[object, Peer] = {}
        self._refusal = ""
        self._is_behind = (
            False  # who sends what is being read has the key, and a clock that is behind
        )
        self._rate = Bucket(per_s=ALL_HZ, most=ALL_AT_ONCE, at_first=ALL_AT_ONCE, now_s=now_s)
        self._own = contextlib.AsyncExitStack()
        self.bulk = Bulk(reaches=self.reaches)

    async def __aenter__(self) -> Self:
        self._own.push_async_callback(self.bulk.close)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._own.aclose()

    def send(self, data: bytes) -> None:
        """Send to every peer that is there."""
        for key, peer in list(self._peers.items()):
            if self.reaches(peer):
                peer.send(data)
            else:
                del self._peers[key]

    async def listen(self, place: Place) -> int:
        """Wait there for stations; return the port, also if 0 was asked. Raises LinkError."""
        try:
            if place.kind == "tcp":
                server = await asyncio.start_server(
                    self._serve, place.host, place.port, backlog=BACKLOG
                )
                self._own.callback(server.close)
                return int(server.sockets[0].getsockname()[1])
            port = await _opened(place, is_ours=True)
        except OSError as error:
            raise LinkError(f"MAVLink: cannot listen on {place}: {error}") from error
        self._read(port, lambda: self._datagrams(port))
        return int(port.getsockname()[1])

    async def connect(self, place: Place) -> None:
        """Send there from now on; TCP is dialled again and again. Raises LinkError."""
        if place.kind == "tcp":
            dialling = asyncio.create_task(self._dial(place))
            self._own.callback(dialling.cancel)
            return
        try:
            port = await _opened(place, is_ours=False)
        except OSError as error:
            raise LinkError(f"MAVLink: cannot send to {place}: {error}") from error
        peer = self.add(str(place), Peer(str(place), _sender(port), now_s=self._now_s))
        self._read(port, lambda: self._datagrams(port, peer))

    def open_serial(self, place: Place) -> None:
        """Use a serial line. Raises LinkError if it cannot be opened."""
        try:
            line = _open_line(place)
        except (OSError, TerminalError) as error:
            raise LinkError(f"MAVLink serial line {place.host}: {error}") from error
        loop = asyncio.get_running_loop()
        peer = self.add(
            line,
            Peer(
                place.host, lambda data: _write(line, data), now_s=self._now_s,
                line_bps=place.port / 10.0,
            ),
        )  # fmt: skip

        def read() -> None:
            try:
                data = os.read(line, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                self.received(peer, data)
            else:  # unplugged: such a line is readable for ever
                loop.remove_reader(line)
                self._peers.pop(line, None)

        loop.add_reader(line, read)
        self._own.callback(os.close, line)
        self._own.callback(loop.remove_reader, line)

    def add(self, key: object, peer: Peer) -> Peer:
        """Have a peer from now on. key: a socket's address, a connection, a line or a place."""
        self._peers[key] = peer
        return peer

    def reaches(self, peer: Peer) -> bool:
        """Whether a peer is still there; one at an address is if it was heard not long ago."""
        if peer.heard_s + FORGET_S >= self._now_s():
            return any(one is peer for one in self._peers.values())
        return any(one is peer and not isinstance(k, tuple) for k, one in self._peers.items())

    def received(self, peer: Peer, data: bytes) -> None:
        """Take some bytes of a stream."""
        frames, peer.rest = frames_in(peer.rest + data, accept=self._accept)
        self._take(peer, frames, size=len(data))

    def received_from(
        self, address: tuple[Any, ...], data: bytes, send: Callable[..., Any]
    ) -> None:
        """Take a datagram, which has messages whole. Who sends none is no peer.

        Whose clock is behind is one: stations set their signatures' time by what is sent to them.
        """
        self._is_behind = False
        frames, _ = frames_in(data, accept=self._accept)
        peer = self._peers.get(address)
        if peer is None and (frames or self._is_behind):
            peer = Peer(
                f"udp:{address[0]}:{address[1]}", lambda data: send(data, address),
                now_s=self._now_s, address=network_of(address[0]),
                is_proven=self._signing is not None and not self._is_behind,
            )  # fmt: skip
            self._make_room(MAX_PEERS, lambda key, _: isinstance(key, tuple))
            self.add(address, peer)
        if peer is not None:
            self._take(peer, frames, size=len(data))
        else:
            self._tell_refused()

    def _accept(self, frame: Frame) -> bool:
        why = "" if self._signing is None else self._signing.refusal(frame)
        self._refusal = why or self._refusal
        self._is_behind |= why not in ("", INVALID)
        return not why

    def _take(self, peer: Peer, frames: list[Frame], *, size: int) -> None:
        if frames:
            peer.came(size)
        for frame in frames:
            if frame.is_stop or (peer.may_ask() and self._may_ask(peer)):
                self._on_frame(peer, frame)
        self._tell_refused()

    def _may_ask(self, peer: Peer) -> bool:
        """Count one of all messages; the pilot's do not wait for those of others."""
        return self._rate.take(1.0) or self._has_ship(peer.name)

    def _tell_refused(self) -> None:
        if self._refusal:
            self._on_refused(self._refusal)
            self._refusal = ""

    def _make_room(self, most: int, counts: Callable[[object, Peer], bool]) -> None:
        """End one of the peers that count if there are `most`: of the address that has most of
        them the one that was silent for longest."""
        some = {key: peer for key, peer in self._peers.items() if counts(key, peer)}
        if len(some) < most:
            return
        of = Counter(peer.address for peer in some.values())
        ends = min(
            (key for key, peer in some.items() if not self._has_ship(peer.name)),
            key=lambda key: (-of[some[key].address], some[key].heard_s),
            default=None,
        )
        if ends is not None:
            del self._peers[ends]
            if isinstance(ends, asyncio.StreamWriter):
                ends.transport.abort()

    async def _dial(self, place: Place) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(place.host, place.port)
                await self._serve(reader, writer, key=str(place))
            await asyncio.sleep(RETRY_S)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, key: object = None
    ) -> None:
        """Serve a connection to its end. key: of one that was dialled, which makes no room."""
        waiting = writer.transport.get_write_buffer_size

        def send(data: bytes) -> None:
            if waiting() <= MAX_WAITING_BYTES:
                writer.write(data)

        def counts(key: object, one: Peer) -> bool:
            return isinstance(key, asyncio.StreamWriter) and one.is_known == peer.is_known

        address = writer.get_extra_info("peername")
        peer = Peer(
            str(address), send, now_s=self._now_s, address=network_of(address[0]),
            waiting=waiting,
        )  # fmt: skip
        self._make_room(MAX_STRANGERS, counts)
        key = key or writer
        self.add(key, peer)
        try:
            while data := await reader.read(READ_BYTES):
                was_known = peer.is_known
                self.received(peer, data)
                if peer.is_known and not was_known:
                    self._make_room(MAX_PEERS + 1, counts)
                await asyncio.sleep(0)  # what is read already is no reason to keep others waiting
        except OSError:
            pass  # it is gone
        finally:
            self._peers.pop(key, None)
            writer.close()

    def _read(self, port: socket.socket, read: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(port, read)
        self._own.callback(port.close)
        self._own.callback(loop.remove_reader, port)

    def _datagrams(self, port: socket.socket, fixed: Peer | None = None) -> None:
        """Read what has come to a port. fixed: the one peer of it."""
        send = _sender(port)
        for _ in range(DATAGRAMS):
            try:
                data, address = port.recvfrom(65536)
            except BlockingIOError:
                return
            except OSError:
                continue  # nobody listens there now: it may come back
            if fixed is None:
                self.received_from(address, data, send)
            else:
                fixed.rest = b""  # a datagram has messages whole
                self.received(fixed, data)


async def _opened(place: Place, *, is_ours: bool) -> socket.socket:
    """Return a UDP socket that is bound to a place of ours, or connected to another one."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        place.host, place.port, type=socket.SOCK_DGRAM,
        flags=socket.AI_PASSIVE if is_ours else 0,
    )  # fmt: skip
    family, kind, protocol, _, address = found[0]
    port = socket.socket(family, kind, protocol)
    try:
        port.setblocking(False)
        (port.bind if is_ours else port.connect)(address)
    except BaseException:
        port.close()
        raise
    return port


def _sender(port: socket.socket) -> Callable[..., None]:
    """Return what sends a datagram, to an address if the socket has none."""

    def send(data: bytes, address: tuple[Any, ...] | None = None) -> None:
        with contextlib.suppress(OSError):  # full, or nobody is there: it is lost, as on the air
            if address is None:
                port.send(data)
            else:
                port.sendto(data, address)

    return send


def _open_line(place: Place) -> int:
    import termios  # none on Windows, where `place_of` has refused
    import tty

    line = os.open(place.host, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        tty.setraw(line)
        state = termios.tcgetattr(line)
        state[4] = state[5] = speed_of(str(place.port))
        termios.tcsetattr(line, termios.TCSANOW, state)
    except BaseException:
        os.close(line)
        raise
    return line


def _write(line: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # full: telemetry is lost, as on the air
        os.write(line, data)
