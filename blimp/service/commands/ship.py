"""`blimp trim|wiring|bench`: what its builder does with a ship on the ground."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from blimp.errors import BlimpError
from blimp.service.commands.options import Json, RuntimeDir, complete_airframe
from blimp.service.commands.terminal import print_json, prompt, say
from blimp.usage import number

app = typer.Typer(rich_markup_mode=None)
_grams = number(low=-100_000, high=100_000, unit="g")


@app.command()
def trim(
    *,
    airframe: Annotated[
        str | None,
        typer.Option(
            "--airframe",
            metavar="NAME|FILE",
            help="A known airframe, or a .toml file; else that of the flight process.",
            autocompletion=complete_airframe,
        ),
    ] = None,
    runtime_dir: RuntimeDir = None,
    heaviness: Annotated[
        float | None,
        typer.Option(
            "--heaviness-g",
            metavar="G",
            parser=_grams,
            help="How heavy the ship is, negative if light; by default the flight process's "
            "measurement.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target-g",
            metavar="G",
            parser=_grams,
            help="How heavy it should be; by default the value in its file.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Say how much ballast a ship needs, and where.

    It uses the weight that the flight process measured in level flight: fly for a minute in HOLD,
    and run this before that process ends. It changes nothing.

    Example: blimp trim --airframe twin --heaviness-g -12
    """
    import msgspec

    from blimp.service.airframes.trim import as_text
    from blimp.service.airframes.weighing import trimmed

    found = trimmed(
        airframe=airframe, runtime_dir=runtime_dir, heaviness_g=heaviness, target_g=target
    )
    if json_output:
        print_json(msgspec.structs.asdict(found))
    else:
        print(as_text(found))


@app.command()
def wiring(
    *,
    airframe: Annotated[
        str,
        typer.Argument(
            metavar="AIRFRAME",
            help="A known airframe, or a .toml file.",
            autocompletion=complete_airframe,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The file to write; else NAME-wiring.svg on a terminal, or standard output.",
        ),
    ] = None,
) -> None:
    """Draw the wiring of a ship as SVG.

    The drawing follows the airframe's devices and pins, for the header of a Raspberry Pi.

    Example: blimp wiring twin --out wiring.svg
    """
    from blimp.airframe import load
    from blimp.service.airframes.wiring import draw
    from blimp.service.files import write_whole

    ship = load(airframe)
    drawing = draw(ship)
    if out is None and not sys.stdout.isatty():
        print(drawing, end="")
        return
    out = out or Path(f"{ship.name}-wiring.svg")
    write_whole(out, drawing)
    say(f"{out} written: open it in a browser; next: blimp doctor, on the Pi that is wired so")


@app.command()
def bench(
    *,
    airframe: Annotated[
        Path, typer.Argument(metavar="FILE", help="The airframe's file, which is edited.")
    ],
    runtime_dir: RuntimeDir = None,
) -> None:
    """Adjust motors, servos and sensors, props off, and then try the wires, props on.

    It asks step by step, shows the changes of the airframe's file, and writes them if you agree;
    comments stay. It needs a flight process that was started with --bench.

    Example: sudo blimp bench /etc/blimp/mine.toml
    """
    from blimp.clock import SystemClock
    from blimp.link.mailbox import MailboxClient, is_served
    from blimp.link.paths import ON_BOARD_DIR, RuntimePaths
    from blimp.service.bench import adjust
    from blimp.service.bench.person import Person
    from blimp.service.bench.ship import MailboxShip
    from blimp.service.computer.initialise import ask_until_usable

    if not sys.stdin.isatty():
        raise BlimpError("bench: needs a person at a terminal")
    paths, clock = RuntimePaths(runtime_dir or ON_BOARD_DIR), SystemClock()
    if not is_served(paths.flight):
        raise BlimpError(f"no flight process runs in {paths.directory}: start it with --bench")
    with MailboxClient(server_path=paths.flight, clock=clock) as mailbox:
        ship = MailboxShip(mailbox, clock=clock)
        adjust(airframe, ship=ship, person=Person(ask_until_usable(prompt, say=say)), say=say)
