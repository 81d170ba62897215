"""`blimp up`: broker, world, flight process and worker of one simulated ship, kept alive.

It does for a laptop what systemd does on board: starts the processes in order, hears when
each is ready, restarts what dies, drives the outputs to their safe state when the flight
process dies (ExecStopPost there), and ends them in order. A guard process, started first,
cleans up after this one when it is killed.
"""

import contextlib
import selectors
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from blimp.clock import Clock
from blimp.errors import BlimpError
from blimp.notify import READY, READY_TO_ARM, NotifyListener
from blimp.paths import RuntimePaths, make_directory
from blimp.processes import Child
from blimp.registry import register, unregister
from blimp.tasks.broker.urls import hide_password

RESTART_DELAY_S = 0.1  # systemd's default RestartSec
MAX_RESTARTS = 8  # ... in RESTART_WINDOW_S: then it is broken, not unlucky
RESTART_WINDOW_S = 10.0
START_DEADLINE_S = 30.0
ARMABLE_DEADLINE_S = 15.0
POLL_S = 0.02

Event = Callable[[dict[str, Any]], None]


class StackError(BlimpError):
    """The stack cannot be started, or one of its processes cannot be kept alive."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the stack: how it starts, what it needs, how it ends."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = {}  # besides this process's own
    needs: tuple[str, ...] = ()  # roles that must be ready first
    restarts: tuple[str, ...] = ()  # roles that cannot outlive this one's state
    death_signal: signal.Signals | None = signal.SIGTERM
    end_within_s: float = 3.0
    directory: Path | None = None  # made before it starts, for this user alone
    ready: Callable[[], bool] | None = None  # asked where the process cannot tell by itself


class SafeState(Protocol):
    """Drives every output of the ship to its safe state; returns what it could not reach."""

    def __call__(self) -> Sequence[str]: ...


class _Running:
    """The life of one role: its present child, and when and how often it has died."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.child: Child | None = None
        self.ready = False
        self.died_s: float | None = None
        self.start_s: float | None = 0.0  # due time; None while it runs
        self.deaths: deque[float] = deque(maxlen=MAX_RESTARTS + 1)


