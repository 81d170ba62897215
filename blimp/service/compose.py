"""The composition root: the one place that names concrete classes.

One function a process (`fly`, `simulate`), and one for the safe state. The ship itself is put
together by `blimp/ship/assembly.py`. The processes that reach a broker are in `work.py`;
`blimp/service/stack/up.py` puts all of them together.
"""

import contextlib
import os
import secrets
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.airframe import Airframe
from blimp.clock import Clock, SystemClock
from blimp.config import (
    notify_address,
    state_directory,
    vehicle_name,
    watchdog_limit_s,
)
from blimp.control.loop import FlightLoop
from blimp.control.runner import run
from blimp.control.watchdog import Watchdog
from blimp.errors import BlimpError, ConfigError
from blimp.hardware.board import Board, safe_state
from blimp.hardware.datagrams import in_directory
from blimp.hardware.linux import LinuxBuses
from blimp.link.flight_record import RecordFile
from blimp.link.mailbox import MailboxServer
from blimp.link.paths import RuntimePaths, is_of_group, own_paths, paths_in
from blimp.link.registry import start_time
from blimp.link.timeline import Timeline
from blimp.queue.watching import LogFormat
from blimp.recording.ring import Ring
from blimp.recording.tape import Session, Tape
from blimp.service import notify
from blimp.service.airframes.check import demand_airworthy
from blimp.service.files import write_whole
from blimp.service.parameters import ParameterFile
from blimp.service.realtime import BusLoad, make_realtime
from blimp.ship.assembly import assemble, session_of

OnStop = Callable[[Callable[[], None]], None]  # given what to call when the process must end

START_S = 1.0  # a device that has not started so long after its time is logged
RENEW_S = 0.5  # between two looks at its sockets' files: a stop must not miss them for a second
ORPHAN_GRACE_S = 2.0  # a world outlives its supervisor by this, until the ship's outputs are safe


class FlightOptions(msgspec.Struct, frozen=True, kw_only=True):
    airframe: str
    vehicle: str | None
    runtime_dir: Path | None
    simulated: bool
    bench: bool = False
    rate_hz: float = 100.0
    pad_east_m: float = 0.0
    log_format: LogFormat = "text"


LAID_DOWN_S = 5.0  # a person who lays a ship down keeps it still until its gyro is measured


class WorldOptions(msgspec.Struct, frozen=True, kw_only=True):
    """parent: end soon after this process ends; None to run until `stop`.

    pad_east_m: where the ship's pad is, from the airframe's home. held: by a person, at first.
    scene: the file of what a camera sees; by default see `blimp.scene.of`.
    """

    airframe: str
    seed: int
    wind_mps: float
    runtime_dir: Path | None
    scene: Path | None = None
    parent: int | None = None
    pad_east_m: float = 0.0
    held: bool = False


# --- the kernel's devices --------------------------------------------------------------------


@contextlib.contextmanager
def machine(*, simulated: bool, paths: RuntimePaths, clock: Clock) -> Iterator[None]:
    """The kernel's devices: this machine's, or the simulated world's if `simulated`.

    Neither ever replaces the other: a world that does not answer is an error.
    """
    if not simulated:
        yield
        return
    from blimp.sim.remote import RemoteWorld
    from blimp.sim.seam import linux_devices

    with RemoteWorld(paths.world) as world, linux_devices(world, clock=clock):
        yield


# --- the processes ---------------------------------------------------------------------------


