"""`blimp tune`: what a flight says about the ship."""

from pathlib import Path
from typing import Annotated

import typer

from blimp.service.commands.options import Json
from blimp.service.commands.terminal import builtins, print_json

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def tune() -> None:
    """Hold a ship's description against its flights."""


@app.command()
def identify(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log, see `blimp log list`.")],
    *,
    airframe: Annotated[
        str | None,
        typer.Option(
            "--airframe", metavar="NAME|FILE", help="Where to start; else the log's airframe."
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Estimate drag, added mass, inertia, thrust, lift and heaviness from a flight.

    Each as a factor on the airframe's value, heaviness in grams, with one standard deviation. Fly
    at least half a minute in still air, in all directions and turning. Nothing is changed.

    Example: blimp tune identify flight.mcap
    """
    from blimp.airframe import load
    from blimp.service.identify import identify as run

    found = run(log, airframe=None if airframe is None else load(airframe))
    if json_output:
        print_json(builtins(found))
        return
    simulated = " (simulated)" if found.simulated else ""
    print(f"{found.vehicle}{simulated}: {found.windows} windows of flight, still air assumed")
    for one in found.parameters:
        note = "" if one.excited else "  not excited by this flight"
        print(f"{one.name:18} {one.found:9.3f} +- {one.sigma:.3f} {one.unit}{note}")
    print(f"weighted error {found.rms_before:.3f} as in the file, {found.rms_after:.3f} like this")
