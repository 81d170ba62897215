"""`blimp identify`, `blimp tune`: what flights say about the ship."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blimp.service.commands.options import Json, RuntimeDir, complete_airframe
from blimp.service.commands.terminal import builtins, print_json, progress, say

if TYPE_CHECKING:
    from blimp.service.tune.identify import Identified

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
identify_app = typer.Typer(rich_markup_mode=None)


@app.callback()
def tune() -> None:
    """Tune a ship's gains from a flight."""


@identify_app.command()
def identify(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Logs of one ship, see `blimp log list`.")
    ],
    *,
    airframe: Annotated[
        str | None,
        typer.Option(
            "--airframe",
            metavar="NAME|FILE",
            help="The airframe to start from; by default the first log's airframe.",
            autocompletion=complete_airframe,
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Estimate mass, thrust and its lag, drag, added mass and heaviness from flights.

    Each result is a factor on the airframe's value (heaviness in grams), with an interval that
    holds the truth nine times in ten, and a line for the airframe's file. What the flights do not
    show is unknown, and has no line. Record a minute or more in still air, along, across, up, down
    and turning. It changes nothing.

    Example: blimp identify flight.mcap
    """
    from blimp.airframe import load
    from blimp.service.tune.identify import identify as run

    with progress("identifying", silent=json_output) as draw:
        found = run(logs, airframe=None if airframe is None else load(airframe), progress=draw)
    if json_output:
        print_json(builtins(found))
        return
    _print(found)
    print("\nfor the airframe's file, in place of its lines:" if found.lines else "")
    print("\n".join(found.lines))


@app.command()
def auto(
    *,
    runtime_dir: RuntimeDir = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            "--log-dir",
            metavar="DIR",
            help="Where logs are; else BLIMP_LOG_DIR, or the directory of the units.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Fly a hovering ship a little to each side, and propose gains and lines for its file.

    Run it on the machine of the flight process. The ship must be armed and in HOLD, with 1.2 m free
    around it. It flies along one axis at a time, for a minute or two. It changes to HOLD if the
    ship leaves that space, in a failsafe and on Ctrl-C; a command by another pilot ends it, and the
    ship flies that command. It changes no setting of the ship.

    Example: blimp tune auto
    """
    from blimp.clock import SystemClock
    from blimp.config import log_directory
    from blimp.control.mixer import Mixer
    from blimp.errors import BlimpError
    from blimp.link.mailbox import MailboxClient, is_served
    from blimp.link.paths import ON_BOARD_DIR, RuntimePaths
    from blimp.service.bench.ship import MailboxShip
    from blimp.service.compose import flown_airframe
    from blimp.service.computer.configuration import LOG_DIR
    from blimp.service.tune import autotune

    paths, clock = RuntimePaths(runtime_dir or ON_BOARD_DIR), SystemClock()
    paths.check()
    runs = is_served(paths.flight)  # raises if this user may not know
    airframe, logs = flown_airframe(paths), log_dir or log_directory()
    if not runs or airframe is None:
        raise BlimpError(f"no flight process runs in {paths.directory}")
    # Beside the units, but where the environment says otherwise, the log is the recorder's.
    is_of_units = paths.directory == ON_BOARD_DIR and LOG_DIR.is_dir()
    if is_of_units and log_dir is None and not os.environ.get("BLIMP_LOG_DIR"):
        logs = LOG_DIR
    with MailboxClient(server_path=paths.flight, clock=clock) as mailbox:
        found = autotune.tune(
            MailboxShip(mailbox, clock=clock),
            airframe,
            steers=not Mixer(airframe=airframe).sways,
            log=lambda boot_id: autotune.newest_log(logs, boot_id),
            say=say,
        )
    gains = autotune.proposals(found, airframe)
    if json_output:
        print_json({**builtins(found), "gains": [builtins(one) for one in gains]})
        return
    _print(found)
    print("\neither say in the airframe's file what the ship is, and keep its gains:")
    print("\n".join(found.lines))
    print("\nor leave the file, and give it these in [gains]:")
    for one in gains:
        print(f"{one.name} = {one.proposed:g} # +- {one.sigma:g}, now {one.file:g}")


def _print(found: "Identified") -> None:
    simulated = " (simulated)" if found.simulated else ""
    print(f"{found.vehicle}{simulated}: {found.windows} windows of flight, still air assumed")
    for one in found.parameters:
        said = f"{one.found:9.3f}  90 %: {one.low:.3f} to {one.high:.3f} {one.unit}"
        print(f"{one.name:18} {said if one.excited else '  unknown: not excited by this flight'}")
    print(f"weighted error {found.rms_before:.3f} as in the file, {found.rms_after:.3f} like this")
