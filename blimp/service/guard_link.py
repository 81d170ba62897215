"""The stack's end of its guard: started first, told what there is to clean up, replaced."""

import contextlib
import subprocess
from collections.abc import Sequence

from blimp.processes import Child


class GuardLink:
    """A guard process and the pipe whose end it waits for.

    arguments: its command line, see `blimp.service.guard`.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._told: list[str] = []
        self._child: Child | None = None

    def start(self) -> Child:
        """Start the process that outlives this one, and tell it what there is to clean up."""
        self._child = Child(
            name="guard", arguments=self._arguments, death_signal=None, stdin=subprocess.PIPE
        )
        for line in self._told:
            self._write(line)
        return self._child

    def tell(self, line: str) -> None:
        self._told.append(line)
        self._write(line)

    def dismiss(self) -> None:
        """All was cleaned up: it may end."""
        if self._child is not None:
            self._write("done")
            self._child.end(within_s=2.0)

    def _write(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            # A guard that has just died: its successor is told everything again.
            with contextlib.suppress(OSError):
                self._child.stdin.write(line.encode() + b"\n")
                self._child.stdin.flush()
