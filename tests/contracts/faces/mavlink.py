"""The gateway's links with their key: by UDP, TCP and a serial line."""

import hashlib
import os
import select
import socket
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from pymavlink.dialects.v20 import all as dialect

from tests.contracts.faces.face import WITHIN_S, Face, Trouble, before_and_after, flooding
from tests.contracts.faces.rig import PHRASE, Rig

ARM, STOP = 400, 185  # MAV_CMD_COMPONENT_ARM_DISARM, MAV_CMD_DO_FLIGHTTERMINATION
EPOCH_S = 1420070400  # 2015-01-01, from which a signature's time counts, in 10 us
OLD_S, AHEAD_S = 3600.0, 120.0
SILENT = 40  # stations, or connections: the gateway has room for 16
IN_PROGRESS = 5  # MAV_RESULT
FALSE_HEAD = bytes.fromhex("fdff0000") + bytes(range(1, 40))  # of a message of 255 bytes
FORGOTTEN_S = 4.0  # the gateway keeps a silent station's place for 3 s
BURST = 15  # FTP's BurstReadFile: one message asks for many
_numbers = iter(range(20, 250))


class Signer:
    """Makes a station's messages. phrase: None for unsigned ones."""

    def __init__(self, *, system: int = 255, phrase: str | None = PHRASE, link: int = 0) -> None:
        self._mav = dialect.MAVLink(None, srcSystem=system, srcComponent=190)
        self._signing = self._mav.signing
        if phrase is not None:
            self._signing.secret_key = hashlib.sha256(phrase.encode()).digest()
            self._signing.sign_outgoing = True
            self._signing.link_id = link

    def pack(self, sent: Any, *, ago_s: float = 0.0) -> bytes:
        now = int((time.time() - ago_s - EPOCH_S) * 1e5)
        self._signing.timestamp = now if ago_s else max(now, self._signing.timestamp + 1)
        packed = bytes(sent.pack(self._mav))
        self._mav.seq = (self._mav.seq + 1) % 256
        return packed

    def command(self, number: int, *, ago_s: float = 0.0) -> bytes:
        long = dialect.MAVLink_command_long_message(1, 1, number, 0, 1, 0, 0, 0, 0, 0, 0)
        return self.pack(long, ago_s=ago_s)

    def burst(self) -> bytes:
        """Return FTP's request for the whole of a file."""
        head = bytes([0, 0, 0, BURST, 80, 0, 0, 0, 0, 0, 0, 0])
        return self.pack(
            dialect.MAVLink_file_transfer_protocol_message(0, 1, 1, [*head, *bytes(239)])
        )


class Line:
    """A station's end of a link: a socket, or a terminal. Never blocks."""

    def __init__(self, end: socket.socket | int) -> None:
        self._end = end
        self._fd = end if isinstance(end, int) else end.fileno()
        os.set_blocking(self._fd, False)

    def send(self, data: bytes) -> None:
        """Send all of it, as soon as there is room."""
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                select.select([], [self._fd], [], WITHIN_S)

    def read(self, *, within_s: float) -> bytes:
        """Return what has come, b"" if nothing comes in time."""
        if not select.select([self._fd], [], [], within_s)[0]:
            return b""
        try:
            return os.read(self._fd, 65536)
        except OSError:  # a closed port answers so
            return b""


class Mavlink(Face):
    is_wire = False  # one line for all

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._signer = Signer(system=next(_numbers))
        self._own = ExitStack()
        self._line = self._opened()

    @abstractmethod
    def _opened(self) -> Line:
        """Return another station's line; of a wire, the only one."""

    def _fd_line(self, end: socket.socket) -> Line:
        return Line(self._own.enter_context(end))

    def stop(self) -> None:
        self._confirmed(STOP)

    def _confirmed(self, number: int) -> bytes:
        """Send a command and wait until it is done; return its bytes."""
        while self._line.read(within_s=0.0):
            pass  # telemetry
        reading = dialect.MAVLink(None)
        reading.robust_parsing = True
        sent = self._signer.command(number)
        self._line.send(sent)
        until_s = time.monotonic() + WITHIN_S
        while time.monotonic() < until_s:
            data = self._line.read(within_s=until_s - time.monotonic())
            for found in reading.parse_buffer(data) or ():
                if found.get_type() == "COMMAND_ACK" and found.command == number:
                    if found.result == 0:
                        return sent
                    if found.result != IN_PROGRESS:  # of control that was taken from it
                        self._line.send(sent := self._signer.command(number))
        raise TimeoutError(f"command {number} is not done within {WITHIN_S:g} s")

    def strangers(self) -> Trouble:
        line, unsigned = self._opened(), Signer(phrase=None)
        return before_and_after(lambda: line.send(unsigned.command(ARM)))

    def forged(self) -> Trouble:
        """With another key, and with one bit of an arm changed."""
        line, other = self._opened(), Signer(phrase="of somebody else")
        mine = bytearray(Signer(system=next(_numbers)).command(ARM))
        mine[20] ^= 1
        return before_and_after(lambda: line.send(other.command(ARM) + bytes(mine)))

    def half(self) -> Trouble:
        """A head that promises 255 bytes, where the stop goes, too: it may come on one line."""
        return before_and_after(lambda: self._line.send(FALSE_HEAD))

    def flood(self) -> Trouble:
        """Requests for files, which are answered by many messages each."""
        line, unsigned, signed = self._opened(), Signer(phrase=None), Signer(system=next(_numbers))

        def ask() -> None:
            line.send(signed.burst())
            line.send(unsigned.burst())
            if not self.is_wire:  # else its only reader is the one that stops
                line.read(within_s=0.0)

        return flooding(ask)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Others who are there first; then a station that comes after them."""
        for _ in range(SILENT):
            self._opened().send(b"\xfd")
        self._line = self._opened()
        yield

    @contextmanager
    def replayed(self) -> Iterator[None]:
        arm = self._confirmed(ARM)
        yield
        self._rig.free()
        line = self._opened()
        self._rig.go_on(lambda: line.send(arm), for_s=FORGOTTEN_S)
        self._rig.restart_gateway()
        line = self._opened()
        self._rig.go_on(lambda: line.send(arm), for_s=FORGOTTEN_S / 2)

    def old(self) -> Trouble:
        """Of a station that was never heard before; beside one whose clock is ahead.

        The stop is one of a station that is heard for the first time after that.
        """
        signer, line = Signer(system=next(_numbers), link=7), self._opened()
        ahead, beat = (
            Signer(system=next(_numbers)),
            dialect.MAVLink_heartbeat_message(6, 8, 0, 0, 4, 3),
        )
        self._signer, self._line = Signer(system=next(_numbers)), self._opened()

        def ask() -> None:
            line.send(signer.command(ARM, ago_s=OLD_S))
            line.send(ahead.pack(beat, ago_s=-AHEAD_S))

        return before_and_after(ask)

    def close(self) -> None:
        self._own.close()


class Udp(Mavlink):
    name = "MAVLink UDP"
    hears = ("mavlink udp",)

    def _opened(self) -> Line:
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.connect(("127.0.0.1", self._rig.udp))
        return self._fd_line(end)


class Tcp(Mavlink):
    name = "MAVLink TCP"
    hears = ("mavlink tcp",)

    def _opened(self) -> Line:
        return self._fd_line(socket.create_connection(("127.0.0.1", self._rig.tcp)))


class Serial(Mavlink):
    name = "MAVLink serial"
    is_wire = True
    hears = ("mavlink serial",)
    without: ClassVar[Mapping[str, str]] = {"silence": "a line has one end"}

    def _opened(self) -> Line:
        return Line(self._rig.radio)
