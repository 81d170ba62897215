"""A canvas of braille cells: two dots across and four down in every character."""

from typing import NamedTuple

# Dot bits of a braille cell by [row][column]; Unicode block U+2800.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EMPTY = 0x2800

Dot = tuple[float, float]


class Cell(NamedTuple):
    character: str
    style: str


class Canvas:
    """Dots and marks on a grid of characters; the origin is the upper left dot.

    A dot outside is left out. A cell has one style: that of what was drawn in it last.
    """

    def __init__(self, *, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self.width_dots = 2 * columns
        self.height_dots = 4 * rows
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]
        self._marks: dict[tuple[int, int], Cell] = {}

    def dot(self, x: float, y: float, style: str = "") -> None:
        column, row = round(x) // 2, round(y) // 4
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self._bits[row][column] |= _BITS[round(y) % 4][round(x) % 2]
            self._styles[row][column] = style

    def line(self, start: Dot, end: Dot, style: str = "", *, every: int = 1) -> None:
        """Draw a straight line, one dot in `every`."""
        (x0, y0), (x1, y1) = start, end
        steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
        for step in range(0, steps + 1, every):
            share = step / steps
            self.dot(x0 + share * (x1 - x0), y0 + share * (y1 - y0), style)

    def mark(self, x: float, y: float, character: str, style: str = "") -> None:
        """Put one character over the dots of its cell; the last one wins."""
        column, row = round(x) // 2, round(y) // 4
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self._marks[row, column] = Cell(character, style)

    def cells(self) -> list[list[Cell]]:
        """Return the rows of the picture, an empty cell as a space."""
        return [
            [self._cell(row, column) for column in range(self.columns)] for row in range(self.rows)
        ]

    def _cell(self, row: int, column: int) -> Cell:
        marked = self._marks.get((row, column))
        if marked is not None:
            return marked
        bits = self._bits[row][column]
        return Cell(chr(_EMPTY + bits) if bits else " ", self._styles[row][column])
