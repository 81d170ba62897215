"""The little linear algebra that the mixer and the check of the wires need."""

from collections.abc import Sequence

Column = tuple[float, float, float, float, float, float]  # force and torque, of one newton or all
NOTHING: Column = (0.0,) * 6  # of a thruster that is dead, or a fin in still air


def less(a: Column, b: Sequence[float]) -> Column:
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2], a[3] - b[3], a[4] - b[4], a[5] - b[5])


def weighted_pseudo_inverse(
    columns: Sequence[Column], weights: Column, effort: Sequence[float]
) -> list[Column]:
    """Return rows of (BᵀWB + R)⁻¹BᵀW: the inputs that least miss a wished-for output.

    columns: B, one column of six an input. weights: diagonal of W, one an output.
    effort: diagonal of R, one an input; positive, so that the inverse always exists.
    """
    n = len(columns)
    normal = [
        [
            sum(w * a * b for w, a, b in zip(weights, columns[i], columns[j], strict=True))
            + (effort[i] if i == j else 0.0)
            for j in range(n)
        ]
        for i in range(n)
    ]
    right = [[w * c for w, c in zip(weights, columns[i], strict=True)] for i in range(n)]
    solved = solve(normal, right)
    return [(r[0], r[1], r[2], r[3], r[4], r[5]) for r in solved]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> list[list[float]]:
    """Solve `matrix @ x = right` by Gauss-Jordan elimination with partial pivoting.

    Raises ValueError if the matrix is singular.
    """
    n = len(matrix)
    rows = [[*matrix[i], *right[i]] for i in range(n)]
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        if abs(rows[pivot][k]) < 1e-15:
            raise ValueError(f"the matrix is singular in column {k}")
        rows[k], rows[pivot] = rows[pivot], rows[k]
        divisor = rows[k][k]
        rows[k] = [value / divisor for value in rows[k]]
        for i in range(n):
            factor = rows[i][k]
            if i != k and factor != 0.0:
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[n:] for row in rows]
