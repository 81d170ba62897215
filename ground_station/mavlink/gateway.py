"""`blimp mavlink`: the process that shows ships as systems of MAVLink on its links."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from blimp.errors import ConfigError
from ground_station.mavlink.link import Links, Peer, Place
from ground_station.mavlink.stations import Stations
from ground_station.mavlink.vehicle import Vehicle
from ground_station.mavlink.wire import Encoder, Signing, read_key
from ground_station.ship import OUTAGE_S
from ground_station.ship_on_broker import BrokerTransport

MAX_SYSTEM = 250  # stations and radios have the numbers above

log = logging.getLogger("ground_station")


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """vehicles: None for the only ship there is. system: the number of the first ship.

    signing_key_file: of the queue. mavlink_key_file: of the links; None for unsigned ones.
    """

    vehicles: tuple[str, ...] | None
    broker: str | None
    signing_key_file: Path | None
    listen: tuple[Place, ...]
    connect: tuple[Place, ...]
    serial: tuple[Place, ...]
    system: int
    mavlink_key_file: Path | None


def hear(vehicles: Sequence[Vehicle], peer: Peer, data: bytes) -> None:
    """Give each ship the messages in what a peer has sent."""
    before = peer.decoder.refused
    for found in peer.decoder.feed(data):
        for vehicle in vehicles:
            vehicle.hear(peer, found)
    if peer.decoder.refused > before:
        for vehicle in vehicles:
            vehicle.say("a message without a valid signature is refused")


async def run(options: GatewayOptions, *, on_ready: Callable[[list[int]], object]) -> None:
    """Run until it is cancelled. on_ready: called with the ports that it listens on.

    Raises ConfigError, LinkError for a ship that is not there, or a link that cannot be opened.
    """
    names = options.vehicles or (None,)
    if not (options.listen or options.connect or options.serial):
        raise ConfigError("MAVLink: no link: give --listen, --connect or --serial")
    if not 1 <= options.system <= MAX_SYSTEM - len(names) + 1:
        raise ConfigError(f"--system-id is {options.system}, must be 1 to {MAX_SYSTEM}")
    signing = None
    if options.mavlink_key_file is not None:
        signing = Signing(read_key(options.mavlink_key_file), unix_s=time.time())
    vehicles: list[Vehicle] = []

    async with AsyncExitStack() as own:
        loop = asyncio.get_running_loop()
        links = await own.enter_async_context(
            Links(on_data=partial(hear, vehicles), now_s=loop.time, signing=signing)
        )
        for number, name in enumerate(names):
            stations = Stations(loop.time)
            transport = await own.enter_async_context(
                BrokerTransport.open(
                    vehicle=name, broker=options.broker, outage_s=OUTAGE_S,
                    signing_key_file=options.signing_key_file, present=stations.present,
                )
            )  # fmt: skip
            encoder = Encoder(system=options.system + number, signing=signing)
            vehicles.append(
                Vehicle(transport=transport, stations=stations, encoder=encoder, links=links)
            )
        ports = [await links.listen(place) for place in options.listen]
        for place in options.connect:
            await links.connect(place)
        for place in options.serial:
            links.open_serial(place)
        on_ready(ports)
        async with asyncio.TaskGroup() as tasks:
            for vehicle in vehicles:
                tasks.create_task(vehicle.run())
