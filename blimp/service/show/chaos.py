"""Harm to a simulated stack that runs, and what its ship did about it.

Each is undone by itself, but for a leak and a ship that is held.

An action blocks until the ship is well again, so it runs in a thread of its own. It finds the
stack's processes by the directory that they were started with, and refuses a ship that is not
simulated. What the ship does about it is read from its telemetry: nobody asks the ship.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import cos, sin
from pathlib import Path
from typing import Any

import msgspec

from blimp.airframe import Airframe, load
from blimp.clock import Clock, SystemClock
from blimp.config import registry_dir, signing_keys_from_environment
from blimp.errors import BlimpError, ConfigError
from blimp.link.paths import RuntimePaths, socket_url
from blimp.link.telemetry import TelemetryReader, signer_of
from blimp.queue.log import printable
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.urls import link_errors
from blimp.rotation import yaw_of
from blimp.service.show.chaos_offers import HELIUM_LIFT_KG_M3, LIES, Offer, failures, offers
from blimp.service.show.reaction import BACK_WITHIN_S, Reaction, Seen, off_m, sentence
from blimp.service.truth import only_stack
from blimp.sim.remote import RemoteWorld
from blimp.sim.wire import Truth
from blimp.tasks.client import VehicleClient
from blimp.types import Snapshot
from ground_station.discover import running_stacks

HEARD_WITHIN_S = 5.0
PING_S = 1.0
OUTAGE_S = 5.0
GUST_S = 4.0
LEAK_S = 5.0
HEAT_S = 15.0
NEAR_M = 0.5
FRESH_S = 1.0
HELD = ("hold-ship", "let-go")  # no fault
POSITION_SENSORS = ("tag", "gps", "mocap")


class ChaosReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and what the ship did about it.

    down_s: from the beginning until it was back, or until it was given up. back_ms: since the
    harm was over, or since a process was killed; None if it was not back in 30 s. off_m: how far
    it was at most from where it wanted to be; None if it wanted to be nowhere. lost: what the harm
    made of a ship that was armed and is not any more, "" for one that flies on. sentence: what
    terminal, panel, caption and end card say.
    """

    action: str
    down_s: float
    back_ms: float | None = None
    off_m: float | None = None
    words: str = ""
    lost: str = ""
    sentence: str = ""
    seen: tuple[Seen, ...] = ()

    @property
    def is_well(self) -> bool:
        return self.back_ms is not None and not self.lost


