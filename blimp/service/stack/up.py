"""The processes of `blimp up`: one broker, and those of one or several simulated ships."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import msgspec

from blimp import airframe as airframes
from blimp.ability import camera_of
from blimp.airframe import Airframe
from blimp.clock import SystemClock
from blimp.config import (
    broker_url_from_environment,
    check_broker_is_closed,
    log_bound_mb,
    registry_dir,
    signing_keys_from_environment,
    vehicle_name,
)
from blimp.errors import ConfigError
from blimp.link.paths import RuntimePaths, socket_path, socket_url
from blimp.queue.redis.urls import check_url
from blimp.recording.directory import check_bound
from blimp.service.compose import make_safe
from blimp.service.stack.broker import answers, find_server_binary, server_arguments
from blimp.service.stack.supervisor import Event, Role, Stack, StackShip

FLIGHT_WATCHDOG_S = 0.6  # silence after which it is killed: the outputs are safe within 1 s
PAD_SPACING_M = 20.0  # from pad to pad, to the east: a built-in mission reaches 10 m
SHIP_SHARE = 0.25  # of a processor: what world and flight process of one ship take at 100 Hz
FIRST_SHARE = 0.5  # of all processors: what may go before brokers, workers and pages

_THIS = (sys.executable, "-m", "blimp")
_MEND = (sys.executable, "-m", "blimp.service.stack.broker_files")


class StackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """ships: how many; if there are several, each name gets a number. held: by persons."""

    airframe: str
    vehicle: str | None
    seed: int
    wind_mps: float
    runtime_dir: Path | None
    bench: bool = False
    ships: int = 1
    held: bool = False


def build_stack(options: StackOptions, *, on_event: Event) -> Stack:
    """Return the simulated stack of `blimp up`, not yet started.

    The broker is that of BLIMP_BROKER_URL if it is set, else an embedded one for all ships.
    """
    airframe = airframes.load(options.airframe)
    _check(airframe, options)
    name = vehicle_name(options.vehicle or airframe.name, where="--vehicle")
    directory = (options.runtime_dir or registry_dir() / f"{name}-{os.getpid()}").absolute()
    paths = RuntimePaths(directory)
    ships = _ships(options, name=name, paths=paths)
    if (warning := crowded(options.ships)) is not None:
        on_event({"event": "crowded", "warning": warning})
    for ship in ships:
        ship.paths.check()
    paths.check()
    outside = broker_url_from_environment()
    if outside is not None:
        check_url(outside)
        check_broker_is_closed(outside, signing_keys_from_environment())
    broker = outside or socket_url(paths.broker)
    roles = [] if outside is not None else [_broker(paths)]
    for number, ship in enumerate(ships):
        roles += _roles(options, ship=ship, number=number, broker=broker)
    entries = [word for s in ships for word in (s.registration, s.paths.directory)]
    return Stack(
        roles=roles,
        paths=paths,
        ships=ships,
        guard=(
            sys.executable, "-m", "blimp.service.stack.guard", options.airframe, str(directory),
            *map(str, entries),
        ),
        clock=SystemClock(),
        on_event=on_event,
        broker=broker,
    )  # fmt: skip


def _check(airframe: Airframe, options: StackOptions) -> None:
    """Raise ConfigError for a ship that cannot be built, once: its processes would say it each."""
    from blimp.hardware.board import check
    from blimp.service.airframes.check import demand_airworthy
    from blimp.sim.world import World

    check(airframe)
    if not options.bench:
        demand_airworthy(airframe)
    demand_wind(airframe, options.wind_mps)
    World(airframe, seed=options.seed, wind_mps=options.wind_mps).close()


def demand_wind(airframe: Airframe, wind_mps: float) -> None:
    """Raise ConfigError for a mean wind in which this ship cannot hold its place."""
    from blimp.service.airframes.figures import compute

    most_mps = compute(airframe).max_wind_mps
    if wind_mps > most_mps:
        raise ConfigError(
            f"--wind must be 0 to {most_mps:.2g} m/s for {airframe.name}, not {wind_mps:g}: "
            "it would be blown off"
        )


def may_go_first(ships: int) -> bool:
    """Whether so many simulated ships may ask for SCHED_FIFO: all of them, or none.

    A process with SCHED_FIFO runs before all others. Too many of them leave no processor time for
    other programs; if only some ships asked, they would leave none for the other ships.
    """
    return ships * SHIP_SHARE <= FIRST_SHARE * len(os.sched_getaffinity(0))


def crowded(ships: int) -> str | None:
    """Return what to say of more ships than may go first, None for fewer."""
    if may_go_first(ships):
        return None
    processors = len(os.sched_getaffinity(0))
    return (
        f"{ships} ships take about {ships * SHIP_SHARE:g} of {processors} processors, so none is "
        f"scheduled before others, and cycles may be late; up to "
        f"{int(FIRST_SHARE / SHIP_SHARE * processors)} ships are punctual here"
    )


def vehicle_names(name: str, *, ships: int) -> list[str]:
    """Return the ships' names: `name`, or `name`-1, `name`-2 and so on if there are several.

    Raises ConfigError if one of them cannot name a ship.
    """
    if ships == 1:
        return [name]
    numbered = [f"{name}-{number}" for number in range(1, ships + 1)]
    return [vehicle_name(one, where=f"--vehicle with --ships {ships}") for one in numbered]


def _ships(options: StackOptions, *, name: str, paths: RuntimePaths) -> list[StackShip]:
    ships = []
    for vehicle in vehicle_names(name, ships=options.ships):
        own = paths if options.ships == 1 else RuntimePaths(paths.directory / vehicle)
        safe = partial(
            make_safe, airframe=options.airframe, runtime_dir=own.directory, simulated=True
        )
        registration = registry_dir() / f"{vehicle}.json"
        ships.append(
            StackShip(vehicle=vehicle, paths=own, registration=registration, safe_state=safe)
        )
    return ships


def _broker(paths: RuntimePaths) -> Role:
    accepts = socket_path(paths.broker)
    server = server_arguments(binary=find_server_binary(), directory=paths.broker)
    return Role(
        name="broker",
        arguments=tuple(server),
        later_arguments=tuple(
            (*_MEND, what, str(paths.broker), *server) for what in ("mend", "empty")
        ),
        is_missed_safely=True,
        directory=paths.broker,
        ready=lambda: answers(accepts, timeout_s=0.05),
    )


def _recorder(options: StackOptions, *, ship: StackShip, number: int) -> list[Role]:
    """Return the recorder of the `number`th ship, which ends last; none if there is to be no log.

    It inherits directory and bound of the logs from this process's environment.
    """
    if check_bound(log_bound_mb(), where="BLIMP_LOG_MB") == 0:
        return []
    seed = str((options.seed + number) % 2**31)
    return [
        Role(
            name="recorder",
            vehicle=ship.vehicle,
            arguments=(
                *_THIS, "log", "record", "--runtime-dir", str(ship.paths.directory),
                "--seed", seed, "--wind", str(options.wind_mps),
            ),
            needs=("flight",),
            is_optional=True,
        )
    ]  # fmt: skip


def _camera(options: StackOptions, *, ship: StackShip, url: dict[str, str]) -> list[Role]:
    """Return the process of a ship's camera, which nobody waits for; none without a camera."""
    if camera_of(airframes.load(options.airframe)) is None:
        return []
    return [
        Role(
            name="camera",
            vehicle=ship.vehicle,
            arguments=(
                *_THIS, "camera", "--sim", "--runtime-dir", str(ship.paths.directory),
                "--airframe", options.airframe, "--vehicle", ship.vehicle,
            ),
            environment=url,
            needs=("world",),
            is_optional=True,
            death_signal=signal.SIGKILL,  # it drives nothing
            end_within_s=2.0,
        )
    ]  # fmt: skip


