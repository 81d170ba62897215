"""One boundary of one command, and what kills there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Literal

import msgspec

from tests.faults.proxy import Command

Side = Literal["before", "after"]
# What is killed, and whose commands are counted: a worker's or a publishing client's.
Target = Literal["worker", "server", "client", "clients-server"]
SIDES: tuple[Side, ...] = ("before", "after")
WORKER_TARGETS: tuple[Target, ...] = ("worker", "server")
CLIENT_TARGETS: tuple[Target, ...] = ("client", "clients-server")
TARGETS = WORKER_TARGETS + CLIENT_TARGETS


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One boundary: a command of the numbered list, and the side of it."""

    number: int  # from 1
    command: Command
    side: Side
    target: Target

    def __str__(self) -> str:
        return f"{self.target} killed {self.side} {self.number} ({self.command})"

    @property
    def is_clients(self) -> bool:
        """Whether the command is one of the publishing client."""
        return self.target in CLIENT_TARGETS

    @property
    def kills_server(self) -> bool:
        return self.target in ("server", "clients-server")

    @property
    def replay(self) -> str:
        return (
            f"python -m tests.faults.boundary --target {self.target} "
            f"--at '{self.command}' --side {self.side}"
        )


class Shot:
    """Kills once, at its point.

    disarmed: kinds of commands that it lets pass: to show that a campaign notices.
    """

    def __init__(
        self,
        *,
        command: Command,
        side: Side,
        kill: Callable[[], None],
        disarmed: Collection[str] = (),
    ) -> None:
        self._command = command
        self._disarmed = disarmed
        self._side = side
        self._kill = kill
        self.fired = threading.Event()

    def before(self, command: Command) -> bool:
        return not (self._side == "before" and self._fires(command))

    def after(self, command: Command) -> bool:
        return not (self._side == "after" and self._fires(command))

    def _fires(self, command: Command) -> bool:
        if command != self._command or self.fired.is_set():
            return False
        if command.kind in self._disarmed:
            return False
        self._kill()
        self.fired.set()
        return True


class Coverage:
    """Which kinds of commands were killed at, for each target and side.

    A campaign that forgives a boundary which was not reached shows nothing of that boundary.
    Whether a single command comes depends on the clock; that none of its kind was killed does
    not, and fails the campaign.
    """

    def __init__(self) -> None:
        self._wanted: dict[tuple[Target, Side, str], bool] = {}

    def add(self, point: Point, *, fired: bool) -> None:
        place = (point.target, point.side, point.command.kind)
        self._wanted[place] = self._wanted.get(place, False) or fired

    def has(self, point: Point) -> bool:
        """Say whether something was killed at a command of the kind of this point."""
        return self._wanted.get((point.target, point.side, point.command.kind), False)

    def complaints(self) -> list[str]:
        """Return each target, side and kind of command with no kill at all."""
        return [
            f"no {target} was killed {side} any {kind}"
            for (target, side, kind), fired in sorted(self._wanted.items())
            if not fired
        ]
