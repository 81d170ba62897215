"""The ship on the bench, as the steps use it, and through the flight process's mailbox."""

import secrets
from contextlib import suppress
from math import degrees
from typing import Any, Protocol

from blimp.airframe import Airframe
from blimp.clock import Clock
from blimp.errors import BlimpError
from blimp.link.mailbox import MailboxClient
from blimp.types import Command, Outcome, OutcomeState, Snapshot

ANSWER_S = 2.0
_LOOK_S = 0.02


class BenchShip(Protocol):
    """What the steps ask of a ship. A refusal is a BlimpError with its reason."""

    def complete(self, name: str, /, *, within_s: float, **arguments: Any) -> Outcome:
        """Give a command and wait for its end."""
        ...

    def command(self, name: str, /, **arguments: Any) -> Outcome:
        """Give a command and do not wait for its end."""
        ...

    def snapshot(self) -> Snapshot: ...

    def step(self, seconds: float) -> None:
        """Let time pass."""
        ...


def check_on_bench(ship: BenchShip, airframe: Airframe) -> None:
    """Raise BlimpError unless the ship is the one of the file, disarmed, and on the bench."""
    snapshot = ship.snapshot()
    outputs = {*airframe.thruster_names, *airframe.servo_names}
    if set(snapshot.actuators) != outputs:
        raise BlimpError(
            f"the flight process drives {', '.join(sorted(snapshot.actuators))}, but the file's "
            f"ship has {', '.join(sorted(outputs))}: fly the airframe of this file"
        )
    if snapshot.armed:
        raise BlimpError("the ship is armed: disarm it first")
    # Standing still for no time moves nothing, and is refused unless the ship is on the bench.
    do(ship, "motor", name=airframe.thruster_names[0], percent=0.0, seconds=0.0)


def do(ship: BenchShip, command: str, /, *, within_s: float = ANSWER_S, **arguments: Any) -> None:
    """Give a command. Raises BlimpError with the ship's reason if it is not done."""
    outcome = ship.complete(command, within_s=within_s, **arguments)
    if outcome.state is not OutcomeState.DONE:
        raise BlimpError(f"{command}: {outcome.state}: {outcome.reason}")


def stand_still(ship: BenchShip, airframe: Airframe) -> None:
    """Stop every motor, and let the servos go to neutral.

    A flight process that does not answer has stopped them itself, or its watchdog has.
    """
    with suppress(BlimpError):
        for name in airframe.thruster_names:
            do(ship, "motor", name=name, percent=0.0, seconds=0.0)
        for servo in airframe.servo:
            do(ship, "servo", name=servo.name, deg=degrees(servo.neutral_rad), seconds=0.0)


class MailboxShip:
    """The ship of a flight process that runs on this computer."""

    def __init__(self, mailbox: MailboxClient, *, clock: Clock) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._authority = 0

    def command(self, name: str, /, **arguments: Any) -> Outcome:
        outcome = self._call(name, arguments, within_s=ANSWER_S)
        if outcome is None:
            raise BlimpError(f"{name}: the flight process does not answer within {ANSWER_S:g} s")
        return outcome

    def _call(self, name: str, arguments: dict[str, Any], *, within_s: float) -> Outcome | None:
        """Give a command. An odd authority is that of everybody, while nobody holds control: it is
        taken once, so that a pilot who takes control later keeps it."""
        id = f"bench-{secrets.token_hex(8)}"
        command = Command(id=id, name=name, arguments=arguments, authority=self._authority)
        outcome = self._mailbox.call(command, timeout_s=within_s)
        if outcome is None or outcome.state is not OutcomeState.REFUSED or self._authority:
            return outcome
        newest = outcome.result.get("authority", 0)
        if not newest % 2:
            return outcome
        self._authority = newest
        return self._call(name, arguments, within_s=within_s)

    def complete(self, name: str, /, *, within_s: float, **arguments: Any) -> Outcome:
        until_s = self._clock.now_s() + within_s
        outcome = self._call(name, arguments, within_s=within_s)
        while outcome is not None and outcome.state is OutcomeState.IN_PROGRESS:
            outcome = self._mailbox.wait(
                outcome.id, timeout_s=max(0.0, until_s - self._clock.now_s())
            )
        if outcome is None:
            raise BlimpError(f"{name}: the flight process does not answer within {within_s:g} s")
        return outcome

    def snapshot(self) -> Snapshot:
        """Return what the flight process sees, now. Raises BlimpError if it does not answer."""
        until_s = self._clock.now_s() + ANSWER_S
        while self._clock.now_s() < until_s:
            if not self._mailbox.greet(link=False):
                raise BlimpError("no flight process runs here: start it with --bench")
            age_s = self._mailbox.snapshot_age_s()
            snapshot = self._mailbox.snapshot()
            if snapshot is not None and age_s is not None and age_s < 1.0:
                return snapshot
            self.step(_LOOK_S)
        raise BlimpError(f"the flight process does not answer within {ANSWER_S:g} s")

    def step(self, seconds: float) -> None:
        self._clock.sleep_until(self._clock.now_s() + seconds)
