"""What accelerometer and gyro answer to a push, and how likely an answer is.

An answer is a number an axis: the readings along the shape that a push leaves, without the offset,
the drift and the swing that were there before it. It is reckoned for a newton of a thruster on a
ship that is free but for its weight. What holds the ship leaves a share of it, by axis the same of
all pushes.
"""

from collections.abc import Sequence
from math import acos, cos, exp, hypot, log, sin, sqrt

from blimp.airframe import Airframe, Thruster
from blimp.constants import GRAVITY_MPS2
from blimp.linear import solve
from blimp.vector import cross, dot
from blimp.wires.hypotheses import Mount, RealPush

BEFORE_S, PUSH_S, _AFTER_S = 0.4, 0.5, 0.6  # of a push: shorter than a loose hold swings
STEP_S = 0.05  # of the readings that are averaged before they are weighed
COUNT = round((BEFORE_S + PUSH_S + _AFTER_S) / STEP_S)
_MODEL_S = 0.01  # step of the model
_SHOWS_RAD = 2.0  # of its turn within a push; a slower swing is a drift there
AXES = range(6)  # acceleration forward, right, down; rates of roll, pitch and yaw

# What is not known exactly, as deviations.
_OWN = 0.15  # of an answer: thrust, battery, mass (`effect.py` has 12 % and 6 %)
_LEAK = 0.12  # of the strongest answer on an axis: what a hold turns from one axis to another
_ACCEL_NOISE_MPS2 = 0.004  # at the least: a chip of 400 ug per square root of a hertz, averaged
_RATE_NOISE_RADPS2 = 0.002  # see above, 0.01 degrees/s per square root of a hertz
_LEVEL_RAD = 0.15  # a ship that a person holds level, with a board that is so on it
TAKEN = (0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25)  # shares of an answer that a hold leaves

Answer = tuple[float, ...]  # by axis
Rows = Sequence[Sequence[float]]


def inverse_mass(airframe: Airframe) -> list[list[float]]:
    """Return the inverse of the mass matrix about the hull's centre, of ship and moved air."""
    mass, aero, m = airframe.mass, airframe.aero, airframe.mass_kg
    x, y, z = at = mass.center_of_gravity_m
    lever = ((0.0, -m * z, m * y), (m * z, 0.0, -m * x), (-m * y, m * x, 0.0))
    xy, xz, yz = mass.products_kg_m2
    products = ((0.0, xy, xz), (xy, 0.0, yz), (xz, yz, 0.0))
    matrix = [
        *(
            [(m + aero.added_mass_kg[i]) * (i == j) for j in range(3)]
            + [-lever[i][j] for j in range(3)]
            for i in range(3)
        ),
        *(
            [*lever[i]]
            + [
                (mass.inertia_kg_m2[i] + aero.added_inertia_kg_m2[i] + m * dot(at, at)) * (i == j)
                - m * at[i] * at[j]
                - products[i][j]
                for j in range(3)
            ]
            for i in range(3)
        ),
    ]
    return solve(matrix, [[float(i == j) for j in range(6)] for i in range(6)])


def swings_radps(airframe: Airframe, inverse: Rows) -> list[float]:
    """Return the frequencies of roll and pitch that show within a push."""
    stiff_nm = airframe.mass_kg * GRAVITY_MPS2 * airframe.mass.center_of_gravity_m[2]
    swings = [sqrt(max(0.0, stiff_nm * inverse[axis][axis])) for axis in (3, 4)]
    if abs(swings[0] - swings[1]) < 0.1 * swings[0]:
        swings = swings[:1]
    return [swing for swing in swings if swing * COUNT * STEP_S > _SHOWS_RAD]