class Stack:
    """Runs the roles until `stop()`; one thread, which never waits on a child.

    on_event: receives the `ready` and `restarted` objects of the command line's contract.
    """

    def __init__(
        self,
        *,
        roles: Sequence[Role],
        paths: RuntimePaths,
        registration: Path,
        guard: Sequence[str],
        safe_state: SafeState,
        clock: Clock,
        on_event: Event,
        vehicle: str,
        broker: str,
    ) -> None:
        self._paths = paths
        self._registration = registration
        self._safe_state = safe_state
        self._clock = clock
        self._on_event = on_event
        self._guard = guard
        self._vehicle = vehicle
        self._broker = broker
        self._roles = {role.name: _Running(role) for role in roles}
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._announced = False
        self._armable = False
        self._started_s = clock.now_s()
        self._guard_child: Child | None = None
        self._told_guard: list[str] = []
        self._claimed = False

    def stop(self) -> None:
        """Ask for the end; safe to call from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Start everything, keep it alive until `stop()`, then end it and clean up.

        Raises StackError when a process cannot be started or kept alive; the outputs are
        safe and nothing is left then, too.
        """
        self._paths.check()
        listener: NotifyListener | None = None
        try:
            self._start_guard()
            self._claim_directory()
            listener = NotifyListener(path=self._paths.notify)
            self._selector.register(listener, selectors.EVENT_READ, self._hear)
            while not self._stopping:
                self._start_what_is_due()
                for key, _ in self._selector.select(timeout=POLL_S):
                    key.data(key.fileobj)
                self._ask()
                self._announce()
        finally:
            self._end_all()
            if listener is not None:
                listener.close()
            self._remove_files()
            self._dismiss_guard()
            self._selector.close()

    # --- starting -----------------------------------------------------------------------

    def _claim_directory(self) -> None:
        """Take the runtime directory and the ship's name, or say who has them."""
        directory = self._paths.directory
        make_directory(directory)
        if any(directory.iterdir()):
            raise StackError(
                f"runtime directory {directory} is not empty: another ship runs there, "
                "or it is not one of ours; choose another --runtime-dir"
            )
        directory.chmod(0o700)
        self._claimed = True
        self._tell_guard("claimed")
        register(
            self._registration, vehicle=self._vehicle, broker=self._broker, runtime_dir=directory
        )
        self._started_s = self._clock.now_s()

    def _start_what_is_due(self) -> None:
        now_s = self._clock.now_s()
        for running in self._roles.values():
            if running.start_s is None or now_s < running.start_s:
                continue
            if not all(self._roles[need].ready for need in running.role.needs):
                continue
            if running.role.directory is not None:
                running.role.directory.mkdir(mode=0o700, exist_ok=True)
            running.child = Child(
                name=running.role.name,
                arguments=running.role.arguments,
                death_signal=running.role.death_signal,
                environment={
                    **running.role.environment,
                    "NOTIFY_SOCKET": str(self._paths.notify),
                },
            )
            running.start_s = None
            self._selector.register(
                running.child, selectors.EVENT_READ, partial(self._bury, running)
            )
            self._tell_guard(f"pid {running.role.name} {running.child.pid}")

    # --- the guard ----------------------------------------------------------------------

    def _start_guard(self) -> None:
        """Start the process that outlives this one, and tell it what there is to clean up."""
        self._guard_child = Child(
            name="guard", arguments=self._guard, death_signal=None, stdin=subprocess.PIPE
        )
        self._selector.register(self._guard_child, selectors.EVENT_READ, self._replace_guard)
        for line in self._told_guard:
            self._write_to_guard(line)

    def _replace_guard(self, ended: Child) -> None:
        """A guard has died: without one, the next kill would leave things behind."""
        self._selector.unregister(ended)
        ended.exit_status()
        ended.close()
        self._start_guard()

    def _tell_guard(self, line: str) -> None:
        self._told_guard.append(line)
        self._write_to_guard(line)

    def _write_to_guard(self, line: str) -> None:
        guard = self._guard_child
        if guard is not None and guard.stdin is not None:
            # A guard that has just died: its successor is told everything again.
            with contextlib.suppress(OSError):
                guard.stdin.write(line.encode() + b"\n")
                guard.stdin.flush()

    def _dismiss_guard(self) -> None:
        guard = self._guard_child
        if guard is not None:
            self._write_to_guard("done")
            guard.end(within_s=2.0)

    # --- readiness ----------------------------------------------------------------------

    def _hear(self, listener: NotifyListener) -> None:
        for pid, state in listener.told():
            for running in self._roles.values():
                if running.child is not None and running.child.pid == pid:
                    if state == READY:
                        self._now_ready(running)
                    elif state == READY_TO_ARM:
                        self._armable = True

    def _ask(self) -> None:
        """A broker cannot say READY=1: it is asked."""
        for running in self._roles.values():
            starting = running.child is not None and not running.ready
            if starting and running.role.ready is not None and running.role.ready():
                self._now_ready(running)

    def _now_ready(self, running: _Running) -> None:
        if running.ready or running.child is None:
            return
        running.ready = True
        if running.died_s is not None:
            down_s = self._clock.now_s() - running.died_s
            running.died_s = None
            if not self._announced:
                return  # nobody was told that it ran
            self._on_event(
                {
                    "event": "restarted",
                    "process": running.role.name,
                    "pid": running.child.pid,
                    "down_s": round(down_s, 3),
                }
            )

    def _announce(self) -> None:
        if self._announced:
            return
        waited_s = self._clock.now_s() - self._started_s
        missing = [name for name, running in self._roles.items() if not running.ready]
        if missing and waited_s > START_DEADLINE_S:
            raise StackError(f"not ready after {START_DEADLINE_S:.0f} s: {', '.join(missing)}")
        if missing or not (self._armable or waited_s > ARMABLE_DEADLINE_S):
            return
        self._announced = True
        started = {n: r.child.pid for n, r in self._roles.items() if r.child is not None}
        pids = {name: started.get(name) for name in ("broker", "world", "flight", "worker")}
        self._on_event(
            {
                "event": "ready",
                "vehicle": self._vehicle,
                "broker": hide_password(self._broker),
                "pids": pids,
            }
        )

    # --- dying --------------------------------------------------------------------------

    def _bury(self, running: _Running, child: Child) -> None:
        """A child has ended: make the outputs safe if it flew, and have it started again."""
        now_s = self._clock.now_s()
        if running.role.name == "flight":
            unreached = self._safe_state()
            if unreached:
                self._on_event({"event": "unsafe", "outputs": list(unreached)})
        status = child.exit_status()
        self._selector.unregister(child)
        child.close()
        running.child = None
        running.ready = False
        running.died_s = now_s if running.died_s is None else running.died_s
        running.deaths.append(now_s)
        recent = sum(1 for died_s in running.deaths if now_s - died_s < RESTART_WINDOW_S)
        if recent > MAX_RESTARTS:
            raise StackError(
                f"{running.role.name} has ended {recent} times in {RESTART_WINDOW_S:.0f} s, "
                f"the last time with status {status}; its last words are on standard error"
            )
        running.start_s = now_s if recent == 1 else now_s + RESTART_DELAY_S
        for name in running.role.restarts:
            dependent = self._roles[name].child
            if dependent is not None:
                dependent.send(signal.SIGTERM)

    def _end_all(self) -> None:
        """End in the reverse order of starting: the ship before its world."""
        for running in reversed(self._roles.values()):
            if running.child is not None:
                if running.child.pidfd >= 0:
                    self._selector.unregister(running.child)
                running.child.end(within_s=running.role.end_within_s)
                if running.role.name == "flight":
                    self._safe_state()
                running.child = None

    def _remove_files(self) -> None:
        if self._claimed:
            shutil.rmtree(self._paths.directory, ignore_errors=True)
            unregister(self._registration, runtime_dir=self._paths.directory)
