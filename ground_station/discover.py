"""Finding the ship: by options, by the environment, or on this machine.

Every stack that runs registers itself: `<registry>/<vehicle>.json` holds `vehicle`,
`broker`, `pid` and `runtime_dir`. An entry whose process has ended does not count. Where none of
this user's runs, the machine may be a ship itself: then it has a configuration.
"""

import os
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec

from blimp.config import (
    VEHICLE_PATTERN,
    GroundConfig,
    broker_is_of_this_machine,
    vehicle_name,
)
from blimp.errors import BlimpError, ConfigError, LinkError, NotAuthorised
from blimp.link.paths import CONFIG_PATH, LOCAL_BROKER, ON_BOARD_DIR, RuntimePaths, distrust
from blimp.link.registry import Registration, read
from blimp.queue.redis.urls import hide_password
from blimp.reading import ready

HEARD_LATELY_S = 30.0


class ShipAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A ship and the broker through which it is reached."""

    vehicle: str
    broker: str


def find_ship(*, config: GroundConfig, broker: str | None, vehicle: str | None) -> ShipAddress:
    """Return the ship that the user means.

    The broker is `broker`, else the environment's, else that of a ship on this machine.
    Raises LinkError if there is none, ConfigError if it could be more than one.
    """
    if broker == "":
        raise ConfigError(
            "--broker is empty: give a URL, or omit --broker to find the ship of this machine"
        )
    if vehicle is not None:
        vehicle = vehicle_name(vehicle, where="--vehicle")
    wanted = vehicle or config.vehicle
    broker = broker or config.broker
    if broker is None:
        return _local_ship(config.registry, wanted)
    if wanted is None:
        wanted = _only_ship_on(broker, config.registry)
    return ShipAddress(vehicle=wanted, broker=broker)


def flight_socket(ship: ShipAddress, *, registry: Path) -> Path | None:
    """Return the mailbox socket of a ship that runs on this machine; None if it does not."""
    with suppress(ConfigError):  # a broker was given, so an untrusted registry is ignored
        for stack in running_stacks(registry):
            if (stack.vehicle, stack.broker) == (ship.vehicle, ship.broker):
                return RuntimePaths(Path(stack.runtime_dir)).flight
    # A ship of the same name on another machine's broker is another ship, unless it is this one's.
    on_board = RuntimePaths(ON_BOARD_DIR)
    try:
        is_here = broker_is_of_this_machine(ship.broker) or ship in ship_on_board()
        is_it = is_here and on_board.vehicle.read_text() == ship.vehicle
    except (OSError, ValueError, BlimpError):
        return None
    return on_board.flight if is_it else None


def find_broker(*, config: GroundConfig, broker: str | None) -> str:
    """Return the broker to ask for any of its ships.

    Raises LinkError if there is none, ConfigError if it could be more than one.
    """
    if broker == "":
        raise ConfigError(
            "--broker is empty: give a URL, or omit --broker to find the broker of this machine"
        )
    found = broker or config.broker
    if found is not None:
        return found
    ships = ships_here(config.registry, is_needed=True)
    brokers = {ship.broker: ship.vehicle for ship in ships}
    if not brokers:
        raise LinkError(nothing_runs(config.registry))
    if len(brokers) > 1:
        raise ConfigError(
            f"ships of {len(brokers)} brokers run on this machine "
            f"({', '.join(sorted(brokers.values()))}): say --broker"
        )
    return next(iter(brokers))


def running_stacks(registry: Path) -> list[Registration]:
    """Return the stacks of this user that run on this machine, by name.

    Raises ConfigError if the directory belongs to another user or others may write in
    it: a writer there chooses the broker that commands go to.
    """
    try:
        why_not = distrust(registry)
    except OSError:
        return []
    if why_not:
        raise ConfigError(f"run registry {registry} {why_not}: refused, give --broker")
    found = [read(path) for path in sorted(registry.glob("*.json"))]
    return [entry for entry in found if entry is not None and entry.runs]


def ships_here(registry: Path, *, is_needed: bool = False) -> list[ShipAddress]:
    """Return the stacks that run on this machine; if there is none, the ship that it is.

    is_needed: raise for an untrusted registry, or a configuration that this user cannot use.
    """
    try:
        stacks = running_stacks(registry)
        found = [ShipAddress(vehicle=one.vehicle, broker=one.broker) for one in stacks]
        return found or ship_on_board()
    except BlimpError:
        if is_needed:
            raise
        return []


@ready
class _OnBoard(msgspec.Struct, frozen=True):
    """What a ground station reads of a ship's configuration."""

    airframe: str = "twin"
    vehicle: Annotated[str, msgspec.Meta(pattern=VEHICLE_PATTERN)] | None = None
    broker: str = LOCAL_BROKER
    signing_key_file: str | None = None


