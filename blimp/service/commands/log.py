"""`blimp log`: records flights, and shows, exports and repeats what was recorded."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blimp.errors import LogError
from blimp.service.commands.options import Config, Json, RuntimeDir, Wind
from blimp.service.commands.terminal import (
    builtins,
    no_restart_cures,
    on_signals,
    print_json,
    progress,
    say,
)
from blimp.usage import number

if TYPE_CHECKING:
    from blimp.recording.recording import LogInfo

_NEXT = {  # what is done with an exported file
    "csv": "one row a cycle, SI units; a spreadsheet or pandas opens it",
    "kml": "open it in Google Earth or another map",
    "geojson": "open it in QGIS or another map",
}
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def _in_its_directory(file: Path) -> Path:
    """Return the log of that name where logs go, if there is no such file here."""
    from blimp.config import log_directory

    kept = log_directory() / file
    return kept if file.name == str(file) and not file.exists() and kept.exists() else file


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A log; or the name of one in BLIMP_LOG_DIR.",
        callback=_in_its_directory,
    ),
]


@app.command()
def record(
    *,
    config: Config = None,  # noqa: ARG001 - its callback has read it
    runtime_dir: RuntimeDir = None,
    log_dir: Annotated[
        Path | None,
        typer.Option("--log-dir", metavar="DIR", help="Where logs go; else BLIMP_LOG_DIR."),
    ] = None,
    log_mb: Annotated[
        int | None,
        typer.Option(
            "--log-mb",
            metavar="MB",
            min=0,
            max=1_000_000,
            help="Limit of all logs there; the oldest are deleted first. Else BLIMP_LOG_MB.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Of the simulated world."),
    ] = None,
    wind: Wind = 0.0,
    foxglove_port: Annotated[
        int | None,
        typer.Option(
            "--foxglove-port",
            metavar="PORT",
            min=0,
            max=65_535,
            envvar="BLIMP_FOXGLOVE_PORT",
            help="Serve Foxglove's viewer on this port of this machine; needs the extra foxglove.",
        ),
    ] = None,
) -> None:
    """Record the flights of this ship's flight process.

    `blimp up`, `blimp demo` and systemd run it. It may start, die and restart at any time.

    \b
    Examples:
      blimp log record --runtime-dir /run/blimp
      BLIMP_FOXGLOVE_PORT=8765 blimp up --sim
    """
    from blimp.config import log_bound_mb, log_directory
    from blimp.recording.directory import check_bound
    from blimp.service.recorder import RecorderOptions
    from blimp.service.recorder import record as run

    where = "BLIMP_LOG_MB" if log_mb is None else "--log-mb"
    with no_restart_cures():
        max_bytes = check_bound(log_bound_mb() if log_mb is None else log_mb, where=where)
    if not max_bytes:
        say(f"blimp: {where} is 0: nothing is recorded")
        return
    options = RecorderOptions(
        runtime_dir=runtime_dir,
        directory=log_dir or log_directory(),
        max_bytes=max_bytes,
        seed=seed,
        wind_mps=None if seed is None else wind,
        live_port=foxglove_port,
    )
    run(options, on_stop=on_signals)


@app.command("list")
def list_logs(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="A directory of logs, or a log; else BLIMP_LOG_DIR."),
    ] = None,
    *,
    json_output: Json = False,
) -> None:
    """List the logs of a directory, the oldest first.

    \b
    Examples:
      blimp log list
      blimp log list --json
    """
    from blimp.config import log_directory
    from blimp.recording.recording import open_recording

    place = directory or log_directory()
    if not place.exists():
        if directory is not None:
            raise LogError(f"log directory {place}: No such file or directory")
        say(f"no logs yet: {place}")
        return
    try:
        logs = sorted(place.glob("*.mcap"), key=_age) if place.is_dir() else [place]
    except OSError as error:
        raise LogError(f"log directory {place}: {error.strerror}") from error
    for path in logs:
        try:
            with open_recording(path, alone=True) as log:
                found = log.info()
        except LogError as error:
            say(f"blimp: {error}")
            continue
        if json_output:
            print_json(builtins(found))
        else:
            print(_line(found))


@app.command()
def info(file: File, *, json_output: Json = False) -> None:
    """Say what is in a log, and in all others of its flight.

    A flight goes on in a new log if its flight process or its recorder dies, or if a log is full.
    All commands but `list` and `refly` take the whole flight, whichever of its logs is named.

    Example: blimp log info flight.mcap --json
    """
    from blimp.queue.log import printable
    from blimp.recording.recording import open_recording

    with (
        progress("reading", silent=json_output) as draw,
        open_recording(file, progress=draw) as log,
    ):
        found = log.info()
        facts = log.metadata
    if json_output:
        print_json(builtins(found))
        return
    simulated = " (simulated)" if found.simulated else ""
    complete = "complete" if found.complete else "cut: `blimp log recover` gives it an index"
    lines = [
        f"{found.path}: {found.vehicle}{simulated}, {found.started}, {found.duration_s:.1f} s",
        f"{found.chunks} chunks, {complete}",
        *(f"  {topic:<12} {count:>9}" for topic, count in found.topics.items()),
        *(f"  {name:<12} {facts[name]}" for name in sorted(facts) if name != "session"),
        *(f"  {'log':<12} {name}" for name in found.logs if len(found.logs) > 1),
    ]
    print("\n".join(map(printable, lines)))


@app.command()
def check(file: File, *, json_output: Json = False) -> None:
    """Say which policies a flight breached: what must never be, and when it first was.

    docs/policies.md has all of them. Exit status: 1 if one is breached.

    Example: blimp log check flight.mcap
    """
    from blimp.queue.log import printable
    from blimp.recording.flight_data import read_flight
    from blimp.recording.policies import POLICIES, check
    from blimp.recording.recording import open_recording
    from blimp.recording.trace import Trace

    with (
        progress("reading", silent=json_output) as draw,
        open_recording(file, progress=draw) as log,
    ):
        breaches = check(Trace(read_flight(log)))
    if json_output:
        found = [
            {"policy": one.policy.name, "at_s": round(one.at_s, 3), "text": one.policy.text}
            for one in breaches
        ]
        print_json({"policies": len(POLICIES), "breaches": found})
    else:
        lines = [printable(one.words) for one in breaches]
        print("\n".join(lines or [f"{len(POLICIES)} policies kept"]))
    if breaches:
        raise typer.Exit(1)


@app.command()
def recover(
    file: File,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The log to write.")],
    *,
    json_output: Json = False,
) -> None:
    """Copy the undamaged part of a log that was cut or damaged.

    If no part is undamaged, it writes no OUT and ends with status 1.

    Example: blimp log recover cut.mcap whole.mcap
    """
    from blimp.recording.recover import recover as run

    with progress("recovering", silent=json_output) as draw:
        found = run(file, out, progress=draw)
    if json_output:
        print_json(builtins(found))
    if not found.chunks:
        size = file.stat().st_size
        raise LogError(f"log {file}: no whole chunk is in its {size} bytes; {out} is not written")
    if not json_output:
        print(f"{found.chunks} chunks written to {out}, {found.lost_bytes} bytes lost")
        say(f"next: blimp log report {out}")


@app.command()
def export(
    file: File,
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="The file to write; else standard output.")
    ] = None,
    *,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="csv, kml or geojson; else OUT's ending."),
    ] = None,
) -> None:
    """Write a log as a table of every cycle (csv), or its track for maps (kml, geojson).

    \b
    Examples:
      blimp log export flight.mcap flight.kml
      blimp log export flight.mcap --format csv | head
    """
    from blimp.recording.export import FORMATS
    from blimp.recording.recording import open_recording

    name = form or ("csv" if out is None else out.suffix.lstrip("."))
    if name not in FORMATS:
        raise typer.BadParameter(
            f"{name[:40]!r}: must be {', '.join(FORMATS)}", param_hint="--format"
        )
    with progress("exporting") as draw, open_recording(file, progress=draw) as log:
        if out is None:
            FORMATS[name](log, sys.stdout)
            return
        try:
            with out.open("w", encoding="utf-8", newline="") as stream:
                FORMATS[name](log, stream)
        except OSError as error:
            raise LogError(f"{out}: {error.strerror}") from error
    say(f"{out} written: {_NEXT[name]}")


@app.command()
def plot(
    file: File,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="The directory for the pictures; by default FILE's name in the current directory.",
        ),
    ] = None,
    *,
    json_output: Json = False,
) -> None:
    """Draw events, track, and every quantity over time, each as a PNG.

    `blimp log report` puts all of them on one page.

    Example: blimp log plot flight.mcap pictures
    """
    from blimp.recording.pictures import draw
    from blimp.recording.recording import open_recording

    with (
        progress("drawing", silent=json_output) as show,
        open_recording(file, progress=lambda share: show(0.5 * share)) as log,
    ):
        written = draw(log, out or Path(file.stem), progress=lambda share: show(0.5 + 0.5 * share))
    _tell(written, json_output=json_output)
    if not json_output:
        say(f"{len(written)} pictures; blimp log report {file} puts them on one page")


@app.command()
def report(
    file: File,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="OTHER",
            help="A second log, to compare.",
            callback=lambda path: path and _in_its_directory(path),
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR|OUT",
            help="A directory, or a file that ends in .html or .pdf; by default FILE's name in "
            "the current directory.",
        ),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write a PDF as well.")] = False,
    json_output: Json = False,
) -> None:
    """Report a flight on one page, with text, figures and pictures.

    The page is HTML that needs no network, or PDF. With OTHER it shows the differences of the two
    flights.

    \b
    Examples:
      blimp log report flight.mcap
      blimp log report flight.mcap other.mcap --out reports --pdf
    """
    from blimp.recording.flight_data import read_flight
    from blimp.recording.recording import open_recording
    from blimp.recording.report import write_html
    from blimp.recording.report_pdf import write_pdf

    page = _report_path(file, out)
    flights = []
    with progress("reading", silent=json_output) as show:
        for path in (file, other):
            if path is not None:
                with open_recording(path, progress=show) as log:
                    flights.append(read_flight(log))
    flight, second = flights[0], flights[1] if len(flights) > 1 else None
    written = []
    if page.suffix == ".html":
        with progress("drawing", silent=json_output) as show:
            write_html(flight, page, other=second, progress=show)
        written.append(page)
    if pdf or page.suffix == ".pdf":
        written.append(page.with_suffix(".pdf"))
        with progress("drawing the PDF", silent=json_output) as show:
            write_pdf(flight, written[-1], other=second, progress=show)
    _tell(written, json_output=json_output)
    if not json_output:
        say(f"open {written[0]}: it needs no network and no server")


def _report_path(file: Path, out: Path | None) -> Path:
    """Return where a report goes: "flight-report.html", in `out` if that is a directory."""
    name = f"{file.stem}-report.html"
    if out is None:
        return Path(name)
    if out.is_dir() or not out.suffix:
        return out / name
    if out.suffix not in (".html", ".pdf"):
        raise typer.BadParameter(
            f"{str(out)[-40:]!r}: must be a directory, or end in .html or .pdf",
            param_hint="--out",
        )
    return out


def _tell(written: list[Path], *, json_output: bool) -> None:
    """Print the files that were written, as data."""
    for path in written:
        if json_output:
            print_json({"path": str(path)})
        else:
            print(path)


@app.command()
def refly(
    file: File,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="OUT", help="Write the log of the second flight to OUT."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Fly a simulated flight again and say whether it is the same.

    It repeats the recorded commands, faults, wind and seed in lockstep. A lockstep flight is
    repeated bit for bit, a flight in real time is not.

    Example: blimp log refly flight.mcap
    """
    from blimp.service.logs.refly import refly as run

    with progress("flying it again", silent=json_output) as draw:
        found = run(file, out=out, progress=draw)
    if json_output:
        print_json(builtins(found))
    elif found.same:
        print("the same to the bit (simulated)")
    else:
        print(
            f"different from {found.first_difference_s} s on, at most "
            f"{found.max_difference_m:.4f} m apart (simulated)"
        )
    if out is not None and not json_output:
        say(f"{out} written; blimp log report {file} {out} compares the two flights")


