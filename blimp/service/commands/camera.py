"""`blimp camera`: the camera's process, and what one asks it."""

from pathlib import Path
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


@app.command()
def calibrate(
    pictures: Annotated[
        list[Path], typer.Argument(metavar="PICTURE...", help="JPEG or PNG, of one camera.")
    ],
    *,
    paper: Annotated[
        str, typer.Option(metavar="PAPER", help="Of the pad's page: a4 or letter.")
    ] = ("a4"),
    out: Annotated[Path, typer.Option("--out", metavar="FILE.toml", help="The lens to write.")],
) -> None:
    """Find the lens from 15 pictures or more of the pad's page, which `blimp tags print` makes.

    Glue the page onto a flat board, set the focus for good, and take it from .2 to .5 m: straight
    on, tilted each way, and in every corner of the picture.

    Example: blimp camera calibrate board/*.jpg --out lens.toml
    """
    from blimp.camera.lens import as_toml
    from blimp.camera.paper import pad_page
    from blimp.camera.survey import calibrate as run
    from blimp.camera.survey import found_in
    from blimp.camera.tag_map import TagMap
    from blimp.files import write_atomically

    board = TagMap(tags=tuple(pad_page(paper)[1]))
    seen, size = found_in(pictures, board.families, say=say)
    found = run(seen, board, size)
    write_atomically(out, as_toml(found.lens).encode(), mode=0o644)
    say(
        f"{out}: {found.pictures} pictures, corners within {found.rms_px:.2f} pixels, "
        f"{found.lens.horizontal_fov_deg:.1f} degrees wide, "
        f"focal length give or take {100 * found.lens.focal_sigma:.2f} %"
    )
