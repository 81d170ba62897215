import pytest

from blimp.sim.rigid_body import RigidBody
from blimp.types import ZERO3


def body() -> RigidBody:
    return RigidBody(
        mass_kg=2.0,
        inertia_kg_m2=(0.3, 1.0, 1.1),
        center_of_gravity_m=(0.05, -0.02, 0.3),
        added_mass_kg=(0.2, 1.5, 1.4),
        added_inertia_kg_m2=(0.0, 0.4, 0.45),
    )


def test_accelerations_solve_the_mass_matrix() -> None:
    ship = body()
    force, torque = (1.0, -2.0, 0.5), (0.1, 0.2, -0.3)
    rates = ship.accelerations(ZERO3, ZERO3, force, torque, ZERO3)
    for row, expected in zip(ship.matrix, (*force, *torque), strict=True):
        assert sum(a * b for a, b in zip(row, rates, strict=True)) == pytest.approx(expected)


def test_the_mass_matrix_is_symmetric_and_gives_the_momentum() -> None:
    ship = body()
    velocity, rates = (0.3, -0.4, 0.2), (0.1, 0.5, -0.7)
    linear, angular = ship.momentum(velocity, rates)
    for i, row in enumerate(ship.matrix):
        assert row == pytest.approx([other[i] for other in ship.matrix])
        found = sum(a * b for a, b in zip(row, (*velocity, *rates), strict=True))
        assert found == pytest.approx((*linear, *angular)[i])
    assert [ship.matrix[i][i] for i in range(3)] == pytest.approx([2.2, 3.5, 3.4])
    assert ship.matrix[5][5] == pytest.approx(1.1 + 0.45 + 2.0 * (0.05**2 + 0.02**2))


def test_inertial_forces_do_no_work() -> None:
    ship = body()
    velocity, rates = (0.3, -0.4, 0.2), (0.1, 0.5, -0.7)
    change = ship.accelerations(velocity, rates, ZERO3, ZERO3, ZERO3)
    momentum = ship.momentum(velocity, rates)
    power = sum(a * b for part, d in zip(momentum, (change[:3], change[3:]), strict=True)
                for a, b in zip(part, d, strict=True))  # fmt: skip
    assert power == pytest.approx(0.0, abs=1e-12)


def test_the_munk_moment_turns_the_hull_broadside() -> None:
    """Ahead and slipping to the right: the nose turns left, and the slip angle grows."""
    ship = RigidBody(
        mass_kg=2.0,
        inertia_kg_m2=(0.3, 1.0, 1.0),
        center_of_gravity_m=ZERO3,
        added_mass_kg=(0.25, 1.5, 1.5),
        added_inertia_kg_m2=ZERO3,
    )
    *_, yaw = ship.accelerations((0.5, 0.1, 0.0), ZERO3, ZERO3, ZERO3, ZERO3)
    # N = -(Y - X) u v, on an inertia of 1.
    assert yaw == pytest.approx(-(1.5 - 0.25) * 0.5 * 0.1)
    _, _, _, _, pitch, _ = ship.accelerations((0.5, 0.0, 0.1), ZERO3, ZERO3, ZERO3, ZERO3)
    assert pitch == pytest.approx((1.5 - 0.25) * 0.5 * 0.1)


def test_accelerating_air_moves_the_added_mass_only() -> None:
    ship = RigidBody(
        mass_kg=2.0,
        inertia_kg_m2=(1.0, 1.0, 1.0),
        center_of_gravity_m=ZERO3,
        added_mass_kg=(0.5, 0.0, 0.0),
        added_inertia_kg_m2=ZERO3,
    )
    relative, *_ = ship.accelerations(ZERO3, ZERO3, ZERO3, ZERO3, (1.0, 0.0, 0.0))
    assert relative + 1.0 == pytest.approx(0.5 / 2.5)  # of the ship over the ground