def fly(options: FlightOptions, *, on_stop: OnStop) -> None:
    """Run the flight process until it is stopped. Outputs are safe on every way out.

    When a parameter is set, the flight loop ends in order and another one begins with it.
    """
    own = airframes.load(options.airframe).with_pad_east(options.pad_east_m)
    vehicle = _vehicle(options.vehicle, own)
    paths = own_paths(options.runtime_dir)
    kept = ParameterFile((state_directory() or paths.directory) / "parameters.json")
    try:
        airframe, passed_over = kept.onto(own)
    except ConfigError as error:
        left = flown_airframe(paths)
        if left is None:
            raise
        airframe, passed_over = left, (str(error),)  # it may be in the air
    # A ship that was in the air when its flight process died is not judged again.
    if not options.bench and flown_airframe(paths) != airframe:
        demand_airworthy(airframe)
    clock = SystemClock()
    stopping: list[bool] = []  # no Event: a second signal inside its set() would hang
    on_stop(lambda: stopping.append(True))
    log = _flight_log(options.log_format, vehicle)
    for why in passed_over:
        log("parameter passed over", level="error", error=why)
    refused = make_realtime()  # before threads are started, which inherit it
    while True:
        wanted = _fly(
            airframe, options, vehicle=vehicle, paths=paths, clock=clock, log=log,
            refused=refused, stopping=stopping,
        )  # fmt: skip
        if wanted is None:
            return
        # No loop runs, and the outputs are safe: one heartbeat a step, so that a hang still shows.
        notify.send(notify.ALIVE, address=notify_address())
        try:
            kept.keep(wanted, own=own)
        except ConfigError as error:
            log("parameter not kept", level="error", error=str(error))
        else:
            airframe = wanted
        if stopping:
            return


def _fly(
    airframe: Airframe,
    options: FlightOptions,
    *,
    vehicle: str,
    paths: RuntimePaths,
    clock: Clock,
    log: Callable[..., object],
    refused: tuple[str, ...],
    stopping: list[bool],
) -> Airframe | None:
    """Run one flight loop to its end; return the airframe to begin another with, or None."""
    wanted: list[Airframe] = []
    supervisor = notify_address()
    boot_id = secrets.token_hex(4)
    notify.send(notify.ALIVE, address=supervisor)
    with (
        MailboxServer(path=paths.flight, clock=clock) as mailbox,
        RecordFile(paths.record) as record,
        _left(airframe, vehicle=vehicle, paths=paths) as leave,
        _put_back(mailbox, record, leave, log),
        machine(simulated=options.simulated, paths=paths, clock=clock),
        assemble(
            airframe,
            clock=clock,
            inbox=mailbox,
            vehicle=vehicle,
            boot_id=boot_id,
            rate_hz=options.rate_hz,
            bench=options.bench,
            simulated=options.simulated,
            recorder=record.write,
            left=(left := record.read()),
            left_age_s=0.0 if left is None else _started_s(clock) - left.t_s,
            take_over=wanted.append,
            datagrams=partial(in_directory, paths.directory),
        ) as ship,
        Watchdog(clock=clock, safe=ship.board.actuators.safe) as watchdog,
    ):
        notified: set[str] = set()
        starting_s = max([0.0, *(device.start_s for device in ship.board.devices)]) + START_S
        started = ceil(starting_s * options.rate_hz)
        load, watched = BusLoad(rate_hz=options.rate_hz), started + round(options.rate_hz)
        limit_s = watchdog_limit_s()
        beat_every = max(1, int((limit_s or 0.0) / notify.BEATS_A_LIMIT * options.rate_hz))
        ship.loop.timing.refused = refused
        mailbox.timeline = Timeline(boot_id=boot_id, has_died=left is not None)
        tape = _tape(paths, log, session_of(
            airframe, ship, vehicle=vehicle, boot_id=boot_id, rate_hz=options.rate_hz,
            simulated=options.simulated, bench=options.bench, clock=clock,
        ), has_died=left is not None)  # fmt: skip
        if tape is not None:
            mailbox.tap = tape.message
        facts = {"rate_hz": options.rate_hz, "airframe": airframe.name, "refused": refused}
        log("flying", boot_id=boot_id, **facts)

        def after_cycle() -> None:
            watchdog.pet()
            if tape is not None:
                number, began_s = ship.loop.timing.cycles, ship.loop.state.t_s
                step_s = clock.now_s() - began_s
                tape.cycle(ship.loop, ship.board.actuators.last, number=number, step_s=step_s)
            if limit_s and ship.loop.timing.cycles % beat_every == 0:
                notify.send(notify.ALIVE, address=supervisor)
            cycles = ship.loop.timing.cycles
            if cycles == started:
                _log_each(_sick(ship.board), log)
            if not options.simulated and started <= cycles <= watched:
                load.note(ship.i2c_bits())
            if not options.simulated and cycles == watched:
                ship.loop.timing.refused += (slow := load.slow())
                _log_each([{"event": "bus", "error": why} for why in slow], log)
            # Notify early, so that the first command can come soon; afterwards do nothing.
            if len(notified) < 2 and ship.loop.timing.cycles % 10 == 1:
                notified.update(_notify(ship.loop, notified, supervisor))

        notify.send(notify.ALIVE, address=supervisor)
        run(
            ship.loop,
            clock=clock,
            rate_hz=options.rate_hz,
            should_stop=lambda: bool(stopping or wanted),
            on_cycle=after_cycle,
        )
        record.clear()  # it ends in order: nothing to resume
    log("stopped", boot_id=boot_id)
    return wanted[0] if wanted else None


