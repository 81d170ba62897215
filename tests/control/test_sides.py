"""Where a stick that pushes at the fence leaves the ship: it is held inside, and may come back."""

from math import pi

import pytest
from msgspec import structs

from blimp.control.modes.velocity import Velocity
from blimp.control.sides import Sides
from blimp.geofence import Geofence, Zone
from blimp.rotation import from_euler
from blimp.types import Setpoint, VehicleState
from tests.control.parts import a_ship, at

AHEAD = Setpoint(position_ned_m=(None, None, -2.0), thrust_body=(1.0, 0.0, None))
BACK = Setpoint(position_ned_m=(None, None, -2.0), thrust_body=(-1.0, 0.0, None))
FREE = Setpoint(position_ned_m=(None, None, -2.0), thrust_body=(0.0, 0.0, None))


def sides(*zones: Zone, steers: bool = False) -> Sides:
    ship = a_ship(steers=steers)
    ship.area.fence = Geofence(zones=zones or (Zone(circle=(0.0, 0.0, 10.0)),))
    return Sides(ship=ship)


def moving(north_m: float, north_mps: float, yaw_rad: float = 0.0) -> VehicleState:
    return at(
        north_m=north_m, velocity_ned_mps=(north_mps, 0.0, 0.0),
        attitude=from_euler(0.0, 0.0, yaw_rad),
    )  # fmt: skip


def test_a_wish_that_leads_over_the_line_becomes_a_place_inside() -> None:
    edge = sides()
    for north_m in (0.0, 1.0, 4.0):
        assert edge.within(AHEAD, moving(north_m, 0.5), steered=True) is AHEAD
    found = edge.within(AHEAD, moving(8.5, 0.5), steered=True)
    assert edge.holds
    assert found.thrust_body == (None, None, None)
    held_m, east_m, down_m = found.position_ned_m
    assert 8.5 <= (held_m or 0.0) <= 9.5
    assert (east_m, down_m) == (0.0, -2.0)
    for state, wish in ((moving(9.0, 0.0), AHEAD), (moving(9.0, 0.0), FREE)):
        assert edge.within(wish, state, steered=True).position_ned_m[0] == held_m
    assert edge.within(BACK, moving(9.0, 0.0), steered=True) is BACK
    assert not edge.holds


def test_forward_is_where_the_nose_points() -> None:
    edge = sides()
    assert edge.within(BACK, moving(9.4, 0.3, pi), steered=True).position_ned_m[0] is not None
    assert edge.within(AHEAD, moving(9.4, 0.0, pi), steered=True) is AHEAD  # to the south


def test_a_faster_ship_and_one_that_brakes_by_its_nose_are_held_sooner() -> None:
    def first_m(speed_mps: float, *, steers: bool = False) -> float:
        edge = sides(steers=steers)
        return next(
            0.01 * cm
            for cm in range(1000)
            if edge.within(AHEAD, moving(0.01 * cm, speed_mps), steered=True) is not AHEAD
        )

    assert first_m(0.6) < first_m(0.3) < 9.0
    assert first_m(0.3, steers=True) < first_m(0.3)


def test_what_no_stick_steers_and_a_ship_without_place_or_fence_are_left_alone() -> None:
    fast = moving(9.4, 0.6)
    assert sides().within(AHEAD, fast, steered=False) is AHEAD
    lost = structs.replace(fast, position_valid=False)
    assert sides().within(AHEAD, lost, steered=True) is AHEAD
    edge = sides()
    edge.within(AHEAD, fast, steered=True)
    edge.within(AHEAD, fast, steered=False)  # another mode flew meanwhile
    assert not edge.holds


def test_a_zone_to_stay_out_of_has_a_side_too() -> None:
    around, tree = Zone(circle=(0.0, 0.0, 50.0)), Zone(circle=(8.0, 0.0, 2.0), exclude=True)
    edge = sides(around, tree)
    found = edge.within(AHEAD, moving(5.0, 0.4), steered=True)
    assert 5.0 <= (found.position_ned_m[0] or 0.0) <= 5.5
    assert edge.within(BACK, moving(5.4, 0.0), steered=True) is BACK


@pytest.mark.parametrize("by_stick", [False, True])
def test_a_velocity_is_steered_by_a_stick_alone(by_stick: bool) -> None:
    state = at()
    ship = sides()._ship
    mode = Velocity(state, ship=ship, velocity_ned_mps=(0.3, 0.0, 0.0), seconds=2.0)
    if by_stick:
        mode.steer(state, (0.3, 0.0, 0.0), turn_radps=0.0, seconds=2.0)
    assert mode.steered is by_stick
    while not mode.done:
        mode.update(state, dt_s=0.5)
    assert not mode.steered
