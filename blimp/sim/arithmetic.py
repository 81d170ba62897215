"""What the physics needs beside + - * /, for single ships and for arrays of ships.

The equations are written once. With `SCALARS` they step one ship in plain floats, which on three
components are several times faster than arrays; `blimp/sim/batch.py` passes numpy's functions and
steps thousands of ships at once.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Arithmetic(NamedTuple):
    """clamp(value, low, high); choose(condition, if_true, if_false); interpolate(x, xs, ys)."""

    sqrt: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    sin: Callable[[Any], Any]
    cos: Callable[[Any], Any]
    log: Callable[[Any], Any]
    atan2: Callable[[Any, Any], Any]
    clamp: Callable[[Any, Any, Any], Any]
    choose: Callable[[Any, Any, Any], Any]
    interpolate: Callable[[Any, Sequence[float], Sequence[float]], Any]


def _clamp(value: float, low: float, high: float) -> float:
    return low if value < low else high if value > high else value


def _choose(condition: bool, if_true: float, if_false: float) -> float:
    return if_true if condition else if_false


def _interpolate(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return y at x on the straight lines through the points; at an end beyond it."""
    i = min(max(bisect_right(xs, x), 1), len(xs) - 1)
    share = _clamp((x - xs[i - 1]) / (xs[i] - xs[i - 1]), 0.0, 1.0)
    return ys[i - 1] + share * (ys[i] - ys[i - 1])


SCALARS = Arithmetic(
    sqrt=math.sqrt,
    exp=math.exp,
    sin=math.sin,
    cos=math.cos,
    log=math.log,
    atan2=math.atan2,
    clamp=_clamp,
    choose=_choose,
    interpolate=_interpolate,
)
