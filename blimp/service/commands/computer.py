"""`blimp init|doctor|install-service|uninstall-service`: the computer that flies a ship."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blimp.errors import BlimpError, ConfigError
from blimp.service.commands.options import Json, RuntimeDir, Sim, Vehicle, complete_airframe
from blimp.service.commands.terminal import (
    builtins,
    demand_root,
    print_json,
    progress,
    prompt,
    say,
)

if TYPE_CHECKING:
    from blimp.service.computer.systemd import Change

app = typer.Typer(rich_markup_mode=None)

Force = Annotated[
    bool,
    typer.Option("--force", help="Continue if the ship cannot be asked. Asks you on a terminal."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("install-service")
def install_service(
    *,
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The configuration file of the ship.")
    ] = Path("/etc/blimp/blimp.toml"),
    user: Annotated[
        str,
        typer.Option(
            "--user", metavar="USER", help="The user that the units run as; made if missing."
        ),
    ] = "blimp",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps, and change nothing.")
    ] = False,
    force: Force = False,
    yes: Yes = False,
    json_output: Json = False,
) -> None:
    """Install and start the systemd units of this ship.

    The units are blimp-flight, blimp-worker, blimp-relay, blimp-recorder, blimp-page, which waits
    for `blimp page on`, and, for a local broker, blimp-broker; blimp.target starts and stops all.

    \b
    Examples:
      sudo blimp install-service
      blimp install-service --dry-run --json
    """
    from blimp.service.computer import systemd
    from blimp.service.computer.configuration import Configuration, read_configuration
    from blimp.service.computer.visible import check_visible, try_visible

    path = config.absolute()
    if dry_run and not path.exists():
        say(f"no configuration {path}: shown for the default one; `blimp init` writes it")
        configuration = Configuration()
    else:
        configuration = read_configuration(path)
    change = systemd.plan_install(configuration, config_path=path, user=user)
    try:
        check_visible(configuration, config_path=path, user=user)
    except BlimpError as error:
        if not dry_run:
            raise
        say(f"blimp: would be refused: {error}")
    if not dry_run:
        demand_root("install-service")
        _demand_on_ground(force=force, yes=yes)
        try_visible(configuration, user=user)
        systemd.install(change)
    then = "the units are written and run; next: systemctl status blimp.target, ground status"
    _show(change, then="" if dry_run else then, json_output=json_output)


@app.command("uninstall-service")
def uninstall_service(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the steps, and change nothing.")
    ] = False,
    force: Force = False,
    yes: Yes = False,
    json_output: Json = False,
) -> None:
    """Stop the units of this ship and remove them.

    The configuration, the keys, the user and the broker's messages stay.

    Example: sudo blimp uninstall-service
    """
    from blimp.service.computer import systemd

    change = systemd.plan_uninstall()
    if not dry_run:
        demand_root("uninstall-service")
        _demand_on_ground(force=force, yes=yes)
        systemd.uninstall(change)
    then = "the units are removed; the configuration and the keys stay"
    _show(change, then="" if dry_run else then, json_output=json_output)


@app.command()
def init(
    *,
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The file to write.")
    ] = Path("/etc/blimp/blimp.toml"),
    airframe: Annotated[
        str | None,
        typer.Option(
            "--airframe",
            metavar="NAME|FILE",
            help="A known airframe, or a .toml file.",
            autocompletion=complete_airframe,
        ),
    ] = None,
    vehicle: Vehicle = None,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="URL", help="Broker URL, or: local.")
    ] = None,
    sign: Annotated[
        bool | None, typer.Option("--sign/--no-sign", help="Sign commands with a key.")
    ] = None,
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key", help="Make a new key even if there is one; the old key stays valid."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json_output: Json = False,
) -> None:
    """Write the configuration of this ship's computer.

    It asks for values without an option; without a terminal it takes the defaults.

    \b
    Examples:
      sudo blimp init
      sudo blimp init --airframe twin --broker rediss://ground.local:6379/0 --sign
    """
    from blimp.link.paths import CONFIG_PATH
    from blimp.service.computer.initialise import (
        Wishes,
        ask_until_usable,
        initialise,
        take_defaults,
    )

    wishes = Wishes(airframe=airframe, vehicle=vehicle, broker=broker, sign=sign, new_key=new_key)
    ask = ask_until_usable(prompt, say=say) if sys.stdin.isatty() else take_defaults
    path = config.absolute()
    written = initialise(path, wishes, ask=ask, force=force)
    if json_output:
        print_json({"config": str(path), "signing_key_file": written.signing_key_file})
    else:
        print("\n".join(str(file) for file in (path, written.signing_key_file) if file))
        option = "" if path == CONFIG_PATH else f" --config {path}"
        say(f"next: blimp doctor{option}, then blimp install-service{option}")


@app.command()
def doctor(
    *,
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The configuration file of the ship.")
    ] = Path("/etc/blimp/blimp.toml"),
    sim: Sim = False,
    runtime_dir: RuntimeDir = None,
    json_output: Json = False,
) -> None:
    """Find everything that would keep this ship from flying.

    Each finding has its cure. Nothing moves. While a flight process runs, the doctor asks that
    process instead of the chips. The exit status is 1 if flying would be refused.

    \b
    Examples:
      sudo blimp doctor
      sudo blimp doctor --json
    """
    from blimp.config import registry_dir
    from blimp.link.paths import CONFIG_PATH, ON_BOARD_DIR, RuntimePaths
    from blimp.queue.log import printable
    from blimp.service.doctor import diagnose
    from blimp.service.truth import only_stack
    from ground_station.discover import running_stacks

    stack, path = None, config.absolute()
    on_board = not sim or (runtime_dir is None and RuntimePaths(ON_BOARD_DIR).world.exists())
    if not on_board:
        try:
            stack = only_stack(runtime_dir)
        except ConfigError:
            if runtime_dir is None:
                raise
    with progress("examining", silent=json_output) as draw:
        findings = diagnose(
            config_path=path,
            runtime_dir=runtime_dir or (Path(stack.runtime_dir) if stack else ON_BOARD_DIR),
            simulated=sim,
            stack=None if path != CONFIG_PATH or path.exists() else stack,
            progress=draw,
        )
    ok = all(finding.state != "error" for finding in findings)
    if json_output:
        print_json({"ok": ok, "findings": builtins(findings)})
    else:
        for finding in findings:
            print(printable(f"{finding.state:<8} {finding.check:<14} {finding.found}"))
            if finding.cure:
                print(printable(f"{'':<23} cure: {finding.cure}"))
        if not sim and runtime_dir is None and not path.exists():
            for one in running_stacks(registry_dir()):
                where = f"blimp doctor --sim --runtime-dir {one.runtime_dir}"
                say(f"{one.vehicle} is simulated on this computer; for that ship: {where}")
    if not ok:
        raise typer.Exit(1)


def _demand_on_ground(*, force: bool, yes: bool) -> None:
    """Raise BlimpError if a ship may fly on this computer: a restart would stop its motors."""
    from blimp.clock import SystemClock
    from blimp.link.paths import ON_BOARD_DIR, RuntimePaths
    from blimp.service.computer.in_flight import demand_on_ground

    demand_on_ground(RuntimePaths(ON_BOARD_DIR), clock=SystemClock(), force=force, yes=yes)


def _show(change: "Change", *, then: str, json_output: bool) -> None:
    """Print what was changed, or would be; file texts only as JSON. then: empty for a dry run."""
    if json_output:
        print_json(builtins(change))
    else:
        print("\n".join([*(file.path for file in change.files), *change.commands]))
        say(then or "nothing was changed")
