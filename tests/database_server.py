"""What the tests' own database servers share: a process in a directory, and databases in it."""

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

from blimp.errors import BlimpError
from blimp.processes import Child
from tests.broker import wait_for_answer

ENDS_S = 20.0
WORDS = 2000  # letters of its log, where it does not start


class DatabaseServer(ABC):
    """One server on a Unix socket in `directory`, which must have a short name.

    Start it from the main thread: the kernel takes the end of the starting thread for the
    end of the parent. Raises BlimpError with the server's last words where it does not start.
    A second one in a directory whose server another process started is a user of that server.
    """

    name: ClassVar[str]
    stops_by: ClassVar[signal.Signals]  # which cuts every session off
    crashes_by: ClassVar[signal.Signals]
    refusal: ClassVar[type[Exception]]  # by its driver, while it does not answer
    drop: ClassVar[str] = "DROP DATABASE {}"

    def __init__(self, *, directory: Path, start_timeout_s: float = 240.0) -> None:
        self._directory = directory
        self._start_timeout_s = start_timeout_s
        self._child: Child | None = None
        self._databases = 0

    @abstractmethod
    def make(self) -> None:
        """Make what it stores, in `directory`/data. Raises BlimpError."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command that serves it."""

    @abstractmethod
    def run(self, statement: str) -> None:
        """Run one statement as the server's owner."""

    @abstractmethod
    def url(self, database: str) -> str:
        """Return the `result_backend` of a database in it."""

    def __enter__(self) -> Self:
        if not (self._directory / "data").exists():
            self.make()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and return when it answers."""
        with (self._directory / "log").open("ab") as log:
            self._child = Child(
                name=self.name, arguments=self.command(), stdout=log.fileno(), stderr=log
            )
        wrong = wait_for_answer(self._child, answers=self._answers, within_s=self._start_timeout_s)
        if wrong:
            self.stop()
            words = (self._directory / "log").read_text(errors="replace")[-WORDS:]
            raise BlimpError(f"{self.name} {wrong}: {words}")

    def _answers(self) -> bool:
        try:
            self.run("SELECT 1")
        except self.refusal:
            return False
        return True

    def stop(self) -> None:
        """Stop it, cutting every session off. Idempotent."""
        self._end(self.stops_by)

    def crash(self) -> None:
        """Stop it as if it had crashed."""
        self._end(self.crashes_by)

    def _end(self, with_signal: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.send(with_signal)
            child.end(within_s=ENDS_S)

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yield the `result_backend` of an empty database, that is gone afterwards."""
        self._databases += 1
        name = f"results_{os.getpid()}_{self._databases}"  # a server may be several processes'
        self.run(f"CREATE DATABASE {name}")
        yield self.url(name)
        self.run(self.drop.format(name))
