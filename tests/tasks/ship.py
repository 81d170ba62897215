"""The flight process's end of a real mailbox, with the answers that a test decides."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blimp.clock import SystemClock
from blimp.closing import Closing
from blimp.link.mailbox import MailboxClient, MailboxServer
from blimp.types import Command, Outcome, OutcomeState
from tests.queue.conftest import wait_until
from tests.snapshot import SNAPSHOT

Answer = Callable[[Command], Outcome | None]
DONE, REFUSED, IN_PROGRESS = OutcomeState.DONE, OutcomeState.REFUSED, OutcomeState.IN_PROGRESS


def outcome(command: Command, state: OutcomeState = DONE, **fields: Any) -> Outcome:
    settings: dict[str, Any] = {"boot_id": "boot-1", "accepted_s": 12.5} | fields
    return Outcome(id=command.id, state=state, **settings)


class FlightSide(Closing):
    """The flight process's end of a real mailbox, with the answers a test decides."""

    def __init__(self, path: Path) -> None:
        self.answer: Answer = outcome
        self.commands: list[Command] = []
        self.server = MailboxServer(path=path, clock=SystemClock())
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def post(self, outcome: Outcome) -> None:
        self.server.post(outcome)

    def named(self, name: str) -> list[Command]:
        return [command for command in list(self.commands) if command.name == name]

    def only(self, name: str) -> Command:
        """Return the one command of that name; a silent ship is sent it again, under its id."""
        command, *again = self.named(name)
        assert {one.id for one in again} <= {command.id}
        return command

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.server.close()

    def _serve(self) -> None:
        while not self._closed.wait(0.002):
            for command in (*self.server.emergencies(), *self.server.receive()):
                self.commands.append(command)
                answer = self.answer(command)
                if answer is not None:
                    self.server.post(answer)


def publish(ship: FlightSide, mailbox: MailboxClient) -> None:
    """Publish a snapshot until it is heard: before the first greeting nobody subscribes."""

    def is_heard() -> bool:
        ship.server.publish(SNAPSHOT)
        return mailbox.snapshot() is not None

    wait_until(is_heard, "no snapshot came")
