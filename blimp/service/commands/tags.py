"""`blimp tags`: print the tags of a room, and find where they hang."""

from pathlib import Path
from typing import Annotated

import typer

from blimp.service.commands.terminal import say
from blimp.usage import number

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def tags() -> None:
    """Print the tags of a room, and find where they hang."""


@app.command("print")
def print_(
    pdf: Annotated[Path, typer.Argument(metavar="FILE.pdf", help="The file to write.")],
    *,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", metavar="FILE.toml", help="Where the map goes; beside the PDF."),
    ] = None,
    rows: Annotated[
        int, typer.Option(metavar="N", min=0, max=100, help="Tags from south to north.")
    ] = 5,
    columns: Annotated[
        int, typer.Option(metavar="N", min=0, max=100, help="Tags from west to east.")
    ] = 5,
    spacing_m: Annotated[
        float,
        typer.Option(metavar="M", parser=number(low=0.2, high=20, unit="m"), help="Tag to tag."),
    ] = 0.7,
    size_mm: Annotated[
        float,
        typer.Option(metavar="MM", parser=number(low=20, high=160, unit="mm"), help="Of a tag."),
    ] = 150.0,
    paper: Annotated[str, typer.Option(metavar="PAPER", help="a4 or letter.")] = "a4",
) -> None:
    """Write a PDF with a landing pad and a grid of tags, and the map that they make.

    Print it at 100 %. Lay the pad's page where the ship starts, its arrow to the north of your
    room, and the others around it as the titles of the pages say; then measure, or fly over them
    and run `blimp tags survey`.

    Example: blimp tags print room.pdf --rows 5 --columns 7 --spacing-m 0.8
    """
    from blimp.camera.paper import print_room
    from blimp.camera.tag_map import as_toml
    from blimp.files import write_atomically

    tag_map = print_room(
        pdf, rows=rows, columns=columns, spacing_m=spacing_m, size_mm=size_mm, paper=paper
    )
    written = map_file or pdf.with_suffix(".toml")
    write_atomically(written, as_toml(tag_map).encode(), mode=0o644)
    say(f"{pdf}: the pad and {rows * columns} places; {written}: where their tags are")


@app.command()
def survey(
    pictures: Annotated[
        list[Path], typer.Argument(metavar="PICTURE...", help="JPEG or PNG, of one camera.")
    ],
    *,
    map_file: Annotated[
        Path, typer.Option("--map", metavar="FILE.toml", help="The map to begin with.")
    ],
    lens_file: Annotated[
        Path,
        typer.Option("--lens", metavar="FILE.toml", help="As `blimp camera calibrate` has it."),
    ],
    held: Annotated[
        int,
        typer.Option(
            metavar="ID", min=0, max=2114, help="The tag that stays where the map has it."
        ),
    ] = 500,
    out: Annotated[Path, typer.Option("--out", metavar="FILE.toml", help="The map to write.")],
) -> None:
    """Find where the tags of a room are, from pictures that each show two of them or more.

    Take them in flight or on foot, from 1 to 3 m above the tags, forty or more, so that each tag is
    in several and all are joined. One tag stays where the map has it; all others follow.

    Example: blimp tags survey pictures/*.jpg --map room.toml --lens lens.toml --out found.toml
    """
    from blimp.camera import lens as lenses
    from blimp.camera import tag_map as tag_maps
    from blimp.camera.survey import found_in
    from blimp.camera.survey import survey as run
    from blimp.files import write_atomically
    from blimp.scene import FAMILY

    nominal, lens = tag_maps.load(map_file), lenses.load(lens_file)
    seen, size = found_in(pictures, nominal.families, say=say)
    key = next((tag.key for tag in nominal.tags if tag.id == held), (FAMILY, held))
    found = run(seen, nominal, lenses.scaled(lens, *size), held=key)
    write_atomically(out, tag_maps.as_toml(found.tag_map).encode(), mode=0o644)
    for tag in found.tag_map.tags:
        place = f"{tag.north_m:+8.3f} {tag.east_m:+8.3f} {tag.altitude_m:+7.3f} m"
        print(f"{tag.family} {tag.id:4}  {place}  give or take {1e3 * tag.sigma_m:.1f} mm")
    for family, id in found.unseen:
        print(f"{family} {id:4}  not in two pictures that join it to the others: left out")
    say(f"{out}: {found.pictures} pictures, corners within {found.rms_px:.2f} pixels")
