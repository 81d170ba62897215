"""`blimp airframe`: the commands that judge and make a ship's description."""

import json
import sys
from importlib import resources
from math import degrees, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blimp.service.commands.options import complete_airframe
from blimp.service.commands.terminal import prompt, say
from blimp.usage import example

if TYPE_CHECKING:
    from blimp.service.airframes.check import Report

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def _twin() -> str:
    return resources.files("blimp").joinpath("airframes", "twin.toml").read_text("utf-8")


@app.command("check")
def _check(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A .toml file, or a known airframe's name.",
            autocompletion=complete_airframe,
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    example: Annotated[bool, example(_twin)] = False,  # noqa: ARG001 - its callback has printed it
) -> None:
    """Say whether a ship can fly, and what it can do.

    Only the file is checked; no device is opened, and nothing flies. `blimp fly`, `up` and `doctor`
    use the same check. The exit status is 1 if the ship cannot fly.

    \b
    Examples:
      blimp airframe check mine.toml
      blimp airframe check --example > mine.toml
    """
    from blimp.service.airframes.check import check_file

    report = check_file(file)
    print(json.dumps(as_data(report)) if as_json else as_text(report))
    if not report.ok:
        raise typer.Exit(1)


@app.command("new")
def _new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The .toml file to write.")],
    *,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Ship name; by default the name of the file."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="LAYOUT",
            help="twin, quad, bicopter, bicopter-1, vectored or finned; it asks what each is.",
        ),
    ] = None,
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="foil|spheroid", help="Shape of the balloon.")
    ] = None,
    length: Annotated[
        str | None,
        typer.Option("--length", metavar="M", help="Length; of a foil balloon its flat diameter."),
    ] = None,
    diameter: Annotated[str | None, typer.Option("--diameter", metavar="M")] = None,
    purity: Annotated[
        str | None, typer.Option("--purity", help="Purity of the helium, 0 to 1.")
    ] = None,
    envelope: Annotated[
        str | None, typer.Option("--envelope-g", metavar="G", help="Mass of the empty balloon.")
    ] = None,
    gondola: Annotated[
        str | None,
        typer.Option("--gondola-g", metavar="G", help="Mass of all parts below the balloon."),
    ] = None,
    forward: Annotated[
        str | None, typer.Option("--forward-gf", metavar="G", help="Thrust of a forward motor.")
    ] = None,
    lift: Annotated[
        str | None, typer.Option("--lift-gf", metavar="G", help="Thrust of the lift motor.")
    ] = None,
    motor: Annotated[
        str | None, typer.Option("--motor-a", metavar="A", help="Current of a motor at full power.")
    ] = None,
    arm: Annotated[
        str | None,
        typer.Option(
            "--arm", metavar="M", help="Distance from a forward motor to the middle line."
        ),
    ] = None,
    imu: Annotated[str | None, typer.Option("--imu", metavar="CHIP")] = None,
    baro: Annotated[str | None, typer.Option("--baro", metavar="CHIP")] = None,
    position: Annotated[str | None, typer.Option("--position", metavar="CHIP")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing; use defaults for missing values.")
    ] = False,
) -> None:
    """Describe a ship by its builder's measurements, and write its file.

    It asks for missing values, the layout of motors, servos and fins first. Lift, ballast, inertia,
    added mass and drag are computed; the file says how, and is written only if the ship can fly.

    Example: blimp airframe new mine.toml --layout bicopter --length 0.9 --gondola-g 70 --yes
    """
    from blimp.errors import BlimpError
    from blimp.service.airframes import new
    from blimp.service.computer.initialise import ask_until_usable

    if not yes and not sys.stdin.isatty():
        raise BlimpError("airframe new: needs a person at a terminal, or --yes")
    given = {
        "layout": layout,
        "shape": shape, "length_m": length, "diameter_m": diameter, "purity": purity,
        "envelope_g": envelope, "gondola_g": gondola, "forward_gf": forward, "lift_gf": lift,
        "motor_a": motor, "arm_m": arm, "imu": imu, "baro": baro, "position": position,
    }  # fmt: skip
    ask = None if yes else ask_until_usable(prompt, say=say)
    print(as_text(new.write(new.asked(name or file.stem, given, ask=ask), file)))
    say(f"{file} written; next: blimp wiring {file}, then blimp demo --airframe {file}")


def as_data(report: "Report") -> dict[str, Any]:
    """Return the report for a program; what cannot be computed is None."""
    from blimp.service.airframes.figures import cannot, holds_m

    figures = report.figures
    data: dict[str, Any] = {
        "ok": report.ok,
        "errors": list(report.errors),
        "warnings": list(report.warnings),
    }
    for key in (
        "static_lift_n", "ballast_g", "swing_hz", "swing_damping", "time_constants_s",
        "terminal_speeds_mps", "added_mass_kg", "thrust_margin", "max_wind_mps",
    ):  # fmt: skip
        data[key] = None if figures is None else _finite(getattr(figures, key))
    data["holds_m"] = None if figures is None else holds_m(figures)
    data["cannot"] = None if figures is None else cannot(figures)
    return data


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [_finite(part) for part in value]
    return value if isfinite(value) else None


def _figure(value: float) -> str:
    return f"{value:.2f}" if isfinite(value) else "-"  # nothing is known that brakes it


def as_text(report: "Report") -> str:
    """Return the report for a person."""
    from blimp.service.airframes.figures import CALM, cannot, holds_m

    lines = [f"{report.name}: {'can fly' if report.ok else 'cannot fly'}"]
    lines += [f"  error    {text}" for text in report.errors]
    lines += [f"  warning  {text}" for text in report.warnings]
    f = report.figures
    if f is None:
        return "\n".join(lines)
    a = f.authority
    still_m, windy_m = holds_m(f)
    ballast = f"add {f.ballast_g:.1f} g" if f.ballast_g > 0.0 else f"take out {-f.ballast_g:.1f} g"
    times = "  ".join(f"{axis} {_figure(value)} s" for axis, value in f.time_constants_s.items())
    speeds = "  ".join(f"{way} {_figure(value)}" for way, value in f.terminal_speeds_mps.items())
    lines += [
        f"  lift       {f.static_lift_n:+.4f} N at home; to float: {ballast}",
        f"  swing      pitch {f.swing_hz:.3f} Hz, damping {f.swing_damping:.4f}; "
        f"roll {f.roll_hz:.3f} Hz; hangs {degrees(f.static_tilt_rad):.1f} degrees off level",
        f"  authority  forward {a.forward_n:.3f} N  back {a.back_n:.3f}  side {a.side_n:.3f}  "
        f"up {a.up_n:.3f}  down {a.down_n:.3f}  yaw {a.yaw_nm:.4f} N m",
        f"  speeds     {speeds} m/s  yaw {f.yaw_rate_radps:.2f} rad/s",
        f"  coasts     {times}",
        "  added      " + "  ".join(f"{value:.4f}" for value in f.added_mass_kg) + " kg, kg m2",
        f"  margin     {f.thrust_margin:.1f} times the vertical thrust that its limits take",
        f"  wind       holds {f.max_wind_mps:.1f} m/s with its gusts, nose into it",
        f"  place      held within {still_m:g} m in still air, {windy_m:g} m in "
        f"{CALM * f.max_wind_mps:.2g} m/s of wind; more may drive it off (simulated, with a tag)",
        *(f"  cannot     {text}" for text in cannot(f)),
    ]
    return "\n".join(lines)
