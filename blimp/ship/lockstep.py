"""Lockstep: the whole ship and its world in one process, on a clock that only tests move.

World, chips, kernel seam, drivers, estimator, control and the commander are the ones that
fly in real time; only the pace differs. The same seed gives the same flight to the bit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.clock import Clock, ManualClock, SystemClock
from blimp.closing import Closing
from blimp.errors import Refused
from blimp.link.timeline import Timeline
from blimp.recording.tape import TRUTH_HZ, Injected, Session, Tape
from blimp.ship.assembly import Ship, assemble, session_of
from blimp.ship.meter import Meter
from blimp.sim.seam import linux_devices
from blimp.sim.world import World
from blimp.types import (
    Command,
    FlightRecord,
    Heartbeat,
    Outcome,
    OutcomeState,
    Snapshot,
    VehicleState,
)

SETTLE_S = 10.0  # at most, for the ship on its pad to pass its arming checks


class Records(Protocol):
    """What keeps the records of a flight's tape."""

    def take(self, kind: int, payload: bytes) -> bool: ...

    def close(self) -> None: ...


class LocalInbox:
    """The mailbox of a ship whose ground station is in the same process."""

    def __init__(self, *, boot_id: str, clock: Clock) -> None:
        self._clock = clock
        self._timeline = Timeline(boot_id=boot_id)
        self._commands: list[Command] = []
        self.outcomes: dict[str, Outcome] = {}
        self.snapshot: Snapshot | None = None
        self.link_up = True
        self._heard_s = 0.0
        self._heartbeats: list[Heartbeat] = []
        self.tap: Callable[[bytes], object] | None = None

    def put(self, command: Command) -> None:
        self._record(command)
        self._commands.append(command)

    def emergencies(self) -> list[Command]:
        if not self._commands:
            return []
        stops = [command for command in self._commands if command.name == "estop"]
        self._commands = [command for command in self._commands if command.name != "estop"]
        return stops

    def receive(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def put_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._heartbeats.append(heartbeat)

    def heartbeats(self) -> list[Heartbeat]:
        heartbeats, self._heartbeats = self._heartbeats, []
        return heartbeats

    def post(self, outcome: Outcome) -> None:
        self._record(outcome)
        self.outcomes[outcome.id] = outcome

    def publish(self, snapshot: Snapshot) -> None:
        self._record(snapshot)
        self.snapshot = snapshot

    def _record(self, message: Command | Outcome | Snapshot) -> None:
        if self.tap is not None:
            self.tap(msgspec.json.encode(message))
            for happening in self._timeline.take(message, self._clock.now_s()):
                self.tap(msgspec.json.encode(happening))

    def link_age_s(self, now_s: float) -> float:
        if self.link_up:
            self._heard_s = now_s
        return now_s - self._heard_s

    def deaf(self, now_s: float) -> str:  # noqa: ARG002
        return ""


class Lockstep(Closing):
    """A simulated ship that flies exactly as far as `step` says.

    airframe: a known name, the path of a .toml file, or one that was read. seed: of wind, noise
    and biases. wind_mps: mean wind; gusts belong to it. bench: allow motor and servo disarmed.
    plant: the ship that the world has, if it is not the one that the flight control knows.
    meter: measures each cycle. log: the MCAP file to write, from which it can be flown again; or
    what makes of a session something else that takes its records.
    held: by a person, from the start until `hold(False)`.

    The ship stands on its pad, switched on and past its arming checks, when this returns.
    Use it as a context manager, or `close()` it.
    """

    def __init__(
        self,
        airframe: str | Airframe = "twin",
        seed: int = 1,
        wind_mps: float = 0.0,
        *,
        bench: bool = False,
        rate_hz: float = 100.0,
        plant: Airframe | None = None,
        meter: Meter | None = None,
        log: Path | Callable[[Session], Records] | None = None,
        held: bool = False,
    ) -> None:
        self.airframe = airframes.load(airframe) if isinstance(airframe, str) else airframe
        self._period_s = 1.0 / rate_hz
        self._rate_hz = rate_hz
        self._truth_every = max(1, round(rate_hz / TRUTH_HZ))  # cycles
        self._clock = ManualClock()
        self._meter = meter
        self._inbox = LocalInbox(boot_id=f"lockstep-{seed}", clock=self._clock)
        self._world = World(
            plant or self.airframe,
            seed=seed,
            wind_mps=wind_mps,
            clock=self._clock,
        )
        self._sent = 0
        self._cycle = 0  # of all boots
        self._boots = 0
        self._seed, self._bench = seed, bench
        self._left: FlightRecord | None = None
        self._ship = self._boot()
        self._log: Records | None = None
        self._tape: Tape | None = None
        if log is not None:
            self._record(log, wind_mps=wind_mps, plant=plant)
        if held:
            self.hold(True)
        self._settle()

    def _boot(self) -> Ship:
        left = self._left
        number, self._boots = self._boots, self._boots + 1
        with self.linux_devices():
            return assemble(
                self.airframe,
                clock=self._clock,
                inbox=self._inbox,
                vehicle=self.airframe.name,
                boot_id=f"lockstep-{self._seed}" + (f"-{number}" if number else ""),
                rate_hz=self._rate_hz,
                bench=self._bench,
                simulated=True,
                recorder=self._leave,
                left=left,
                meter=self._meter,
                left_age_s=0.0 if left is None else self._clock.now_s() - left.t_s,
                datagrams=self._world.electronics.datagrams,
            )

    def _record(
        self, log: Path | Callable[[Session], Records], *, wind_mps: float, plant: Airframe | None
    ) -> None:
        from blimp.recording.log_file import SessionLog  # mcap takes a while to import

        session = msgspec.structs.replace(
            session_of(
                self.airframe, self._ship, vehicle=self.airframe.name,
                boot_id=f"lockstep-{self._seed}", rate_hz=self._rate_hz, simulated=True,
                bench=self._bench, clock=self._clock,
            ),
            lockstep=True,
            epoch_s=SystemClock().wall_s() - self.now_s,  # for people; the flight has no date
            seed=self._seed,
            wind_mps=wind_mps,
            plant=None if plant is None else msgspec.to_builtins(plant),
        )  # fmt: skip
        self._log = SessionLog(log, session) if isinstance(log, Path) else log(session)
        self._tape = Tape(session, write=self._log.take)
        self._inbox.tap = self._tape.message

    def _note(self, what: str, device: str = "", kind: str = "", **options: Any) -> None:
        """Record what is done to this flight beside its commands."""
        if self._tape is not None:
            cycle = self._cycle
            self._tape.injected(
                Injected(
                    t_s=self.now_s, cycle=cycle, what=what, device=device, kind=kind,
                    options=options,
                )
            )  # fmt: skip

    def _leave(self, record: FlightRecord) -> None:
        self._left = record

    # --- time and truth -------------------------------------------------------------------

    def step(self, seconds: float) -> None:
        """Fly on for `seconds`, in whole cycles of the flight loop."""
        self.step_cycles(max(1, round(seconds * self._rate_hz)))

    def step_cycles(self, count: int) -> None:
        """Fly on for `count` cycles of the flight loop."""
        with self.linux_devices():
            for _ in range(count):
                self._world.advance(self._period_s)
                if self._meter is not None:
                    self._meter.begin()
                self._ship.loop.step(self._clock.now_s())
                if self._meter is not None:
                    self._meter.end()
                self._cycle += 1
                if self._tape is not None:
                    outputs = self._ship.board.actuators.last
                    self._tape.cycle(self._ship.loop, outputs, number=self._cycle, step_s=0.0)
                    if self._cycle % self._truth_every == 0:
                        self._tape.truth(self.truth)

    @property
    def now_s(self) -> float:
        return self._clock.now_s()

    @property
    def cycle(self) -> int:
        """How many cycles the flight loop has flown, since this ship was made."""
        return self._cycle

    @property
    def truth(self) -> VehicleState:
        """Where the ship really is; no part of the flight control sees it."""
        return self._world.truth

    @property
    def state(self) -> VehicleState:
        """What the flight process believes."""
        return self._ship.loop.state

    @property
    def world(self) -> World:
        """The world itself, for what `truth` does not tell: outputs, wind, touchdown."""
        return self._world

    def i2c_bits(self) -> dict[str, int]:
        """Return how many bits the flight process has had on the wires of each I2C bus."""
        return self._ship.i2c_bits()

    @property
    def armed(self) -> bool:
        return self._ship.loop.armed

    @property
    def mode_result(self) -> dict[str, Any]:
        """What the flown mode says of its command, as its outcome will; empty in most modes."""
        return self._ship.loop.mode_result

    @property
    def accused(self) -> tuple[str, ...]:
        """The outputs that the flight process says do not do what is commanded."""
        return self._ship.loop.broken

    def problems(self) -> tuple[str, ...]:
        """Every reason why the flight process would refuse `arm` now."""
        return self._ship.loop.problems()

    @property
    def messages(self) -> tuple[str, ...]:
        """What the flight process has said lately."""
        return self.snapshot().messages

    def snapshot(self) -> Snapshot:
        """What the flight process tells the ground, as of now."""
        return self._ship.loop.snapshot(self._clock.now_s())

    # --- commands -------------------------------------------------------------------------

    def command(self, name: str, /, *, check: bool = True, **arguments: Any) -> Outcome:
        """Give a command of the ground CLI, fly one cycle, return the outcome so far.

        A command that takes time is IN_PROGRESS then: `step` on and ask `outcome`, or use
        `complete`. Raises Refused if the ship refuses it; with check=False that is an outcome.
        """
        self._sent += 1
        command = Command(id=f"{name}-{self._sent}", name=name, arguments=arguments)
        return _checked(self.deliver(command), check=check)

    def deliver(self, command: Command) -> Outcome:
        """Give a command as it would come from the mailbox, and fly one cycle."""
        self.give(command)
        self.step(self._period_s)
        return self.outcome(command.id)

    def give(self, command: Command) -> None:
        """Give a command as it would come from the mailbox; it acts in the next cycle.

        sent_s is of another clock than this ship's: a stop of a time to come refuses every arm.
        """
        self._inbox.put(msgspec.structs.replace(command, sent_s=None))

    def outcome(self, id: str) -> Outcome:
        """Return the newest outcome of a command. Raises KeyError for one never given."""
        return self._inbox.outcomes[id]

    def complete(
        self, name: str, /, *, within_s: float, check: bool = True, **arguments: Any
    ) -> Outcome:
        """Give a command and fly until its outcome is final, `within_s` at the most.

        Raises Refused as `command` does, also if the ship gives it up on the way.
        """
        outcome = self.command(name, check=check, **arguments)
        until_s = self.now_s + within_s
        while outcome.state is OutcomeState.IN_PROGRESS and self.now_s < until_s:
            self.step(0.1)
            outcome = self.outcome(outcome.id)
        return _checked(outcome, check=check)

    # --- what can go wrong ----------------------------------------------------------------

    def fault(self, device: str, kind: str, /, **options: Any) -> None:
        """Make a device fail; "clear" mends it. Kinds and options: `blimp.sim.faults`."""
        self._note("fault", device, kind, **options)
        self._world.fault(device, kind, **options)

    def begin_gusts(self, mps: float) -> None:
        """Begin horizontal gusts of a standard deviation of `mps`."""
        self._note("gusts", mps=mps)
        self._world.physics.wind.begin_gusts(mps)

    def hold(self, held: bool) -> None:
        """Have a person hold the ship where it is, or let go of it."""
        self._note("hold", held=held)
        self._world.physics.held = held

    def crash(self, *, down_s: float) -> None:
        """Have the flight process die, its supervisor make the outputs safe, and a new one start.

        down_s: how long the ship is without one.
        """
        self._note("crash", down_s=down_s)
        with self.linux_devices():
            self._ship.close()
            self._world.advance(down_s)
        self._ship = self._boot()

    def relay(self, heartbeat: Heartbeat) -> None:
        """Give the flight process a pilot's heartbeat with its next cycle, as its worker does."""
        self._note("heartbeat", **msgspec.to_builtins(heartbeat))
        self._inbox.put_heartbeat(heartbeat)

    @property
    def link_up(self) -> bool:
        """Whether the worker's broker answers; set it to False to lose it."""
        return self._inbox.link_up

    @link_up.setter
    def link_up(self, up: bool) -> None:
        self._note("link", up=up)
        self._inbox.link_up = up

    @contextmanager
    def linux_devices(self) -> Iterator[None]:
        """Let `smbus2.SMBus(1)`, `serial.Serial(path)` and `import RPi.GPIO` see this ship."""
        with linux_devices(self._world, clock=self._clock):
            yield

    def close(self) -> None:
        """Switch the ship off: outputs safe, buses closed. Idempotent."""
        with self.linux_devices():
            self._ship.close()
        self._world.close()
        if self._log is not None:
            self._log.close()

    def _settle(self) -> None:
        until_s = self.now_s + SETTLE_S
        self.step(1.0)
        while self.problems() and self.now_s < until_s:
            self.step(0.1)


def _checked(outcome: Outcome, *, check: bool) -> Outcome:
    if check and outcome.state is OutcomeState.REFUSED:
        raise Refused(outcome.reason)
    return outcome
