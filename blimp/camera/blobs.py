"""Blobs of a colour: balloons, gates, a coloured jersey. Without a network, on every fourth pixel.

The light is taken out first: what has no colour of its own is made grey, and hues are compared
after that. Pixels of one colour that touch are one blob (runs of each row, joined where they touch
one of the row above).
"""

from collections.abc import Iterable
from math import pi
from typing import Any

import msgspec
import numpy as np

from blimp.camera.frame import Frame

# Hues in degrees, red 0, green 120. Chosen on drawn balloons; tests/camera/test_blobs.py has them
# in white, dim, warm and cold light.
HUES = {"red": 355.0, "orange": 26.0, "yellow": 55.0, "green": 140.0, "blue": 228.0, "pink": 330.0}
COLUMNS = 160  # of what is looked at: a balloon of 28 cm has 5 of them at 7 m
_NEAR_DEG = 14.0  # half of what is between orange and yellow
_PALE = 0.38  # (most - least) / most: paler is a wall in coloured light, not a balloon
_DARK = 26.0  # of 255, the strongest channel: darker is noise
_GREY = 0.45  # as saturated at most is what tells the light: a bulb of 2,700 K makes white paper .4
_GREY_SHARE = 0.1  # of the picture; with less of it the light is what it was
_FOLLOWS = 0.2  # of a new light in a picture: it changes slower than what is in view
_LEAST = 6  # pixels of a blob, of those looked at
_MOST_BLOBS = 8  # of one picture, the largest
_MOST_RUNS = 4000  # more is a carpet: the shortest are left out
_RING = 0.5  # of its box: a blob that fills less is a frame, and its box is its size

Array = np.ndarray[Any, np.dtype[Any]]


class SeenBox(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a picture: kind, its middle and size in pixels of the frame, 0 to 1."""

    kind: str
    x_px: float
    y_px: float
    width_px: float
    height_px: float
    confidence: float = 1.0


class ColourBlobs:
    """Finds blobs of these colours, of HUES. Use it from one thread: it remembers the light."""

    def __init__(self, colours: Iterable[str]) -> None:
        self._colours = tuple(colours)
        self._light = np.ones(3, np.float32)

    def find(self, frame: Frame, /) -> list[SeenBox]:
        """Return the largest blobs, largest first."""
        step = max(1, frame.pixels.shape[1] // COLUMNS)
        pixels = frame.pixels[::step, ::step].astype(np.float32)
        self._learn_light(pixels)
        hue_deg, coloured = _hues(pixels * self._light)
        found: list[tuple[int, SeenBox]] = []
        for colour in self._colours:
            off = np.abs((hue_deg - HUES[colour] + 180.0) % 360.0 - 180.0)
            for area, left, top, width, height in blobs(coloured & (off < _NEAR_DEG)):
                box = _box(colour, area, left, top, width, height, coloured.shape, step)
                found.append((area, box))
        found.sort(key=lambda one: -one[0])
        return [box for _, box in found[:_MOST_BLOBS]]

    def _learn_light(self, pixels: Array) -> None:
        """Scale the channels so that what is nearly grey now is grey."""
        white = pixels * self._light
        most, least = white.max(axis=2), white.min(axis=2)
        grey = (most - least < _GREY * most) & (most > _DARK) & (pixels.max(axis=2) < 250.0)
        if grey.mean() < _GREY_SHARE:
            return
        mean = pixels[grey].mean(axis=0)
        light = mean.mean() / mean
        self._light += np.float32(_FOLLOWS) * (light.astype(np.float32) - self._light)


def _hues(pixels: Array) -> tuple[Array, Array]:
    """Return the hue of each pixel in degrees, and whether it has a colour at all."""
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    most, least = pixels.max(axis=2), pixels.min(axis=2)
    span = np.maximum(most - least, 1e-3)
    hue = np.where(
        most == red,
        (green - blue) / span,
        np.where(most == green, 2.0 + (blue - red) / span, 4.0 + (red - green) / span),
    )
    return 60.0 * hue % 360.0, (span > _PALE * most) & (most > _DARK)


def blobs(mask: Array) -> list[tuple[int, int, int, int, int]]:
    """Return area, left, top, width and height of each blob of a (height, width) of bool."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask
    edges = np.diff(padded, axis=1)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    if len(rows) > _MOST_RUNS:
        keep = np.sort(np.argsort(ends - starts)[-_MOST_RUNS:])
        rows, starts, ends = rows[keep], starts[keep], ends[keep]
    runs = list(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True))
    root = list(range(len(runs)))

    def top_of(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    above, first = 0, 0  # the runs of the row above are above..first
    for i, (row, start, end) in enumerate(runs):
        if i and row != runs[i - 1][0]:
            above, first = first, i
        j = above
        while j < first and runs[j][0] == row - 1 and runs[j][1] < end:
            if runs[j][2] > start:
                root[top_of(i)] = top_of(j)
            if runs[j][2] < start:
                above = j + 1
            j += 1
    boxes: dict[int, list[int]] = {}
    for i, (row, start, end) in enumerate(runs):
        box = boxes.setdefault(top_of(i), [0, start, row, end, row])
        box[0] += end - start
        box[1], box[3] = min(box[1], start), max(box[3], end)
        box[4] = row
    return [
        (area, left, top, right - left, bottom + 1 - top)
        for area, left, top, right, bottom in boxes.values()
        if area >= _LEAST
    ]


def _box(
    colour: str,
    area: int,
    left: int,
    top: int,
    width: int,
    height: int,
    shape: tuple[int, ...],
    step: int,
) -> SeenBox:
    """Return a blob in pixels of the frame. A disc's size is that of its area: its rim is noise."""
    fills = area / (0.25 * pi * width * height)  # 1 for a disc
    cut = left == 0 or top == 0 or left + width == shape[1] or top + height == shape[0]
    wide, high = float(width), float(height)
    if cut:  # of a disc that is half out of view, the longer side is its diameter
        wide = high = max(wide, high)
    elif fills > _RING:
        scale = (area / (0.25 * pi * width * height)) ** 0.5
        wide, high = wide * scale, high * scale
    return SeenBox(
        kind=colour,
        x_px=step * (left + 0.5 * (width - 1)),
        y_px=step * (top + 0.5 * (height - 1)),
        width_px=step * wide,
        height_px=step * high,
        confidence=round(min(1.0, fills) * min(1.0, area / 40.0), 2),
    )
