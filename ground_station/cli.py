"""`ground`: command a ship through the queue, and see what it says.

Data goes to standard output, words to standard error; see `ground_station/report.py` for
the exit statuses and the JSON. What asks before it acts, and what does not, stands in
`ground_station/session.py`.
"""

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from blimp.clock import SystemClock
from blimp.config import ground_config
from blimp.errors import BlimpError, ConfigError, LinkError, NotAuthorised
from blimp.types import Mode
from ground_station import report
from ground_station.arguments import GroundGroup, NumbersCommand, number
from ground_station.report import Outcome, Report
from ground_station.session import NotConfirmed, Options, Session

# Every mistake on a command line is one; typer exports only its child.
_UsageError: Any = typer.BadParameter.__bases__[0]

_INTERRUPTED = 130  # typer's word for a Ctrl-C that nobody caught

SHORT_S = 10.0
FLIGHT_S = 180.0
ESTOP_S = 5.0
HELD_S = 10.0  # beyond the seconds a command runs for
OLD_S = 10.0  # a snapshot older than this is no link

app = typer.Typer(
    name="ground",
    cls=GroundGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
mission_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(mission_app, name="mission", help="Fly a mission file, or check one.")

NorthM = Annotated[
    float,
    typer.Argument(
        metavar="NORTH_M", help="North of the pad.", parser=number(low=-1000, high=1000, unit="m")
    ),
]
EastM = Annotated[
    float,
    typer.Argument(
        metavar="EAST_M", help="East of the pad.", parser=number(low=-1000, high=1000, unit="m")
    ),
]
AltitudeM = Annotated[
    float,
    typer.Argument(
        metavar="ALT_M", help="Above the pad.", parser=number(low=0.3, high=120, unit="m")
    ),
]
YawDeg = Annotated[
    float | None,
    typer.Option(
        "--yaw-deg",
        metavar="D",
        help="Heading to turn to, clockwise from north.",
        parser=number(low=-360, high=360, unit="degrees"),
    ),
]


def speed(name: str, words: str) -> Any:
    return typer.Argument(metavar=name, help=words, parser=number(low=-10, high=10, unit="m/s"))


def seconds(words: str) -> Any:
    limits = number(low=0, high=600, unit="s", above=True)
    return typer.Option("--seconds", metavar="S", help=words, parser=limits)


@app.callback()
def options(
    context: typer.Context,
    broker: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The broker; else BLIMP_BROKER_URL, else found here."),
    ] = None,
    vehicle: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The ship; needed where there is more than one."),
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
        bool, typer.Option("--dry-run", help="Say what would be sent, send nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the end, or print the id and go.")
    ] = True,
) -> None:
    """Command a blimp from the ground. These options may stand before or after the command.

    With no --broker it finds the ship that runs on this machine.

    \b
    Examples:
      ground status
      ground arm && ground takeoff 3 && ground goto 10 0 3 && ground land
      ground --json --timeout 60 goto -3 4 5
      ground estop

    \b
    Exit status: 0 done, 2 wrong usage, 3 no link, 4 not confirmed, 5 the ship refused,
    6 timed out or outcome unknown, 7 not authorised.
    """
    context.obj = Session(
        options=Options(
            broker=broker,
            vehicle=vehicle,
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


# --- looking ------------------------------------------------------------------------------


@app.command()
def ping(context: typer.Context) -> int:
    """Ask for a sign of life, through the queue, from the flight process.

    Example: ground ping
    """
    return session(context).command("ping", {}, timeout_s=SHORT_S)


@app.command()
def status(context: typer.Context) -> int:
    """Print everything the ship says of itself.

    \b
    Examples:
      ground status
      ground --json status
    """
    this = session(context)
    with this.telemetry() as reader:
        found = reader.latest()
    if found is None:
        raise LinkError(f"nothing has been heard of {this.ship.vehicle!r} on its broker")
    if this.report.as_json:
        this.report.json(report.status_object(*found))
    else:
        from rich.console import Console

        from ground_station.view import status_table

        width = None if this.report.out_is_terminal else 120
        Console(width=width).print(status_table(*found))
    if found[1] > OLD_S:
        this.report.say(f"ground: no link: this is {found[1]:.0f} s old")
        return report.NO_LINK
    return report.DONE


@app.command()
def watch(context: typer.Context) -> int:
    """Show the ship live until Ctrl-C. Lines of text, or JSON, where there is no terminal.

    \b
    Examples:
      ground watch
      ground --json --timeout 10 watch > flight.jsonl
    """
    from ground_station.watch import watch as run

    this = session(context)
    with this.telemetry() as reader:
        heard = run(
            reader=reader,
            vehicle=this.ship.vehicle,
            report=this.report,
            clock=this.clock,
            timeout_s=this.options.timeout_s,
        )
    return report.DONE if heard else report.NO_LINK


@app.command()
def sensor(context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> int:
    """Print one sensor's newest value, its unit and its age.

    Example: ground sensor baro
    """
    return session(context).command("sensor", {"name": name}, timeout_s=SHORT_S)


@app.command()
def result(context: typer.Context, id: Annotated[str, typer.Argument(metavar="ID")]) -> int:
    """Print what became of an earlier command.

    Example: ground result 4b0c0e5e-6d7f-4a0e-9f43-0c6a2f1b7f6e
    """
    from ground_station.session import outcome_of

    this = session(context)
    with this.client() as client:
        reply = client.result(id)
    if not this.report.as_json:
        this.report.say(f"{reply.task or id}: {reply.state} {reply.reason}".rstrip())
    return this.report.outcome(outcome_of(reply))


# --- flying -------------------------------------------------------------------------------


@app.command()
def arm(
    context: typer.Context,
    force: Annotated[
        bool,
        typer.Option("--force", help="Skip the checks; the ship takes it on the bench only."),
    ] = False,
) -> int:
    """Let the propellers turn. Asks on a terminal.

    Example: ground arm
    """
    this = session(context)
    if force:
        this.confirm("Arm without any check?", programs_too=True)
    else:
        this.confirm("Arm? The propellers may start to turn.")
    return this.command("arm", {"force": True} if force else {}, timeout_s=SHORT_S)


@app.command()
def disarm(context: typer.Context) -> int:
    """Stop the propellers, on the ground; in the air the ship refuses.

    Example: ground disarm
    """
    return session(context).command("disarm", {}, timeout_s=SHORT_S)


@app.command()
def mode(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help=", ".join(Mode.__members__))],
) -> int:
    """Change the flight mode.

    Example: ground mode LOITER
    """
    if name.upper() not in Mode.__members__:
        raise typer.BadParameter(
            f"no mode {name[:40]!r}; modes are {', '.join(Mode.__members__)}", param_hint="NAME"
        )
    return session(context).command("mode", {"name": name.upper()}, timeout_s=SHORT_S)


@app.command(cls=NumbersCommand)
def takeoff(context: typer.Context, altitude_m: AltitudeM) -> int:
    """Climb from the pad to an altitude and stay there.

    Example: ground takeoff 3
    """
    return session(context).command("takeoff", {"altitude_m": altitude_m}, timeout_s=FLIGHT_S)


@app.command(cls=NumbersCommand)
def goto(
    context: typer.Context,
    north_m: NorthM,
    east_m: EastM,
    altitude_m: AltitudeM,
    yaw_deg: YawDeg = None,
) -> int:
    """Fly to a place and stay there. Metres from the pad.

    \b
    Examples:
      ground goto 10 0 3
      ground goto -3 4 5 --yaw-deg -90
    """
    arguments = {"north_m": north_m, "east_m": east_m, "altitude_m": altitude_m}
    if yaw_deg is not None:
        arguments["yaw_deg"] = yaw_deg
    return session(context).command("goto", arguments, timeout_s=FLIGHT_S)


@app.command(cls=NumbersCommand)
def velocity(
    context: typer.Context,
    north_mps: Annotated[float, speed("NORTH", "To the north, m/s.")],
    east_mps: Annotated[float, speed("EAST", "To the east, m/s.")],
    up_mps: Annotated[float, speed("UP", "Upwards, m/s.")],
    seconds: Annotated[float, seconds("For how long.")],
) -> int:
    """Fly at a velocity for a time, then stay there.

    Example: ground velocity -0.2 0 0.1 --seconds 3
    """
    arguments = {
        "north_mps": north_mps,
        "east_mps": east_mps,
        "up_mps": up_mps,
        "seconds": seconds,
    }
    return session(context).command("velocity", arguments, timeout_s=seconds + HELD_S)


@app.command()
def hold(context: typer.Context) -> int:
    """Stay where it is: needs no position, drifts with the wind.

    Example: ground hold
    """
    return session(context).command("hold", {}, timeout_s=SHORT_S)


@app.command()
def land(context: typer.Context) -> int:
    """Come down here and disarm.

    Example: ground land
    """
    return session(context).command("land", {}, timeout_s=FLIGHT_S)


@app.command("return")
def return_(context: typer.Context) -> int:
    """Fly back to the pad.

    Example: ground return
    """
    return session(context).command("return", {}, timeout_s=FLIGHT_S)


@app.command()
def estop(context: typer.Context) -> int:
    """Stop every output at once, past every queue. Never asks. A fresh arm undoes it.

    Example: ground estop
    """
    this = session(context)
    if this.options.dry_run:
        return this.command("estop", {}, timeout_s=ESTOP_S)
    line = report.ProgressLine(report=this.report, what="estop")
    with this.client() as client:
        reply = client.estop(timeout_s=this.timeout_s(ESTOP_S))
    return this.reply(reply, line)


# --- the bench ----------------------------------------------------------------------------


@app.command(cls=NumbersCommand)
def motor(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    percent: Annotated[
        float,
        typer.Argument(
            metavar="PERCENT",
            help="Throttle; negative turns it backwards.",
            parser=number(low=-100, high=100, unit="%"),
        ),
    ],
    seconds: Annotated[float, seconds("For how long.")],
) -> int:
    """Turn one motor, in MANUAL or on the bench. Asks on a terminal.

    Example: ground motor left -20 --seconds 1
    """
    this = session(context)
    this.confirm(f"Turn motor {name!r} at {percent:g} % for {seconds:g} s?")
    arguments = {"name": name, "percent": percent, "seconds": seconds}
    return this.command("motor", arguments, timeout_s=seconds + HELD_S)


@app.command(cls=NumbersCommand)
def servo(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    degrees: Annotated[
        float, typer.Argument(metavar="DEG", parser=number(low=-180, high=180, unit="degrees"))
    ],
) -> int:
    """Turn one servo to an angle, in MANUAL or on the bench. Asks on a terminal.

    Example: ground servo tilt -30
    """
    this = session(context)
    this.confirm(f"Turn servo {name!r} to {degrees:g} degrees?")
    return this.command("servo", {"name": name, "deg": degrees}, timeout_s=SHORT_S)


# --- missions -----------------------------------------------------------------------------

MissionFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A .toml file, or the name of a built-in mission.")
]