def _speed(given: str) -> float:
    from blimp.recording.player import MAX_SPEED

    return number(low=0, high=MAX_SPEED, unit="times real time")(given)


@app.command()
def replay(
    file: File,
    *,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 takes any free port."),
    ] = 0,
    speed: Annotated[
        float,
        typer.Option(
            "--speed", metavar="F", parser=_speed, help="Speed, times real time; 0 is a pause."
        ),
    ] = 1.0,
    json_output: Json = False,
) -> None:
    """Show a recorded flight on the page, from any time, at any speed.

    It opens a browser, and runs until Ctrl-C. There is no ship to command, and the log is not
    changed.

    \b
    Examples:
      blimp log replay flight.mcap
      blimp log replay flight.mcap --speed 5 --port 8421
    """
    from blimp.service.logs.log_page import replay as run

    def tell(url: str) -> None:
        opening.close()
        if json_output:
            print_json({"event": "page", "url": url})
        else:
            print(url, flush=True)

    with ExitStack() as opening:
        draw = opening.enter_context(progress("reading", silent=json_output))
        run(file, port=port, speed=speed, tell=tell, progress=draw)


def _age(path: Path) -> tuple[float, str]:
    return path.stat().st_mtime, path.name


def _line(found: "LogInfo") -> str:
    about = [found.vehicle, *(["simulated"] if found.simulated else [])]
    about += [] if found.complete else ["cut"]
    return f"{found.started}  {found.duration_s:8.1f} s  {found.path}  ({', '.join(about)})"
