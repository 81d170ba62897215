"""Which gains no ship could settle with: the controller's loops in discrete time, at their best.

Position, height and yaw are each a proportional loop around a proportional-integral one, see
`blimp/control/controller.py`. Here they hold a mass without drag that is measured perfectly, by a
thruster with a lag, whose command is a cycle old. Swing, drag and the estimator are left out, so a
loop that is stable here may still fly badly; one that is not cannot settle.
"""

from collections.abc import Iterator
from math import exp

from blimp.airframe import Airframe

CYCLE_S = 0.01
DOUBLINGS = 15  # of the cycle: 328 s, in which a slow oscillation shows
GROWTH = 2.0  # over the last doubling
_ENDLESS = 1e12
_LEAST = 1e-3  # a smaller gain does nothing
_BISECTIONS = 24
LOOPS = {
    "position": ("position_p", "velocity_p", "velocity_i"),
    "height": ("height_p", "climb_p", "climb_i"),
    "yaw": ("yaw_p", "yaw_rate_p", "yaw_rate_i"),
}

Matrix = list[list[float]]


def unstable_loops(airframe: Airframe) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each loop that cannot be stable, and the most of each of its gains, the others as
    they are; a gain that alone is no cure is not among them.
    """
    lag_s = min(thruster.lag_s for thruster in airframe.thruster)
    for loop, names in LOOPS.items():
        gains = [getattr(airframe.gains, name) for name in names]
        if not is_stable(*gains, lag_s=lag_s):
            limits = {name: _most(gains, k, lag_s=lag_s) for k, name in enumerate(names)}
            yield loop, {name: most for name, most in limits.items() if most > 0.0}


def is_stable(outer_p: float, inner_p: float, inner_i: float, *, lag_s: float) -> bool:
    """Whether what the loop is left with dies out, or at least does not grow."""
    t, kept = CYCLE_S, exp(-CYCLE_S / lag_s) if lag_s > 0.0 else 0.0
    thrust = [0.0, 0.0, kept, 0.0, 1.0 - kept]
    rate = [0.0, 1.0, *(t * one for one in thrust[2:])]
    place = [1.0, *(t * one for one in rate[1:])]
    power: Matrix = [  # of place, rate, thrust, integral, and the command on its way
        place,
        rate,
        thrust,
        [-inner_i * outer_p * t, -inner_i * t, 0.0, 1.0, 0.0],
        [-inner_p * outer_p, -inner_p, 0.0, 1.0, 0.0],
    ]
    before = size = _size(power)
    for _ in range(DOUBLINGS):
        power = _squared(power)
        before, size = size, _size(power)
        if not size < _ENDLESS:  # also not a number
            return False
    return size <= GROWTH * before


def _most(gains: list[float], k: int, *, lag_s: float) -> float:
    """Return up to where the loop is stable in its `k`th gain, 0 if nowhere below what it is."""

    def stable(value: float) -> bool:
        tried = gains.copy()
        tried[k] = value
        return is_stable(*tried, lag_s=lag_s)

    low = high = gains[k]
    while not stable(low):
        low, high = 0.5 * low, low
        if low < _LEAST:
            return 0.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def _squared(matrix: Matrix) -> Matrix:
    columns = list(zip(*matrix, strict=True))
    return [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in columns]
        for row in matrix
    ]


def _size(matrix: Matrix) -> float:
    return sum(abs(value) for row in matrix for value in row)
