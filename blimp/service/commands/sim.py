"""`blimp sim`: the simulated world, and what is flown in it."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from blimp.distribution import needing
from blimp.service.commands.options import Airframe, Held, Json, PadEast, RuntimeDir, Seed, Wind
from blimp.service.commands.terminal import builtins, on_signals, print_json, progress, say
from blimp.usage import example, number

TABLE = "reference and true path, SI units; a spreadsheet or pandas opens it"
app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
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
    held: Held = False,
    scene: Annotated[
        Path | None,
        typer.Option(
            "--scene",
            metavar="FILE",
            help="What a camera sees: TOML with tags, balloons, gates; or a tag map.",
        ),
    ] = None,
) -> None:
    """Run the simulated world.

    Physics and chips behind a Unix socket, in real time.

    \b
    Examples:
      blimp sim --airframe gtmab --wind 0.3
      blimp sim --airframe gtmab-eye --scene room.toml
    """
    if context.invoked_subcommand is not None:
        return
    from blimp.service.compose import WorldOptions, simulate

    options = WorldOptions(
        airframe=airframe, seed=seed, wind_mps=wind, runtime_dir=runtime_dir, parent=parent,
        pad_east_m=pad_east, held=held, scene=scene,
    )  # fmt: skip
    simulate(options, on_stop=on_signals)


@app.command()
def truth(*, runtime_dir: RuntimeDir = None, json_output: Json = False) -> None:
    """Ask a running simulated world where its ship is and what its chips drive.

    It asks the world, never the flight process.

    Example: blimp sim truth --json
    """
    from blimp.service.truth import ask_truth

    report = ask_truth(runtime_dir)
    if json_output:
        print_json(report)
        return
    from ground_station.report import value_words

    for name, value in report.items():
        print(f"{name:18} {value_words(value)}")


@app.command()
def hold(
    *,
    state: Annotated[
        Literal["on", "off"],
        typer.Argument(metavar="on|off", help="on holds the ship, off releases it."),
    ],
    runtime_dir: RuntimeDir = None,
    json_output: Json = False,
) -> None:
    """Hold a running simulated ship still, as a person would, or release it.

    The motors of a held ship turn, and it does not move: at take-off it reports that it does not
    lift.

    \b
    Examples:
      blimp up --sim --held
      blimp sim hold off
    """
    from blimp.service import truth

    truth.hold(runtime_dir, held=state == "on")
    if json_output:
        print_json({"held": state == "on"})


def _circle() -> str:
    from ground_station.trajectory import example

    return example()


@app.command()
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
            "--heaviness-n", metavar="N", parser=number(low=-50, high=50, unit="N"),
            help="How much heavier the ship is than its file says, N; negative is lighter.",
        ),
    ] = 0.0,
    gust_mps: Annotated[
        float,
        typer.Option(
            "--gust-mps", metavar="MPS", parser=number(low=0, high=5, unit="m/s"),
            help="Standard deviation of horizontal gusts, m/s.",
        ),
    ] = 0.0,
    drag_scale: Annotated[
        float,
        typer.Option(
            "--drag-scale", metavar="K", parser=number(low=0.1, high=10),
            help="True drag over the file's.",
        ),
    ] = 1.0,
    thrust_scale: Annotated[
        float,
        typer.Option(
            "--thrust-scale", metavar="K", parser=number(low=0.1, high=10),
            help="True thrust over the file's.",
        ),
    ] = 1.0,
    pose_sensor: Annotated[
        str, typer.Option("--pose-sensor", metavar="KIND", help="mocap or tag.")
    ] = "mocap",
    log: Annotated[
        Path | None,
        typer.Option(
            "--log", metavar="OUT",
            help="Write the flight's log; a name that ends in .csv gets the reference and the "
            "true path.",
        ),
    ] = None,
    json_output: Json = False,
    example: Annotated[bool, example(_circle)] = False,  # noqa: ARG001 - its callback has printed it
) -> None:  # fmt: skip
    """Fly a path in the simulator and print the ship's distance from it.

    It uses the trajectory command, sensors and estimator, faster than real time.

    Example: blimp sim track --airframe gtmab --reference circle.csv --gust-mps 0.1 --json
    """
    from blimp.service.tune import track as tracker
    from ground_station.trajectory import read_curve

    if pose_sensor not in ("mocap", "tag"):
        raise typer.BadParameter(
            f"{pose_sensor!r}: must be mocap or tag", param_hint="--pose-sensor"
        )
    plant = tracker.Plant(
        seed=seed, heaviness_n=heaviness_n, gust_mps=gust_mps,
        drag_scale=drag_scale, thrust_scale=thrust_scale,
    )  # fmt: skip
    with progress("flying", silent=json_output) as draw:
        tracking = tracker.track(
            read_curve(reference), airframe=airframe, plant=plant,
            pose_sensor="mocap" if pose_sensor == "mocap" else "tag", log=log, progress=draw,
        )  # fmt: skip
    print(tracker.as_json(tracking) if json_output else tracker.words(tracking))
    if log is not None and not json_output:
        is_table = log.suffix == ".csv"
        say(f"{log} written: " + (TABLE if is_table else f"next: blimp log report {log}"))


@app.command()
def swing(
    *,
    airframe: Airframe = "gtmab",
    seed: Seed = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Picture to write, PNG; needs the extra plot."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Kick a hovering ship, and say how fast its swing decays, with damping by thrust and without.

    The damping is the gain swing_damping of the airframe.

    Example: blimp sim swing --airframe gtmab --out swing.png
    """
    from blimp import airframe as airframes
    from blimp.service.tune import swing as swings

    if out is not None:
        with needing("plot", "a picture needs"):  # asked before the flights, which take seconds
            import matplotlib.figure  # noqa: F401
    ship = airframes.load(airframe)
    dampings = sorted({0.0, ship.gains.swing_damping})
    found: list[swings.Swing] = []
    with progress("flying", silent=json_output) as draw:
        for damping in dampings:
            found.append(
                swings.swing(
                    ship, damping=damping, seed=seed,
                    progress=lambda share: draw((len(found) + share) / len(dampings)),
                )
            )  # fmt: skip
    if out is not None:
        swings.draw(found, out, ship=ship.name)
    if json_output:
        print_json({"airframe": ship.name, "swings": [builtins(one) for one in found]})
        return
    for one in found:
        print(
            f"swing_damping {one.damping:g}: to 1/e in {one.decay_s:.1f} s, then "
            f"{one.rest_deg:.1f} degrees RMS; {one.strayed_m:.2f} m off at most (simulated)"
        )
    if out is not None:
        say(f"{out} written: a PNG, which any viewer of pictures opens")


