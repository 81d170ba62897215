"""The flight process's own sockets: the mailbox, and the one that is for stops alone."""

import os
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import ClassVar

import msgspec

from blimp.clock import SystemClock
from blimp.link.mailbox import Hello
from blimp.link.paths import emergency_socket
from blimp.link.sender import with_socket
from blimp.link.stop_socket import StopSocket
from blimp.types import Command
from tests.contracts.faces.face import WITHIN_S, Face, Trouble, before_and_after, flooding
from tests.contracts.faces.rig import Rig

NOBODY = 65534
SILENT = 60  # who greet, and read nothing
PYTHON = "/usr/bin/python3"  # that another user may run
SEND = """
import socket, sys
for path in sys.argv[2:]:
    try:
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(sys.argv[1].encode(), path)
    except PermissionError:
        continue
    sys.exit(f"another user may send to {path}")
"""


class Sockets(Face):
    name = "socket"
    hears = ("flight flight.sock", "flight estop.sock")
    without: ClassVar[Mapping[str, str]] = (
        {} if os.getuid() == 0 else {"strangers": "it needs root to be somebody else"}
    )

    def __init__(self, rig: Rig) -> None:
        self._clock = SystemClock()
        self._flight = rig.stack.paths.flight
        self._stop_at = emergency_socket(self._flight)
        self._road = StopSocket(self._flight, clock=self._clock)
        self._out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def stop(self) -> None:
        answers: SimpleQueue[object] = SimpleQueue()
        self._road.fire(id=str(uuid.uuid4()), source="contract", on_outcome=answers.put)
        try:
            answers.get(timeout=WITHIN_S)
        except Empty:
            raise TimeoutError("the socket confirms no stop") from None

    def _arm(self, **fields: float) -> bytes:
        arm = Command(
            id=str(uuid.uuid4()), name="arm", source="contract", sent_s=self._clock.now_s()
        )
        return msgspec.json.encode(msgspec.structs.replace(arm, **fields))

    def _send(self, data: bytes, *, to_stop: bool = False) -> None:
        """Send to the mailbox, or to the socket for stops, and wait for room."""
        self._out.sendto(data, str(self._stop_at if to_stop else self._flight))

    def _send_both(self, data: bytes) -> None:
        for to_stop in (False, True):
            with suppress(BlockingIOError):
                path = str(self._stop_at if to_stop else self._flight)
                self._out.sendto(data, socket.MSG_DONTWAIT, path)

    def strangers(self) -> Trouble:
        def ask() -> None:
            paths = (str(self._flight), str(self._stop_at))
            ended = subprocess.run(
                [PYTHON, "-c", SEND, self._arm().decode(), *paths],
                user=NOBODY, group=NOBODY, extra_groups=(), cwd="/", check=False,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr

        return before_and_after(ask)

    def half(self) -> Trouble:
        def ask() -> None:
            data = self._arm()
            for end in (1, len(data) // 2, len(data) - 1):
                self._send_both(data[:end])

        return before_and_after(ask)

    def flood(self) -> Trouble:
        garbage = b"\xff" * 1000

        def send() -> None:
            for _ in range(20):
                self._send_both(garbage)

        return flooding(send)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Programs that subscribe by a socket of their own, and never read it."""
        hello = msgspec.json.encode(Hello(link=False))
        with ExitStack() as own:
            for _ in range(SILENT):
                ours, passed = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                own.enter_context(ours)
                own.enter_context(passed)
                with own.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as out:
                    out.sendmsg([hello], with_socket(passed), 0, str(self._flight))
            yield

    def forged(self) -> Trouble:
        """An arm where only stops are taken, and one for another flight process."""
        other = msgspec.json.encode(
            Command(id="x", name="arm", source="contract", boot_id="of another boot",
                    sent_s=self._clock.now_s())
        )  # fmt: skip

        def ask() -> None:
            self._send(self._arm(), to_stop=True)
            self._send(other)

        return before_and_after(ask)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        arm = self._arm()
        self._send(arm)
        yield
        self._send(arm)

    def old(self) -> Trouble:
        return before_and_after(lambda: self._send(self._arm(age_s=60.0, ttl_s=5.0)))

    def close(self) -> None:
        self._road.close()
        self._out.close()
