"""Links of MAVLink: a UDP port that stations find, an address to send to, TCP, a serial line.

Each ends in `Peer`s, one for a station's address, a connection or a line.
"""

import asyncio
import contextlib
import os
import re
import termios
import tty
from collections.abc import Callable
from typing import Any, Self

import msgspec

from blimp.errors import ConfigError, LinkError
from ground_station.mavlink.wire import Decoder, Signing

MAX_PEERS = 16  # addresses; the one that is silent for longest makes room. As many connections
FORGET_S = 60.0  # after this silence nothing more is sent to an address
MAX_WAITING_BYTES = 65536  # a connection that does not read loses what comes after it
RETRY_S = 1.0
BAUD = 57600  # of telemetry radios


class Peer:
    """One station's end of a link. heard_s: when something came from it last."""

    def __init__(
        self, name: str, send: Callable[[bytes], object], *, signing: Signing | None, whole: bool
    ) -> None:
        self.name = name
        self.send = send
        self.decoder = Decoder(signing=signing, whole=whole)
        self.heard_s = 0.0


OnData = Callable[[Peer, bytes], object]


class Place(msgspec.Struct, frozen=True):
    """Where a link is. kind: "udp", "tcp" or "serial". port: of a serial line its speed."""

    kind: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.host}:{self.port}"


def network_place(text: str) -> Place:
    """Read "udp:HOST:PORT" or "tcp:HOST:PORT". Raises ConfigError."""
    match = re.fullmatch(r"(udp|tcp):(\[[0-9a-fA-F:.]+\]|[^:\[\]]+):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise ConfigError(
            f"MAVLink link {text[:60]!r}: must be udp:HOST:PORT or tcp:HOST:PORT, port 0 to 65535"
        )
    return Place(match[1], match[2].strip("[]"), int(match[3]))


def serial_place(text: str) -> Place:
    """Read "PATH" or "PATH:BAUD". Raises ConfigError."""
    path, _, baud = text.partition(":")
    if not path.startswith("/") or _speed(baud or str(BAUD)) is None:
        raise ConfigError(
            f"MAVLink serial line {text[:60]!r}: must be /PATH:BAUD, "
            "with a speed that the system knows"
        )
    return Place("serial", path, int(baud or BAUD))


class Links:
    """All links of one process, in one event loop. on_data: called with what came."""

    def __init__(
        self, *, on_data: OnData, now_s: Callable[[], float], signing: Signing | None
    ) -> None:
        self._on_data = on_data
        self._now_s = now_s
        self._signing = signing
        self._peers: dict[object, Peer] = {}
        self._own = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._own.aclose()

    def send(self, data: bytes) -> None:
        """Send to every peer that is there."""
        now_s = self._now_s()
        for key, peer in list(self._peers.items()):
            if isinstance(key, tuple) and now_s - peer.heard_s > FORGET_S:
                del self._peers[key]
            else:
                peer.send(data)

    async def listen(self, place: Place) -> int:
        """Wait there for stations; return the port, also if 0 was asked. Raises LinkError."""
        try:
            if place.kind == "tcp":
                server = await asyncio.start_server(self._serve, place.host, place.port)
                self._own.callback(server.close)
                return int(server.sockets[0].getsockname()[1])
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(self), local_addr=(place.host, place.port)
            )
        except OSError as error:
            raise LinkError(f"MAVLink: cannot listen on {place}: {error}") from error
        self._own.callback(transport.close)
        return int(transport.get_extra_info("sockname")[1])

    async def connect(self, place: Place) -> None:
        """Send there from now on; TCP is dialled again and again. Raises LinkError."""
        if place.kind == "tcp":
            dialling = asyncio.create_task(self._dial(place))
            self._own.callback(dialling.cancel)
            return
        try:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(self, fixed=str(place)), remote_addr=(place.host, place.port)
            )
        except OSError as error:
            raise LinkError(f"MAVLink: cannot send to {place}: {error}") from error
        self._own.callback(transport.close)
        self.add(str(place), str(place), transport.sendto, whole=True)

    def open_serial(self, place: Place) -> None:
        """Use a serial line. Raises LinkError if it cannot be opened."""
        try:
            line = _open_line(place)
        except (OSError, termios.error) as error:
            raise LinkError(f"MAVLink serial line {place.host}: {error}") from error
        loop = asyncio.get_running_loop()
        peer = self.add(line, place.host, lambda data: _write(line, data), whole=False)

        def read() -> None:
            try:
                data = os.read(line, 4096)
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

    def add(self, key: object, name: str, send: Callable[[bytes], object], *, whole: bool) -> Peer:
        """Return a new peer. whole: it sends messages whole, as datagrams are."""
        addresses = [one for one in self._peers if isinstance(one, tuple)]
        if isinstance(key, tuple) and len(addresses) >= MAX_PEERS:
            del self._peers[min(addresses, key=lambda one: self._peers[one].heard_s)]
        peer = self._peers[key] = Peer(name, send, signing=self._signing, whole=whole)
        peer.heard_s = self._now_s()
        return peer

    def peer(self, key: object) -> Peer | None:
        return self._peers.get(key)

    def reaches(self, peer: Peer) -> bool:
        """Whether a peer is still there, and heard not too long ago."""
        is_there = any(one is peer for one in self._peers.values())
        return is_there and self._now_s() - peer.heard_s <= FORGET_S

    def received(self, peer: Peer, data: bytes) -> None:
        peer.heard_s = self._now_s()
        self._on_data(peer, data)

    async def _dial(self, place: Place) -> None:
        while True:
            with contextlib.suppress(OSError):
                await self._serve(*await asyncio.open_connection(place.host, place.port))
            await asyncio.sleep(RETRY_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def send(data: bytes) -> None:
            if writer.transport.get_write_buffer_size() <= MAX_WAITING_BYTES:
                writer.write(data)

        if sum(isinstance(one, asyncio.StreamWriter) for one in self._peers) >= MAX_PEERS:
            writer.close()
            return
        peer = self.add(writer, str(writer.get_extra_info("peername")), send, whole=False)
        try:
            while data := await reader.read(4096):
                self.received(peer, data)
        except OSError:
            pass  # it is gone
        finally:
            self._peers.pop(writer, None)
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    """A UDP socket: each address is a peer, or all are the one that is sent to."""

    def __init__(self, links: Links, *, fixed: str | None = None) -> None:
        self._links = links
        self._fixed = fixed
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        key: object = self._fixed or addr
        peer = self._links.peer(key)
        if peer is None:
            send = self._transport.sendto
            peer = self._links.add(
                key, f"udp:{addr[0]}:{addr[1]}", lambda data: send(data, addr), whole=True
            )
        self._links.received(peer, data)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there now: it may come back."""


def _speed(baud: str) -> int | None:
    speed: int | None = getattr(termios, f"B{baud}", None)
    return speed


def _open_line(place: Place) -> int:
    line = os.open(place.host, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        tty.setraw(line)
        state = termios.tcgetattr(line)
        state[4] = state[5] = _speed(str(place.port))
        termios.tcsetattr(line, termios.TCSANOW, state)
    except BaseException:
        os.close(line)
        raise
    return line


def _write(line: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # full: telemetry is lost, as on the air
        os.write(line, data)
