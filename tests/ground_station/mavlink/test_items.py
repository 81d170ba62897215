"""Geofences and rally points as stations send them: each item by itself, by its command."""

import math
from typing import Any

import msgspec
import pytest

from blimp.airframe import Home
from blimp.errors import MissionError
from blimp.geofence import Rally
from ground_station.mavlink.items import Item, fence_of

HOME = Home(latitude_deg=36.0, longitude_deg=-75.0, altitude_msl_m=3.0)
M_DEG = 360.0 / 40_030_174.0  # a metre to the north, on the sphere of the Earth's mean radius


def item(command: int, north_m: float, east_m: float, first: float | None = None) -> Item:
    latitude = 36.0 + M_DEG * north_m
    longitude = -75.0 + M_DEG * east_m / math.cos(math.radians(36.0))
    params = (first, None, None, None, latitude, longitude, 2.0)
    return Item(name=f"item {command}", command=command, frame=3, params=params)


def changed(one: Item, **fields: Any) -> Item:
    return msgspec.structs.replace(one, **fields)


def square(command: int, half_m: float = 10.0) -> list[Item]:
    corners = ((-half_m, -half_m), (half_m, -half_m), (half_m, half_m), (-half_m, half_m))
    return [item(command, *corner, 4.0) for corner in corners]


def test_polygons_and_circles_keep_the_ship_in_or_out() -> None:
    fence = fence_of(
        [*square(5001), item(5003, 0.0, 0.0, 30.0), item(5004, -5.0, -5.0, 2.0)],
        [item(5100, 3.0, 4.0)],
        HOME,
    )
    inside, around, tree = fence.zones
    assert [zone.exclude for zone in fence.zones] == [False, False, True]
    assert len(inside.polygon) == 4
    assert inside.polygon[1] == pytest.approx((10.0, -10.0), abs=0.1)
    assert around.circle == (0.0, 0.0, 30.0)
    assert tree.circle == pytest.approx((-5.0, -5.0, 2.0), abs=0.1)
    assert fence.rally[0].north_m == pytest.approx(3.0, abs=0.1)
    assert fence.rally[0].altitude_m == 2.0
    with pytest.raises(MissionError, match="zone 1: the pad is 10"):
        fence_of(square(5002), [], HOME)


@pytest.mark.parametrize(
    ("fence", "rally", "words"),
    [
        (square(5001)[:3], [], "item 5001, NAV_FENCE_POLYGON_VERTEX_INCLUSION: a polygon of 4 cor"),
        ([*square(5001)[:2], *square(5002)], [], "a polygon of 4 corners is incomplete"),
        ([square(5001)[0], item(5003, 0, 0, 9.0)], [], "a polygon of 4 corners is incomplete"),
        ([item(5001, 1, 1, 2.0)] * 2, [], "a polygon of 2 corners is incomplete"),
        ([item(5002, 1, 1)], [], "a polygon of missing corners is incomplete"),
        ([item(5003, 0, 0)], [], "param 1, its radius, is missing"),
        ([item(5003, 0, 0, math.inf)], [], "a parameter is inf, must be finite"),
        ([item(5003, 0, 0, 0.2)], [], "geofence: zone 1: radius 0.2 m, must be above 0.5 m"),
        ([item(5003, 40, 0, 9.0)], [], "geofence: zone 1: the pad is 31.0 m outside"),
        ([changed(item(5003, 0, 0, 9.0), frame=1)], [], "frame 1, must be one of (3, 6, 0, 5)"),
        ([item(16, 0, 0)], [], "NAV_WAYPOINT is not supported; known are NAV_FENCE_POLYGON"),
        ([item(5000, 0, 0)], [], "MAV_CMD 5000 is not supported; known are NAV_FENCE_POLYGON"),
        ([], [item(5003, 0, 0, 9.0)], "is not supported; known are NAV_RALLY_POINT"),
        (
            [],
            [changed(item(5100, 0, 0), params=(*item(5100, 0, 0).params[:6], None))],
            "has no altitude",
        ),
        (
            [],
            [changed(item(5100, 0, 0), params=(None, None, None, None, 0.0, 0.0, 2.0))],
            "has no place",
        ),
    ],
)  # fmt: skip
def test_what_is_no_fence_is_refused_by_its_item(
    fence: list[Item], rally: list[Item], words: str
) -> None:
    with pytest.raises(MissionError) as caught:
        fence_of(fence, rally, HOME)
    assert words in str(caught.value)


def test_a_rally_point_above_the_sea_is_as_high_above_home() -> None:
    sea = changed(item(5100, 0.0, 0.0), frame=0, params=(*item(5100, 0, 0).params[:6], 5.5))
    assert fence_of([], [sea], HOME).rally == (Rally(north_m=0.0, east_m=0.0, altitude_m=2.5),)
