"""The covariance against the same filter in plain matrices."""

from cmath import rect
from random import Random

import pytest

from blimp.control.motion import MotionCovariance

Matrix = list[list[complex]]


def times(a: Matrix, b: Matrix) -> Matrix:
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)]
        for row in a
    ]


def adjoint(a: Matrix) -> Matrix:
    return [[x.conjugate() for x in column] for column in zip(*a, strict=True)]


def full(p: MotionCovariance) -> Matrix:
    upper = [
        [complex(p.pp), p.pv, p.pb, p.pc, p.pd],
        [0j, complex(p.vv), p.vb, p.vc, p.vd],
        [0j, 0j, complex(p.bb), p.bc, p.bd],
        [0j, 0j, 0j, complex(p.cc), p.cd],
        [0j, 0j, 0j, 0j, complex(p.dd)],
    ]
    return [
        [upper[i][j] if j >= i else upper[j][i].conjugate() for j in range(5)] for i in range(5)
    ]


def begun() -> MotionCovariance:
    return MotionCovariance(
        position_m=0.3, velocity_mps=0.2, level_mps2=0.1, bias_mps2=0.05, gyro_mps3=0.02
    )


def test_it_grows_and_shrinks_as_the_matrices_do() -> None:
    chance = Random("motion")
    p, noise, drift, gyro = begun(), 1e-4, 4e-5, 1e-6
    matrix = full(p)
    for step in range(200):
        dt, turn = chance.uniform(0.01, 0.1), chance.uniform(-0.05, 0.1)
        f: Matrix = [
            [1, dt, 0, 0, 0],
            [0, 1, -dt, -dt, 0],
            [0, 0, 1, 0, dt],
            [0, 0, 0, rect(1.0, turn), 0],
            [0, 0, 0, 0, rect(1.0, turn)],
        ]
        matrix = times(times(f, matrix), adjoint(f))
        for i, q in enumerate((1e-8, noise, drift, 0.01 * drift, gyro)):
            matrix[i][i] += q * dt
        p.grow(dt, turn_rad=turn, noise=noise, drift=drift, gyro=gyro)
        what = ((1, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, -1, -1, 0))[step % 3]
        column = [sum(x * s for x, s in zip(row, what, strict=True)) for row in matrix]
        variance = sum(x * s for x, s in zip(column, what, strict=True)).real + 0.01
        columns = (p.of_position, p.of_velocity, p.of_acceleration)
        gains = p.correct(columns[step % 3], variance)
        assert gains == pytest.approx([c / variance for c in column], abs=1e-9)
        matrix = [
            [x - c * d.conjugate() / variance for x, d in zip(row, column, strict=True)]
            for row, c in zip(matrix, column, strict=True)
        ]
        for row, expected in zip(full(p), matrix, strict=True):
            assert row == pytest.approx(expected, abs=1e-9)


def test_only_a_turn_tells_the_bias_from_the_tilt() -> None:
    still, turning = begun(), begun()
    for p, turn in ((still, 0.0), (turning, 0.03)):
        p.rest(1e-5)
        for _ in range(300):
            p.grow(0.1, turn_rad=turn, noise=1e-5, drift=1e-6, gyro=1e-9)
            p.correct(p.of_position, p.pp + 0.01)
    assert still.cc**0.5 > 0.045
    assert turning.cc**0.5 < 0.02
