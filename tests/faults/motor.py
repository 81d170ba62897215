"""A motor outside every worker: it judges commands, and has the actuator move.

`python -m tests.faults.motor SOCKET JOURNAL ACTUATOR` answers on a Unix socket until it is
killed. It stands for the flight process and guards its effects in the same way, with the same
memory: a command that comes again gets its first outcome and moves nothing; one with an older
fence, or meant for another boot than this process, is refused. What it hears is a line of the
journal before it answers. What moves is counted by another process, see actuator.py.

It can be aimed: at the next word of one kind from one process, a worker's body has reached
exactly that point. The motor kills that process then, before it answers; or itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import uuid
from enum import StrEnum
from pathlib import Path

import msgspec

from blimp.control.memory import OutcomeMemory
from blimp.types import Outcome, OutcomeState
from tests.faults.actuator import answer_packets

# A ship remembers 512 commands and gets a few a minute; here a hundred come in a second.
REMEMBERED = 65_536
BACK_S = 60.0  # a motor that was killed is restarted within this time
POLL_S = 0.01


class What(StrEnum):
    BEGAN = "began"  # a body begins
    ENDED = "ended"  # a body has ended
    TURN = "turn"  # an effect, guarded by id, fence and boot
    STEP = "step"  # an effect that nothing guards: only what may not run twice asks for it


EFFECTS = (What.TURN, What.STEP)


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the journal. applied: it moved. killed: the sender or the motor, at once."""

    at_s: float  # monotonic
    what: What
    id: str
    retries: int
    fence: int
    pid: int
    boot: str = ""
    applied: bool = False
    refused: bool = False
    killed: bool = False


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """When to kill: at the next word of `at` about a task whose name is in `tasks`.

    itself: the motor dies, and not the sender.
    """

    at: tuple[What, ...]
    tasks: tuple[str, ...]
    itself: bool = False

    def is_hit(self, heard: Heard) -> bool:
        return heard.what in self.at and heard.id.rpartition("-")[0] in self.tasks


class Motor:
    """What is applied is decided here, in one thread."""

    def __init__(self, *, actuator: socket.socket) -> None:
        self.boot = uuid.uuid4().hex[:8]
        self.aim: Aim | None = None
        self._actuator = actuator
        self._memory = OutcomeMemory(capacity=REMEMBERED)

    def hear(self, word: dict[str, object]) -> Heard:
        heard = msgspec.convert(word | {"at_s": time.monotonic()}, Heard)
        if heard.what in EFFECTS:
            heard = self._judge(heard)
        if self.aim is not None and self.aim.is_hit(heard):
            heard = msgspec.structs.replace(heard, killed=True)
        return heard

    def kill(self, heard: Heard) -> None:
        """Kill what was aimed at."""
        assert self.aim is not None
        itself, self.aim = self.aim.itself, None
        os.kill(os.getpid() if itself else heard.pid, signal.SIGKILL)

    def _judge(self, heard: Heard) -> Heard:
        if heard.what is What.TURN:
            seen = self._memory.get(heard.id)
            is_old = seen is not None and heard.fence < seen.fence
            if is_old or (seen is None and heard.boot not in ("", self.boot)):
                return msgspec.structs.replace(heard, refused=True)
            outcome = (
                Outcome(id=heard.id, state=OutcomeState.DONE) if seen is None else seen.outcome
            )
            self._memory.put(outcome, name="turn", fence=heard.fence)
            if seen is not None:
                return heard
        self._actuator.send(heard.id.encode())
        self._actuator.recv(16)
        return msgspec.structs.replace(heard, applied=True)


class MotorLink:
    """A worker's way to the motor: one socket a thread and process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()

    def tell(
        self, what: What, *, id: str, retries: int, fence: int, pid: int, boot: str = ""
    ) -> str | None:
        """Say it; return the motor's boot once it stands in the journal, None if refused.

        If the motor is killed meanwhile the same is said to its successor, as the flight
        process is asked again; but not a STEP, which may have moved already.
        Raises ConnectionError then, or if there is no motor for long.
        """
        word = {
            "what": what, "id": id, "retries": retries, "fence": fence, "pid": pid, "boot": boot
        }  # fmt: skip
        until_s = time.monotonic() + BACK_S
        while True:
            try:
                answer = self._ask(json.dumps(word).encode(), pid)
            except OSError:
                answer = b""
            if answer:
                return None if answer == b"refused" else answer.decode()
            self._close()
            if what is What.STEP or time.monotonic() > until_s:
                raise ConnectionError(f"the motor is gone: {what} of {id}")
            time.sleep(POLL_S)

    def aim(self, aim: Aim) -> None:
        """Have the motor kill at what `aim` says, once."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.connect(self._path)  # the motor may be another one by now
            link.send(b"aim" + msgspec.json.encode(aim))
            if not link.recv(16):
                raise ConnectionError("the motor is gone")

    def _close(self) -> None:
        link: socket.socket | None = getattr(self._local, "link", None)
        self._local.link = None
        if link is not None:
            link.close()

    def _ask(self, data: bytes, pid: int) -> bytes:
        link: socket.socket | None = getattr(self._local, "link", None)
        if link is None or self._local.pid != pid:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            link.connect(self._path)
            self._local.link, self._local.pid = link, pid
        link.send(data)
        return link.recv(64)


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

    def read_bodies(self) -> int:
        """Return how many bodies have begun until now."""
        self.read()
        return self.bodies

    def close(self) -> None:
        self._file.close()


def serve(path: str, journal: Path, actuator_path: str) -> None:
    actuator = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    actuator.connect(actuator_path)
    motor = Motor(actuator=actuator)
    with journal.open("ab", buffering=0) as lines:

        def answer(data: bytes) -> bytes:
            if data.startswith(b"aim"):
                motor.aim = msgspec.json.decode(data[3:], type=Aim)
                return b"aimed"
            heard = motor.hear(json.loads(data))
            lines.write(msgspec.json.encode(heard) + b"\n")
            if heard.killed:
                motor.kill(heard)
            return b"refused" if heard.refused else motor.boot.encode()

        answer_packets(path, answer)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
