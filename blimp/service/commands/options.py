"""The options that commands of `blimp` share, and their limits."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from blimp.service.commands.terminal import no_restart_cures
from blimp.usage import number


def complete_airframe(incomplete: str) -> list[str]:
    """Return the known airframes that begin so, for a shell."""
    from blimp import airframe

    return [name for name in airframe.names() if name.startswith(incomplete)]


def complete_mission(incomplete: str) -> list[str]:
    """Return the missions that begin so: built-in ones, and files here."""
    from ground_station import names

    return names.missions(incomplete)


def complete_scenes(incomplete: str) -> list[str]:
    """Return what --scenes may be, with the last of several names completed."""
    from blimp.service.show.story import ALL, NONE, SCENES

    before, comma, last = incomplete.rpartition(",")
    known = [scene.action for scene in SCENES] + ([] if before else [ALL, NONE])
    return [f"{before}{comma}{name}" for name in known if name.startswith(last)]


Airframe = Annotated[
    str,
    typer.Option(
        "--airframe",
        metavar="NAME|FILE",
        help="A known airframe, or the path of a .toml file.",
        autocompletion=complete_airframe,
    ),
]


def _from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take what the command line does not say from a configuration file."""
    if path is not None:
        from blimp.service.computer.configuration import read_configuration

        with no_restart_cures():
            context.default_map = read_configuration(path).options()
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_from_file,
        help="A configuration file; options take precedence. `blimp init` writes one.",
    ),
]
Vehicle = Annotated[
    str | None,
    typer.Option("--vehicle", metavar="NAME", help="The ship's name; the airframe's by default."),
]
Name = Annotated[str, typer.Option("--vehicle", metavar="NAME", help="The ship's name.")]
Broker = Annotated[
    str | None, typer.Option("--broker", metavar="URL", help="Broker URL; else BLIMP_BROKER_URL.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--signing-key-file",
        metavar="FILE",
        help="A file with the keys; else BLIMP_SIGNING_KEY_FILE.",
    ),
]
RuntimeDir = Annotated[
    Path | None,
    typer.Option(
        "--runtime-dir",
        metavar="DIR",
        help="The directory of the ship's sockets; its path must be short.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of wind and noise.")
]
Wind = Annotated[
    float,
    typer.Option(
        "--wind",
        metavar="MPS",
        parser=number(low=0, high=20, unit="m/s"),
        help="Mean wind, 0 to 20 m/s; gusts are added.",
    ),
]
PadEast = Annotated[
    float,
    typer.Option(
        "--pad-east",
        metavar="M",
        parser=number(low=-10_000, high=10_000, unit="m"),
        help="Distance of the pad east of home, m.",
    ),
]
Held = Annotated[
    bool,
    typer.Option(
        "--held", help="A simulated person holds each ship at its pad, until `blimp sim hold off`."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format", metavar="FORMAT", help="Format of the log on standard error: text or json."
    ),
]
Sim = Annotated[bool, typer.Option("--sim", help="Drive the simulated world, not real chips.")]


def read_log_format(name: str) -> Literal["text", "json"]:
    """Return the format of the log. Raises typer.BadParameter."""
    if name == "json":
        return "json"
    if name != "text":
        raise typer.BadParameter(f"{name[:40]!r}: must be text or json", param_hint="--log-format")
    return "text"