class Chaos:
    """Does harm to one ship's stack.

    paths: its runtime directory. keys: those that sign its commands and telemetry.
    """

    def __init__(
        self,
        *,
        paths: RuntimePaths,
        vehicle: str,
        broker: str,
        airframe: Airframe,
        clock: Clock,
        keys: Sequence[str] | None = None,
    ) -> None:
        self._paths = paths
        self._vehicle = vehicle
        self._broker = broker
        self._airframe = airframe
        self._clock = clock
        self._keys = keys
        self.faults: list[ChaosReport] = []  # all that was done, but for a ship that was held

    @property
    def actions(self) -> Mapping[str, Callable[[], ChaosReport]]:
        """Every action that needs neither amount nor device, by its name."""
        simple = ("kill-worker", "kill-flight", "stop-broker", "cut-link", "blind-position")
        return {name: lambda name=name: self.act(name) for name in simple}  # type: ignore[misc]

    def offers(self) -> list[Offer]:
        """Return what can be done to this ship now, with limits. Raises BlimpError."""
        return offers(self._airframe, self._truth())

    def act(
        self, name: str, *, amount: float | None = None, device: str | None = None
    ) -> ChaosReport:
        """Do it, wait until the ship is well again, and say what it did.

        Raises ConfigError for what cannot be, with the limit; BlimpError if it cannot be done.
        """
        known = {one.name: one for one in self.offers()}
        offer = known.get(name)
        if offer is None:
            raise ConfigError(
                f"no action {name[:40]!r} on {self._vehicle}; the actions are {', '.join(known)}"
            )
        amount = offer.checked(amount, device)
        with Reaction(self._reader, clock=self._clock) as reaction:
            before = reaction.begin(within_s=HEARD_WITHIN_S)
            began_s = self._clock.now_s()
            words, over_s, (again, is_back) = self._do(name, amount, device, before)
            back_s = is_back(reaction, over_s)
            now_s, now = self._clock.now_s(), reaction.newest()
            back_ms = None if back_s is None else round(1e3 * max(0.0, back_s - over_s))
            report = ChaosReport(
                action=name,
                down_s=round((now_s if back_s is None else back_s) - began_s, 3),
                back_ms=back_ms,
                off_m=reaction.off_m,
                words=words,
                lost=_lost(before, now),
                sentence=sentence(
                    now, words=words, again=again, back_ms=back_ms, most_m=reaction.off_m
                ),
                seen=tuple(reaction.seen),
            )
        if name not in HELD:
            self.faults.append(report)
        return report

    # --- each action: what was done, when it was over, what is waited for, and how ---

    def _do(
        self, name: str, amount: float, device: str | None, before: Snapshot
    ) -> tuple[str, float, "_Proof"]:
        if name == "kill-worker":
            self._signal("worker", signal.SIGKILL)
            return "the worker was killed", self._clock.now_s(), self._pinged()
        if name == "kill-flight":
            self._signal("fly", signal.SIGKILL)
            boot = before.boot_id
            return (
                "the flight process was killed",
                self._clock.now_s(),
                _until(
                    "its successor was heard without a failsafe",
                    lambda now: now.boot_id != boot and not now.failsafe,
                ),
            )
        if name == "stop-broker":
            with self._stopped_broker():
                self._pass(OUTAGE_S)
            return f"the broker stood still for {OUTAGE_S:g} s", self._clock.now_s(), self._pinged()
        if name == "cut-link":
            with link_errors(self._broker), open_redis(self._broker, timeout_s=2.0) as redis:
                redis.client_pause(int(1e3 * OUTAGE_S))
            self._pass(OUTAGE_S)
            return (
                f"the link carried nothing for {OUTAGE_S:g} s",
                self._clock.now_s(),
                self._pinged(),
            )
        if name in ("hold-ship", "let-go"):
            is_held = name == "hold-ship"
            with self._world() as world:
                world.hold(is_held)
            words = "a person holds it still" if is_held else "the ship was let go of"
            return words, self._clock.now_s(), ("", lambda _, over_s: over_s)
        if name in ("gust", "heat", "leak"):
            return self._air(name, amount)
        return self._fault(name, device)

    def _fault(self, name: str, device: str | None) -> tuple[str, float, "_Proof"]:
        """Let sensors fail for a while."""
        names = tuple(one.name for one in self._airframe.device)
        options: dict[str, Any] = {}
        if name == "blind-position":
            hit = [one for one in POSITION_SENSORS if one in names]
            if not hit:
                raise BlimpError(f"this ship has none of {', '.join(POSITION_SENSORS)}")
            kind, words = "no_answer", f"{' and '.join(hit)} went blind"
        else:
            assert device is not None
            hit = [device]
            kind, words = "frozen", f"{device} froze"
            if name == "blind-sensor":
                kind, words = "no_answer", f"{device} went blind"
            elif name == "lie-sensor":
                lie, fault = next(failures(device, LIES))
                kind, options, words = fault.kind, fault.options, lie
        with self._world() as world:
            try:
                for one in hit:
                    world.fault(one, kind, **options)
                self._pass(OUTAGE_S)
            finally:
                for one in hit:
                    world.fault(one, "clear")

        def is_well(now: Snapshot) -> bool:
            sensors = [now.sensors[one] for one in hit if one in now.sensors]
            fresh = all(one.healthy and (one.age_s or 0.0) < FRESH_S for one in sensors)
            return fresh and not now.failsafe and not now.health.doubts

        again = f"{' and '.join(hit)} measured again, and nothing was in doubt"
        return f"{words} for {OUTAGE_S:g} s", self._clock.now_s(), _until(again, is_well)

    def _air(self, name: str, amount: float) -> tuple[str, float, "_Proof"]:
        with self._world() as world:
            if name == "gust":
                yaw = yaw_of(world.truth().attitude)
                world.air(
                    "gust", north_mps=-amount * cos(yaw), east_mps=-amount * sin(yaw),
                    seconds=GUST_S,
                )  # fmt: skip
                self._pass(GUST_S)
                return (
                    f"a gust of {amount:.2g} m/s from ahead",
                    self._clock.now_s(),
                    _until(f"it was within {NEAR_M:g} m of its place", _is_near),
                )
            if name == "heat":
                try:
                    world.air("heat", warmer_c=amount)
                    self._pass(HEAT_S)
                finally:
                    world.air("heat", warmer_c=0.0)
                words = f"the air was {amount:.2g} K warmer for {HEAT_S:g} s"
            else:
                m3 = 1e-3 * amount / HELIUM_LIFT_KG_M3
                try:
                    world.air("leak", m3_per_day=86_400.0 * m3 / LEAK_S)
                    self._pass(LEAK_S)
                finally:
                    world.air("leak", m3_per_day=0.0)
                words = f"{amount:.2g} g of lift leaked, for good"
        again = f"it was within {NEAR_M:g} m of its height"
        return words, self._clock.now_s(), _until(again, _is_level)

    def _pinged(self) -> "_Proof":
        return "a command was answered", lambda _, __: self._answered_s()

    def _answered_s(self) -> float | None:
        """Wait until a command reaches the ship and its answer comes back."""
        until_s = self._clock.now_s() + BACK_WITHIN_S
        with VehicleClient(self._broker, self._vehicle, signing_key=self._keys) as client:
            while self._clock.now_s() < until_s:
                with contextlib.suppress(BlimpError):
                    if client.ping(timeout_s=PING_S).state == "SUCCESS":
                        return self._clock.now_s()
        return None

    # --- the ship and its stack -------------------------------------------------------------

    def _pass(self, seconds: float) -> None:
        self._clock.sleep_until(self._clock.now_s() + seconds)

    def _reader(self) -> TelemetryReader:
        return TelemetryReader(self._broker, self._vehicle, signer=signer_of(self._keys))

    @contextlib.contextmanager
    def _world(self) -> Iterator[RemoteWorld]:
        try:
            with RemoteWorld(self._paths.world) as world:
                yield world
        except OSError as error:
            raise BlimpError(
                f"no simulated world answers at {self._paths.world}: faults are injected into "
                "simulated "
                "ships alone"
            ) from error

    def _truth(self) -> Truth:
        with self._world() as world:
            return world.report()

    def _signal(self, command: str, number: signal.Signals) -> None:
        pid = process_of(command, self._paths.directory)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    @contextlib.contextmanager
    def _stopped_broker(self) -> Iterator[None]:
        """Stop the broker's process: connections stand, and nobody answers on them."""
        directories = (self._paths.directory, self._paths.directory.parent)
        if self._broker not in [socket_url(RuntimePaths(one).broker) for one in directories]:
            raise BlimpError("this broker is not the stack's own: it is not stopped")
        with link_errors(self._broker), open_redis(self._broker, timeout_s=2.0) as redis:
            pid = int(redis.info("server")["process_id"])
        pidfd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
            try:
                yield
            finally:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        finally:
            os.close(pidfd)


