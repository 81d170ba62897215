"""`blimp camera`: the camera's process, and what one asks it."""

from typing import Annotated

import typer

from blimp.service.commands.options import (
    Airframe,
    Broker,
    Config,
    Json,
    KeyFile,
    RuntimeDir,
    Sim,
    Vehicle,
)
from blimp.service.commands.terminal import (
    builtins,
    no_restart_cures,
    on_signals,
    print_json,
    say,
)

ASK_S = 2.0

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def camera(
    context: typer.Context,
    *,
    config: Config = None,  # noqa: ARG001 - its callback has read it
    airframe: Airframe = "twin",
    sim: Sim = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="PATH", help="A camera of this computer, such as /dev/video0."
        ),
    ] = None,
    vehicle: Vehicle = None,
    broker: Broker = None,
    signing_key_file: KeyFile = None,
    runtime_dir: RuntimeDir = None,
) -> None:
    """Run the camera's process.

    Only this process uses the camera. A ship flies on without it. With a broker, the page of
    `ground page` shows its picture.

    \b
    Examples:
      blimp camera --airframe mine.toml --runtime-dir /run/blimp
      blimp camera --device /dev/video0 --runtime-dir /tmp/laptop
    """
    if context.invoked_subcommand is not None:
        return
    from blimp.service.camera import CameraOptions, watch

    options = CameraOptions(
        airframe=airframe, vehicle=vehicle, runtime_dir=runtime_dir, simulated=sim, device=device,
        broker=broker, signing_key_file=signing_key_file,
        say=lambda text: say(f"blimp: camera: {text}"),
    )  # fmt: skip
    with no_restart_cures():
        watch(options, on_stop=on_signals)


@app.command()
def status(*, runtime_dir: RuntimeDir = None, json_output: Json = False) -> None:
    """Print what a running camera's process sees: rate, light, focus, tags.

    Example: blimp camera status --json
    """
    from blimp.link.camera_control import camera_status
    from blimp.link.paths import paths_in

    found = camera_status(paths_in(runtime_dir).camera_control, timeout_s=ASK_S)
    report = builtins(found)
    if json_output:
        print_json(report)
        return
    from ground_station.report import value_words

    steps = report.pop("steps")
    for name, value in report.items():
        print(f"{name:12} {value_words(value)}")
    for name, step in steps.items():
        print(f"{name:12} {step['frames']} frames, {1e3 * step['took_s']:.0f} ms {step['problem']}")
