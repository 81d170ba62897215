"""The supervisor of `blimp up`: starts, watches and restarts the processes of a stack.

On a laptop it does what systemd does on board. It starts the processes in order, receives
their readiness, restarts those that die, kills one whose heartbeat stops (WatchdogSec), drives the
outputs to their safe state when a flight process dies (ExecStopPost), and ends them in order. A
guard process, started first, cleans up if this one is killed.

What it sees of the processes it tells the ship's flight process, which writes it into the record
(`blimp/link/timeline.py`). What happens while there is none waits for its successor.
"""

import contextlib
import errno
import itertools
import os
import select
import selectors
import shutil
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from blimp.clock import Clock
from blimp.errors import BlimpError
from blimp.link.paths import RuntimePaths, make_own_directory
from blimp.link.registry import register, unregister
from blimp.link.timeline import KEPT, MAX_TEXT, Happening
from blimp.processes import Child
from blimp.queue.redis.urls import hide_password
from blimp.service.notify import ALIVE, READY, READY_TO_ARM, NotifyListener
from blimp.service.stack.guard import GuardLink

RESTART_DELAY_S = 0.1  # systemd's default RestartSec
MAX_RESTARTS = 8  # within RESTART_WINDOW_S; after more the stack gives up
RESTART_WINDOW_S = 10.0
START_DEADLINE_S = 30.0
ARMABLE_DEADLINE_S = 15.0
POLL_S = 0.02
MAX_SILENCE_STEP_S = 0.1  # a longer pause was this process's own
KILL_S = 0.1  # a killed process that has not ended by then hangs in the kernel

Event = Callable[[dict[str, Any]], None]


class StackError(BlimpError):
    """The stack cannot be started, or one of its processes cannot be kept alive."""


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the stack: how it starts, what it needs, how it ends.

    vehicle: the ship it belongs to, "" for what all of them share.
    """

    name: str
    arguments: tuple[str, ...]
    vehicle: str = ""
    environment: dict[str, str] = {}  # besides this process's own
    needs: tuple[str, ...] = ()  # roles of the same ship that must be ready first
    restarts: tuple[str, ...] = ()  # roles that must restart if this one dies
    death_signal: signal.Signals | None = signal.SIGTERM
    end_within_s: float = 3.0
    directory: Path | None = None  # made before it starts, for this user alone
    ready: Callable[[], bool] | None = None  # polled if the process does not notify
    watchdog_s: float | None = None  # once ready, it is killed if it is silent for longer
    is_optional: bool = False  # nobody waits for it, and the stack goes on without it
    # Command lines of later starts: of the one after a death, and of those after a start that
    # did not become ready. By default they are as the first.
    later_arguments: tuple[tuple[str, ...], ...] = ()
    # Ships that fly come down by themselves without it: it is then tried again for ever.
    is_missed_safely: bool = False


class SafeState(Protocol):
    """Drives every output of the ship to its safe state; returns what it could not reach."""

    def __call__(self) -> Sequence[str]: ...


class StackShip(msgspec.Struct, frozen=True, kw_only=True):
    """One ship of the stack: its name, its directory, its entry in the run registry."""

    vehicle: str
    paths: RuntimePaths
    registration: Path
    safe_state: SafeState


class _Running:
    """The state of one role: its present child, and when and how often it has died."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.child: Child | None = None
        self.ready = False
        self.armable = False
        self.died_s: float | None = None
        self.start_s: float | None = 0.0  # due time; None while it runs
        self.deaths: deque[float] = deque(maxlen=MAX_RESTARTS + 1)
        self.attempt = 0  # of its command lines, the one to start with
        self.heard_s = 0.0  # its last heartbeat, or its start
        self.silent_s = 0.0  # since then, without what this process has slept through


