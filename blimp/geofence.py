"""Where a flight may go: polygons and circles, a ceiling, a floor, and rally points.

Places are metres north and east of the pad, heights metres above it. With several zones a ship
must be inside each of them, and outside each that excludes. Point in polygon: the crossing number
of Shimrat, "Algorithm 112: position of point relative to polygon" (1962).
"""

from collections.abc import Iterator
from math import hypot, inf, isfinite

import msgspec

Place = tuple[float, float]  # north, east
Point = tuple[float, float, float]  # north, east, altitude

KEEP_M = 0.5  # what a ship is sent to is so far from each line: it is never exactly there
HEIGHT_SLACK_M = 0.5  # above the ceiling, before that is a breach: a climb ends a little high
MAX_CORNERS = 64  # of all polygons together: each cycle looks at each of them
MAX_ZONES = 16
MAX_RALLY = 8
MAX_M = 10_000.0


class Zone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One polygon (its corners in order) or one circle (north, east, radius)."""

    polygon: tuple[Place, ...] = ()
    circle: tuple[float, float, float] | None = None
    exclude: bool = False

    def clearance_m(self, place: Place) -> float:
        """Return how far the line is, below 0 for a place where the ship must not be."""
        north, east = place
        if self.circle is not None:
            n, e, radius = self.circle
            inside_m = radius - hypot(north - n, east - e)
        else:
            distance_m = min(_distance_m(place, a, b) for a, b in _edges(self.polygon))
            inside_m = distance_m if self.contains(place) else -distance_m
        return -inside_m if self.exclude else inside_m

    def contains(self, place: Place) -> bool:
        """Whether a place is within the polygon or circle, whatever that means for the ship."""
        north, east = place
        if self.circle is not None:
            n, e, radius = self.circle
            return hypot(north - n, east - e) <= radius
        inside = False
        for (n1, e1), (n2, e2) in _edges(self.polygon):
            if (n1 > north) != (n2 > north) and east < e1 + (north - n1) * (e2 - e1) / (n2 - n1):
                inside = not inside
        return inside

    def crossing(self, start: Place, end: Place) -> Place | None:
        """Return where the straight way first meets the line, None if it does not."""
        if self.circle is not None:
            return self._circle_crossing(self.circle, start, end)
        shares = [_meeting(start, end, a, b) for a, b in _edges(self.polygon)]
        share = min((s for s in shares if s is not None), default=None)
        return None if share is None else _between(start, end, share)

    def _circle_crossing(
        self, circle: tuple[float, float, float], start: Place, end: Place
    ) -> Place | None:
        n, e, radius = circle
        dn, de = end[0] - start[0], end[1] - start[1]
        fn, fe = start[0] - n, start[1] - e
        a, b, c = dn * dn + de * de, fn * dn + fe * de, fn * fn + fe * fe - radius * radius
        root = b * b - a * c
        if a < 1e-12 or root < 0.0:
            return None
        shares = [(-b - root**0.5) / a, (-b + root**0.5) / a]
        share = min((s for s in shares if 0.0 <= s <= 1.0), default=None)
        return None if share is None else _between(start, end, share)

    def problem(self) -> str:
        """Return why this is no zone, or ""."""
        if (self.circle is None) == (not self.polygon):
            return "must have a polygon or a circle"
        numbers = self.circle or tuple(x for corner in self.polygon for x in corner)
        if not all(isfinite(x) and abs(x) <= MAX_M for x in numbers):
            return f"a number is not finite, or beyond {MAX_M:g} m"
        if self.circle is not None:
            radius = self.circle[2]
            return "" if radius > KEEP_M else f"radius {radius:g} m, must be above {KEEP_M:g} m"
        if len(self.polygon) < 3:
            return f"a polygon of {len(self.polygon)} corners, must have at least 3"
        edges = list(_edges(self.polygon))
        for i, (a, b) in enumerate(edges):
            if hypot(b[0] - a[0], b[1] - a[1]) < 1e-3:
                return f"corner {i + 1} is there twice"
        for i, (a, b) in enumerate(edges):
            for j in range(i + 2, len(edges)):
                neighbours = i == 0 and j == len(edges) - 1
                if not neighbours and _meeting(a, b, *edges[j]) is not None:
                    return f"its edges {i + 1} and {j + 1} cross"
        return ""


class Rally(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a ship may return to if it is nearer than the pad; 0 m for no height of its own."""

    north_m: float
    east_m: float
    altitude_m: float


