"""The geometry of a fence: inside, on the way, and what is no fence."""

from math import hypot, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blimp.geofence import KEEP_M, MAX_CORNERS, Geofence, Rally, Zone

SQUARE = ((-10.0, -10.0), (10.0, -10.0), (10.0, 10.0), (-10.0, 10.0))
# A "U" open to the north: the way between its arms leaves it.
HORSESHOE = (
    (-5.0, -5.0), (20.0, -5.0), (20.0, 0.0), (5.0, 1.5), (5.0, 8.0), (20.0, 9.0), (20.0, 15.0),
    (-5.0, 15.0),
)  # fmt: skip


def test_a_place_in_a_polygon_and_how_far_its_line_is() -> None:
    zone = Zone(polygon=SQUARE)
    assert zone.clearance_m((0.0, 0.0)) == 10.0
    assert zone.clearance_m((9.0, 3.0)) == 1.0
    assert zone.clearance_m((12.0, 0.0)) == -2.0
    assert zone.clearance_m((13.0, 14.0)) == -5.0  # from the corner
    assert Zone(polygon=SQUARE, exclude=True).clearance_m((12.0, 0.0)) == 2.0
    assert Zone(circle=(3.0, 4.0, 6.0)).clearance_m((0.0, 0.0)) == 1.0


@pytest.mark.parametrize(
    ("zone", "start", "end", "words"),
    [
        (Zone(polygon=SQUARE), (0.0, 0.0), (9.0, 9.0), ""),
        (Zone(polygon=SQUARE), (0.0, 0.0), (13.0, 0.0), "ends 3.0 m outside (fence 1)"),
        (Zone(polygon=SQUARE), (0.0, 0.0), (9.8, 0.0), "0.2 m from the line, the limit is 0.5 m"),
        (Zone(polygon=HORSESHOE), (15.0, -3.0), (15.0, 12.0), "crosses fence 1 at 15.0 m north"),
        (Zone(polygon=HORSESHOE), (0.0, -3.0), (0.0, 12.0), ""),
        (Zone(circle=(0.0, 0.0, 10.0)), (0.0, 0.0), (0.0, 9.0), ""),
        (Zone(circle=(0.0, 0.0, 10.0)), (0.0, 0.0), (0.0, 11.0), "ends 1.0 m outside"),
        (
            Zone(circle=(5.0, 0.0, 1.0), exclude=True), (0.0, 0.0), (10.0, 0.0),
            "crosses fence 1 at 4.0 m north, 0.0 m east",
        ),
        (Zone(circle=(5.0, 3.0, 1.0), exclude=True), (0.0, 0.0), (10.0, 0.0), ""),
        (Zone(circle=(5.0, 0.0, 1.0), exclude=True), (5.0, 0.0), (10.0, 0.0),
         "crosses fence 1 at 6.0 m north"),
        (Zone(polygon=((4.0, -1.0), (6.0, -1.0), (5.0, 1.0)), exclude=True),
         (0.0, 0.0), (10.0, 0.0), "crosses fence 1 at 4.5 m north"),
    ],
)  # fmt: skip
def test_a_way_that_leaves_the_fence_is_named_with_its_place(
    zone: Zone, start: tuple[float, float], end: tuple[float, float], words: str
) -> None:
    found = Geofence(zones=(zone,)).line_problem(start, end)
    assert words in found
    assert bool(found) == bool(words)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-30, 30), st.floats(-30, 30)), min_size=2, max_size=2))
def test_a_way_is_allowed_only_if_every_place_on_it_is(way: list[tuple[float, float]]) -> None:
    """Against sampling: the geometry must not let a way through that sampling sees outside."""
    start, end = way
    fence = Geofence(zones=(Zone(polygon=HORSESHOE), Zone(circle=(8.0, 4.0, 3.0), exclude=True)))
    if fence.breach(start, 1.0) or fence.line_problem(start, end):
        return
    for step in range(101):
        share = step / 100.0
        place = tuple(a + share * (b - a) for a, b in zip(start, end, strict=True))
        assert fence.clearance_m((place[0], place[1])) > -1e-6


