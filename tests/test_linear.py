import pytest

from blimp.linear import Column, solve, weighted_pseudo_inverse


def test_solve_pivots_where_the_diagonal_is_zero() -> None:
    solution = solve([[0.0, 2.0], [4.0, 1.0]], [[2.0], [9.0]])
    assert solution == [[pytest.approx(2.0)], [pytest.approx(1.0)]]


def test_solve_refuses_a_singular_matrix() -> None:
    with pytest.raises(ValueError, match="singular in column 1"):
        solve([[1.0, 2.0], [2.0, 4.0]], [[1.0], [2.0]])


def test_pseudo_inverse_of_two_equal_thrusters_shares_the_force() -> None:
    column: Column = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    rows = weighted_pseudo_inverse([column, column], (1.0,) * 6, (1e-9, 1e-9))
    assert rows[0][0] == pytest.approx(0.5, rel=1e-6)
    assert rows[1][0] == pytest.approx(0.5, rel=1e-6)


def test_pseudo_inverse_inverts_where_it_can() -> None:
    columns: list[Column] = [
        (1.0, 0.0, 0.0, 0.0, 0.0, -0.5),
        (1.0, 0.0, 0.0, 0.0, 0.0, 0.5),
        (0.0, 1.0, 0.0, 0.0, 0.0, -1.2),
    ]
    rows = weighted_pseudo_inverse(columns, (1.0, 1.0, 1.0, 0.0, 0.0, 1.0), (1e-9,) * 3)
    for axis, expected in ((0, (1.0, 0.0, 0.0)), (1, (0.0, 1.0, 0.0)), (5, (0.0, 0.0, 1.0))):
        thrusts = [row[axis] for row in rows]
        got = [sum(t * c[k] for t, c in zip(thrusts, columns, strict=True)) for k in (0, 1, 5)]
        assert got == pytest.approx(expected, abs=1e-6)
