"""`blimp page`: the page that a ship serves by itself, for a phone and no laptop."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from blimp.service.commands.options import Broker, Config, Json, KeyFile, Name
from blimp.service.commands.terminal import demand_root, no_restart_cures, print_json, say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ConfigFile = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The configuration file of the ship.")
]
CONFIG = Path("/etc/blimp/blimp.toml")


@app.command()
def on(
    *,
    config: ConfigFile = CONFIG,
    new_key: Annotated[
        bool,
        typer.Option("--new-key", help="Make a new key: phones with the old one are shut out."),
    ] = False,
    json_output: Json = False,
) -> None:
    """Let the ship serve its page from now on, and at every boot; print its address as a QR code.

    Everybody who has the code may fly the ship. The code is the same until --new-key, or `off`.

    Example: sudo blimp page on
    """
    from blimp.service.computer.page_switch import switch_on

    demand_root("page on")
    key = switch_on(config.absolute(), new_key=new_key)

    from blimp.web.listening import UNREACHABLE, room_urls, shown_address
    from ground_station.page import PORT
    from ground_station.page.command import EVERYWHERE, print_code

    urls = room_urls(f"http://{shown_address(EVERYWHERE)}:{PORT}/?token={key}")
    if json_output:
        print_json({"event": "page", "urls": urls})
        return
    for url in urls:
        print_code(url, sys.stdout)
        print(url)
    say("everybody who has this address may fly the ship; end it: sudo blimp page off")
    if not urls:
        say(f"blimp: {UNREACHABLE}")


@app.command()
def off(*, config: ConfigFile = CONFIG) -> None:
    """End the ship's page, and forget its key. A ship that a phone flies holds, returns and lands.

    Example: sudo blimp page off
    """
    from blimp.service.computer.page_switch import switch_off

    demand_root("page off")
    switch_off(config.absolute())
    say("the page is off, and its key is gone: no phone that had it gets in again")


@app.command(hidden=True)
def serve(
    *,
    config: Config = None,
    vehicle: Name = "twin",
    broker: Broker = None,
    signing_key_file: KeyFile = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0 for any.")] = 8421,
) -> None:
    """Serve the page until SIGTERM: what blimp-page.service runs.

    Example: blimp page serve --config /etc/blimp/blimp.toml
    """
    from blimp.clock import SystemClock
    from blimp.config import ground_config, notify_address
    from blimp.distribution import needing
    from blimp.service.computer.page_switch import NAME, key_path, read_key
    from blimp.service.notify import READY, send
    from blimp.web.access import Tokens
    from ground_station.page.pilots import Pilots
    from ground_station.report import Report
    from ground_station.session import Options, Session

    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    clock = SystemClock()
    with no_restart_cures():
        with needing("page", "the page needs"):
            from ground_station.page.command import serve as run
        key = read_key(Path(credentials, NAME) if credentials else key_path(config or CONFIG))
        session = Session(
            options=Options(
                broker=broker, vehicle=vehicle, signing_key_file=signing_key_file, as_json=True
            ),
            config=ground_config(),
            report=Report(as_json=True),
            clock=clock,
        )
    run(
        session,
        host=host,
        port=port,
        tokens=Tokens(operator=key),
        pilots=Pilots(clock=clock),
        ready=lambda _: send(READY, address=notify_address()),
    )