def key_on_board(registry: Path) -> Path | None:
    """Return the key file of the ship that this machine is, if no stack of this user goes before.

    Raises as `_on_board`, and NotAuthorised if this user may not read the file.
    """
    found = None if running_stacks(registry) else _on_board()
    file = found and found.signing_key_file
    if file and os.access(file, os.F_OK) and not os.access(file, os.R_OK):
        raise NotAuthorised(
            f"this ship signs its messages, and only root may read its key {file}: use sudo"
        )
    return Path(file) if file else None


def ship_on_board() -> list[ShipAddress]:
    """Return the ship that this machine is; none without a configuration. Raises as `_on_board`."""
    from blimp import airframe as airframes

    if (found := _on_board()) is None:
        return []
    vehicle = found.vehicle or airframes.load(found.airframe).name
    return [ShipAddress(vehicle=vehicle, broker=found.broker)]


def _on_board() -> _OnBoard | None:
    """Return the configuration of the ship that this machine is; None without one.

    Raises NotAuthorised if this user may not read it, ConfigError if it is wrong.
    """
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(CONFIG_PATH.read_text("utf-8")), _OnBoard)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise NotAuthorised(
            f"this machine is a ship, whose broker {CONFIG_PATH} names, and only root and the "
            "ship's group may read it: sudo usermod -aG blimp $USER, then log in again"
        ) from None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"configuration {CONFIG_PATH}: {error}") from error


def ships_heard(broker: str, *, within_s: float = inf) -> list[ShipAddress]:
    """Return the ships that a broker knows telemetry of, the newest first. Raises LinkError."""
    from blimp.link.telemetry import vehicles

    ages_s = vehicles(broker)
    names = sorted((name for name in ages_s if ages_s[name] < within_s), key=ages_s.__getitem__)
    return [ShipAddress(vehicle=name, broker=broker) for name in names]


def _local_ship(registry: Path, wanted: str | None) -> ShipAddress:
    ships = ships_here(registry, is_needed=True)
    if not ships:
        raise LinkError(nothing_runs(registry))
    names = ", ".join(ship.vehicle for ship in ships)
    if wanted is not None:
        ships = [ship for ship in ships if ship.vehicle == wanted]
        if not ships:
            raise LinkError(f"no ship {wanted!r} runs on this machine; there are: {names}")
    elif len(ships) > 1:
        raise ConfigError(f"several ships run on this machine: choose one with --vehicle: {names}")
    return ships[0]


def _only_ship_on(broker: str, registry: Path) -> str:
    """Return the name of the only ship of a broker, registered here or publishing there."""
    from blimp.link.telemetry import vehicles

    names = sorted(ship.vehicle for ship in ships_here(registry) if ship.broker == broker)
    if not names:
        ages_s = vehicles(broker)
        lately = [name for name, age_s in ages_s.items() if age_s < HEARD_LATELY_S]
        names = sorted(lately or ages_s)
    if not names:
        raise LinkError(
            f"no ship has sent telemetry on {hide_password(broker)}: give its name with --vehicle"
        )
    if len(names) > 1:
        raise ConfigError(
            f"several ships on {hide_password(broker)}: choose one with --vehicle: "
            f"{', '.join(names)}"
        )
    return names[0]


def check_known(ship: ShipAddress, *, some: bool = False) -> None:
    """Raise LinkError with the names of the other ships if only others publish on the broker.

    If no ship has published, nothing is raised unless there must be `some`, because a ship may be
    starting. Nothing is raised either if this user may not read the broker.
    """
    from blimp.link.telemetry import vehicles

    try:
        found = vehicles(ship.broker)
    except NotAuthorised:
        return
    if some and not found:
        raise LinkError(f"no ship has sent telemetry on {hide_password(ship.broker)}")
    if found and ship.vehicle not in found:
        raise LinkError(
            f"no ship {ship.vehicle!r} on {hide_password(ship.broker)}; there are: "
            + ", ".join(sorted(found))
        )


def nothing_runs(registry: Path) -> str:
    return (
        f"no ship runs on this machine (looked in {registry}), and it is none (looked for "
        f"{CONFIG_PATH}): start one with 'blimp up --sim', or name its broker with --broker or "
        "BLIMP_BROKER_URL"
    )
