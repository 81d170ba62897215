"""`blimp airframe`: the commands that judge and make a ship's description."""

import json
from math import degrees, isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from blimp.service.airframes.check import Report

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command("check")
def _check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A .toml file, or a known airframe's name.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether a ship can fly, and what it can do.

    The file alone is judged; nothing is opened or flown. `blimp fly`, `up` and `doctor` refuse
    by the same check. Exit status 1 if it cannot fly.

    Example: blimp airframe check mine.toml
    """
    from blimp.service.airframes.check import check_file

    report = check_file(file)
    print(json.dumps(as_data(report)) if as_json else as_text(report))
    if not report.ok:
        raise typer.Exit(1)


def as_data(report: "Report") -> dict[str, Any]:
    """Return the report for a program; what cannot be computed is None."""
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
    return data


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [_finite(part) for part in value]
    return value if isfinite(value) else None


def as_text(report: "Report") -> str:
    """Return the report for a person."""
    lines = [f"{report.name}: {'can fly' if report.ok else 'cannot fly'}"]
    lines += [f"  error    {text}" for text in report.errors]
    lines += [f"  warning  {text}" for text in report.warnings]
    f = report.figures
    if f is None:
        return "\n".join(lines)
    a = f.authority
    ballast = f"add {f.ballast_g:.1f} g" if f.ballast_g > 0.0 else f"take out {-f.ballast_g:.1f} g"
    times = "  ".join(f"{axis} {value:.2f} s" for axis, value in f.time_constants_s.items())
    speeds = "  ".join(f"{way} {value:.2f}" for way, value in f.terminal_speeds_mps.items())
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
    ]
    return "\n".join(lines)