class Stack:
    """Runs the roles until `stop()`; one thread, which never waits on a child.

    paths: the stack's directory; a ship's directory is the same, or inside it.
    on_event: receives the objects of the command line's contract, `ready` and so on.
    """

    def __init__(
        self,
        *,
        roles: Sequence[Role],
        paths: RuntimePaths,
        ships: Sequence[StackShip],
        guard: Sequence[str],
        clock: Clock,
        on_event: Event,
        broker: str,
    ) -> None:
        self._paths = paths
        self._ships = {ship.vehicle: ship for ship in ships}
        self._clock = clock
        self._on_event = partial(_tell, on_event)
        self._guard = GuardLink(guard)
        self._broker = broker
        self._roles = {(role.vehicle, role.name): _Running(role) for role in roles}
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._announced: set[str] = set()
        self._waiting: dict[str, deque[bytes]] = {
            ship.vehicle: deque(maxlen=KEPT) for ship in ships
        }
        self._ids = (f"up{os.getpid()}-{number}" for number in itertools.count(1))
        self._started_s = self._watched_s = clock.now_s()
        self._claimed = False

    def stop(self) -> None:
        """Ask for the end; safe to call from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Start everything, keep it alive until `stop()`, then end it and clean up.

        Raises StackError if a process cannot be started or kept alive; then, too, the outputs
        are safe and nothing is left behind.
        """
        self._paths.check()
        listener: NotifyListener | None = None
        try:
            self._start_guard()
            self._claim_directory()
            listener = NotifyListener(path=self._paths.notify)
            self._selector.register(listener, selectors.EVENT_READ, self._receive_readiness)
            while not self._stopping:
                self._start_what_is_due()
                for key, _ in self._selector.select(timeout=POLL_S):
                    key.data(key.fileobj)
                self._poll_readiness()
                self._watch_heartbeats()
                self._announce()
                self._tell_ships()
            with contextlib.suppress(OSError):  # its terminal may be gone
                self._on_event({"event": "ending"})
        finally:
            self._end_all()
            if listener is not None:
                listener.close()
            self._remove_files()
            self._guard.dismiss()
            self._selector.close()

    # --- starting -----------------------------------------------------------------------

    def _claim_directory(self) -> None:
        """Take the runtime directory and the ships' names, or raise if another stack has them."""
        directory = self._paths.directory
        cure = ": choose another --runtime-dir"
        make_own_directory(directory, what="runtime directory", cure=cure)
        if any(directory.iterdir()):
            raise StackError(
                f"runtime directory {directory} is not empty: another ship runs there, "
                "or it is not one of ours; choose another --runtime-dir"
            )
        directory.chmod(0o700)
        self._claimed = True
        self._guard.send("claimed")
        for ship in self._ships.values():
            if ship.paths.directory != directory:
                ship.paths.directory.mkdir(mode=0o700)
            register(
                ship.registration,
                vehicle=ship.vehicle,
                broker=self._broker,
                runtime_dir=ship.paths.directory,
            )
        self._started_s = self._clock.now_s()

    def _start_what_is_due(self) -> None:
        now_s = self._clock.now_s()
        for running in self._roles.values():
            if running.start_s is None or now_s < running.start_s:
                continue
            vehicle = running.role.vehicle
            if not all(self._roles[vehicle, need].ready for need in running.role.needs):
                continue
            if running.role.directory is not None:
                with contextlib.suppress(OSError):  # who runs there says what is wrong with it
                    running.role.directory.mkdir(mode=0o700, exist_ok=True)
            running.child = Child(
                name=running.role.name,
                arguments=(running.role.arguments, *running.role.later_arguments)[running.attempt],
                death_signal=running.role.death_signal,
                environment={
                    **running.role.environment,
                    "NOTIFY_SOCKET": str(self._paths.notify),
                    "WATCHDOG_USEC": str(round(1e6 * (running.role.watchdog_s or 0.0))),
                },
            )
            running.start_s = None
            running.heard_s = now_s
            self._selector.register(
                running.child, selectors.EVENT_READ, partial(self._on_exit, running)
            )
            self._guard.send(f"pid {running.role.name} {running.child.pid} {vehicle}")

    # --- the guard ----------------------------------------------------------------------

    def _start_guard(self) -> None:
        self._selector.register(self._guard.start(), selectors.EVENT_READ, self._replace_guard)

    def _replace_guard(self, ended: Child) -> None:
        """Start a new guard: without one, a killed supervisor would leave things behind."""
        self._selector.unregister(ended)
        ended.exit_status()
        ended.close()
        self._start_guard()

    # --- readiness ----------------------------------------------------------------------

    def _receive_readiness(self, listener: NotifyListener) -> None:
        for pid, state in listener.received():
            for running in self._roles.values():
                if running.child is not None and running.child.pid == pid:
                    if state == READY:
                        self._now_ready(running)
                    elif state == READY_TO_ARM:
                        running.armable = True
                    if state in (READY, ALIVE):
                        running.heard_s, running.silent_s = self._clock.now_s(), 0.0

    def _poll_readiness(self) -> None:
        """Poll the roles that cannot send READY=1: the broker."""
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
            vehicle = running.role.vehicle
            self._note(running.role, "runs", f"runs again after {down_s:.1f} s")
            if vehicle not in self._announced and (vehicle or not self._announced):
                return  # it was never announced as ready
            whose = {"vehicle": vehicle} if vehicle else {}
            self._on_event(
                {
                    "event": "restarted",
                    **whose,
                    "process": running.role.name,
                    "pid": running.child.pid,
                    "down_s": round(down_s, 3),
                }
            )

    def _announce(self) -> None:
        """Report each ship once, when it can be commanded."""
        for vehicle in self._ships:
            if vehicle not in self._announced:
                self._announce_ship(vehicle)

    def _announce_ship(self, vehicle: str) -> None:
        waited_s = self._clock.now_s() - self._started_s
        mine = [
            running
            for running in self._roles.values()
            if running.role.vehicle in ("", vehicle) and not running.role.is_optional
        ]
        missing = [running.role.name for running in mine if not running.ready]
        if missing and waited_s > START_DEADLINE_S:
            whose = f"{vehicle} is " if len(self._ships) > 1 else ""
            raise StackError(
                f"{whose}not ready after {START_DEADLINE_S:.0f} s: {', '.join(missing)}"
            )
        armable = any(running.armable for running in mine)
        if missing or not (armable or waited_s > ARMABLE_DEADLINE_S):
            return
        self._announced.add(vehicle)
        started = {r.role.name: r.child.pid for r in mine if r.child is not None}
        pids = {name: started.get(name) for name in ("broker", "world", "flight", "worker")}
        self._on_event(
            {
                "event": "ready",
                "vehicle": vehicle,
                "broker": hide_password(self._broker),
                "pids": pids,
            }
        )

    # --- dying --------------------------------------------------------------------------

    def _watch_heartbeats(self) -> None:
        """Kill what has been silent for too long: a stopped process cannot do it itself.

        Silence is counted in this thread's steps, so that a laptop's sleep kills nothing.
        """
        now_s = self._clock.now_s()
        step_s = min(now_s - self._watched_s, MAX_SILENCE_STEP_S)
        self._watched_s = now_s
        for running in self._roles.values():
            limit_s = running.role.watchdog_s
            if limit_s is None or running.child is None or not running.ready:
                continue
            running.silent_s += step_s
            if running.silent_s > limit_s:
                running.silent_s = 0.0
                silent_s = round(now_s - running.heard_s, 3)
                self._note(running.role, "hung", f"is silent for {silent_s:.1f} s: killed")
                self._report(running.role, "hung", process=running.role.name, silent_s=silent_s)
                running.child.send(signal.SIGKILL)
                if not select.select([running.child], [], [], KILL_S)[0]:
                    self._make_safe(running)  # it cannot drive them meanwhile

    def _make_safe(self, running: _Running) -> None:
        """Make the ship's outputs safe; report since when its flight process was not heard."""
        unreached = self._ships[running.role.vehicle].safe_state()
        if unreached:
            vehicle = running.role.vehicle
            words = f"is down, and outputs may not be safe: {', '.join(unreached)}"
            self._note(running.role, "unsafe", words)
            self._on_event({"event": "unsafe", "vehicle": vehicle, "outputs": list(unreached)})
        else:
            after_s = round(self._clock.now_s() - running.heard_s, 3)
            words = f"is down: every output is safe, {after_s:.2f} s after it was last heard"
            self._note(running.role, "safe", words)
            self._report(running.role, "safe", after_s=after_s)

    def _note(self, role: Role, kind: str, words: str, *, at_s: float | None = None) -> None:
        """Tell the ships that a process belongs to what became of it, as soon as they listen."""
        at_s = self._clock.now_s() if at_s is None else at_s
        name = "flight process" if role.name == "flight" else role.name
        for vehicle, waiting in self._waiting.items():
            if role.vehicle in ("", vehicle):
                happening = Happening(
                    id=next(self._ids), t_s=round(at_s, 4), by="supervisor",
                    kind=kind, text=f"the {name} {words}"[:MAX_TEXT],
                )  # fmt: skip
                waiting.append(msgspec.json.encode(happening))

    def _tell_ships(self) -> None:
        for vehicle, waiting in self._waiting.items():
            path = str(self._ships[vehicle].paths.flight)
            flight = self._roles.get((vehicle, "flight"))
            if not waiting or flight is None or not flight.ready:
                continue
            # If it has just died, or its queue is full, the rest is sent later.
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending,
                contextlib.suppress(OSError),
            ):
                while waiting:
                    sending.sendto(waiting[0], socket.MSG_DONTWAIT, path)
                    waiting.popleft()

    def _report(self, role: Role, event: str, **fields: object) -> None:
        whose = {"vehicle": role.vehicle} if len(self._ships) > 1 else {}
        self._on_event({"event": event, **whose, **fields})

    def _on_exit(self, running: _Running, child: Child) -> None:
        """Handle a child's end: make the outputs safe if it flew, and schedule a restart."""
        now_s = self._clock.now_s()
        vehicle = running.role.vehicle
        if running.role.name == "flight":
            self._make_safe(running)
        status = child.exit_status()
        self._note(running.role, "died", _ended_by(status), at_s=now_s)
        self._selector.unregister(child)
        child.close()
        running.child = None
        was_ready, running.ready = running.ready, False
        ended_by_others = status in (-signal.SIGKILL, -signal.SIGTERM)
        attempt = 1 if was_ready or ended_by_others else running.attempt + 1
        running.attempt = min(attempt, len(running.role.later_arguments))
        running.died_s = now_s if running.died_s is None else running.died_s
        running.deaths.append(now_s)
        recent = sum(1 for died_s in running.deaths if now_s - died_s < RESTART_WINDOW_S)
        flies_on = running.role.is_missed_safely and bool(self._announced)
        if recent > MAX_RESTARTS and (running.role.is_optional or flies_on):
            running.start_s = now_s + RESTART_WINDOW_S
            if flies_on:
                self._report(
                    running.role, "failing", process=running.role.name, status=status,
                    retry_s=RESTART_WINDOW_S,
                )  # fmt: skip
            return
        if recent > MAX_RESTARTS:
            raise StackError(
                f"{_named(running.role)} has ended {recent} times in {RESTART_WINDOW_S:.0f} s, "
                f"the last time with status {status}; its last output is on standard error"
            )
        running.start_s = now_s if recent == 1 else now_s + RESTART_DELAY_S
        for name in running.role.restarts:
            dependent = self._roles[vehicle, name].child
            if dependent is not None:
                dependent.send(signal.SIGTERM)

    def _end_all(self) -> None:
        """End in the reverse order of starting, all ships at once: each before its world."""
        kinds = list(dict.fromkeys(running.role.name for running in self._roles.values()))
        for kind in reversed(kinds):
            ending = [r for r in self._roles.values() if r.role.name == kind and r.child]
            for running in ending:
                assert running.child is not None
                running.child.send(signal.SIGTERM)
            for running in ending:
                assert running.child is not None
                if running.child.pidfd >= 0:
                    self._selector.unregister(running.child)
                running.child.end(within_s=running.role.end_within_s)
                if running.role.name == "flight":
                    self._ships[running.role.vehicle].safe_state()
                running.child = None

    def _remove_files(self) -> None:
        if self._claimed:
            shutil.rmtree(self._paths.directory, ignore_errors=True)
            for ship in self._ships.values():
                unregister(ship.registration, runtime_dir=ship.paths.directory)


def _tell(on_event: Event, event: dict[str, Any]) -> None:
    """Report an event. That its file is on a full disk ends no flight: it is written later."""
    try:
        on_event(event)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _ended_by(status: int | None) -> str:
    """Return how a process ended, in words."""
    if status is None or status >= 0:
        return f"ended with status {status}"
    try:
        return f"died of {signal.Signals(-status).name}"
    except ValueError:  # one of those without a name
        return f"died of signal {-status}"


def _named(role: Role) -> str:
    return f"{role.name} of {role.vehicle}" if role.vehicle else role.name