@app.command()
def chaos(
    *,
    action: Annotated[
        str | None,
        typer.Argument(metavar="ACTION", help="The fault; without it all faults are listed."),
    ] = None,
    amount: Annotated[
        float | None,
        typer.Option(
            "--amount",
            metavar="X",
            parser=number(),
            help="Size of a gust, heat or leak; the largest allowed by default.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", help="Which sensor, for the faults that end in -sensor."
        ),
    ] = None,
    runtime_dir: RuntimeDir = None,
    json_output: Json = False,
) -> None:
    """Inject a fault into a running simulated ship, and say how the ship reacts.

    Faults: kill a process, stop the broker, cut the link, make a sensor fail, a gust, warm air, a
    leak. Each ends by itself, except the leak and a held ship. An amount is limited to what the
    airframe can fly.

    \b
    Examples:
      blimp sim chaos
      blimp sim chaos kill-worker
      blimp sim chaos gust --amount 0.5
    """
    from blimp.service.show.chaos import chaos_of, report_lines
    from blimp.service.show.reaction import BACK_WITHIN_S

    harm = chaos_of(runtime_dir)
    if action is None:
        found = harm.offers()
        if json_output:
            print_json(builtins(found))
            return
        for one in found:
            limit = "" if one.most is None else f"up to {one.most:g} {one.unit}: {one.why}"
            print(f"{one.name:15} {', '.join(one.devices) or limit}")
        return
    if sys.stderr.isatty() and not json_output:
        say(f"{action}: the report comes once the ship is well, or after {BACK_WITHIN_S:g} s")
    report = harm.act(action, amount=amount, device=device)
    if json_output:
        print_json(builtins(report))
    else:
        print("\n".join(report_lines(report)))


