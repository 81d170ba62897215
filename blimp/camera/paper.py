"""Tags on paper: a PDF at its exact size, and the map of where its tags lie.

The pad's page has tags of two sizes, so that a camera that comes down on it sees one whole at every
height: 15 mm ones from the ground to .7 m, 48 mm ones to 2 m (of a 66 degree lens, 728 pixels
wide); above that the room's, one a page. Dots are 1/300 inch, and a cell of a tag is a whole
number of them, so sizes are not quite round.
"""

from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from blimp.camera.tag_map import TagMap
from blimp.errors import ConfigError
from blimp.printed import picture
from blimp.scene import FAMILIES, FAMILY, Tag

DPI = 300
PAPERS_MM = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}
PAD_IDS = 500  # from here on; the room's are below
MARGIN_MM = 9.0  # what printers leave white
_BAR_MM = 100.0
_SMALL_MM, _SMALL_GRID, _SMALL_PITCH_MM = 15.0, (6, 9), 20.0  # rows, columns
_LARGE_MM, _LARGE_PITCH_MM = 48.0, 61.0
_TEXT_MM = 3.2
_BORDER, _TOTAL = 8, 10  # cells of a tag36h11: to its corners, and with its white ring


def _dots(mm: float) -> int:
    return round(mm / 25.4 * DPI)


def printed_m(size_mm: float) -> float:
    """Return how large a tag of about this size comes out, m: its cells are whole dots."""
    return max(1, round(size_mm / 25.4 * DPI / _BORDER)) * _BORDER / DPI * 0.0254


class _Page:
    """One page, from its top left, in millimetres; its middle is where its tags are from."""

    def __init__(self, paper: str, title: str) -> None:
        self.width_mm, self.height_mm = PAPERS_MM[paper]
        self.image = Image.new("1", (_dots(self.width_mm), _dots(self.height_mm)), 1)
        self._draw = ImageDraw.Draw(self.image)
        self._font = ImageFont.load_default(size=_dots(_TEXT_MM))
        self._frame(title)

    def _frame(self, title: str) -> None:
        right, bottom = self.width_mm - MARGIN_MM, self.height_mm - MARGIN_MM
        for x in (MARGIN_MM, right):  # where to cut, and where sheets meet
            for y in (MARGIN_MM, bottom):
                self._line(x - 3.0, y, x + 3.0, y)
                self._line(x, y - 3.0, x, y + 3.0)
        bar_y = bottom - 3.0
        begin = 0.5 * (self.width_mm - _BAR_MM)
        self._line(begin, bar_y, begin + _BAR_MM, bar_y)
        for tenth in range(11):
            x = begin + 0.1 * tenth * _BAR_MM
            self._line(x, bar_y, x, bar_y - (3.0 if tenth % 5 == 0 else 1.5))
        self._text(begin, bar_y + 1.0, "This bar is 100 mm long: print at 100 %, not fitted.")
        self._text(0.5 * self.width_mm - 30.0, MARGIN_MM - 2.0, f"^ north   {title}")

    def _line(self, *ends_mm: float) -> None:
        self._draw.line([_dots(mm) for mm in ends_mm], fill=0, width=3)

    def _text(self, x_mm: float, y_mm: float, text: str) -> None:
        self._draw.text((_dots(x_mm), _dots(y_mm)), text, fill=0, font=self._font)

    def tag(self, id: int, size_mm: float, right_mm: float, up_mm: float) -> Tag:
        """Draw a tag around a place from the page's middle; return it on a page that lies there."""
        dots = max(1, round(size_mm / 25.4 * DPI / _BORDER))
        printed = Image.fromarray(picture(FAMILY, id)[0]).convert("1")
        side = _TOTAL * dots
        printed = printed.resize((side, side), Image.Resampling.NEAREST)
        x = _dots(0.5 * self.width_mm + right_mm) - side // 2
        y = _dots(0.5 * self.height_mm - up_mm) - side // 2
        self.image.paste(printed, (x, y))
        east_m = (x + 0.5 * side - 0.5 * self.image.width) / DPI * 0.0254
        north_m = (0.5 * self.image.height - y - 0.5 * side) / DPI * 0.0254
        return Tag(
            id=id, size_m=round(printed_m(size_mm), 6), north_m=round(north_m, 6),
            east_m=round(east_m, 6), sigma_m=0.0005,
        )  # fmt: skip


def pad_page(paper: str) -> tuple[Any, list[Tag]]:
    """Return the pad's page, on whose middle the ship stands, and its tags.

    Raises ConfigError for a paper that is none.
    """
    if paper not in PAPERS_MM:
        raise ConfigError(f"no paper {paper!r}: known are {', '.join(PAPERS_MM)}")
    page = _Page(paper, "pad: the ship stands on its middle")
    id, found = PAD_IDS, []
    rows, columns = _SMALL_GRID
    for row in range(rows):
        for column in range(columns):
            right_mm = (column - 0.5 * (columns - 1)) * _SMALL_PITCH_MM
            up_mm = (0.5 * (rows - 1) - row) * _SMALL_PITCH_MM
            found.append(page.tag(id, _SMALL_MM, right_mm, up_mm))
            id += 1
    up_mm = 0.5 * (rows * _SMALL_PITCH_MM + _LARGE_PITCH_MM)
    for side in (1.0, -1.0):
        for right in (-1, 0, 1):
            found.append(page.tag(id, _LARGE_MM, right * _LARGE_PITCH_MM, side * up_mm))
            id += 1
    return page.image, found


def print_room(
    file: Path, *, rows: int, columns: int, spacing_m: float, size_mm: float, paper: str
) -> TagMap:
    """Write the PDF of a pad and a grid of tags around it; return where they lie in the room.

    rows go north, columns east; the pad takes the middle, where rows and columns are odd. Raises
    ConfigError naming what is wrong, and the limit.
    """
    if paper not in PAPERS_MM:
        raise ConfigError(f"no paper {paper!r}: known are {', '.join(PAPERS_MM)}")
    widest_mm = (min(PAPERS_MM[paper]) - 2.0 * MARGIN_MM) * _BORDER / _TOTAL
    if not 20.0 <= size_mm <= widest_mm:
        raise ConfigError(f"tags of {size_mm:g} mm: {paper} holds 20 to {widest_mm:.0f} mm")
    if rows < 0 or columns < 0 or rows * columns > PAD_IDS:
        raise ConfigError(f"{rows} x {columns} tags: the limit is {PAD_IDS}")
    if not 0.2 <= spacing_m <= 20.0:
        raise ConfigError(f"{spacing_m:g} m from tag to tag: the limits are 0.2 to 20 m")
    image, tags = pad_page(paper)
    pages = [image]
    for id in range(rows * columns):
        north = (0.5 * (rows - 1) - id // columns) * spacing_m
        east = (id % columns - 0.5 * (columns - 1)) * spacing_m
        if max(abs(north), abs(east)) < 0.15:
            continue  # there is the pad's page
        page = _Page(paper, f"{FAMILY} {id}: {north:+g} m north, {east:+g} m east of the pad")
        tag = page.tag(id, size_mm, 0.0, 0.0)
        tags.append(Tag(id=id, size_m=tag.size_m, north_m=north, east_m=east, sigma_m=0.005))
        pages.append(page.image)
    assert all(tag.id < FAMILIES[FAMILY] for tag in tags)
    try:
        pages[0].save(file, "PDF", resolution=float(DPI), save_all=True, append_images=pages[1:])
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from error
    return TagMap(tags=tuple(tags))
