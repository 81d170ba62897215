"""Every mode with every failure, flown in lockstep: `blimp sim matrix`.

A flight is flown once up to the moment of the failure, and from there once for each failure,
in a fork of the process: the way there is most of a flight. The operator watches for a
while, then sends `land` until the ship is down. As soon as the outcome of a flight is clear nobody
touches the ship any more, and five minutes later it must still lie there. The seed sets wind
direction, gusts and noise, and by `conditions` wind and heaviness. Where a transmitter fails, its
pilot has taken control in the mode's middle, of a ship with a receiver, and nobody sends `land`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from math import hypot, inf
from multiprocessing import Pool

import msgspec

from blimp.airframe import Airframe, Device, Transmitter
from blimp.ship.failures import Failure
from blimp.ship.lockstep import Lockstep
from blimp.sim.atmosphere import GRAVITY_MPS2

WINDS_MPS = (0.3, 0.0, 0.15, 0.4)
LOADS = (0.0, -0.006, 0.006)  # beside the airframe's heaviness, shares of the displaced mass

HEIGHT_M = 2.0
WATCH_S = 10.0  # from the failure to the operator's first `land`
AGAIN_S = 15.0  # between two tries
LIMIT_S = 150.0  # after the failure
AFTER_S = 6.0  # a light ship that was let go has risen by then
HELD_S = 12.0  # on the ground under power: the ship has made up its mind
LOOK_S = 0.2
REST_S = 300.0  # it lies there; longer than what filters and checks take to change their mind
IDLE_REST_S = 70.0  # the same of a truly heavy one: the last stage of a lost link comes at 60 s
CAUGHT_M = 1.0
ROSE_M = 0.3  # off the ground by more than a gust rocks a ship on its feet

FLY_AWAY_M = 40.0
FLY_UP_M = 15.0
TOUCHDOWN_MPS = 0.5
DISARM_M = 0.3
GROUND_M = 0.1
BALANCED_KG = 0.0005  # neither light nor heavy
HELD, RUNS = "held down, reported", "motors run on the ground"
AT_REST = ("landed", "stopped", "on the ground, motors idle", HELD, RUNS)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """How one flight ended. Distances, heights and speeds are true ones.

    max_distance_m, max_altitude_m: from the failure on. touchdown_mps: the hardest one.
    disarmed_at_m: true height of the hull's lowest point when the ship disarmed; None if it
    stayed armed. motors_stopped: at the end.
    """

    mode: str
    failure: str
    seed: int
    safe: bool
    outcome: str
    max_distance_m: float
    max_altitude_m: float
    touchdown_mps: float
    disarmed_at_m: float | None
    motors_stopped: bool


HEADING = "mode      failure             seed  safe    far m  high m  touch m/s  let go m  outcome"


def row(cell: Cell) -> str:
    """Return a cell as a line under `HEADING`."""
    let_go = "-" if cell.disarmed_at_m is None else f"{cell.disarmed_at_m:.2f}"
    return (
        f"{cell.mode:9} {cell.failure:19} {cell.seed:4}  {'yes' if cell.safe else 'UNSAFE':6} "
        f"{cell.max_distance_m:6.1f}  {cell.max_altitude_m:6.1f}  {cell.touchdown_mps:9.2f}  "
        f"{let_go:>8}  {cell.outcome}{', motors still' if cell.motors_stopped else ''}"
    )


def _pad(_: Lockstep) -> None:
    """Armed, on the ground."""


def _takeoff(ship: Lockstep) -> None:
    ship.command("takeoff", check=False, altitude_m=HEIGHT_M)
    ship.step(5.0)


def _up(ship: Lockstep) -> None:
    ship.complete("takeoff", check=False, within_s=60.0, altitude_m=HEIGHT_M)
    ship.step(12.0)  # it has weighed itself


def _hold(ship: Lockstep) -> None:
    _up(ship)
    ship.command("hold", check=False)
    ship.step(3.0)


def _loiter(ship: Lockstep) -> None:
    _up(ship)
    ship.command("goto", check=False, north_m=6.0, east_m=3.0, altitude_m=HEIGHT_M)
    ship.step(8.0)


def _velocity(ship: Lockstep) -> None:
    _up(ship)
    ship.command("velocity", check=False, north_mps=0.3, east_mps=0.0, up_mps=0.0, seconds=20.0)
    ship.step(5.0)


def _rtl(ship: Lockstep) -> None:
    _loiter(ship)
    ship.step(4.0)
    ship.command("return", check=False)
    ship.step(3.0)


def _land(ship: Lockstep) -> None:
    _up(ship)
    ship.command("land", check=False)
    ship.step(4.0)


def _manual(ship: Lockstep) -> None:
    _up(ship)
    ship.command("mode", check=False, name="MANUAL")
    ship.step(2.0)


# What is flown when the failure comes: a row a mode.
MODES: dict[str, Callable[[Lockstep], None]] = {
    "pad": _pad,
    "takeoff": _takeoff,
    "hold": _hold,
    "loiter": _loiter,
    "velocity": _velocity,
    "rtl": _rtl,
    "land": _land,
    "manual": _manual,
}


# What the pilot at the transmitter flies there: the mode of his switch, and the sticks he pushes.
BY_TRANSMITTER: dict[str, tuple[str, dict[str, float]]] = {
    "pad": ("ALTHOLD", {}),
    "takeoff": ("ALTHOLD", {"up": 1.0}),
    "hold": ("HOLD", {}),
    "loiter": ("LOITER", {}),
    "velocity": ("VELOCITY", {"forward": 0.5}),
    "rtl": ("RTL", {}),
    "land": ("LAND", {}),
    "manual": ("MANUAL", {"forward": 0.3}),
}


def with_receiver(airframe: Airframe, mode: str) -> Airframe:
    """Return this ship with a CRSF receiver in place of its own, if any.

    The mode switch is low for STABILIZE and high for what `BY_TRANSMITTER` has for `mode`.
    """
    others = [device for device in airframe.device if device.chip not in ("crsf", "sbus")]
    taken = {device.port for device in others}
    row = Device(
        name="transmitter", chip="crsf", bus="serial", baud=420_000, rate_hz=100.0, required=False,
        port=next(port for n in count(3) if (port := f"/dev/ttyAMA{n}") not in taken),
    )  # fmt: skip
    table = Transmitter(
        mode_names=("STABILIZE", BY_TRANSMITTER[mode][0]),
        manual={name: {"forward": 1.0} for name in airframe.thruster_names},
    )
    return msgspec.structs.replace(airframe, device=(*others, row), transmitter=table)


def take_control(ship: Lockstep, mode: str) -> None:
    """Let the pilot at the transmitter fly. Raises RuntimeError if he gets no control."""
    table, (_, sticks) = ship.airframe.transmitter, BY_TRANSMITTER[mode]
    for use, value in ((table.modes, 1.0), *((getattr(table, s), v) for s, v in sticks.items())):
        ship.fault("transmitter", "stuck", channel=f"ch{use.channel}", value=value)
    ship.step(1.0)
    if "the transmitter has control" not in ship.messages:
        raise RuntimeError(f"{mode}: the transmitter got no control: {' | '.join(ship.messages)}")


def conditions(seed: int) -> tuple[float, float]:
    """Return wind (m/s) and load (a share of the displaced mass) for a seed.

    Seed 1 is the ship as its file says in 0.3 m/s; twelve seeds meet every combination.
    """
    return WINDS_MPS[(seed - 1) % len(WINDS_MPS)], LOADS[(seed - 1) % len(LOADS)]


def fly(
    airframe: Airframe,
    *,
    modes: Sequence[str],
    failures: Sequence[Failure],
    seeds: Sequence[int],
    jobs: int = 1,
    rest_s: float = REST_S,
) -> Iterator[Cell]:
    """Fly every cell that this ship has the devices for, in order, and look on for `rest_s`.

    jobs: how many processes fly at once, each a mode of a seed with all its failures.
    """
    rows = [
        (ship, mode, fitting, seed, rest_s)
        for seed in seeds
        for mode in modes
        for ship, fitting in _fitting(airframe, mode, failures)
    ]
    if jobs == 1:
        for row in rows:
            yield from _row(*row)
        return
    with Pool(jobs) as pool:
        for cells in pool.imap(_whole_row, rows):
            yield from cells


def _fitting(
    airframe: Airframe, mode: str, failures: Sequence[Failure]
) -> Iterator[tuple[Airframe, list[Failure]]]:
    """Yield the ship with what fails on it, and then with a receiver what fails of that."""
    for by_transmitter in (False, True):
        ship = with_receiver(airframe, mode) if by_transmitter else airframe
        found = [f for f in failures if f.transmitter == by_transmitter and f.fits(ship)]
        if found:
            yield ship, found


def _whole_row(row: tuple[Airframe, str, Sequence[Failure], int, float]) -> list[Cell]:
    return list(_row(*row))


def _row(
    airframe: Airframe, mode: str, failures: Sequence[Failure], seed: int, rest_s: float
) -> Iterator[Cell]:
    wind_mps, load = conditions(seed)
    with Lockstep(airframe, seed=seed, wind_mps=wind_mps) as ship:
        physics = ship.world.physics
        physics.load(load * physics.displaced_kg)
        flush(ship)

        def begin() -> None:
            ship.command("arm", check=False)
            MODES[mode](ship)
            if failures[0].transmitter:
                take_control(ship, mode)

        early = [failure for failure in failures if failure.at_start]
        for failure in early:
            yield _branch(_Flight(ship, mode, failure, seed, before=begin, rest_s=rest_s))
        if len(early) < len(failures):
            begin()
            flush(ship)
        for failure in failures:
            if not failure.at_start:
                yield _branch(_Flight(ship, mode, failure, seed, rest_s=rest_s))


def end_of(
    ship: Lockstep, mode: str, failure: Failure, *, seed: int = 0,
    before: Callable[[], None] | None = None,
) -> Cell:  # fmt: skip
    """Let the failure happen now, in this process, and look on to the end of the flight.

    before: what is done after the failure, of one that is there at the start.
    """
    flight = _Flight(ship, mode, failure, seed, before=before)
    try:
        return flight.cell()
    except Exception as error:  # the cell tells it, as a fork's does
        return flight.broken(repr(error))


def press_n(ship: Lockstep, failure: Failure) -> float:
    """Return the most that can push this ship down once the failure has happened, N.

    At the best angle of each tilt servo that still moves; a motor that cannot be commanded
    gives what it gives.
    """
    physics, airframe = ship.world.physics, ship.airframe
    devices = {row.name: row for row in airframe.device}
    drivers = {name: row for row in airframe.device for name in row.outputs.values()}
    limits = {t.name: (t.reverse_thrust_n, t.max_thrust_n) for t in airframe.thruster}
    now = dict(zip(airframe.thruster_names, physics.thrusts_n, strict=True))
    now |= dict(zip(airframe.servo_names, physics.servo_angles_rad, strict=True))
    fixed: dict[str, float] = {}  # thrusts, N, and angles, rad
    for fault in failure.faults:
        for name, driver in drivers.items():
            if fault.kind == "stuck" and fault.output == name:
                value = float(fault.options["value"])
                fixed[name] = value * limits[name][value > 0.0] if name in limits else value
            elif (
                fault.kind == "bus_stuck" and devices[fault.device].bus == driver.bus
            ) or fault.device == driver.name:
                fixed[name] = now[name]
    best_n: dict[str, float] = {}  # by servo, and of all that none turns
    for tenth in range(-18, 19):
        down_n = dict.fromkeys((t.tilted_by for t in airframe.thruster), 0.0)
        for thruster in airframe.thruster:
            down = thruster.axis_at(fixed.get(thruster.tilted_by, 0.1 * tenth))[2]
            pushes = [thruster.max_thrust_n * down, -thruster.reverse_thrust_n * down]
            down_n[thruster.tilted_by] += (
                fixed[thruster.name] * down if thruster.name in fixed else max(pushes)
            )
        best_n = {servo: max(n, best_n.get(servo, n)) for servo, n in down_n.items()}
    return max(0.0, sum(best_n.values()))


def pushes_n(ship: Lockstep) -> float:
    """Return what the thrusters now push this ship down with, level, N."""
    airframe, physics = ship.airframe, ship.world.physics
    angles = dict(zip(airframe.servo_names, physics.servo_angles_rad, strict=True))
    return sum(
        thrust_n * thruster.axis_at(angles.get(thruster.tilted_by, 0.0))[2]
        for thruster, thrust_n in zip(airframe.thruster, physics.thrusts_n, strict=True)
    )


@contextmanager
def on_the_way(airframe: Airframe, mode: str, seed: int) -> Iterator[Lockstep]:
    """Give a ship under the seed's conditions that flies this mode. Raises Refused if it cannot."""
    wind_mps, load = conditions(seed)
    with Lockstep(airframe, seed=seed, wind_mps=wind_mps, held=True) as ship:
        ship.world.physics.load(load * ship.world.physics.displaced_kg)
        ship.command("arm")
        ship.hold(False)
        MODES[mode](ship)
        flush(ship)
        yield ship


