"""The proving ground: a server, a motor, and worker processes that are shot at."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from blimp.processes import Child
from tests.broker import EmbeddedBroker
from tests.faults.actuator import effects
from tests.faults.motor import Journal
from tests.repeating import PATIENCE_S, until


class WorkerUnderFire:
    """`python -m blimp.queue worker` under one name; may be started again and again.

    Start it from the main thread: it dies with that.
    """

    def __init__(self, *, name: str, ground: Ground, options: str = "") -> None:
        self.name = name
        self.ready_s: float | None = None  # monotonic
        self._ground = ground
        self._options = options.split()
        self._log = ground.directory / f"{name}.log"
        self._read_bytes = 0
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        assert self._child is None or not self._child.running()
        self.ready_s = None
        with self._log.open("ab") as log:
            self._read_bytes = log.tell()
            self._child = Child(
                name=self.name,
                arguments=[
                    *(
                        sys.executable,
                        "-m",
                        "blimp.queue",
                        "worker",
                        "-A",
                        "tests.faults.tasks:app",
                    ),
                    *("--name", self.name, *self._options),
                ],
                environment=self._ground.environment(),
                death_signal=signal.SIGKILL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def is_ready(self) -> bool:
        """Say whether it consumes. Raises RuntimeError with the end of its log if it ended."""
        assert self._child is not None
        if self.ready_s is None:
            with self._log.open("rb") as log:
                log.seek(self._read_bytes)
                text = log.read()
            if b"\nready\n" in b"\n" + text:
                self.ready_s = time.monotonic()
            elif not self._child.running():
                raise RuntimeError(f"worker {self.name} ended: {text[-2000:].decode()}")
        return self.ready_s is not None

    def kill(self) -> float:
        """End it with SIGKILL; return when, once it is gone."""
        assert self._child is not None
        at_s = time.monotonic()
        self._child.send(signal.SIGKILL)
        self.reap()
        return at_s

    def reap(self) -> None:
        """Wait until it is gone, killed by another."""
        assert self._child is not None
        until(lambda: self._child is None or not self._child.running(), "nothing killed it")
        self._child.close()
        self._child = None

    def send(self, number: signal.Signals) -> None:
        assert self._child is not None
        self._child.send(number)

    def end(self) -> int:
        """Ask for a warm stop; return the exit status."""
        assert self._child is not None
        child = self._child
        child.send(signal.SIGTERM)
        until(lambda: not child.running(), f"worker {self.name} did not stop")
        status = child.exit_status()
        assert status is not None
        child.close()
        self._child = None
        return status

    def close(self) -> None:
        """Kill it where it still runs. Idempotent."""
        if self._child is not None:
            self._child.send(signal.SIGCONT)
            self.kill()


class Ground:
    """A server, a motor with its journal, and the directory they live in."""

    def __init__(self, *, directory: Path, broker: EmbeddedBroker) -> None:
        self.directory = directory
        self.broker = broker
        self.url = broker.url
        self.socket = directory / "motor"
        self._journal = directory / "journal"
        self._effects = directory / "effects"
        self._actuator = self._start("actuator", directory / "actuator", self._effects)
        self._motor = self._start_motor()
        self.journal = Journal(self._journal)
        self._workers: list[WorkerUnderFire] = []

    def worker(self, name: str, *, options: str = "") -> WorkerUnderFire:
        """Return a worker, not started yet; it is killed with the ground."""
        worker = WorkerUnderFire(name=name, ground=self, options=options)
        self._workers.append(worker)
        return worker

    def effects(self) -> Counter[str]:
        """Return how often each command moved something, counted outside of the motor."""
        return effects(self._effects)

    def motor_is_running(self) -> bool:
        return self._motor.running()

    def restart_motor(self) -> None:
        """Start another motor, with another boot and no memory, for one that was killed."""
        self._motor.end(within_s=PATIENCE_S)
        self._motor = self._start_motor()

    def _start_motor(self) -> Child:
        return self._start("motor", self.socket, self._journal, self.directory / "actuator")

    def _start(self, module: str, *arguments: Path) -> Child:
        child = Child(
            name=module,
            arguments=[sys.executable, "-m", f"tests.faults.{module}", *map(str, arguments)],
            death_signal=signal.SIGKILL,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the {module} does not start")
        return child

    def environment(self) -> dict[str, str]:
        return {
            "FAULTS_BROKER": self.url,
            "FAULTS_MOTOR": str(self.socket),
            "FAULTS_MAX_DELIVERIES": "1000",
        }

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self.journal.close()
        for child in (self._motor, self._actuator):
            child.send(signal.SIGKILL)
            child.end(within_s=PATIENCE_S)


@contextlib.contextmanager
def proving_ground(*, before: Sequence[str] = (), **server_options: str) -> Iterator[Ground]:
    """Start a server and a motor; leave nothing behind. See tests/broker.py for the options."""
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))
    try:
        with EmbeddedBroker(
            directory=directory / "b", options=server_options, before=before
        ) as broker:
            ground = Ground(directory=directory, broker=broker)
            try:
                yield ground
            finally:
                ground.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