def answer_of(
    airframe: Airframe,
    inverse: Rows,
    source: RealPush,
    weights: Rows,
) -> Answer:
    """Return the answer of a ship that is free but for its weight to a newton of a thruster."""
    thruster, aero = airframe.thruster[source.thruster], airframe.aero
    x, y, z = at = airframe.mass.center_of_gravity_m
    push = _pushed(airframe, thruster, source.tilt_rad)
    weight_n = airframe.mass_kg * GRAVITY_MPS2
    speed, angles, thrust = [0.0] * 6, [0.0] * 3, 0.0
    share = _MODEL_S / (_MODEL_S + thruster.lag_s)
    rows = [[0.0] * 6 for _ in range(COUNT)]
    per = round(STEP_S / _MODEL_S)
    for step in range(COUNT * per):
        t_s = step * _MODEL_S
        thrust += share * ((BEFORE_S <= t_s < BEFORE_S + PUSH_S) - thrust)
        roll, pitch, _ = angles
        # Weight pulls at the centre of gravity along (-pitch, roll, 1), less where it stood.
        gravity = (-z * roll, -z * pitch, x * roll + y * pitch)
        loads = [thrust * push[i] - aero.linear_drag[i] * speed[i] for i in AXES]
        for i in range(3):
            loads[3 + i] += weight_n * gravity[i]
        rates = [sum(a * b for a, b in zip(row, loads, strict=True)) for row in inverse]
        speed = [v + _MODEL_S * rate for v, rate in zip(speed, rates, strict=True)]
        angles = [a + _MODEL_S * v for a, v in zip(angles, speed[3:], strict=True)]
        px, py, pz = cross((rates[3], rates[4], rates[5]), at)
        felt = (
            rates[0] + px + GRAVITY_MPS2 * angles[1],
            rates[1] + py - GRAVITY_MPS2 * angles[0],
            rates[2] + pz,
            *speed[3:],
        )
        row = rows[step // per]
        row[:] = [total + value / per for total, value in zip(row, felt, strict=True)]
    return reduce(weights, rows)


def moved_by(airframe: Airframe, inverse: Rows, thruster: Thruster) -> list[float]:
    """Return the first acceleration by a newton, its servo at neutral, along and about the axes."""
    push = _pushed(airframe, thruster, 0.0)
    return [sum(a * b for a, b in zip(row, push, strict=True)) for row in inverse]


def _pushed(airframe: Airframe, thruster: Thruster, tilt_rad: float) -> tuple[float, ...]:
    """Return force and torque about the hull's centre of a newton, so far from neutral."""
    neutral = (s.neutral_rad for s in airframe.servo if s.name == thruster.tilted_by)
    axis = thruster.axis_at(next(neutral, 0.0) + tilt_rad)
    return (*axis, *cross(thruster.position_m, axis))


def weights_of(swings_radps: Sequence[float]) -> list[list[float]]:
    """Return by axis what a reading counts: the push's shape without what was there before it.

    That is an offset, a drift and a swing at the ship's own frequencies.
    """
    times = [STEP_S * (k - 0.5 * (COUNT - 1)) for k in range(COUNT)]
    before = [[1.0] * COUNT, times]
    before += [[wave(swing * t) for t in times] for swing in swings_radps for wave in (cos, sin)]
    basis: list[list[float]] = []
    for one in before:
        left = _without(one, basis)
        size = sqrt(sum(v * v for v in left))
        basis.append([v / size for v in left])
    speed, ramp = 0.0, 0.0
    shapes: list[list[float]] = [[], []]
    for k in range(COUNT):
        on = BEFORE_S - 1e-9 <= k * STEP_S < BEFORE_S + PUSH_S - 1e-9
        speed += STEP_S / (STEP_S + 0.1) * (on - speed)  # 0.1 s: a motor's usual lag
        ramp += STEP_S * speed
        shapes[0].append(speed)
        shapes[1].append(ramp)
    weights = []
    for shape in shapes:
        left = _without(shape, basis)
        size = sum(a * b for a, b in zip(left, shape, strict=True))
        weights.append([v / size for v in left])
    return [weights[0]] * 3 + [weights[1]] * 3


def _without(values: Sequence[float], basis: Rows) -> list[float]:
    left = [*values]
    for one in basis:
        share = sum(a * b for a, b in zip(left, one, strict=True))
        left = [a - share * b for a, b in zip(left, one, strict=True)]
    return left


def reduce(weights: Rows, rows: Rows) -> Answer:
    return tuple(
        sum(w * row[axis] for w, row in zip(weights[axis], rows, strict=True)) for axis in AXES
    )


def turned(mount: Mount, read: Sequence[float], *, square: bool = False) -> Answer:
    """Return along the ship's axes what was read; square: of variances."""
    return tuple(
        sum(
            (row[axis] ** 2 if square else row[axis]) * read[part + i]
            for i, row in enumerate(mount)
        )
        for part in (0, 3)
        for axis in range(3)
    )


def plumb_likelihood(mount: Mount, read: Sequence[float]) -> float:
    """Return the log likelihood of the plumb line."""
    size = max(1e-6, hypot(*read))
    up = sum(row[2] * value for row, value in zip(mount, read, strict=True)) / size
    off = acos(max(-1.0, min(1.0, -up)))
    return -0.5 * (off / _LEVEL_RAD) ** 2


def scatter(felt: Sequence[Sequence[Answer]]) -> tuple[list[Answer], Answer]:
    """Return each trial's mean answer, and the variance of one answer by axis."""
    means = [
        tuple(sum(one[axis] for one in pushes) / len(pushes) for axis in AXES) for pushes in felt
    ]
    freedom = sum(len(pushes) - 1 for pushes in felt)
    least = (_ACCEL_NOISE_MPS2,) * 3 + (_RATE_NOISE_RADPS2,) * 3
    noise = tuple(
        max(
            least[axis] ** 2,
            sum(
                (one[axis] - mean[axis]) ** 2
                for mean, pushes in zip(means, felt, strict=True)
                for one in pushes
            )
            / freedom,
        )
        for axis in AXES
    )
    return means, noise


def likelihoods(
    mean: Answer,
    noise: Answer,
    given: Sequence[float],
    strongest: Sequence[float],
    *,
    pushes: int,
    freedom: int,
) -> list[list[float]]:
    """Return log likelihoods of an answer, by axis and by the share that the hold leaves."""
    reach = max(
        abs(a) / most if most > 0.0 else 0.0 for a, most in zip(given, strongest, strict=True)
    )
    table = []
    for axis in AXES:
        row = []
        for share in TAKEN:
            doubt = (_OWN * share * given[axis]) ** 2 + (_LEAK * reach * strongest[axis]) ** 2
            variance = noise[axis] / pushes + doubt
            far = (mean[axis] - share * given[axis]) ** 2 / variance
            row.append(-0.5 * ((freedom + 1) * log(1.0 + far / freedom) + log(variance)))
        table.append(row)
    return table


def unknown_likelihood(
    mean: Answer, noise: Answer, strongest: Sequence[float], *, pushes: int, freedom: int
) -> float:
    """Return the log likelihood of an answer of which no more is known than how strong any is."""
    total = 0.0
    for axis in AXES:
        variance = noise[axis] / pushes + strongest[axis] ** 2
        far = mean[axis] ** 2 / variance
        total -= 0.5 * ((freedom + 1) * log(1.0 + far / freedom) + log(variance))
    return total


def log_mean(values: Sequence[float]) -> float:
    return log_sum(values) - log(len(values))


def log_sum(values: Sequence[float]) -> float:
    most = max(values)
    return most + log(sum(exp(value - most) for value in values))
