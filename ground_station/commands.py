"""The commands of `ground`, each with its help and an example.

`ground_station/session.py` says which commands ask before they act.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from blimp.actions import ACTIONS
from blimp.distribution import needing
from blimp.errors import BlimpError, LinkError
from blimp.usage import example, number
from ground_station import names, report
from ground_station.action_commands import add_actions, command_of, help_of
from ground_station.arguments import GroundGroup, NumbersCommand
from ground_station.discover import ShipAddress, check_known
from ground_station.options import MissionFile, Pilot, WaitS, options, session
from ground_station.page import PORT
from ground_station.session import ALL_ROADS_S, Session

OLD_S = 10.0  # with an older snapshot the link counts as lost

app = typer.Typer(
    name="ground",
    cls=GroundGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
mission_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(
    mission_app,
    name="mission",
    help="Fly, check, list and write mission files.\n\nExample: ground mission run square",
)
control_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(
    control_app,
    name="control",
    help="Take, release or show control of the ship.\n\nExample: ground control take",
)
photo_app = typer.Typer(rich_markup_mode=None)
app.add_typer(photo_app, name="photo", help=help_of(ACTIONS["photo"]))
app.callback()(options)


def _circle() -> str:
    from ground_station.trajectory import example

    return example()


def _mission() -> str:
    from ground_station.mission_command import example

    return example()


# --- looking ------------------------------------------------------------------------------


@app.command()
def status(context: typer.Context) -> int:
    """Print the state of the ship, or without --vehicle of every ship.

    \b
    Examples:
      ground status
      ground --json status
    """
    this = session(context)
    ships = this.ships()
    ended = []
    for ship in ships:
        try:
            ended.append(_print_status(this, ship))
        except BlimpError as error:
            if len(ships) == 1:
                raise
            this.report.say(f"ground: {ship.vehicle}: {error}")
            ended.append(report.NO_LINK)
    return max(ended)


def _print_status(this: Session, ship: ShipAddress) -> int:
    with this.reader(ship) as reader:
        found = reader.latest()
    if found is None:
        check_known(ship)
        raise LinkError(f"no snapshot of {ship.vehicle!r} on its broker")
    if this.report.as_json:
        this.report.json(report.status_object(*found))
    else:
        from rich.console import Console

        from ground_station.view import status_table

        width = None if this.report.out_is_terminal else 120
        Console(width=width).print(status_table(*found))
    if found[1] > OLD_S:
        this.report.say(f"ground: {ship.vehicle}: no link: this is {found[1]:.0f} s old")
        return report.NO_LINK
    return report.DONE


@app.command()
def watch(
    context: typer.Context,
    look_only: Annotated[
        bool,
        typer.Option(
            "--look-only",
            help="Send no heartbeat: you only look, and the ship ignores the end of your link.",
        ),
    ] = False,
) -> int:
    """Show the ship live until Ctrl-C. Lines of text, or JSON, if there is no terminal.

    If you hold control of the ship, you keep it while this runs. If your link fails, the ship comes
    down by itself. On a terminal the key ! stops every motor of this ship at once.

    \b
    Examples:
      ground watch
      ground watch --look-only
      ground --json --timeout 10 watch > flight.jsonl
    """
    from ground_station.every_ship import EveryShip
    from ground_station.watch import StopKey
    from ground_station.watch import watch as run

    this = session(context)
    with ExitStack() as stack:
        reader = stack.enter_context(this.telemetry())
        if reader.latest() is None:
            check_known(this.ship)
        if not look_only:
            stack.enter_context(this.heartbeat(stack.enter_context(this.kept_control())))
        stops = stack.enter_context(
            EveryShip(this, broker=this.ship.broker, hear_all_s=ALL_ROADS_S)
        )
        stops.ready(this.ship.vehicle)
        found = run(
            reader=reader,
            vehicle=this.ship.vehicle,
            report=this.report,
            clock=this.clock,
            timeout_s=this.options.timeout_s,
            stop_key=StopKey(partial(stops.stop, this.ship.vehicle)),
        )
    return report.DONE if found else report.NO_LINK


@app.command()
def events(
    context: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C, or --timeout.")
    ] = False,
) -> int:
    """Print what happened to the ship: commands, failsafes, faults, processes that died.

    In the order of the ship's clock, across restarts, each line with the id of its command. The log
    and the page have the same record.

    \b
    Examples:
      ground events
      ground events --follow
      ground --json events | grep died
    """
    from ground_station.watch import events as run

    this = session(context)
    with this.telemetry() as reader:
        if not run(
            reader=reader,
            report=this.report,
            clock=this.clock,
            follow=follow,
            timeout_s=this.options.timeout_s,
        ):
            check_known(this.ship)
    return report.DONE


@app.command()
def page(
    context: typer.Context,
    address: Annotated[
        str,
        typer.Argument(
            metavar="[ADDRESS]",
            help="The address of this machine for --host; without it all of its addresses.",
        ),
    ] = "",
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 takes any free port."),
    ] = PORT,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only", help="Add a second, read-only address, for phones in the room."
        ),
    ] = False,
    host: Annotated[
        bool, typer.Option("--host", help="Let other machines command, if they have the token.")
    ] = False,
    chaos: Annotated[
        bool,
        typer.Option(
            "--chaos", help="Add a panel that injects faults into a simulated ship on this machine."
        ),
    ] = False,
) -> int:
    """Serve a web page that shows a ship and commands it.

    It prints an address for a browser, and runs until Ctrl-C. Without --host only a browser on this
    machine can open the page, and only with the token in that address.

    \b
    Examples:
      ground page
      ground page --read-only
      ground page --host 192.168.1.20 --port 8080
      ground page --chaos
    """
    with needing("page", "the page needs"):
        from ground_station.page.command import page as serve

    if address and not host:
        raise typer.BadParameter("an address needs --host", param_hint="ADDRESS")
    listen = (address or "0.0.0.0") if host else None
    return serve(session(context), port=port, read_only=read_only, host=listen, chaos=chaos)


@app.command()
def result(context: typer.Context, id: Annotated[str, typer.Argument(metavar="ID")]) -> int:
    """Print the result of an earlier command.

    Example: ground result 4b0c0e5e-6d7f-4a0e-9f43-0c6a2f1b7f6e
    """
    from ground_station.plain import Ship

    this = session(context)
    with Ship.of(this) as ship:
        reply = ship.result(id)
    if not this.report.as_json:
        this.report.say(f"{reply.task or id}: {reply.state} {reply.reason}".rstrip())
    return this.report.outcome(report.outcome_of(reply))


@app.command(cls=NumbersCommand)
def param(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="limits.speed_mps", autocompletion=names.parameters),
    ] = None,
    value: Annotated[
        float | None,
        typer.Argument(
            metavar="VALUE",
            help="The new value; without it the present value is printed.",
            parser=number(unit="number"),
        ),
    ] = None,
) -> int:
    """Print or set the numbers of the ship's airframe.

    Without a name it lists them, with units and limits. Only a disarmed ship accepts a new value.
    It refuses a value with which it could not fly, and keeps an accepted one after a restart.

    \b
    Examples:
      ground param
      ground param limits.speed_mps
      ground param limits.speed_mps 0.5
    """
    from ground_station.perform import act, show_parameters

    if name is not None and value is not None:
        return act(session(context), ACTIONS["param"], {"name": name, "value": value})
    return show_parameters(session(context), name)


# --- flying -------------------------------------------------------------------------------

add_actions(app)  # except those with a command of their own below: param, trajectory, estop


@app.command()
def trajectory(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV.")],
    example: Annotated[bool, example(_circle)] = False,  # noqa: ARG001 - its callback has printed it
) -> int:
    """Fly a path in time from a CSV file, then stay at its end. Asks on a terminal.

    Its columns are time,x_ref,y_ref,z_ref,psi_ref: seconds, metres north, east and down of the
    pad, radians. The ship must be within 2 m of the first point.

    \b
    Examples:
      ground trajectory --example > circle.csv
      ground trajectory circle.csv
    """
    from ground_station.perform import fly_trajectory

    return fly_trajectory(session(context), file)


@app.command()
def estop(context: typer.Context) -> int:
    """Stop every motor at once, before any waiting command. It never asks; only arm ends the stop.

    Without --vehicle it stops every ship of this machine and of the broker, all at once, and says
    of each whether it has confirmed it. If one has not, the exit status is 4.

    \b
    Examples:
      ground estop
      ground --vehicle twin-2 estop
    """
    from ground_station.estop_command import estop

    return estop(session(context))


# --- who flies ----------------------------------------------------------------------------


@control_app.command("take")
def control_take(
    context: typer.Context,
    pilot: Pilot = None,
    for_s: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="S",
            help="Control ends S seconds after your last command, watch or mission; default 120.",
            parser=number(low=5, high=600, unit="s"),
        ),
    ] = None,
    wait_s: WaitS = None,
    force: Annotated[
        bool, typer.Option("--force", help="Take it from another pilot. Asks on a terminal.")
    ] = False,
) -> int:
    """Take control of the ship: commands of other pilots are refused, except estop.

    If another pilot holds control, it prints who, and for how long, and ends with status 7.

    \b
    Examples:
      ground control take
      ground control take --pilot alice --for 300
      ground control take --wait 60
      ground control take --force --yes
    """
    from ground_station.control_command import take

    return take(
        session(context), pilot=pilot, ttl_s=for_s or 120.0, wait_s=wait_s or 0.0, force=force
    )


@control_app.command("release")
def control_release(context: typer.Context) -> int:
    """Release control of the ship: then every pilot may command it. Repeating it does no harm.

    Example: ground control release
    """
    from ground_station.control_command import release

    return release(session(context))


@control_app.command("who")
def control_who(context: typer.Context) -> int:
    """Say who holds control of the ship, and for how long.

    Example: ground control who
    """
    from ground_station.control_command import who

    return who(session(context))


# --- missions -----------------------------------------------------------------------------


@mission_app.command("run")
def mission_run(context: typer.Context, file: MissionFile) -> int:
    """Fly a mission leg by leg. Asks on a terminal; a program needs --yes for a distant mission.

    \b
    Examples:
      ground mission run square
      ground mission run survey.toml --yes
    """
    from ground_station.mission_command import run

    return run(session(context), file)


@mission_app.command("check")
def mission_check(
    context: typer.Context,
    file: MissionFile,
    airframe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Check also whether this ship, with a full battery, can fly it.",
            autocompletion=names.airframe_names,
        ),
    ] = None,
    example: Annotated[bool, example(_mission)] = False,  # noqa: ARG001 - its callback has printed it
) -> int:
    """Check a mission file without a ship.

    \b
    Examples:
      ground mission check survey.toml
      ground mission check site.plan --airframe twin
      ground mission check --example > survey.toml
    """
    from ground_station.mission_command import check

    return check(session(context), file, airframe=airframe)


@mission_app.command("list")
def mission_list(context: typer.Context) -> int:
    """List the built-in missions and the mission files of this directory.

    Example: ground mission list
    """
    from ground_station.mission_command import list_missions

    return list_missions(session(context))


@mission_app.command("new")
def mission_new(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The .toml file to write.")],
) -> int:
    """Write an example mission file that explains each line.

    Example: ground mission new survey.toml
    """
    from ground_station.mission_command import new

    return new(session(context), file)


photo_app.callback(invoke_without_command=True)(command_of(ACTIONS["photo"]))
photo_app.command("stop", help=f"{help_of(ACTIONS['photo_stop'])}\n\nExample: ground photo stop")(
    command_of(ACTIONS["photo_stop"])
)


@photo_app.command("list")
def photo_list(context: typer.Context) -> int:
    """List the photographs of the ship: those that are here, and those that wait there.

    \b
    Examples:
      ground photo list
      ground --json photo list
    """
    from ground_station.photo_command import list_photos

    return list_photos(session(context))


@photo_app.command("get")
def photo_get(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="As it is listed; else all that wait.")
    ] = None,
) -> int:
    """Fetch photographs from the ship and print their files. What was begun goes on.

    The ship deletes what is here whole. Commands go first, also on a slow link.

    \b
    Examples:
      ground photo get
      ground photo get 20270115T080000250Z-0123456789abcdef
    """
    from ground_station.photo_command import get

    return get(session(context), name)


@photo_app.command("watch")
def photo_watch(context: typer.Context) -> int:
    """Fetch each photograph as it is taken until Ctrl-C, and print its file.

    It waits for a broker or a ship that does not answer.

    \b
    Examples:
      ground photo watch
      ground --json photo watch
    """
    from ground_station.photo_command import watch

    return watch(session(context))


@app.command()
def dispatch(
    context: typer.Context,
    file: MissionFile,
    any_ship: Annotated[
        bool, typer.Option("--any", help="On whichever ship is free; else say --vehicle NAME.")
    ] = False,
    wait_s: WaitS = None,
    pilot: Pilot = None,
) -> int:
    """Fly a mission on a free ship.

    It takes control of the ship, and releases it at the end. It skips a ship that does not
    answer, is armed, or was stopped by an emergency stop. If no ship is free within --wait
    seconds, the exit status is 7.

    \b
    Examples:
      ground dispatch --any square
      ground dispatch --any survey.toml --wait 300 --yes
      ground dispatch --vehicle twin-2 square
    """
    from ground_station.dispatch_command import dispatch

    return dispatch(session(context), file, any_ship=any_ship, wait_s=wait_s or 0.0, pilot=pilot)