@app.command()
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
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", metavar="N", min=1, max=256, help="Fly N at once; use one per core."
        ),
    ] = 1,
    drop_outs: Annotated[
        bool,
        typer.Option("--drop-outs", help="Find the longest drop-out of each sensor and bus."),
    ] = False,
    json_output: Json = False,
) -> None:
    """Fly every mode with every failure, in lockstep.

    The seed sets wind, gusts, noise and heaviness. The exit status is 1 if a flight ended unsafe.
    With --drop-outs what fails is good again after 10 ms to 5 s, and the table shows the longest
    after which the mode goes on.

    Example: blimp sim matrix --modes hold,land --failures imu-dead,link-lost
    """
    from blimp import airframe as airframes
    from blimp.ship import dropouts
    from blimp.ship.failures import BY_NAME
    from blimp.ship.matrix import HEADING, MODES, fly, row

    ship = airframes.load(airframe)
    if drop_outs:
        chosen = _chosen("modes", modes, tuple(MODES))
        lengths = dropouts.fly(ship, modes=chosen, seeds=range(1, seeds + 1), jobs=jobs)
        if json_output:
            for length in lengths:
                print_json(builtins(length))
            return
        for line in dropouts.table(list(lengths)):
            print(line)
        return
    cells = fly(
        ship,
        modes=_chosen("modes", modes, tuple(MODES)),
        failures=[BY_NAME[name] for name in _chosen("failures", failures, tuple(BY_NAME))],
        seeds=range(1, seeds + 1),
        jobs=jobs,
    )
    if not json_output:
        print(HEADING)
    unsafe = flown = 0
    for cell in cells:
        flown += 1
        unsafe += not cell.safe
        if json_output:
            print_json(builtins(cell))
        else:
            print(row(cell), flush=True)
    if not json_output:
        print(f"{flown} flown (simulated), {unsafe} unsafe")
    if unsafe:
        raise typer.Exit(1)


@app.command()
def replay(
    *,
    log: Annotated[
        Path, typer.Option("--log", metavar="FILE", help="CSV of an RGBlimp or GT-MAB flight.")
    ],
    airframe: Airframe = "rgblimp-fit",
    window: Annotated[
        float,
        typer.Option(
            "--window",
            metavar="S",
            parser=number(low=0.05, high=60, unit="s"),
            help="Seconds open loop, 0.05 to 60.",
        ),
    ] = 3.0,
    json_output: Json = False,
) -> None:
    """Repeat a published flight in the model, open loop, and print the model's error.

    The errors are measured at the end of each window. It needs numpy, the extra analysis.

    Example: blimp sim replay --airframe rgblimp-fit --log data_1.csv --json
    """
    from blimp import airframe as airframes

    ship = airframes.load(airframe)
    with needing("analysis", "this needs"):
        from blimp.sim.replay import replay as fly_again
        from blimp.sim.replay import words
    with progress("replaying", silent=json_output) as draw:
        found = fly_again(ship, log, window_s=window, progress=draw)
    if json_output:
        print_json(builtins(found))
    else:
        print(words(found))


@app.command()
def speed(*, airframe: Airframe = "twin", json_output: Json = False) -> None:
    """Measure how many times faster than real time one core simulates, in processor time.

    It measures the whole ship in lockstep, only its physics, and 4,000 ships in one batch, in half
    a minute.

    Example: blimp sim speed --json
    """
    with needing("analysis", "this needs"):
        from blimp.ship.speed import measure
    with progress("measuring", silent=json_output) as draw:
        found = builtins(measure(airframe, progress=draw))
    if json_output:
        print_json(found)
        return
    for name, times in found.items():
        print(f"{name:12} {times:,.0f} times real time")


def _chosen(option: str, text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip()) or known
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"--{option}: no {name!r}; known are {', '.join(known)}")
    return names