def _tape(
    paths: RuntimePaths, log: Callable[..., object], session: Session, *, has_died: bool
) -> Tape | None:
    """Return the tape for the recorder; None if it cannot be made, which stops no flight.

    has_died: the flight process before this one did not end in order.
    """
    try:
        ring = Ring(paths.tape)
    except ConfigError as error:
        log("not recorded", level="error", error=str(error))
        return None
    with contextlib.suppress(msgspec.MsgspecError):  # nothing is kept, or what another version kept
        before = msgspec.json.decode(ring.kept(), type=Session)
        session = msgspec.structs.replace(session, follows=before.boot_id if has_died else "")
    tape = Tape(session, write=ring.write)
    ring.keep(tape.session)
    return tape


def _started_s(clock: Clock) -> float:
    """Return when this process started, by `clock`: its imports may take seconds on a Pi."""
    ticks = start_time(os.getpid()) or 0
    ran_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return clock.now_s() - ran_s


def _flight_log(form: LogFormat, vehicle: str) -> Callable[..., object]:
    """Return what logs an event and its fields; it may block, so never call it in the loop.

    `level`: "info" by default, or "error". As text only errors are logged.
    """
    if form == "text":
        return _print_error
    from blimp.queue.log import TaskLogs

    json_log = TaskLogs(vehicle=vehicle).make()

    def log(event: str, *, level: str = "info", **fields: object) -> None:
        getattr(json_log, level)(event, **fields)

    return log


def _print_error(event: str, *, level: str = "info", **fields: object) -> None:
    if level == "error":
        with contextlib.suppress(OSError):  # a closed standard error stops no ship
            print(f"blimp: {event} {': '.join(map(str, fields.values()))}", file=sys.stderr)


def _sick(board: Board) -> list[dict[str, str]]:
    """Return each device that has not started, as it is logged."""
    states = board.self_test().items()
    return [{"event": "device", "device": name, "error": why} for name, why in states if why]


def _log_each(errors: list[dict[str, str]], log: Callable[..., object]) -> None:
    """Log them in a thread of its own: a log may block."""

    def tell() -> None:
        for fields in errors:
            log(level="error", **fields)

    if errors:
        threading.Thread(target=tell, name="log", daemon=True).start()


def _notify(loop: FlightLoop, notified: set[str], supervisor: str | None) -> set[str]:
    """Send the supervisor new states; return those it received. The others are sent later."""
    states = {notify.READY} | ({notify.READY_TO_ARM} if not loop.problems() else set())
    return {s for s in sorted(states - notified) if notify.send(s, address=supervisor)}


