"""Where a drawing of wires puts its boxes and its wires, so that few of them cross.

Boxes stand left and right of the header, each on the side of most of its pins. A net runs from the
header along a track of its own to its boxes; which track and which order of boxes is searched.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TypeVar

import msgspec

# All heights are multiples of GRID, headers' lines at 4 of it and boxes' at 1: none lie on another.
GRID = 6
ROW, TOP = 24, 70  # of the header's pins
LINE, GAP, HEAD = 18, 18, 48  # of a box: its lines, the gap below it, and its two lines of text
FIRST = 50  # of a box: its first wire, below its top

T = TypeVar("T")


class End(msgspec.Struct, frozen=True):
    """A wire's end at a box. y_header: where it comes in from the header; None without a pin."""

    net: str
    y_header: int | None
    label: str


class Box(msgspec.Struct, frozen=True):
    name: str
    ends: tuple[End, ...]  # from the top down
    lines: int

    @property
    def height(self) -> int:
        return HEAD + LINE * self.lines


class Side(msgspec.Struct, frozen=True):
    """Boxes with the tops they have, and nets by their tracks, the header's neighbour first."""

    boxes: tuple[tuple[Box, int], ...]
    tracks: tuple[str, ...]


def arrange(boxes: Sequence[Box], *, middle_y: int) -> Side:
    """Return the order of boxes and of tracks with the fewest crossings that swapping finds."""
    begun = sorted(boxes, key=_mean_row)

    def cost(order: Sequence[Box]) -> int:
        return _tracks(_stacked(order, middle_y))[1]

    placed = _stacked(_swapped(begun, cost), middle_y)
    return Side(placed, _tracks(placed)[0])


def _mean_row(box: Box) -> float:
    rows = [end.y_header for end in box.ends if end.y_header is not None]
    return sum(rows) / len(rows) if rows else float("inf")


def _stacked(boxes: Sequence[Box], middle_y: int) -> tuple[tuple[Box, int], ...]:
    """Put boxes below each other, round the middle, but not above the header."""
    whole = sum(box.height + GAP for box in boxes) - GAP
    y = max(TOP - 16, middle_y - whole // 2)
    y += (5 - y) % GRID
    placed = []
    for box in boxes:
        placed.append((box, y))
        y += box.height + GAP
    return tuple(placed)


def _tracks(placed: Sequence[tuple[Box, int]]) -> tuple[tuple[str, ...], int]:
    """Return the best order of nets, and how often they cross."""
    headers: dict[str, set[int]] = {}
    ports: dict[str, set[int]] = {}
    for box, top in placed:
        for i, end in enumerate(box.ends):
            if end.y_header is not None:
                headers.setdefault(end.net, set()).add(end.y_header)
                ports.setdefault(end.net, set()).add(top + FIRST + i * LINE)
    spans = {net: _span(headers[net] | ports[net]) for net in headers}

    def crossings(near: str, far: str) -> int:
        """Between two nets, if `near` has the track nearer to the header."""
        low, high = spans[near]
        found = sum(low < y < high for y in headers[far])
        low, high = spans[far]
        return found + sum(low < y < high for y in ports[near])

    table = {(a, b): crossings(a, b) for a in headers for b in headers if a != b}

    def cost(order: Sequence[str]) -> int:
        return sum(table[pair] for pair in combinations(order, 2))

    best = _swapped(sorted(headers, key=lambda net: min(headers[net])), cost)
    return tuple(best), cost(best)


def _span(ys: set[int]) -> tuple[int, int]:
    return min(ys), max(ys)


def _swapped(begun: Sequence[T], cost: Callable[[Sequence[T]], int]) -> list[T]:
    """Return the order that no exchange of two, and no move of one, makes better."""
    best, least = list(begun), cost(begun)
    better = True
    while better:
        better = False
        for i in range(len(best)):
            for j in range(len(best)):
                for tried in (_exchanged(best, i, j), _moved(best, i, j)):
                    found = cost(tried)
                    if found < least:
                        best, least, better = tried, found, True
    return best


def _exchanged(items: Sequence[T], i: int, j: int) -> list[T]:
    tried = list(items)
    tried[i], tried[j] = tried[j], tried[i]
    return tried


def _moved(items: Sequence[T], i: int, j: int) -> list[T]:
    tried = list(items)
    tried.insert(j, tried.pop(i))
    return tried