@mission_app.command("run")
def mission_run(context: typer.Context, file: MissionFile) -> int:
    """Fly a mission leg by leg. Asks on a terminal; far ones need --yes from a program, too.

    \b
    Examples:
      ground mission run square
      ground mission run survey.toml --yes
    """
    from ground_station.mission_command import run

    return run(session(context), file)


@mission_app.command("check")
def mission_check(context: typer.Context, file: MissionFile) -> int:
    """Check a mission file without a ship.

    Example: ground mission check survey.toml
    """
    from ground_station.mission_command import check

    return check(session(context), file)


# --- the whole ----------------------------------------------------------------------------


def session(context: typer.Context) -> Session:
    found = context.obj
    assert isinstance(found, Session)
    return found


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit status; every error is told, none raised."""
    try:
        _check_text(arguments)
        status = app(args=list(arguments), prog_name="ground", standalone_mode=False)
        if status == _INTERRUPTED:
            return _failed(arguments, "stopped by Ctrl-C: outcome unknown", report.UNKNOWN)
        return status if isinstance(status, int) else report.DONE
    except _UsageError as error:
        error.show()
        return _failed(arguments, error.format_message(), report.USAGE, told=True)
    except typer.Abort:
        return _failed(arguments, "aborted", report.NOT_CONFIRMED)
    except NotConfirmed as error:
        return _failed(arguments, str(error), report.NOT_CONFIRMED)
    except ConfigError as error:
        return _failed(arguments, str(error), report.USAGE)
    except NotAuthorised as error:
        return _failed(arguments, str(error), report.NOT_AUTHORISED)
    except LinkError as error:
        return _failed(arguments, str(error), report.NO_LINK)
    except BlimpError as error:
        return _failed(arguments, str(error), report.UNKNOWN)


def main() -> None:
    """The console script `ground`."""
    for stream in (sys.stdout, sys.stderr):
        # What a ship says may hold letters that this terminal's encoding has not.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(run(sys.argv[1:]))
    except BrokenPipeError:
        # Whoever read our output has gone; say nothing when the interpreter flushes.
        sys.stdout = None
        sys.exit(report.UNKNOWN)


def _failed(arguments: Sequence[str], reason: str, status: int, *, told: bool = False) -> int:
    """Tell why nothing was done, for a program also as the object that it waits for."""
    as_json = "--json" in arguments
    this = Report(as_json=as_json)
    if not told:
        this.say(f"ground: {reason}")
    task = _task_of(arguments)
    if as_json and task not in ("status", "watch"):
        this.json(Outcome(id=None, task=task, state="FAILURE", reason=reason))
    return status


def _check_text(arguments: Sequence[str]) -> None:
    """Raise ConfigError for bytes of the command line that are no text: nothing can carry them."""
    for position, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"argument {position}, {argument[:40]!a}, is not UTF-8") from None


def _task_of(arguments: Sequence[str]) -> str:
    """Return the task that a command line meant, "" where it cannot be told."""
    names = {command.name or _function_name(command) for command in app.registered_commands}
    word = next((word for word in arguments if word in names or word == "mission"), "")
    return word if word in ("", "status", "watch", "mission") else f"blimp.{word}"


def _function_name(command: Any) -> str:
    return str(command.callback.__name__)


if __name__ == "__main__":
    main()
