"""`blimp up|fly|worker|relay|safe-state|demo`: the commands that run until they are stopped."""

import json
from typing import Annotated, Any

import typer

from blimp.service.commands.options import (
    Airframe,
    Broker,
    Config,
    Held,
    Json,
    KeyFile,
    LogFormat,
    Name,
    PadEast,
    RuntimeDir,
    Seed,
    Sim,
    Vehicle,
    Wind,
    complete_mission,
    complete_scenes,
    read_log_format,
)
from blimp.service.commands.terminal import (
    interrupt,
    no_restart_cures,
    on_signals,
    print_json,
    say,
)
from blimp.usage import number

app = typer.Typer(rich_markup_mode=None)


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
        bool,
        typer.Option(
            "--bench", help="Allow the commands motor and servo while the ship is disarmed."
        ),
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
    held: Held = False,
    json_output: Json = False,
) -> None:
    """Run one or several simulated ships until Ctrl-C.

    It starts a broker and, for each ship, a world, a flight process and a worker. It restarts a
    process that dies. Several ships stand 20 m apart, from west to east.

    \b
    Examples:
      blimp up --sim --wind 0.3
      blimp up --sim --ships 2
    """
    from blimp.service.stack.up import StackOptions, build_stack

    if not sim:
        raise typer.BadParameter(
            "on board, systemd runs the processes; give --sim to run the simulator",
            param_hint="--sim",
        )
    options = StackOptions(
        airframe=airframe, vehicle=vehicle, seed=seed, wind_mps=wind,
        runtime_dir=runtime_dir, bench=bench, ships=ships, held=held,
    )  # fmt: skip

    def tell(event: dict[str, Any]) -> None:
        if not json_output:
            _say_event(event, several=ships > 1)
        elif event["event"] != "ending":  # a program sees the end of its output
            print_json(event)

    stack = build_stack(options, on_event=tell)
    on_signals(stack.stop)
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
        bool,
        typer.Option(
            "--bench", help="Allow the commands motor and servo while the ship is disarmed."
        ),
    ] = False,
    rate: Annotated[
        float,
        typer.Option(
            "--rate",
            metavar="HZ",
            parser=number(low=20, high=400, unit="Hz"),
            help="Loop rate, 20 to 400 Hz.",
        ),
    ] = 100,
    pad_east: PadEast = 0.0,
    log_format: LogFormat = "text",
) -> None:
    """Run the flight process.

    Only this process uses the buses. With --log-format json it logs its start and its end; as text
    it logs errors only.

    Example: blimp fly --airframe twin --runtime-dir /run/blimp
    """
    from blimp.service.compose import FlightOptions, fly

    options = FlightOptions(
        airframe=airframe, vehicle=vehicle, runtime_dir=runtime_dir, simulated=sim,
        bench=bench, rate_hz=rate, pad_east_m=pad_east, log_format=read_log_format(log_format),
    )  # fmt: skip
    fly(options, on_stop=on_signals)


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
    from blimp.queue.watching import Watching
    from blimp.service.work import WorkerOptions, check, work

    watching = Watching(
        metrics_port=metrics_port,
        metrics_address=metrics_address,
        log_format=read_log_format(log_format),
        vehicle=vehicle,
    )
    options = WorkerOptions(
        vehicle=vehicle, broker=broker, runtime_dir=runtime_dir,
        signing_key_file=signing_key_file, watching=watching,
    )  # fmt: skip
    with no_restart_cures():
        check(options)
    work(options, on_stop=on_signals)


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

    The worker passes them, too; the relay is for the time when the worker restarts or is busy.

    Example: blimp relay --vehicle twin --broker redis://localhost
    """
    from blimp.queue.watching import Watching
    from blimp.service.work import WorkerOptions, check, relay

    watching = Watching(log_format=read_log_format(log_format), vehicle=vehicle)
    options = WorkerOptions(
        vehicle=vehicle, broker=broker, runtime_dir=runtime_dir,
        signing_key_file=signing_key_file, watching=watching,
    )  # fmt: skip
    with no_restart_cures():
        check(options)
    relay(options, on_stop=on_signals)


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
def demo(
    *,
    headless: Annotated[bool, typer.Option("--headless", help="No live view.")] = False,
    airframe: Airframe = "twin",
    mission: Annotated[
        str,
        typer.Option(
            "--mission",
            metavar="NAME|FILE",
            help="A mission's name or file.",
            autocompletion=complete_mission,
        ),
    ] = "show",
    scenes: Annotated[
        str,
        typer.Option(
            "--scenes",
            metavar="A,B",
            help="Fault scenes of the show: kill-worker, ...; or all, or none.",
            autocompletion=complete_scenes,
        ),
    ] = "all",
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
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Serve the page to a browser, too.")
    ] = True,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only", help="Add a second, read-only address, for phones in the room."
        ),
    ] = False,
    held: Held = False,
    json_output: Json = False,
) -> None:
    """Fly a simulated mission and watch it.

    You can watch on the terminal, and on a page in the browser. With --ships, each of several ships
    flies one. The demo starts all processes, flies through the queue, and removes everything at its
    end. The mission `show` takes a minute and a half; the demo kills the worker, blinds the
    position and stops the broker. Other missions have no faults.

    \b
    Examples:
      blimp demo
      blimp demo --mission square --seed 7 --wind 0.3
      blimp demo --ships 2 --read-only
    """
    from blimp.service.show.demo import DemoOptions, run_demo

    on_signals(interrupt)  # SIGTERM ends a demo the way Ctrl-C does: in order
    options = DemoOptions(
        airframe=airframe, mission=mission, seed=seed, wind_mps=wind, live=not headless, page=page,
        read_only=read_only, held=held, scenes=scenes,
    )  # fmt: skip

    def tell(event: dict[str, Any]) -> None:
        if json_output:
            print_json(event)

    if ships > 1 and scenes not in ("all", "none"):
        raise typer.BadParameter("several ships fly without scenes", param_hint="--scenes")
    if ships == 1:
        report = run_demo(options, say=say, tell=tell)
    else:
        from blimp.service.show.demo_ships import run_demo_ships

        report = run_demo_ships(options, ships=ships, say=say, tell=tell)
    if json_output:
        print_json(report)
    if not report["ok"]:
        raise typer.Exit(1)


def _say_event(event: dict[str, Any], *, several: bool = False) -> None:
    if event["event"] == "ready":
        vehicle = event["vehicle"]
        option = f" --vehicle {vehicle}" if several else ""
        say(
            f"{vehicle} is ready (simulated); command it from another terminal:\n"
            f"  ground arm{option} && ground takeoff 3{option} && ground watch{option}"
        )
    elif event["event"] == "restarted":
        whose = f" of {event['vehicle']}" if several and "vehicle" in event else ""
        say(f"{event['process']}{whose} restarted, {event['down_s']:.2f} s down")
    elif event["event"] == "failing":
        say(
            f"{event['process']} cannot be started (status {event['status']}); the ship comes "
            f"down without it; trying again in {event['retry_s']:.0f} s"
        )
    elif event["event"] == "hung":
        say(f"{event['process']} does not answer for {event['silent_s']:.2f} s: killed")
    elif event["event"] == "crowded":
        say(event["warning"])
    elif event["event"] == "ending":
        say("ending: the outputs are made safe, then every process ends")
    elif event["event"] == "safe":
        say(f"outputs safe {event['after_s']:.2f} s after the last completed cycle")
    else:
        say(json.dumps(event))