def _roles(options: StackOptions, *, ship: StackShip, number: int, broker: str) -> list[Role]:
    """Return the processes of one ship, the `number`th from 0."""
    url = {"BLIMP_BROKER_URL": broker}  # every user can read a command line
    scheduling = {} if may_go_first(options.ships) else {"BLIMP_REALTIME": "0"}
    here = ("--runtime-dir", str(ship.paths.directory))
    pad = ("--pad-east", str(number * PAD_SPACING_M)) if number else ()
    return [
        *_recorder(options, ship=ship, number=number),
        *_camera(options, ship=ship, url=url),
        Role(
            name="world",
            vehicle=ship.vehicle,
            arguments=(
                *_THIS, "sim", *here, "--airframe", options.airframe, *pad,
                *(["--held"] if options.held else []),
                "--seed", str((options.seed + number) % 2**31), "--wind", str(options.wind_mps),
                "--parent", str(os.getpid()),
            ),
            environment=scheduling,
            restarts=("flight",),
            death_signal=None,  # the ship must be safe first: see _stop_when_orphaned
        ),
        Role(
            name="flight",
            vehicle=ship.vehicle,
            arguments=(
                *_THIS, "fly", "--sim", *here, "--airframe", options.airframe, *pad,
                "--vehicle", ship.vehicle, *(["--bench"] if options.bench else []),
            ),
            environment=scheduling,
            needs=("world",),
            watchdog_s=FLIGHT_WATCHDOG_S,
        ),
        Role(
            name="worker",
            vehicle=ship.vehicle,
            arguments=(*_THIS, "worker", *here, "--vehicle", ship.vehicle),
            environment=url,
            death_signal=signal.SIGKILL,  # its broker dies too: there is nothing to requeue
            end_within_s=2.0,
        ),
        Role(
            name="relay",
            vehicle=ship.vehicle,
            arguments=(*_THIS, "relay", *here, "--vehicle", ship.vehicle),
            environment=url,
            death_signal=signal.SIGKILL,
            end_within_s=2.0,
        ),
    ]  # fmt: skip