def flush(ship: Lockstep) -> None:
    """Drop what is on the serial lines: all forks share them, and none is to read another's."""
    for line in ship.world.computer.lines.values():
        line.flush()


_flush = flush  # scripts that fork a flight of their own know it by this name


def _branch(flight: "_Flight") -> Cell:
    def cell() -> bytes:
        try:
            return msgspec.json.encode(flight.cell())
        except BaseException as error:  # the cell tells it
            return msgspec.json.encode(flight.broken(repr(error)))

    return msgspec.json.decode(in_a_fork(flight.ship, cell), type=Cell)


def in_a_fork(ship: Lockstep, work: Callable[[], bytes]) -> bytes:
    """Fly on in a fork: this process's ship stays where it is."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b""
        try:
            os.close(reading)
            answer = work()
        except BaseException as error:  # nothing else of a fork may run
            answer = repr(error).encode()
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    flush(ship)
    return answer


class Rest:
    """The time after a flight, when nobody touches the ship: it must stay on the ground."""

    def __init__(self, ship: Lockstep, look: Callable[[], None] = lambda: None) -> None:
        """look: called whenever it is looked at."""
        self._ship, self._look = ship, look

    def until_its_end(self, outcome: str, rest_s: float = REST_S) -> str:
        """Look on at a ship that lies on the ground, and return what became of `outcome`.

        Heavy by its true weight it rises by its motors alone. Disarmed it needs no looking on;
        armed, motors idle, as long as what may start them takes: filters, checks and failsafes.
        """
        ship, physics = self._ship, self._ship.world.physics
        heavy, lift_n = physics.heaviness_kg > BALANCED_KG, -GRAVITY_MPS2 * physics.heaviness_kg
        if outcome not in AT_REST or (heavy and not ship.armed):
            return outcome
        began_s = ship.now_s
        end_s = began_s + (min(IDLE_REST_S, rest_s) if heavy else rest_s)
        pushed_ns = 0.0  # newtons times seconds
        while ship.now_s < end_s:
            ship.step(LOOK_S)
            self._look()
            rested_s = ship.now_s - began_s
            if any(ship.world.electronics.throttles()):
                end_s = began_s + rest_s
            pushed_ns += LOOK_S * pushes_n(ship)
            height_m = physics.height_above_ground_m
            # Armed on its pad it holds itself where it rose to: nobody landed it there.
            caught = height_m < CAUGHT_M and ship.snapshot().mode == "HOLD"
            if height_m > ROSE_M and not caught:
                return f"{outcome}; rose after {rested_s:.0f} s"
            if hypot(*ship.truth.position_ned_m[:2]) > FLY_AWAY_M:
                return f"{outcome}; carried off within {rested_s:.0f} s"
        mean_n = pushed_ns / (ship.now_s - began_s)
        if outcome == HELD and mean_n < lift_n:
            return f"{outcome}; by {mean_n:.3f} N of thrust, of {lift_n:.3f} N of lift"
        return outcome


class _Flight:
    """One ship from the failure to its end."""

    def __init__(
        self,
        ship: Lockstep,
        mode: str,
        failure: Failure,
        seed: int,
        before: Callable[[], None] | None = None,
        rest_s: float = REST_S,
    ) -> None:
        self._rest_s = rest_s
        self.ship = ship
        self._mode = mode
        self._failure = failure
        self._seed = seed
        self._before = before
        self._far_m = self._high_m = 0.0
        self._hard_mps = 0.0
        self._disarmed_m: float | None = None
        self._disarmed_s = inf
        self._heavy_at_disarm_kg = 0.0
        self._powered_s = 0.0
        self._idle_s = 0.0
        self._press_n = 0.0

    def cell(self) -> Cell:
        ship = self.ship
        self._failure.happen(ship)
        self._press_n = press_n(ship, self._failure)
        if self._before is not None:
            self._before()
        began_s = ship.now_s
        next_s = began_s + WATCH_S
        outcome = ""
        while not outcome:
            ship.step(LOOK_S)
            self._look()
            attended = ship.link_up and not self._failure.transmitter
            if ship.now_s >= next_s and attended:
                next_s += AGAIN_S
                sent = ship.snapshot()
                if sent.armed and sent.mode != "LAND":
                    ship.command("land", check=False)
            outcome = self._ended(ship.now_s - began_s)
        rest = Rest(ship, look=self._look)
        return self._cell_of(rest.until_its_end(outcome, self._rest_s))

    def _look(self) -> None:
        ship = self.ship
        physics, truth = ship.world.physics, ship.truth
        self._far_m = max(self._far_m, hypot(*truth.position_ned_m[:2]))
        self._high_m = max(self._high_m, truth.altitude_m)
        self._hard_mps = max(self._hard_mps, physics.touchdown_speed_mps)
        if ship.armed:
            self._disarmed_m, self._disarmed_s = None, inf
        elif self._disarmed_m is None:
            self._disarmed_m, self._disarmed_s = physics.height_above_ground_m, ship.now_s
            self._heavy_at_disarm_kg = physics.heaviness_kg
        down = physics.height_above_ground_m < GROUND_M
        self._powered_s = self._powered_s + LOOK_S if down and self._turning else 0.0
        self._idle_s = self._idle_s + LOOK_S if down and not self._turning else 0.0

    @property
    def _turning(self) -> bool:
        return any(self.ship.world.electronics.throttles())

    def _ended(self, flown_s: float) -> str:
        """Return how it ended, "" while it has not."""
        ship = self.ship
        physics = ship.world.physics
        if self._far_m > FLY_AWAY_M or self._high_m > FLY_UP_M:
            return "flown away"
        if flown_s < WATCH_S + 2.0 or self._disarmed_s < inf:
            waited = ship.now_s - self._disarmed_s > AFTER_S and flown_s > WATCH_S + 2.0
            if not waited or physics.height_above_ground_m > GROUND_M:
                return "" if flown_s < LIMIT_S else "let go, still in the air"
            return "landed" if self._failure.at_start or self._mode != "pad" else "stopped"
        if self._idle_s > HELD_S:
            return "on the ground, motors idle"
        if self._powered_s > HELD_S + AGAIN_S and any("light" in m for m in ship.messages):
            return HELD
        if flown_s < LIMIT_S:
            return ""
        return RUNS if self._powered_s else "still in the air"

    def _cell_of(self, outcome: str) -> Cell:
        physics = self.ship.world.physics
        # A new flight process starts disarmed: a heavy ship comes down so (decision 30), and on
        # its pad any ship lies as it was set there.
        restarted = self._failure.dead_s > 0.0
        high = self._disarmed_m is not None and self._disarmed_m > DISARM_M
        was_light = self._disarmed_m is not None and self._heavy_at_disarm_kg < -BALANCED_KG
        let_go = (high and not restarted) or (
            was_light and not (restarted and self._mode == "pad" and self._high_m < GROUND_M)
        )
        light = physics.heaviness_kg < -BALANCED_KG
        bad = outcome not in AT_REST
        safe = (
            not bad
            and not let_go
            and self._hard_mps <= TOUCHDOWN_MPS
            and (light or outcome != RUNS)
        )
        if bad and self._press_n + physics.heaviness_kg * GRAVITY_MPS2 < 0.0:
            outcome += ": no thrust is left that could push it down"
        return Cell(
            mode=self._mode,
            failure=self._failure.name,
            seed=self._seed,
            safe=safe,
            outcome=outcome,
            max_distance_m=round(self._far_m, 2),
            max_altitude_m=round(self._high_m, 2),
            touchdown_mps=round(self._hard_mps, 3),
            disarmed_at_m=None if self._disarmed_m is None else round(self._disarmed_m, 2),
            motors_stopped=not self._turning,
        )

    def broken(self, why: str) -> Cell:
        return Cell(
            mode=self._mode,
            failure=self._failure.name,
            seed=self._seed,
            safe=False,
            outcome=f"error: {why}",
            max_distance_m=round(self._far_m, 2),
            max_altitude_m=round(self._high_m, 2),
            touchdown_mps=round(self._hard_mps, 3),
            disarmed_at_m=self._disarmed_m,
            motors_stopped=False,
        )
