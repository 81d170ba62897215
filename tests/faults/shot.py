"""One boundary of one command, and what kills there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

import msgspec

from tests.faults.proxy import Command

Side = Literal["before", "after"]
Target = Literal["worker", "server"]
SIDES: tuple[Side, ...] = ("before", "after")
TARGETS: tuple[Target, ...] = ("worker", "server")


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One boundary: a command of the numbered list, and the side of it."""

    number: int  # from 1
    command: Command
    side: Side
    target: Target

    def __str__(self) -> str:
        return f"{self.target} killed {self.side} {self.number} ({self.command})"

    @property
    def replay(self) -> str:
        return (
            f"python -m tests.faults.boundary --target {self.target} "
            f"--at '{self.command}' --side {self.side}"
        )


class Shot:
    """Kills once, at its point; then it is spent."""

    def __init__(self, *, command: Command, side: Side, kill: Callable[[], None]) -> None:
        self._command = command
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
        self._kill()
        self.fired.set()
        return True