# What is waited for, and how: with when the harm was over, for when it was seen, None if not.
_Proof = tuple[str, Callable[[Reaction, float], float | None]]


def process_of(command: str, directory: Path) -> int:
    """Return the process that runs `blimp COMMAND` with this runtime directory.

    Raises BlimpError if there is none, and for a flight process that is not simulated.
    """
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has just ended
        if words[1:4] != ["-m", "blimp", command] or "--runtime-dir" not in words:
            continue
        if words[words.index("--runtime-dir") + 1] != str(directory):
            continue
        if command == "fly" and "--sim" not in words:
            raise BlimpError(f"the ship in {directory} is not simulated, so no fault is injected")
        return int(entry.parent.name)
    raise BlimpError(f"no `blimp {command}` runs in {directory}: is it starting again?")


def _until(again: str, is_well: Callable[[Snapshot], bool]) -> _Proof:
    def wait(reaction: Reaction, over_s: float) -> float | None:
        return reaction.wait(is_well, since_s=over_s, within_s=BACK_WITHIN_S)

    return again, wait


def _lost(before: Snapshot, now: Snapshot) -> str:
    """Return what became of a ship that was armed and is not, as its last snapshot says it."""
    if now.boot_id == before.boot_id or not before.armed or (now.armed and not now.failsafe):
        return ""
    return now.failsafe or "the ship came down, and lies disarmed"


def _is_near(now: Snapshot) -> bool:
    """Whether it is where it wants to be; a ship that wants to be nowhere is."""
    return (off_m(now) or 0.0) < NEAR_M


def _is_level(now: Snapshot) -> bool:
    """Whether it is at the height that it wants."""
    down_m = now.target_ned_m[2]
    return down_m is None or abs(down_m - now.position_ned_m[2]) < NEAR_M


def chaos_of(runtime_dir: Path | None) -> Chaos:
    """Return what does harm to the ship whose sockets are in `runtime_dir`.

    None: the only stack that this user runs. Raises ConfigError if there is none, if there are
    several, or if what runs there is not simulated.
    """
    directory = runtime_dir or Path(only_stack().runtime_dir)
    stacks = running_stacks(registry_dir())
    stack = next((one for one in stacks if one.runtime_dir == str(directory)), None)
    if stack is None:
        raise ConfigError(f"no stack of this user runs in {directory}")
    paths = RuntimePaths(directory)
    paths.check()
    return Chaos(
        paths=paths, vehicle=stack.vehicle, broker=stack.broker, airframe=load(str(paths.airframe)),
        clock=SystemClock(), keys=signing_keys_from_environment(),
    )  # fmt: skip


def report_lines(report: ChaosReport) -> list[str]:
    """Return a report as a person reads it."""
    lines = [f"{one.after_ms:6.0f} ms  {printable(one.text)}" for one in report.seen]
    return [printable(report.sentence), *(lines or ["the ship reported nothing"])]