@pytest.mark.parametrize(
    ("fence", "words"),
    [
        (Geofence(zones=(Zone(),)), "zone 1: must have a polygon or a circle"),
        (
            Geofence(zones=(Zone(polygon=SQUARE, circle=(0.0, 0.0, 5.0)),)),
            "must have a polygon or a circle",
        ),
        (Geofence(zones=(Zone(polygon=SQUARE[:2]),)), "2 corners, must have at least 3"),
        (Geofence(zones=(Zone(polygon=(*SQUARE[:3], (nan, 0.0))),)), "not finite"),
        (
            Geofence(zones=(Zone(polygon=(SQUARE[0], SQUARE[2], SQUARE[1], SQUARE[3])),)),
            "its edges 1 and 3 cross",
        ),
        (Geofence(zones=(Zone(polygon=(*SQUARE, SQUARE[3])),)), "corner 4 is there twice"),
        (Geofence(zones=(Zone(circle=(0.0, 0.0, 0.2)),)), "radius 0.2 m, must be above 0.5 m"),
        (Geofence(zones=(Zone(circle=(20.0, 0.0, 5.0)),)), "zone 1: the pad is 15.0 m outside"),
        (Geofence(zones=(Zone(polygon=SQUARE, exclude=True),)), "the pad is 10.0 m outside"),
        (Geofence(ceiling_m=2.0, floor_m=3.0), "floor_m 3 is not below ceiling_m 2"),
        (Geofence(ceiling_m=31.0), "ceiling_m is 31, must be 0 to 30 m"),
        (Geofence(floor_m=nan), "floor_m is nan"),
        (
            Geofence(
                zones=(Zone(polygon=SQUARE),), rally=(Rally(north_m=12, east_m=0, altitude_m=3),)
            ),
            "rally point 1 ends 2.0 m outside",
        ),
        (Geofence(rally=(Rally(north_m=0, east_m=120, altitude_m=3),)), "the limit is 100 m"),
        (Geofence(rally=(Rally(north_m=0, east_m=1, altitude_m=31),)), "must be 0 to 30 m"),
        (Geofence(rally=(Rally(north_m=0, east_m=1, altitude_m=-1),)), "must be 0 to 30 m"),
        (
            Geofence(zones=(Zone(polygon=tuple((float(n), 1.0) for n in range(MAX_CORNERS + 1))),)),
            "the limits are 16, 64 and 8",
        ),
        (Geofence(zones=(Zone(circle=(0.0, 0.0, 5.0)),) * 17), "17 zones"),
        (Geofence(rally=(Rally(north_m=0, east_m=1, altitude_m=3),) * 9), "9 rally points"),
        (Geofence(zones=(Zone(circle=(0.0, 0.0, 20_000.0)),)), "beyond 10000 m"),
    ],
)  # fmt: skip
def test_what_is_no_fence_is_refused_with_the_numbers(fence: Geofence, words: str) -> None:
    assert words in fence.problem(max_altitude_m=30.0, max_distance_m=100.0)


def test_a_rally_point_at_0_m_has_no_height_of_its_own() -> None:
    """QGroundControl writes it so."""
    rally = (Rally(north_m=3.0, east_m=0.0, altitude_m=0.0),)
    square = (Zone(polygon=SQUARE),)
    assert Geofence(zones=square, floor_m=1.0, rally=rally).problem() == ""
    assert "outside" in Geofence(zones=(Zone(circle=(0.0, 0.0, 2.0)),), rally=rally).problem()


def test_a_height_has_a_ceiling_and_a_floor() -> None:
    fence = Geofence(ceiling_m=5.0, floor_m=1.0)
    assert fence.height_problem(5.0) == fence.height_problem(1.0) == ""
    assert fence.height_problem(5.1) == "is at 5.1 m, above the ceiling of 5 m"
    assert fence.height_problem(0.9) == "is at 0.9 m, under the floor of 1 m"
    assert fence.breach((0.0, 0.0), 5.4) == ""
    assert fence.breach((0.0, 0.0), 5.6) == "0.6 m above the ceiling"
    assert fence.breach((0.0, 0.0), 0.1) == ""  # landing goes through the floor


@pytest.mark.parametrize("shape", [{"polygon": SQUARE}, {"circle": (0.0, 0.0, 10.0)}])
def test_a_ship_outside_a_zone_or_inside_one_to_stay_out_of_is_a_breach(
    shape: dict[str, Any],
) -> None:
    keep_in = Geofence(zones=(Zone(circle=(0.0, 0.0, 90.0)), Zone(**shape)))
    keep_out = Geofence(zones=(Zone(circle=(0.0, 0.0, 90.0)), Zone(**shape, exclude=True)))
    assert keep_in.breach((9.0, 0.0), 1.0) == keep_out.breach((11.0, 0.0), 1.0) == ""
    assert keep_in.breach((11.0, 0.0), 1.0) == keep_out.breach((9.0, 0.0), 1.0) == "outside fence 2"


def test_a_ship_returns_to_the_nearest_place_it_reaches_within_the_fence() -> None:
    rally = Rally(north_m=15.0, east_m=12.0, altitude_m=4.0)
    fence = Geofence(zones=(Zone(polygon=HORSESHOE),), rally=(rally,))
    assert fence.problem() == ""
    assert fence.return_place((1.0, 0.0)) == (0.0, 0.0, 0.0)
    assert fence.return_place((10.0, 13.0)) == (15.0, 12.0, 4.0)
    # The rally point is nearer, but the way there leaves the fence.
    far = (14.5, -2.0)
    assert hypot(0.5, 14.0) < hypot(*far)
    assert fence.return_place(far) == (0.0, 0.0, 0.0)
    assert Geofence(rally=(rally,)).return_place(far) == (15.0, 12.0, 4.0)
    assert KEEP_M == 0.5
