"""How fast a ship may climb, by the room that is left below its ceiling."""

import pytest
from msgspec import structs

from blimp import airframe as airframes
from blimp.control.ceiling import Ceiling
from blimp.control.modes.mode import Ship
from blimp.control.weight import UNKNOWN_WEIGHT
from blimp.geofence import Geofence
from blimp.types import ActuatorCommand, Setpoint, Vec3
from tests.control.parts import at

UP = Setpoint(thrust_body=(0.0, 0.0, -1.0))


def a_ship(name: str = "twin", *, ceiling_m: float | None = 4.0) -> Ship:
    ship = Ship(
        airframe=airframes.load(name),
        weight=lambda: UNKNOWN_WEIGHT,
        wind_mps=lambda: (0.0, 0.0),
        steers=True,
    )
    ship.area.fence = Geofence(ceiling_m=ceiling_m)
    return ship


def climb(mps: float) -> Vec3:
    return (0.0, 0.0, -mps)


@pytest.mark.parametrize("name", ["twin", "gtmab", "hobby", "blimp2b"])
@pytest.mark.parametrize("ceiling_m", [3.0, None])
def test_what_climbs_as_it_may_stops_under_the_ceiling(name: str, ceiling_m: float | None) -> None:
    """The climb loop is of first order here, and motors follow at once."""
    ship = a_ship(name, ceiling_m=ceiling_m)
    limit_m = ceiling_m or ship.airframe.limits.max_altitude_m
    edge, altitude_m, climb_mps = Ceiling(ship=ship), limit_m - 3.0, 0.0
    for step in range(6000):
        state = at(altitude_m=altitude_m, t_s=0.01 * step, velocity_ned_mps=climb(climb_mps))
        most_mps = edge.under(UP, state).climb_mps
        wish_mps = 0.8 if most_mps is None else min(0.8, most_mps)
        climb_mps += 0.01 * ship.airframe.gains.climb_p * (wish_mps - climb_mps)
        altitude_m += 0.01 * climb_mps
        assert altitude_m < limit_m + 0.02
    assert altitude_m == pytest.approx(limit_m, abs=0.05)


def test_far_below_the_ceiling_a_setpoint_is_left_as_it_is() -> None:
    edge = Ceiling(ship=a_ship(ceiling_m=30.0))
    assert edge.under(UP, at(altitude_m=2.0)) is UP
    unknown = at(altitude_m=29.9, height_valid=False)
    assert edge.under(UP, unknown) is UP


def test_above_the_ceiling_it_sinks_gently_and_no_place_is_above_it() -> None:
    edge = Ceiling(ship=a_ship())
    found = edge.under(Setpoint(position_ned_m=(1.0, 2.0, -6.0)), at(altitude_m=6.0))
    assert found.position_ned_m == (1.0, 2.0, -4.0)
    assert found.climb_mps == -a_ship().airframe.limits.touchdown_mps


def test_orders_in_manual_that_climb_into_the_ceiling_wait_below_it() -> None:
    edge = Ceiling(ship=a_ship())
    orders = Setpoint(actuators=ActuatorCommand(motors=(0.8, 0.8, 0.0), servos=()))
    slow = at(altitude_m=3.0, t_s=1.0, velocity_ned_mps=climb(0.1))
    assert edge.under(orders, slow) is orders
    fast = at(altitude_m=3.5, t_s=2.0, velocity_ned_mps=climb(0.4))
    assert edge.under(orders, fast).position_ned_m == (None, None, -3.5)
    assert edge.under(orders, structs.replace(slow, t_s=3.9)).actuators is None
    assert edge.under(orders, structs.replace(slow, t_s=4.1)) is orders
    carried = Setpoint(actuators=ActuatorCommand(motors=(0.0, 0.0, 0.0), servos=()))
    assert edge.under(carried, structs.replace(fast, t_s=9.0)) is carried  # perhaps by a person
