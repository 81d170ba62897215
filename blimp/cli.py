"""`blimp`: the commands that run on board, and on a laptop in the simulator.

Each command reads its options, builds what it needs in `blimp.service.compose` and runs it.
Data goes to standard output, messages to standard error. Exit status: 0 done, 1 failed (the
reason is printed), 2 wrong usage.
"""

import json
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from blimp.errors import BlimpError
from blimp.service.acl import app as broker_app
from blimp.service.airframes.command import app as airframe_app
from blimp.service.keys import app as keys_app

if TYPE_CHECKING:
    from blimp.service.systemd import Change

HELP = """Run a blimp: on board, or on a laptop in the simulator.

Data goes to standard output, messages to standard error. Exit status: 0 done, 1 failed (the
reason is printed), 2 wrong usage.
"""

app = typer.Typer(
    name="blimp",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(
    keys_app,
    name="keys",
    help="The keys that sign commands.\n\nExample: blimp keys new --out signing.key",
)
app.add_typer(
    broker_app,
    name="broker",
    help="The users of a broker.\n\nExample: blimp broker acl --vehicle twin",
)
app.add_typer(
    airframe_app,
    name="airframe",
    help="The description of a ship.\n\nExample: blimp airframe check mine.toml",
)
sim_app = typer.Typer(rich_markup_mode=None)
app.add_typer(sim_app, name="sim")

Airframe = Annotated[
    str,
    typer.Option(
        "--airframe", metavar="NAME|FILE", help="A known airframe, or the path of a .toml file."
    ),
]


def _from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Take what the command line does not say from a configuration file."""
    if path is not None:
        from blimp.service.configuration import read_configuration

        context.default_map = read_configuration(path).options()
    return path


def _wind(wind_mps: float) -> float:
    if not 0.0 <= wind_mps <= 20.0:  # not a number, too
        raise typer.BadParameter(f"must be 0 to 20 m/s, not {wind_mps:g}")
    return wind_mps


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_from_file,
        help="A configuration file, for what no other option says; `blimp init` writes one.",
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
        callback=_wind,
        help="Mean wind, 0 to 20 m/s; gusts are added.",
    ),
]
PadEast = Annotated[
    float,
    typer.Option(
        "--pad-east",
        metavar="M",
        min=-10_000.0,
        max=10_000.0,
        help="Distance of the pad east of home, m.",
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


@app.command()
def up(
    *,
    sim: Sim = False,
    airframe: Airframe = "twin",
    vehicle: Vehicle = None,
    seed: Seed = 1,
    wind: Wind = 0.0,
    runtime_dir: RuntimeDir = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Allow motor and servo, disarmed.")
    ] = False,
    ships: Annotated[
        int,
        typer.Option(
            "--ships",
            metavar="N",
            min=1,
            max=16,
            help="Number of ships, on one broker; named NAME-1, NAME-2, ...",
        ),
    ] = 1,
    json_output: Json = False,
) -> None:
    """Run a whole simulated ship until Ctrl-C, or several.

    Runs a broker, and a world, a flight process and a worker for each ship. A process that dies
    is restarted. Several ships stand 20 m apart, from west to east.

    \b
    Examples:
      blimp up --sim --wind 0.3
      blimp up --sim --ships 2
    """
    from blimp.service.up import StackOptions, build_stack

    if not sim:
        raise typer.BadParameter(
            "on board, systemd runs the processes; give --sim to run the simulator",
            param_hint="--sim",
        )
    options = StackOptions(
        airframe=airframe, vehicle=vehicle, seed=seed, wind_mps=wind,
        runtime_dir=runtime_dir, bench=bench, ships=ships,
    )  # fmt: skip
    say_event = partial(_say_event, several=ships > 1)
    stack = build_stack(options, on_event=_print_json if json_output else say_event)
    _on_signals(stack.stop)
    stack.run()


@app.command()
def fly(
    *,
    config: Config = None,  # noqa: ARG001 - its callback has read it
    sim: Sim = False,
    airframe: Airframe = "twin",
    vehicle: Vehicle = None,
    runtime_dir: RuntimeDir = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Allow motor and servo, disarmed.")
    ] = False,
    rate: Annotated[
        float, typer.Option("--rate", metavar="HZ", min=20.0, max=400.0, help="Loop rate, Hz.")
    ] = 100,
    pad_east: PadEast = 0.0,
    log_format: LogFormat = "text",
) -> None:
    """Run the flight process.

    It is the one owner of every bus. With --log-format json it logs its start and its end;
    as text it logs errors only.

    Example: blimp fly --airframe twin --runtime-dir /run/blimp
    """
    from blimp.service.compose import FlightOptions, fly

    options = FlightOptions(
        airframe=airframe, vehicle=vehicle, runtime_dir=runtime_dir, simulated=sim,
        bench=bench, rate_hz=rate, pad_east_m=pad_east, log_format=_log_format(log_format),
    )  # fmt: skip
    fly(options, on_stop=_on_signals)


@app.command()
def worker(
    *,
    config: Config = None,  # noqa: ARG001 - its callback has read it
    vehicle: Name = "twin",
    broker: Broker = None,
    runtime_dir: RuntimeDir = None,
    signing_key_file: KeyFile = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=0,
            max=65_535,
            help="Serve Prometheus metrics on this port.",
        ),
    ] = None,
    metrics_address: Annotated[
        str,
        typer.Option(
            "--metrics-address",
            metavar="HOST",
            help="Address to serve them on; by default this machine only.",
        ),
    ] = "127.0.0.1",
    log_format: LogFormat = "text",
) -> None:
    """Run the task worker.

    It passes commands from the queue to the mailbox.

    \b
    Examples:
      blimp worker --vehicle twin --broker redis://localhost
      blimp worker --vehicle twin --metrics-port 9464
    """
    from blimp.queue.observability.settings import Watching
    from blimp.service.work import WorkerOptions, work

    watching = Watching(
        metrics_port=metrics_port,
        metrics_address=metrics_address,
        log_format=_log_format(log_format),
        vehicle=vehicle,
    )
    options = WorkerOptions(
        vehicle=vehicle, broker=broker, runtime_dir=runtime_dir,
        signing_key_file=signing_key_file, watching=watching,
    )  # fmt: skip
    work(options, on_stop=_on_signals)


@app.command()
def relay(
    *,
    config: Config = None,  # noqa: ARG001 - its callback has read it
    vehicle: Name = "twin",
    broker: Broker = None,
    runtime_dir: RuntimeDir = None,
    signing_key_file: KeyFile = None,
    log_format: LogFormat = "text",
) -> None:
    """Pass emergency stops to the flight process.

    The worker does so as well; this does it while the worker restarts or is busy.

    Example: blimp relay --vehicle twin --broker redis://localhost
    """
    from blimp.queue.observability.settings import Watching
    from blimp.service.work import WorkerOptions, relay

    watching = Watching(log_format=_log_format(log_format), vehicle=vehicle)
    options = WorkerOptions(
        vehicle=vehicle, broker=broker, runtime_dir=runtime_dir,
        signing_key_file=signing_key_file, watching=watching,
    )  # fmt: skip
    relay(options, on_stop=_on_signals)


@sim_app.callback(invoke_without_command=True)
def sim(
    context: typer.Context,
    *,
    airframe: Airframe = "twin",
    seed: Seed = 1,
    wind: Wind = 0.0,
    runtime_dir: RuntimeDir = None,
    parent: Annotated[
        int | None,
        typer.Option("--parent", metavar="PID", min=1, help="End soon after this process ends."),
    ] = None,
    pad_east: PadEast = 0.0,
) -> None:
    """Run the simulated world.

    Physics and chips behind a Unix socket, in real time.

    Example: blimp sim --airframe gtmab --wind 0.3
    """
    if context.invoked_subcommand is not None:
        return
    from blimp.service.compose import WorldOptions, simulate

    options = WorldOptions(
        airframe=airframe, seed=seed, wind_mps=wind, runtime_dir=runtime_dir, parent=parent,
        pad_east_m=pad_east,
    )  # fmt: skip
    simulate(options, on_stop=_on_signals)


@sim_app.command()
def truth(*, runtime_dir: RuntimeDir = None, json_output: Json = False) -> None:
    """Ask a running simulated world where its ship is and what its chips drive.

    It asks the world, never the flight process.

    Example: blimp sim truth --json
    """
    from blimp.service.truth import ask_truth

    report = ask_truth(runtime_dir)
    if json_output:
        _print_json(report)
        return
    from ground_station.report import value_words

    for name, value in report.items():
        print(f"{name:18} {value_words(value)}")


@sim_app.command()
def track(
    *,
    reference: Annotated[
        Path,
        typer.Option("--reference", metavar="FILE", help="CSV: time,x_ref,y_ref,z_ref,psi_ref."),
    ],
    airframe: Airframe = "gtmab",
    seed: Seed = 1,
    heaviness_n: Annotated[
        float,
        typer.Option(
            "--heaviness-n", metavar="N", min=-50.0, max=50.0,
            help="How much heavier the ship is than its file says, N; negative is lighter.",
        ),
    ] = 0.0,
    gust_mps: Annotated[
        float,
        typer.Option(
            "--gust-mps", metavar="MPS", min=0.0, max=5.0,
            help="Standard deviation of horizontal gusts, m/s.",
        ),
    ] = 0.0,
    drag_scale: Annotated[
        float,
        typer.Option(
            "--drag-scale", metavar="K", min=0.1, max=10.0, help="True drag over the file's."
        ),
    ] = 1.0,
    thrust_scale: Annotated[
        float,
        typer.Option(
            "--thrust-scale", metavar="K", min=0.1, max=10.0, help="True thrust over the file's."
        ),
    ] = 1.0,
    pose_sensor: Annotated[
        str, typer.Option("--pose-sensor", metavar="KIND", help="mocap or tag.")
    ] = "mocap",
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="OUT", help="CSV of reference and true ship to write."),
    ] = None,
    json_output: Json = False,
) -> None:  # fmt: skip
    """Fly a path in the simulator and say how far off the ship was.

    Through the trajectory command, with sensors and estimator, faster than real time.

    Example: blimp sim track --airframe gtmab --reference circle.csv --gust-mps 0.1 --json
    """
    from blimp.service import track as tracker
    from ground_station.trajectory import read_curve

    if pose_sensor not in ("mocap", "tag"):
        raise typer.BadParameter(
            f"{pose_sensor!r}: must be mocap or tag", param_hint="--pose-sensor"
        )
    plant = tracker.Plant(
        seed=seed, heaviness_n=heaviness_n, gust_mps=gust_mps,
        drag_scale=drag_scale, thrust_scale=thrust_scale,
    )  # fmt: skip
    tracking = tracker.track(
        read_curve(reference), airframe=airframe, plant=plant,
        pose_sensor="mocap" if pose_sensor == "mocap" else "tag", log=log,
    )  # fmt: skip
    print(tracker.as_json(tracking) if json_output else tracker.words(tracking))


@sim_app.command()
def matrix(
    *,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, max=10_000, help="Fly seeds 1 to N.")
    ] = 1,
    modes: Annotated[
        str, typer.Option("--modes", metavar="A,B", help="Only these modes; all by default.")
    ] = "",
    failures: Annotated[
        str, typer.Option("--failures", metavar="A,B", help="Only these failures; all by default.")
    ] = "",
    airframe: Airframe = "twin",
    json_output: Json = False,
) -> None:
    """Fly every mode with every failure, in lockstep.

    The seed sets wind, gusts, noise and heaviness. Exit status 1 if a flight ended unsafe.

    Example: blimp sim matrix --modes hold,land --failures imu-dead,link-lost
    """
    from blimp import airframe as airframes
    from blimp.sim.failures import BY_NAME
    from blimp.sim.matrix import HEADING, MODES, fly, row

    ship = airframes.load(airframe)
    cells = fly(
        ship,
        modes=_chosen("modes", modes, tuple(MODES)),
        failures=[BY_NAME[name] for name in _chosen("failures", failures, tuple(BY_NAME))],
        seeds=range(1, seeds + 1),
    )
    if not json_output:
        print(HEADING)
    unsafe = flown = 0
    for cell in cells:
        flown += 1
        unsafe += not cell.safe
        if json_output:
            _print_json(_builtins(cell))
        else:
            print(row(cell), flush=True)
    if not json_output:
        print(f"{flown} flown (simulated), {unsafe} unsafe")
    if unsafe:
        raise typer.Exit(1)


def _chosen(option: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip()) or known
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"--{option}: no {name!r}; known are {', '.join(known)}")
    return names


@app.command(
    "safe-state",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def safe_state(context: typer.Context) -> None:
    """Drive every output to its safe state.

    Then end. For systemd's ExecStopPost.
    """
    from blimp.service.safe_state import main

    main(context.args)


@app.command()
def trim(
    *,
    airframe: Annotated[
        str | None,
        typer.Option(
            "--airframe",
            metavar="NAME|FILE",
            help="A known airframe, or a .toml file; else that of the flight process.",
        ),
    ] = None,
    runtime_dir: RuntimeDir = None,
    heaviness: Annotated[
        float | None,
        typer.Option(
            "--heaviness-g",
            metavar="G",
            help="As weighed, below 0 if light; else the flight process is asked.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target-g", metavar="G", help="How heavy it shall be; as its file says by default."
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Say how much ballast a ship needs, and where.

    From what its last level flight weighed: ask after a minute in HOLD and before its flight
    process ends. Nothing is changed.

    Example: blimp trim --airframe twin --heaviness-g -12
    """
    import msgspec

    from blimp.service.airframes.trim import as_text
    from blimp.service.airframes.weighing import trimmed

    found = trimmed(
        airframe=airframe, runtime_dir=runtime_dir, heaviness_g=heaviness, target_g=target
    )
    if json_output:
        _print_json(msgspec.structs.asdict(found))
    else:
        print(as_text(found))


@app.command()
def wiring(
    *,
    airframe: Annotated[
        str, typer.Argument(metavar="AIRFRAME", help="A known airframe, or a .toml file.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The file to write; else standard output."),
    ] = None,
) -> None:
    """Draw the wiring of a ship as SVG.

    From the airframe's table of devices and pins, for the header of a Raspberry Pi.

    Example: blimp wiring twin --out wiring.svg
    """
    from blimp.airframe import load
    from blimp.service.files import write_whole
    from blimp.service.wiring import draw

    drawing = draw(load(airframe))
    if out is None:
        print(drawing, end="")
    else:
        write_whole(out, drawing)


@app.command()
def bench(
    *,
    airframe: Annotated[
        Path, typer.Argument(metavar="FILE", help="The airframe's file, which is edited.")
    ],
    runtime_dir: RuntimeDir = None,
) -> None:
    """Adjust motors, servos and sensors, props off.

    Asks step by step, shows what would change in the airframe's file, and writes it, comments
    and all, if you agree. Needs a flight process that was started with --bench.

    Example: sudo blimp bench /etc/blimp/mine.toml
    """
    from blimp.clock import SystemClock
    from blimp.link.mailbox import MailboxClient
    from blimp.link.paths import RuntimePaths
    from blimp.service.bench import adjust
    from blimp.service.bench.person import Person
    from blimp.service.bench.ship import MailboxShip
    from blimp.service.compose import ON_BOARD_DIR
    from blimp.service.initialise import ask_until_usable

    if not sys.stdin.isatty():
        raise BlimpError("bench: needs a person at a terminal")
    paths, clock = RuntimePaths(runtime_dir or ON_BOARD_DIR), SystemClock()
    own = paths.directory / "bench.sock"
    with MailboxClient(server_path=paths.flight, path=own, clock=clock) as mailbox:
        ship = MailboxShip(mailbox, clock=clock)
        adjust(airframe, ship=ship, person=Person(ask_until_usable(_prompt, say=_say)), say=_say)


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
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Install and start the systemd units of this ship.

    blimp-flight, blimp-worker and, if the configuration has the local broker, blimp-broker, all
    of them in blimp.target.

    \b
    Examples:
      sudo blimp install-service
      blimp install-service --dry-run --json
    """
    from blimp.service import systemd
    from blimp.service.configuration import Configuration, read_configuration

    path = config.absolute()
    if dry_run and not path.exists():
        _say(f"no configuration {path}: shown for the default one; `blimp init` writes it")
        configuration = Configuration()
    else:
        configuration = read_configuration(path)
    change = systemd.plan_install(configuration, config_path=path, user=user)
    if not dry_run:
        _refuse_in_flight()
        systemd.install(change)
    _show(change, json_output=json_output)


@app.command("uninstall-service")
def uninstall_service(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Stop the units of this ship and remove them.

    The configuration, the keys, the user and the broker's messages stay.

    Example: sudo blimp uninstall-service
    """
    from blimp.service import systemd

    change = systemd.plan_uninstall()
    if not dry_run:
        _refuse_in_flight()
        systemd.uninstall(change)
    _show(change, json_output=json_output)


@app.command()
def init(
    *,
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The file to write.")
    ] = Path("/etc/blimp/blimp.toml"),
    airframe: Annotated[
        str | None,
        typer.Option("--airframe", metavar="NAME|FILE", help="A known airframe, or a .toml file."),
    ] = None,
    vehicle: Vehicle = None,
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="URL", help="Broker URL, or: local.")
    ] = None,
    sign: Annotated[
        bool | None, typer.Option("--sign/--no-sign", help="Sign commands with a key.")
    ] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make a key also if there is one, which stays valid.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json_output: Json = False,
) -> None:
    """Write the configuration of this ship's computer.

    It asks for what no option says; without a terminal it takes the defaults.

    \b
    Examples:
      sudo blimp init
      sudo blimp init --airframe twin --broker rediss://ground.local:6379/0 --sign
    """
    from blimp.service.configuration import CONFIG_PATH
    from blimp.service.initialise import Wishes, ask_until_usable, initialise, take_defaults

    wishes = Wishes(airframe=airframe, vehicle=vehicle, broker=broker, sign=sign, new_key=new_key)
    ask = ask_until_usable(_prompt, say=_say) if sys.stdin.isatty() else take_defaults
    path = config.absolute()
    written = initialise(path, wishes, ask=ask, force=force)
    if json_output:
        _print_json({"config": str(path), "signing_key_file": written.signing_key_file})
    else:
        print("\n".join(str(file) for file in (path, written.signing_key_file) if file))
        option = "" if path == CONFIG_PATH else f" --config {path}"
        _say(f"next: blimp doctor{option}, then blimp install-service{option}")


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
    """Find what would keep this ship from flying.

    Each finding has its cure. It moves nothing. While a flight process runs, it asks that process
    instead of the chips. Exit status 1 if flying would be refused.

    \b
    Examples:
      sudo blimp doctor
      sudo blimp doctor --json
    """
    from blimp.link.paths import RuntimePaths
    from blimp.queue.log import printable
    from blimp.service.compose import ON_BOARD_DIR
    from blimp.service.doctor import diagnose
    from blimp.service.truth import only_stack

    if runtime_dir is None:
        on_board = not sim or RuntimePaths(ON_BOARD_DIR).world.exists()
        runtime_dir = ON_BOARD_DIR if on_board else only_stack()
    findings = diagnose(config_path=config.absolute(), runtime_dir=runtime_dir, simulated=sim)
    ok = all(finding.state != "error" for finding in findings)
    if json_output:
        _print_json({"ok": ok, "findings": _builtins(findings)})
    else:
        for finding in findings:
            print(printable(f"{finding.state:<8} {finding.check:<14} {finding.found}"))
            if finding.cure:
                print(printable(f"{'':<23} cure: {finding.cure}"))
    if not ok:
        raise typer.Exit(1)


