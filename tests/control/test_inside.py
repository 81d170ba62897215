"""The fence of a flight, through a whole flight loop: what is refused, and what ends it."""

from math import inf
from typing import Any

import pytest

from blimp.control.arguments import geofence_of, parse
from blimp.control.inside import check_points
from blimp.control.modes.rtl import ReturnToPad
from blimp.control.trajectory import TrajectoryPoint
from blimp.geofence import Geofence, Rally, Zone
from blimp.types import Outcome, OutcomeState
from tests.control.parts import Alone, Bench, a_ship, at, twin

DONE, REFUSED, RUNNING = OutcomeState.DONE, OutcomeState.REFUSED, OutcomeState.IN_PROGRESS
LONG = [[-8.0, -7.5], [8.0, -7.5], [8.0, 7.5], [-8.0, 7.5]]
AREA: dict[str, Any] = {
    "zones": [{"polygon": LONG}],
    "ceiling_m": 6.0,
    "floor_m": 1.0,
    "rally": [{"north_m": 5.0, "east_m": 5.0, "altitude_m": 3.0}],
}


def fenced() -> Bench:
    """In the air, within a fence that was given on the ground."""
    ship = Bench()
    assert ship.tell("geofence", **AREA).state is DONE
    assert ship.tell("arm").state is DONE
    ship.lift(3.0)
    return ship


def reason(outcome: Outcome) -> str:
    assert outcome.state is REFUSED, outcome
    return outcome.reason


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("goto", {"north_m": 9.0, "east_m": 0.0, "altitude_m": 3.0}, "ends 1.0 m outside"),
        ("goto", {"north_m": 0.0, "east_m": 0.0, "altitude_m": 6.5}, "above the ceiling of 6 m"),
        ("goto", {"north_m": 0.0, "east_m": 0.0, "altitude_m": 0.8}, "under the floor of 1 m"),
        ("takeoff", {"altitude_m": 7.0}, "above the ceiling of 6 m"),
        (
            "velocity",
            {"north_mps": 0.5, "east_mps": 0.0, "up_mps": 0.0, "seconds": 60.0},
            "ends 23.2 m outside",  # 30 m and 1.25 m of braking, from the line at 8 m
        ),
        (
            "velocity",
            {"north_mps": 0.0, "east_mps": -0.6, "up_mps": 0.0, "seconds": 20.0},
            "ends 6.3 m outside",
        ),
        (
            "velocity",
            {"north_mps": 0.0, "east_mps": 0.0, "up_mps": 0.3, "seconds": 20.0},
            "is at 9.0 m, above the ceiling",
        ),
        (
            "velocity",
            {"north_mps": 0.0, "east_mps": 0.0, "up_mps": -0.2, "seconds": 20.0},
            "under the floor",
        ),
        (
            "trajectory",
            {
                "name": "out",
                "points": [[t * 4.0, t * 2.5, 0.0, 3.0, 0.5, 0.0, 0.0] for t in range(6)],
            },
            "points: number 5: ends 2.0 m outside",
        ),
        (
            "trajectory",
            {
                "name": "up",
                "points": [[t * 4.0, 0.0, 0.0, 3.0 + t * 1.2, 0.0, 0.0, 0.3] for t in range(6)],
            },
            "points: number 4: is at 6.6 m, above the ceiling of 6 m",
        ),
    ],
)
def test_a_way_out_is_refused_with_the_numbers_and_nothing_moves(
    command: str, arguments: dict[str, Any], words: str
) -> None:
    ship = Alone(at(altitude_m=3.0))
    ship.pilot.ship.area.fence = geofence_of(parse("geofence", AREA, twin()))  # type: ignore[arg-type]
    mode = ship.pilot.mode
    assert words in reason(ship.tell(command, **arguments))
    assert ship.pilot.mode is mode


def test_what_stays_inside_is_flown() -> None:
    ship = fenced()
    assert ship.tell("goto", north_m=7.0, east_m=7.0, altitude_m=5.0).state is RUNNING
    assert (
        ship.tell("velocity", north_mps=0.2, east_mps=0, up_mps=0.1, seconds=5.0).state is RUNNING
    )
    points = [[t * 4.0, t * 2.0, 0.0, 3.0, 0.5, 0.0, 0.0] for t in range(4)]
    assert ship.tell("trajectory", name="in", points=points, last=False).state is DONE
    more = [[12.0 + t * 4.0, 6.0 + t * 2.0, 0.0, 3.0, 0.5, 0.0, 0.0] for t in range(1, 4)]
    words = reason(ship.tell("trajectory", name="in", points=more))
    assert "trajectory: points: number 1: ends 0.0 m" in words


