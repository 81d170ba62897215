"""A motor outside every worker: what it was told to do, and what it did.

`python -m tests.faults.motor SOCKET JOURNAL` answers on a Unix socket until it is killed. It
guards its effects as the flight process does, with the same memory: a command that comes
again gets its first outcome and moves nothing, and one with an older fence is refused.
Whatever it hears is a line of the journal before it answers.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import threading
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from blimp.control.memory import OutcomeMemory
from blimp.types import Outcome, OutcomeState

MAX_LINE_BYTES = 4096
# A ship remembers 512 commands and gets a few a minute; here a hundred come in a second.
REMEMBERED = 65_536


class What(StrEnum):
    BEGAN = "began"  # a body begins
    ENDED = "ended"  # a body has ended
    TURN = "turn"  # an effect, guarded by id and fence
    STEP = "step"  # an effect that nothing guards: only what may not run twice asks for it


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the journal. applied: it moved."""

    at_s: float  # monotonic
    what: What
    id: str
    retries: int
    fence: int
    pid: int
    applied: bool = False
    refused: bool = False


class Motor:
    """What is applied is decided here, in one thread."""

    def __init__(self) -> None:
        self._memory = OutcomeMemory(capacity=REMEMBERED)

    def hear(self, word: dict[str, object]) -> Heard:
        heard = msgspec.convert(word | {"at_s": time.monotonic()}, Heard)
        if heard.what is What.STEP:
            return msgspec.structs.replace(heard, applied=True)
        if heard.what is not What.TURN:
            return heard
        seen = self._memory.get(heard.id)
        if seen is not None and heard.fence < seen.fence:
            return msgspec.structs.replace(heard, refused=True)
        outcome = Outcome(id=heard.id, state=OutcomeState.DONE) if seen is None else seen.outcome
        self._memory.put(outcome, fence=heard.fence)
        return msgspec.structs.replace(heard, applied=seen is None)


class MotorLink:
    """A worker's way to the motor: one socket a thread and process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()

    def tell(self, what: What, *, id: str, retries: int, fence: int, pid: int) -> bool:
        """Say it, and return whether it was not refused, when it stands in the journal."""
        link: socket.socket | None = getattr(self._local, "link", None)
        if link is None or self._local.pid != pid:
            link = self._local.link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._local.pid = pid
            link.connect(self._path)
        word = {"what": what, "id": id, "retries": retries, "fence": fence, "pid": pid}
        link.send(json.dumps(word).encode())
        return link.recv(16) != b"refused"


class Journal:
    """The motor's journal as far as it was read. One thread's."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self.heard: list[Heard] = []
        self.bodies = 0

    def read(self) -> list[Heard]:
        """Return what is new, and keep it."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        new = [msgspec.json.decode(line, type=Heard) for line in lines]
        self.heard += new
        self.bodies += sum(one.what is What.BEGAN for one in new)
        return new

    def close(self) -> None:
        self._file.close()


def serve(path: str, journal: Path) -> None:
    motor, chosen = Motor(), selectors.DefaultSelector()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door,
        journal.open("ab", buffering=0) as lines,
    ):
        door.bind(path)
        door.listen(128)
        chosen.register(door, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in chosen.select():
                link = key.fileobj
                assert isinstance(link, socket.socket)
                if link is door:
                    chosen.register(door.accept()[0], selectors.EVENT_READ)
                    continue
                try:
                    data = link.recv(MAX_LINE_BYTES)
                    if data:
                        heard = motor.hear(json.loads(data))
                        lines.write(msgspec.json.encode(heard) + b"\n")
                        link.send(b"refused" if heard.refused else b"heard")
                        continue
                except OSError:  # killed while it spoke, or before it heard the answer
                    pass
                chosen.unregister(link)
                link.close()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
