"""`blimp`: the commands that run on board, and on a laptop in the simulator.

The commands are in `blimp/service/commands/`: each reads its options, builds what it needs in
`blimp.service.compose` and runs it.
Data goes to standard output, messages to standard error. Exit status: 0 done, 1 failed (the
reason is printed), 2 wrong usage, or something wrong in the configuration file.
"""

import sys
from typing import Any

import typer

from blimp.errors import BlimpError
from blimp.service.airframes.command import app as airframe_app
from blimp.service.commands.camera import app as camera_app
from blimp.service.commands.computer import app as computer_app
from blimp.service.commands.log import app as log_app
from blimp.service.commands.mavlink import app as mavlink_app
from blimp.service.commands.page import app as page_app
from blimp.service.commands.processes import app as processes_app
from blimp.service.commands.ship import app as ship_app
from blimp.service.commands.sim import app as sim_app
from blimp.service.commands.tags import app as tags_app
from blimp.service.commands.terminal import say
from blimp.service.commands.tune import app as tune_app
from blimp.service.commands.tune import identify_app
from blimp.service.computer.acl import app as broker_app
from blimp.service.computer.keys import app as keys_app
from blimp.system import unix_only
from blimp.usage import Version, plain

# Every mistake on a command line is one; typer exports only its child.
_UsageError: Any = typer.BadParameter.__bases__[0]

HELP = """Run a blimp: on board, or on a laptop in the simulator.

Data goes to standard output, messages to standard error. Exit status: 0 done, 1 failed (the
reason is printed), 2 wrong usage, or something wrong in the configuration file.
"""

app = typer.Typer(
    name="blimp",
    help=HELP,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(processes_app)
app.add_typer(mavlink_app)
app.add_typer(ship_app)
app.add_typer(computer_app)
app.add_typer(
    page_app,
    name="page",
    help="Serve the ship's page from the ship, for a phone.\n\nExample: sudo blimp page on",
)
app.add_typer(
    keys_app,
    name="keys",
    help="Make and show the keys that sign commands.\n\nExample: blimp keys new --out signing.key",
)
app.add_typer(
    broker_app,
    name="broker",
    help="Make the users of a broker.\n\nExample: blimp broker acl --vehicle twin",
)
app.add_typer(
    airframe_app,
    name="airframe",
    help="Check or write the description of a ship.\n\nExample: blimp airframe check mine.toml",
)
app.add_typer(sim_app, name="sim")
app.add_typer(camera_app, name="camera")
app.add_typer(tags_app, name="tags")
app.add_typer(
    log_app,
    name="log",
    help="List, export, report and replay recorded flights.\n\nExample: blimp log list",
)
app.add_typer(identify_app)
app.add_typer(
    tune_app,
    name="tune",
    help="Tune a ship's gains from a flight.\n\nExample: blimp tune auto",
)


@app.callback(help=HELP)
def _options(
    context: typer.Context,
    *,
    version: Version = False,  # noqa: ARG001 - its callback has read it
) -> None:
    """Without a command, say where this is and what is next."""
    if context.invoked_subcommand is None:
        from blimp.config import registry_dir
        from blimp.queue.log import printable
        from blimp.service.computer.next_step import next_step
        from blimp.service.computer.systemd import UNIT_DIR, installed_units
        from blimp.service.doctor.computer import model
        from ground_station.discover import running_stacks

        words = next_step(
            stacks=running_stacks(registry_dir()),
            units=installed_units(UNIT_DIR),
            computer=model(),
        )
        print("\n".join(map(printable, words.splitlines())))


def main() -> None:
    """Run the command line; each of our errors is one line on standard error, status 1."""
    try:
        status = app(prog_name="blimp", standalone_mode=False)
    except _UsageError as error:
        plain(error).show()
        sys.exit(2)
    except typer.Abort:
        say("blimp: aborted")
        sys.exit(1)
    except BlimpError as error:
        say(f"blimp: {error}")
        sys.exit(1)
    except (AttributeError, ImportError) as error:
        if not (why := unix_only(error)):
            raise
        say(f"blimp: {why}")
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)