class Geofence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one flight; they come on top of the airframe's and can only narrow them."""

    zones: tuple[Zone, ...] = ()
    ceiling_m: float | None = None
    floor_m: float | None = None
    rally: tuple[Rally, ...] = ()

    def problem(self, *, max_altitude_m: float = inf, max_distance_m: float = inf) -> str:
        """Return why this fence cannot be flown in, with the numbers, or "".

        The pad must be inside: each flight begins there.
        """
        corners = sum(len(zone.polygon) for zone in self.zones)
        if corners > MAX_CORNERS or len(self.zones) > MAX_ZONES or len(self.rally) > MAX_RALLY:
            return (
                f"{len(self.zones)} zones, {corners} corners and {len(self.rally)} rally points; "
                f"the limits are {MAX_ZONES}, {MAX_CORNERS} and {MAX_RALLY}"
            )
        for number, zone in enumerate(self.zones, start=1):
            if why := zone.problem():
                return f"zone {number}: {why}"
            clearance_m = zone.clearance_m((0.0, 0.0))
            if clearance_m < KEEP_M:
                return f"zone {number}: the pad is {_off(clearance_m)}"
        low_m, high_m = self.floor_m, self.ceiling_m
        for name, value in (("ceiling_m", high_m), ("floor_m", low_m)):
            if value is not None and not 0.0 <= value <= max_altitude_m:
                return f"{name} is {value:g}, must be 0 to {max_altitude_m:g} m"
        if low_m is not None and high_m is not None and not low_m < high_m:
            return f"floor_m {low_m:g} is not below ceiling_m {high_m:g}"
        for number, rally in enumerate(self.rally, start=1):
            if why := self._rally_problem(rally, max_altitude_m, max_distance_m):
                return f"rally point {number} {why}"
        return ""

    def _rally_problem(self, rally: Rally, max_altitude_m: float, max_distance_m: float) -> str:
        place = (rally.north_m, rally.east_m, rally.altitude_m)
        if not all(map(isfinite, place)):
            return "is not finite"
        if hypot(*place[:2]) > max_distance_m:
            return f"is {hypot(*place[:2]):g} m from the pad, the limit is {max_distance_m:g} m"
        if not 0.0 <= rally.altitude_m <= max_altitude_m:
            return f"is at {rally.altitude_m:g} m, must be 0 to {max_altitude_m:g} m"
        if rally.altitude_m == 0.0:  # QGroundControl's own, where a person sets none
            return self.line_problem(place[:2], place[:2])
        return self.way_problem(place, place)

    def breach(self, place: Place, altitude_m: float) -> str:
        """Return which limit a ship at `place` is beyond, or "". Its floor is left to land."""
        if self.ceiling_m is not None and altitude_m > self.ceiling_m + HEIGHT_SLACK_M:
            return f"{altitude_m - self.ceiling_m:.1f} m above the ceiling"
        for number, zone in enumerate(self.zones, start=1):
            if zone.contains(place) == zone.exclude:
                return f"outside fence {number}"
        return ""

    def way_problem(self, start: Point, end: Point) -> str:
        """Return why a ship must not be sent straight from `start` to `end`, or ""."""
        return self.height_problem(end[2]) or self.line_problem(start[:2], end[:2])

    def height_problem(self, altitude_m: float) -> str:
        """Return why a ship must not be sent to this height, or ""."""
        if self.ceiling_m is not None and altitude_m > self.ceiling_m + 1e-6:
            return f"is at {altitude_m:.1f} m, above the ceiling of {self.ceiling_m:g} m"
        if self.floor_m is not None and altitude_m < self.floor_m - 1e-6:
            return f"is at {altitude_m:.1f} m, under the floor of {self.floor_m:g} m"
        return ""

    def line_problem(self, start: Place, end: Place) -> str:
        """Return which line the straight way crosses or ends near, or ""."""
        for number, zone in enumerate(self.zones, start=1):
            clearance_m = zone.clearance_m(end)
            if clearance_m < KEEP_M:
                return f"ends {_off(clearance_m)} (fence {number})"
            meeting = zone.crossing(start, end)
            if meeting is not None:
                n, e = meeting
                return f"crosses fence {number} at {n:.1f} m north, {e:.1f} m east"
        return ""

    def clearance_m(self, place: Place) -> float:
        """Return the distance to the nearest line; infinite without any."""
        return min((zone.clearance_m(place) for zone in self.zones), default=inf)

    def return_place(self, place: Place) -> Point:
        """Return the pad or the rally point to return to: the nearest of straight ways inside.

        If no way stays inside, the nearest of all. The pad's altitude is 0.
        """
        points = [(0.0, 0.0, 0.0), *((r.north_m, r.east_m, r.altitude_m) for r in self.rally)]

        def cost(point: Point) -> tuple[bool, float]:
            crosses = any(zone.crossing(place, point[:2]) is not None for zone in self.zones)
            return crosses, hypot(point[0] - place[0], point[1] - place[1])

        return min(points, key=cost)


def _off(clearance_m: float) -> str:
    if clearance_m < -0.05:
        return f"{-clearance_m:.1f} m outside"
    return f"{max(0.0, clearance_m):.1f} m from the line, the limit is {KEEP_M:g} m"


def _edges(corners: tuple[Place, ...]) -> Iterator[tuple[Place, Place]]:
    return zip(corners, corners[1:] + corners[:1], strict=True)


def _between(a: Place, b: Place, share: float) -> Place:
    return (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))


def _distance_m(place: Place, a: Place, b: Place) -> float:
    """Return the distance of a place from the line between `a` and `b`."""
    dn, de = b[0] - a[0], b[1] - a[1]
    length = dn * dn + de * de
    share = 0.0 if length == 0.0 else ((place[0] - a[0]) * dn + (place[1] - a[1]) * de) / length
    n, e = _between(a, b, max(0.0, min(1.0, share)))
    return hypot(place[0] - n, place[1] - e)


def _meeting(a: Place, b: Place, c: Place, d: Place) -> float | None:
    """Return the share of the way from `a` to `b` at which it meets the line from `c` to `d`."""
    rn, re, sn, se = b[0] - a[0], b[1] - a[1], d[0] - c[0], d[1] - c[1]
    cross = rn * se - re * sn
    qn, qe = c[0] - a[0], c[1] - a[1]
    if abs(cross) < 1e-12:  # parallel: they meet only if they lie on each other
        if abs(qn * re - qe * rn) > 1e-9 or rn * rn + re * re == 0.0:
            return None
        length = rn * rn + re * re
        t0, t1 = (qn * rn + qe * re) / length, ((qn + sn) * rn + (qe + se) * re) / length
        low, high = max(0.0, min(t0, t1)), min(1.0, max(t0, t1))
        return low if low <= high else None
    t, u = (qn * se - qe * sn) / cross, (qn * re - qe * rn) / cross
    return t if 0.0 <= t <= 1.0 and 0.0 <= u <= 1.0 else None
