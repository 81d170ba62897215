"""What commands of `ground` share: the forms of their arguments, and the options of all."""

from pathlib import Path
from typing import Annotated

import typer

from blimp.clock import SystemClock
from blimp.config import ground_config
from blimp.usage import Version, number
from ground_station import names
from ground_station.arguments import pilot_name
from ground_station.report import Report
from ground_station.session import Options, Session

MissionFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A .toml, .plan or .waypoints file, or a built-in one.",
        autocompletion=names.missions,
    ),
]
Pilot = Annotated[
    str | None,
    typer.Option(
        "--pilot",
        metavar="NAME",
        help="The name that other pilots see; else user@host.",
        parser=pilot_name,
    ),
]
WaitS = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="S",
        help="How long to wait for another pilot to release it.",
        parser=number(low=0, high=86400, unit="s"),
    ),
]


def options(
    context: typer.Context,
    broker: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The broker; else BLIMP_BROKER_URL, else found here."),
    ] = None,
    vehicle: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The ship; needed if there is more than one.",
            autocompletion=names.ships,
        ),
    ] = None,
    signing_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The signing keys; else BLIMP_SIGNING_KEY_FILE."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on standard output.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="How long to wait for the end; each command has its own default.",
            parser=number(low=0, high=86400, unit="s", above=True),
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the message, and send nothing.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait for the end, or print the id and end at once."),
    ] = True,
    version: Version = False,  # noqa: ARG001 - its callback has read it
) -> None:
    """Command a blimp from the ground. The options below may come before or after the command.

    Without --broker it uses the ship that runs on this machine, or that this machine is.

    \b
    Examples:
      ground status
      ground arm && ground takeoff 3 && ground goto 10 0 3 && ground land
      ground --json --timeout 60 goto -3 4 5
      ground estop

    \b
    Exit status: 0 done, 2 wrong usage, 3 no link, 4 not confirmed, 5 the ship refused,
    6 timed out or outcome unknown, 7 not authorised, or another pilot holds control.
    """
    context.obj = Session(
        options=Options(
            broker=broker,
            vehicle=vehicle,
            signing_key_file=signing_key_file,
            as_json=as_json,
            timeout_s=timeout,
            yes=yes,
            dry_run=dry_run,
            wait=wait,
        ),
        config=ground_config(),
        report=Report(as_json=as_json),
        clock=SystemClock(),
    )


def session(context: typer.Context) -> Session:
    """Return what `options` made of the command line."""
    found = context.obj
    assert isinstance(found, Session)
    return found
