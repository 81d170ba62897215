"""`blimp mavlink`: the ship for QGroundControl, MAVSDK and other programs of MAVLink."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from blimp.errors import ConfigError
from blimp.service.commands.options import Broker, Config, KeyFile
from blimp.service.commands.terminal import no_restart_cures, say

app = typer.Typer(rich_markup_mode=None)


@app.command()
def mavlink(
    *,
    config: Config = None,  # noqa: ARG001 - its callback has read it
    listen: Annotated[
        list[str] | None,
        typer.Option(
            "--listen", metavar="udp:HOST:PORT", help="Wait for stations there; or tcp:HOST:PORT."
        ),
    ] = None,
    connect: Annotated[
        list[str] | None,
        typer.Option("--connect", metavar="udp:HOST:PORT", help="Send there; or tcp:HOST:PORT."),
    ] = None,
    serial: Annotated[
        list[str] | None,
        typer.Option("--serial", metavar="PATH:BAUD", help="A serial line; 57600 baud by default."),
    ] = None,
    vehicle: Annotated[
        str | None,
        typer.Option(
            "--vehicle",
            metavar="A,B",
            help="Names of ships; by default the only ship on the broker.",
        ),
    ] = None,
    system_id: Annotated[
        int,
        typer.Option(
            "--system-id",
            metavar="N",
            min=1,
            max=250,
            help="MAVLink system id of the first ship; the others follow.",
        ),
    ] = 1,
    mavlink_key_file: Annotated[
        Path | None,
        typer.Option(
            "--mavlink-key-file",
            metavar="FILE",
            help="A file with a passphrase; messages not signed with it are refused.",
        ),
    ] = None,
    is_open: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Listen for other machines without a key: anybody who reaches it may fly it.",
        ),
    ] = False,
    broker: Broker = None,
    signing_key_file: KeyFile = None,
) -> None:
    """Show a ship to programs that speak MAVLink.

    It commands the ship as `ground` does, with the same limits and refusals. The first station that
    sends a command controls the ship until its heartbeat stops.

    \b
    Examples:
      blimp mavlink --listen udp:127.0.0.1:14550
      blimp mavlink --listen udp:0.0.0.0:14550 --mavlink-key-file mavlink.key
    """  # fmt: skip
    from ground_station.mavlink.gateway import GatewayOptions, run
    from ground_station.mavlink.places import network_place, serial_place

    with no_restart_cures():
        options = GatewayOptions(
            vehicles=tuple(vehicle.split(",")) if vehicle else None,
            broker=broker,
            signing_key_file=signing_key_file,
            listen=tuple(network_place(text) for text in listen or ()),
            connect=tuple(network_place(text) for text in connect or ()),
            serial=tuple(serial_place(text) for text in serial or ()),
            system=system_id,
            mavlink_key_file=mavlink_key_file,
            is_open=is_open,
        )
        if not (options.listen or options.connect or options.serial):
            raise ConfigError("no link: give --listen, --connect or --serial")

    def ready(ports: list[int]) -> None:
        where = f", on port {', '.join(map(str, ports))}" if ports else ""
        say(f"MAVLink: system {options.system} is there{where}")
        for place in options.listen:
            if mavlink_key_file is None and not place.is_of_this_machine:
                words = (
                    f"MAVLink: {place} has no key: anybody who reaches it may arm and fly the ship"
                )
                typer.secho(words, fg="red", err=True)

    async def until_stopped() -> None:
        running = asyncio.ensure_future(run(options, on_ready=ready))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.cancel)
        try:
            await running
        except asyncio.CancelledError:
            return

    with no_restart_cures():
        asyncio.run(until_stopped())
