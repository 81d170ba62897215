"""What floor, walls and sky look like: one table of colours that a frame takes its pixels from."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FLOOR_CELLS = 1024  # of the floor's pattern, which repeats after them
FLOOR_M = 0.01  # a cell
WALL_CELLS = 256
WALL_M = 0.04
LEVELS = 6  # of halved detail, for floors far below
_SKY = 256  # shades, from the horizon up
_WALL_SHADES = (0.85, 0.7, 1.0)  # walls north and south, east and west, ceiling


class Atlas(NamedTuple):
    """colours: (n, 4) uint8, the last of them unused, seen as one number each; grey: (n,).

    floor: where the floor begins at each level. walls: where walls and ceiling begin. sky: where
    the sky's shades begin, the horizon first.
    """

    colours: Array
    grey: Array
    floor: tuple[int, ...]
    walls: tuple[int, int, int]
    sky: int


def grey_of(colour: Array) -> Array:
    """Return the luma (BT.601) of colours (..., 3 or 4)."""
    grey: Array = colour[..., :3] @ np.array([0.299, 0.587, 0.114], np.float32)
    return grey


@lru_cache(maxsize=4)
def atlas(seed: int) -> Atlas:
    random = np.random.default_rng(seed)
    floor = _noise(random, FLOOR_CELLS, low=70.0, high=190.0)
    parts: list[Array] = []
    starts: list[int] = []
    for _ in range(LEVELS):
        starts.append(sum(len(part) for part in parts))
        parts.append(_tinted(floor, (1.0, 0.96, 0.88)))
        floor = floor.reshape(len(floor) // 2, 2, -1, 2).mean(axis=(1, 3))
    wall = _noise(random, WALL_CELLS, low=120.0, high=210.0)
    wall[::32] *= 0.8  # seams
    for shade in _WALL_SHADES:
        starts.append(sum(len(part) for part in parts))
        parts.append(_tinted(shade * wall, (0.97, 0.98, 1.0)))
    starts.append(sum(len(part) for part in parts))
    parts.append(_tinted(np.linspace(215.0, 150.0, _SKY)[None], (0.85, 0.93, 1.0)))
    colours = np.concatenate(parts)
    packed = np.ascontiguousarray(colours).view(np.uint32)[:, 0]
    grey = np.rint(grey_of(colours)).astype(np.uint8)
    at = tuple(starts)
    return Atlas(packed, grey, at[:LEVELS], (at[LEVELS], at[LEVELS + 1], at[LEVELS + 2]), at[-1])


def _tinted(luminance: Array, tint: tuple[float, float, float]) -> Array:
    colours = np.zeros((luminance.size, 4), np.uint8)
    colours[:, :3] = np.rint(np.clip(luminance.reshape(-1, 1) * np.array(tint), 0.0, 255.0))
    return colours


def _noise(random: np.random.Generator, cells: int, *, low: float, high: float) -> Array:
    """Return a pattern that repeats, with detail of every size: values from `low` to `high`."""
    pattern = np.zeros((4, 4))
    while True:
        pattern += random.random(pattern.shape) - 0.5
        if len(pattern) == cells:
            break
        pattern = pattern.repeat(2, axis=0).repeat(2, axis=1)
        for axis in (0, 1):  # no edges but of the finest grain
            pattern = 0.5 * (pattern + np.roll(pattern, 1, axis))
    span = np.percentile(pattern, (2.0, 98.0))
    noise: Array = low + (high - low) * (pattern - span[0]) / (span[1] - span[0])
    return np.clip(noise, 0.0, 255.0)
