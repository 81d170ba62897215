"""`blimp mavlink`: the process that shows ships as systems of MAVLink on its links."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec

from blimp.config import ground_config
from blimp.errors import ConfigError, LinkError
from ground_station.following import OUTAGE_S
from ground_station.mavlink.frames import Frame
from ground_station.mavlink.link import Links
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.places import Place
from ground_station.mavlink.signing import Signing, read_key
from ground_station.mavlink.stations import Stations
from ground_station.mavlink.system import System
from ground_station.mavlink.vehicle import Vehicle
from ground_station.mavlink.wire import Encoder, decoded
from ground_station.ship import Ship
from ground_station.ship_on_broker import BrokerTransport

MAX_SYSTEM = 250  # stations and radios have the numbers above
ASK_S = 1.0  # between two questions for the broker's time


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """vehicles: None for the only ship there is. system: the number of the first ship.

    signing_key_file: of the queue. mavlink_key_file: of the links; None for unsigned ones.
    is_open: strangers may fly the ship. state: a directory that outlives this process.
    """

    vehicles: tuple[str, ...] | None
    broker: str | None
    signing_key_file: Path | None
    listen: tuple[Place, ...]
    connect: tuple[Place, ...]
    serial: tuple[Place, ...]
    system: int
    mavlink_key_file: Path | None
    is_open: bool = False
    state: Path = msgspec.field(default_factory=lambda: ground_config().state.expanduser())


class Clock:
    """The broker's time, by this machine's monotonic clock since the last answer."""

    def __init__(self, transport: BrokerTransport, now_s: Callable[[], float]) -> None:
        self._transport = transport
        self._now_s = now_s
        self._ahead_s = 0.0

    def unix_s(self) -> float:
        return self._now_s() + self._ahead_s

    async def ask(self) -> None:
        """Ask the broker. Raises LinkError."""
        theirs_s = await self._transport.broker_s()
        self._ahead_s = theirs_s - self._now_s()

    async def keep_asking(self) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            with suppress(LinkError):
                await self.ask()


def hear(vehicles: Sequence[Vehicle], peer: Peer, frame: Frame) -> None:
    """Give each ship a message that a peer has sent."""
    found = decoded(frame.data)
    if found is not None:
        for vehicle in vehicles:
            vehicle.hear(peer, found)


def tell(vehicles: Sequence[Vehicle], words: str) -> None:
    """Say on every link why something was refused."""
    for vehicle in vehicles:
        vehicle.system.say(words)


async def run(options: GatewayOptions, *, on_ready: Callable[[list[int]], object]) -> None:
    """Run until it is cancelled. on_ready: called with the ports that it listens on.

    Raises ConfigError, LinkError for a ship that is not there, or a link that cannot be opened.
    """
    names = options.vehicles or (None,)
    if not (options.listen or options.connect or options.serial):
        raise ConfigError("MAVLink: no link: give --listen, --connect or --serial")
    if not 1 <= options.system <= MAX_SYSTEM - len(names) + 1:
        raise ConfigError(f"--system-id is {options.system}, must be 1 to {MAX_SYSTEM}")
    key = None if options.mavlink_key_file is None else read_key(options.mavlink_key_file)
    _check_who_reaches(options.listen, is_open=options.is_open or key is not None)
    vehicles: list[Vehicle] = []

    async with AsyncExitStack() as own:
        loop = asyncio.get_running_loop()
        every = [Stations(loop.time) for _ in names]
        transports = [
            await own.enter_async_context(
                BrokerTransport.open(
                    vehicle=name, broker=options.broker, outage_s=OUTAGE_S,
                    signing_key_file=options.signing_key_file, present=stations.present,
                )
            )
            for name, stations in zip(names, every, strict=True)
        ]  # fmt: skip
        clock = Clock(transports[0], loop.time)
        signing = None
        if key is not None:
            await clock.ask()
            ship = transports[0].vehicle
            signing = Signing(key, unix_s=clock.unix_s, directory=options.state, ship=ship)
            own.callback(signing.close)
        links = await own.enter_async_context(
            Links(
                on_frame=partial(hear, vehicles), on_refused=partial(tell, vehicles),
                now_s=loop.time, signing=signing,
                has_ship=lambda name: any(one.holder_at(name) for one in every),
            )
        )  # fmt: skip
        for number, (transport, stations) in enumerate(zip(transports, every, strict=True)):
            encoder = Encoder(
                system=options.system + number, key=key, now=signing.now if signing else int
            )
            system = System(ship=Ship(transport), stations=stations, encoder=encoder, links=links)
            vehicles.append(Vehicle(system))
        ports = [await links.listen(place) for place in options.listen]
        for place in options.connect:
            await links.connect(place)
        for place in options.serial:
            links.open_serial(place)
        on_ready(ports)
        async with asyncio.TaskGroup() as tasks:
            if signing is not None:
                tasks.create_task(clock.keep_asking())
            for vehicle in vehicles:
                tasks.create_task(vehicle.run())


def _check_who_reaches(listen: Sequence[Place], *, is_open: bool) -> None:
    """Raise ConfigError for a listener at which strangers could fly the ship."""
    for place in listen:
        if not (is_open or place.is_of_this_machine):
            raise ConfigError(
                f"MAVLink: anybody who reaches {place} could arm and fly the ship: give "
                "--mavlink-key-file, or listen on 127.0.0.1; --open lets everybody in"
            )