def test_a_fence_is_given_on_the_ground_and_ends_with_its_flight() -> None:
    ship = fenced()
    assert "only on the ground" in reason(ship.tell("geofence"))
    assert "outside" in reason(ship.tell("goto", north_m=9.0, east_m=0.0, altitude_m=3.0))
    # The kill does not lift it: the same ship may be armed again in the air.
    assert ship.tell("estop").state is DONE
    assert "only on the ground" in reason(ship.tell("geofence"))

    ship = Bench()
    assert ship.tell("geofence", **AREA).state is DONE
    assert ship.tell("arm").state is DONE
    assert "ceiling" in reason(ship.tell("takeoff", altitude_m=7.0))
    assert ship.tell("disarm").state is DONE
    assert ship.tell("arm").state is DONE
    assert ship.tell("takeoff", altitude_m=7.0).state is RUNNING


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"zones": [{"polygon": [[0, 0], [1, 1]]}]}, "geofence: zone 1: a polygon of 2 corners"),
        ({"zones": [{"circle": [50, 0, 5]}]}, "the pad is 45.0 m outside"),
        ({"ceiling_m": 31}, "ceiling_m is 31, must be 0 to 30 m"),
        ({"ceiling_m": inf}, "ceiling_m is inf"),
        ({"height": 3}, "unknown field `height`"),
        ({"rally": [{"north_m": 200, "east_m": 0, "altitude_m": 3}]}, "the limit is 100 m"),
    ],
)
def test_what_is_no_fence_is_refused_and_the_old_one_stays(
    arguments: dict[str, Any], words: str
) -> None:
    ship = Bench()
    assert ship.tell("geofence", ceiling_m=6.0).state is DONE
    assert words in reason(ship.tell("geofence", **arguments))
    assert ship.tell("arm").state is DONE
    assert "ceiling of 6 m" in reason(ship.tell("takeoff", altitude_m=7.0))


def test_a_return_goes_to_the_nearer_rally_point_not_under_its_height() -> None:
    ship = a_ship()
    ship.area.fence = Geofence(rally=(Rally(north_m=20.0, east_m=0.0, altitude_m=5.0),))
    home = ReturnToPad(at(15.0, 0.0, 6.0), ship=ship)
    assert home.result["north_m"] == 20.0
    assert home.result["altitude_m"] == 6.0
    climbs = ReturnToPad(at(15.0, 0.0, 3.0), ship=ship)
    assert (climbs.result["north_m"], climbs.result["altitude_m"]) == (15.0, 5.0)
    assert ReturnToPad(at(9.0, 0.0, 6.0), ship=ship).result["north_m"] == 0.0
    ship.area.fence = Geofence(rally=(Rally(north_m=20.0, east_m=0.0, altitude_m=0.0),))
    pad = ReturnToPad(at(15.0, 0.0, 1.0), ship=ship)
    assert (pad.result["north_m"], pad.result["altitude_m"]) == (15.0, 2.0)  # it climbs first
    ship.area.fence = Geofence(ceiling_m=1.5)
    low = ReturnToPad(at(9.0, 0.0, 1.4), ship=ship)
    assert low.result["altitude_m"] == 1.5
    assert ReturnToPad(at(9.0, 0.0, 1.0), ship=ship).result["altitude_m"] == 1.5


def test_a_long_trajectory_looks_at_the_lines_only_near_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop has no time for 64 points times 64 edges."""
    looked = 0
    real = Zone.clearance_m

    def count(self: Zone, place: tuple[float, float]) -> float:
        nonlocal looked
        looked += 1
        return real(self, place)

    monkeypatch.setattr(Zone, "clearance_m", count)
    points = [TrajectoryPoint(t * 0.1, t * 0.05, 0.0, 3.0, 0.5, 0.0, 0.0) for t in range(64)]
    check_points(Geofence(zones=(Zone(circle=(0.0, 0.0, 8.0)),)), points, before=None)
    assert looked <= 4