@app.command()
def demo(
    *,
    headless: Annotated[bool, typer.Option("--headless", help="No live view.")] = False,
    airframe: Airframe = "twin",
    mission: Annotated[
        str, typer.Option("--mission", metavar="NAME|FILE", help="A mission's name or file.")
    ] = "square",
    seed: Seed = 1,
    wind: Wind = 0.3,
    ships: Annotated[
        int,
        typer.Option(
            "--ships",
            metavar="N",
            min=1,
            max=8,
            help="Number of ships, each with a pilot; no live view.",
        ),
    ] = 1,
    json_output: Json = False,
) -> None:
    """Fly a simulated mission and watch it.

    With --ships, one on each of several ships. Starts the stack, flies through the queue, leaves
    nothing behind. The square takes two and a half minutes.

    \b
    Examples:
      blimp demo --seed 7 --wind 0.3
      blimp demo --ships 2
    """
    from blimp.service.demo import DemoOptions, run_demo

    _on_signals(_interrupt)  # SIGTERM ends a demo the way Ctrl-C does: in order
    options = DemoOptions(
        airframe=airframe, mission=mission, seed=seed, wind_mps=wind, live=not headless
    )
    if ships == 1:
        report = run_demo(options, say=_say)
    else:
        from blimp.service.demo_ships import run_demo_ships

        report = run_demo_ships(options, ships=ships, say=_say)
    if json_output:
        _print_json(report)
    if not report["ok"]:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; each of our errors is one line on standard error, status 1."""
    try:
        app()
    except BlimpError as error:
        _say(f"blimp: {error}")
        sys.exit(1)


def _refuse_in_flight() -> None:
    """Raise BlimpError if a ship flies on this computer: a restart would stop its motors."""
    from blimp.clock import SystemClock
    from blimp.link.paths import RuntimePaths
    from blimp.service.compose import ON_BOARD_DIR
    from blimp.service.doctor.computer import running_snapshot

    try:
        snapshot = running_snapshot(RuntimePaths(ON_BOARD_DIR), clock=SystemClock())
    except BlimpError as error:
        _say(f"blimp: {error}")  # one that hangs must not keep its cure from being installed
        return
    if snapshot is not None and snapshot.armed:
        raise BlimpError(f"{snapshot.vehicle} is armed: land it and disarm it first")


def _show(change: "Change", *, json_output: bool) -> None:
    """Print what was changed, or would be; file texts only as JSON."""
    if json_output:
        _print_json(_builtins(change))
    else:
        print("\n".join([*(file.path for file in change.files), *change.commands]))


def _builtins(value: object) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _log_format(name: str) -> Literal["text", "json"]:
    if name == "json":
        return "json"
    if name != "text":
        raise typer.BadParameter(f"{name[:40]!r}: must be text or json", param_hint="--log-format")
    return "text"


def _on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, Ctrl-C and a closed terminal."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop())


def _interrupt() -> None:
    raise KeyboardInterrupt


def _prompt(text: str, default: str) -> str:
    """Ask on standard error: typer's prompt would put a blank among the data."""
    print(f"{text} [{default}]: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise typer.Abort
    return line.strip() or default


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, allow_nan=False), flush=True)


def _say(text: str) -> None:
    """Print lines; what others chose in them reaches no terminal raw."""
    from blimp.queue.log import printable

    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)


def _say_event(event: dict[str, Any], *, several: bool = False) -> None:
    if event["event"] == "ready":
        vehicle = event["vehicle"]
        option = f" --vehicle {vehicle}" if several else ""
        _say(
            f"{vehicle} is ready (simulated); command it from another terminal:\n"
            f"  ground arm{option} && ground takeoff 3{option} && ground watch{option}"
        )
    elif event["event"] == "restarted":
        whose = f" of {event['vehicle']}" if several and "vehicle" in event else ""
        _say(f"{event['process']}{whose} restarted, {event['down_s']:.2f} s down")
    elif event["event"] == "hung":
        _say(f"{event['process']} does not answer for {event['silent_s']:.2f} s: killed")
    elif event["event"] == "safe":
        _say(f"outputs safe {event['after_s']:.2f} s after the last completed cycle")
    else:
        _say(json.dumps(event))