def simulate(options: WorldOptions, *, on_stop: OnStop) -> None:
    """Run the simulated world in real time until it is stopped."""
    from blimp import scene as scenes
    from blimp.sim.server import Server
    from blimp.sim.world import World

    airframe = airframes.load(options.airframe).with_pad_east(options.pad_east_m)
    paths = own_paths(options.runtime_dir)
    scene = scenes.of(airframe, options.scene)
    world = World(airframe, seed=options.seed, wind_mps=options.wind_mps, scene=scene)
    world.physics.held = options.held
    world.physics.held_until_s = LAID_DOWN_S
    make_realtime()  # the flight process waits for its buses, and air waits for no processor
    with Server(world, socket_path=paths.world, clock=SystemClock()) as server:
        on_stop(server.stop)
        _stop_when_orphaned(server.stop, parent=options.parent)
        notify.send(notify.READY, address=notify_address())
        server.run()


def _stop_when_orphaned(stop: Callable[[], None], *, parent: int | None) -> None:
    """Outlive a killed supervisor just long enough for the guard to make the ship safe.

    parent: the supervisor's process number, None if nobody supervises this world.
    """
    if parent is None:
        return
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        watched = -1  # it has ended already

    def wait() -> None:
        if watched >= 0 and os.getppid() == parent:
            select.select([watched], [], [])
        threading.Event().wait(ORPHAN_GRACE_S)
        stop()

    threading.Thread(target=wait, name="orphan", daemon=True).start()


@contextlib.contextmanager
def _left(
    airframe: Airframe, *, vehicle: str, paths: RuntimePaths
) -> Iterator[Callable[[], object]]:
    """Leave the airframe for `make_safe`, and the ship's name, until this process ends in order.

    Its file may change in the meantime, and then name other pins than those that drive now.
    Yields what leaves both again.
    """

    def leave() -> None:
        mode = 0o640 if is_of_group(paths.directory) else 0o600
        write_whole(paths.airframe, msgspec.json.encode(airframe).decode(), mode=mode)
        write_whole(paths.vehicle, vehicle, mode=mode)

    leave()
    yield leave
    paths.airframe.unlink(missing_ok=True)
    paths.vehicle.unlink(missing_ok=True)


@contextlib.contextmanager
def _put_back(
    mailbox: MailboxServer,
    record: RecordFile,
    leave: Callable[[], object],
    log: Callable[..., object],
) -> Iterator[None]:
    """Look whether somebody has removed the files of the runtime directory, and put them back."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(RENEW_S):
            if mailbox.renew():
                with contextlib.suppress(OSError, BlimpError):
                    record.renew()
                    leave()
                log("runtime directory", level="error", error="its files were gone: put back")

    thread = threading.Thread(target=look, name="files", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=2 * RENEW_S)  # its log may block


def flown_airframe(paths: RuntimePaths) -> Airframe | None:
    """Return the airframe that a killed flight process flew, None if none was left."""
    try:
        return airframes.from_table(msgspec.json.decode(paths.airframe.read_bytes()))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def make_safe(*, airframe: str, runtime_dir: Path | None, simulated: bool) -> list[str]:
    """Drive every output of a ship safe, without its flight process.

    airframe: unless the flight process has left the one that it flew. Returns what is not known
    to be safe, as "device: why"; an empty list if all is well.
    """
    paths = paths_in(runtime_dir)
    ship = flown_airframe(paths) or airframes.load(airframe)
    clock = SystemClock()
    try:
        with (
            machine(simulated=simulated, paths=paths, clock=clock),
            LinuxBuses(clock=clock) as buses,
        ):
            results = safe_state(ship, buses=buses)
    except (OSError, BlimpError) as error:
        return [f"all outputs: {error}"]
    return [f"{name}: {why}" for name, why in results.items() if why]


def _vehicle(name: str | None, airframe: Airframe) -> str:
    return vehicle_name(name or airframe.name, where="--vehicle")
