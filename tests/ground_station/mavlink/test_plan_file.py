"""Files of other ground stations: what they mean, and what is refused by name.

The samples have the form that QGroundControl 4 and Mission Planner write, nulls and all.
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blimp.ability import Ability, ability, full_v
from blimp.actions import Payload
from blimp.airframe import load
from blimp.errors import MissionError
from ground_station.legs import ActionLeg, Goto, Hold, Land, Return, SetGeofence, Takeoff
from ground_station.mavlink.plan_file import parse_plan, parse_waypoints
from ground_station.mission_check import judge
from ground_station.mission_file import Mission, load_mission, parse_mission

HOME = [52.5180, 13.4080, 34.0]
NORTH_10 = 8.9932161e-05  # degrees of latitude, on the sphere that the ship reckons with
EAST_10 = 1.4779024e-04  # of longitude, at this latitude


def item(command: int, *params: float | None, frame: int = 3, jump: int = 1) -> dict[str, Any]:
    seven = [*params, *[0] * (7 - len(params))]
    return {
        "AMSLAltAboveTerrain": None, "Altitude": seven[6], "AltitudeMode": 1, "autoContinue": True,
        "command": command, "doJumpId": jump, "frame": frame, "params": seven,
        "type": "SimpleItem",
    }  # fmt: skip


def place(
    north_m: float, east_m: float, altitude: float, home: Sequence[Any] = HOME
) -> tuple[float, float, float]:
    return (home[0] + north_m / 10 * NORTH_10, home[1] + east_m / 10 * EAST_10, altitude)


ITEMS = [
    item(22, 0, 0, 0, None, *place(0, 0, 3)),
    item(178, 1, 0.4, -1, 0, frame=2),
    item(16, 5, 0, 0, None, *place(8, 0, 3)),
    item(115, 90, 0, 1, 0, frame=2),
    item(183, 9, 1700, frame=2),
    item(16, 0, 0, 0, -45, *place(8, 6, 38), frame=0),  # above sea level: 4 m
    item(178, 1, -2, -1, 0, frame=2),
    item(19, 12, 0, 0, None, *place(0, 6, 4)),
    item(20, frame=2),
]


def plan(
    items: list[dict[str, Any]] | None = None, home: Sequence[Any] = HOME, **parts: Any
) -> str:
    """A file of QGroundControl: every key that it writes."""
    around = [place(n, e, 0, home)[:2] for n, e in ((-5, -5), (15, -5), (15, 15), (-5, 15))]
    file = {
        "fileType": "Plan",
        "geoFence": {
            "circles": [
                {"circle": {"center": place(-2, 12, 0, home)[:2], "radius": 1.5},
                 "inclusion": False, "version": 1}
            ],
            "polygons": [{"inclusion": True, "polygon": around, "version": 1}],
            "version": 2,
        },
        "groundStation": "QGroundControl",
        "mission": {
            "cruiseSpeed": 15, "firmwareType": 12, "globalPlanAltitudeMode": 1, "hoverSpeed": 5,
            "items": ITEMS if items is None else items, "plannedHomePosition": home,
            "vehicleType": 2, "version": 2,
        },
        "rallyPoints": {"points": [place(8, 3, 3, home)], "version": 2},
        "version": 1,
    }  # fmt: skip
    return json.dumps({**file, **parts}, indent=4)


def written(tmp_path: Path, text: str, name: str = "site.plan") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def near(leg: Any, north_m: float, east_m: float, altitude_m: float) -> bool:
    assert isinstance(leg, Goto)
    at = pytest.approx((north_m, east_m, altitude_m), abs=0.02)
    return bool((leg.north_m, leg.east_m, leg.altitude_m) == at)


def test_a_plan_is_flown_as_it_was_drawn(tmp_path: Path) -> None:
    mission = load_mission(written(tmp_path, plan()))
    assert mission.name == "site"
    assert mission.origin_deg == (52.5180, 13.4080)
    does = [leg.do for leg in mission.legs]
    assert does == [
        "geofence", "arm", "takeoff", "goto", "goto", "payload", "goto", "goto", "return", "land",
    ]  # fmt: skip
    fence, _, up, first, yaw, drop, second, wait, home, land = mission.legs
    assert isinstance(fence, SetGeofence)
    assert [zone.exclude for zone in fence.zones] == [False, True]
    assert fence.zones[1].circle == pytest.approx((-2.0, 12.0, 1.5), abs=0.02)
    assert fence.rally[0].north_m == pytest.approx(8.0, abs=0.02)
    assert up == Takeoff(altitude_m=3.0)
    assert near(first, 8, 0, 3)
    assert isinstance(first, Goto)
    assert (first.speed_mps, first.loiter_s, first.yaw_deg) == (0.4, 5.0, None)
    assert first.arguments().keys() == {"north_m", "east_m", "altitude_m", "speed_mps"}
    assert near(yaw, 8, 0, 3)
    assert isinstance(yaw, Goto)
    assert yaw.yaw_deg == 90.0
    assert drop == ActionLeg("payload", Payload(channel=9, pulse_us=1700.0))
    assert near(second, 8, 6, 4)
    assert isinstance(second, Goto)
    assert second.yaw_deg == -45.0
    assert near(wait, 0, 6, 4)
    assert isinstance(wait, Goto)
    assert (wait.speed_mps, wait.loiter_s) == (None, 12.0)
    assert (home, land) == (Return(), Land())


def test_the_same_plan_from_another_pad_stays_where_the_map_has_it(tmp_path: Path) -> None:
    file = written(tmp_path, plan())
    moved = load_mission(file, origin_deg=(HOME[0] + 0.2 * NORTH_10, HOME[1]))
    assert near(moved.legs[3], 6, 0, 3)
    assert moved.origin_deg == (HOME[0] + 0.2 * NORTH_10, HOME[1])


WAYPOINTS = """QGC WPL 110
0\t1\t0\t16\t0\t0\t0\t0\t52.518000\t13.408000\t34.000000\t1
1\t0\t3\t22\t0.000000\t0.000000\t0.000000\t0.000000\t0.000000\t0.000000\t3.000000\t1
2\t0\t3\t178\t1.000000\t0.300000\t-1.000000\t0.000000\t0.000000\t0.000000\t0.000000\t1
3\t0\t3\t16\t0.000000\t0.000000\t0.000000\t0.000000\t52.518090\t13.408000\t3.000000\t1
4\t0\t3\t112\t4.000000\t0.000000\t0.000000\t0.000000\t0.000000\t0.000000\t0.000000\t1
5\t0\t3\t115\t30.000000\t0.000000\t-1.000000\t1.000000\t0.000000\t0.000000\t0.000000\t1
6\t0\t3\t21\t0.000000\t0.000000\t0.000000\t0.000000\t52.518000\t13.408000\t0.000000\t1
"""


def test_waypoints_of_mission_planner(tmp_path: Path) -> None:
    mission = load_mission(written(tmp_path, WAYPOINTS, "field.waypoints"))
    assert [leg.do for leg in mission.legs] == [
        "arm", "takeoff", "goto", "hold", "goto", "goto", "land",
    ]  # fmt: skip
    assert near(mission.legs[2], 10.01, 0, 3)
    assert isinstance(mission.legs[2], Goto)
    assert (mission.legs[2].speed_mps, mission.legs[2].yaw_deg) == (0.3, None)
    assert mission.legs[3] == Hold(seconds=4.0)
    assert isinstance(mission.legs[4], Goto)
    assert mission.legs[4].yaw_deg == -30.0  # relative, to the left
    assert near(mission.legs[5], 0, 0, 3)
    assert load_mission(written(tmp_path, WAYPOINTS.replace("\n", "\r\n"), "w.waypoints")).legs


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([ITEMS[0], item(18, 3)], "item 2: NAV_LOITER_TURNS is not supported; known are NAV_WAY"),
        ([ITEMS[0], item(5003, 3)], "NAV_FENCE_CIRCLE_INCLUSION is not supported; known are NAV_W"),
        ([ITEMS[0], item(177, 9, 3)], "item 2, DO_JUMP: param 1 is 9: no item has this number"),
        ([ITEMS[0], item(177, 1, 1e6, jump=2)], "more than 400 items with all loops"),
        ([ITEMS[0], item(177, 2, 1e6, jump=2)], "more than 400 rounds of all loops"),
        ([ITEMS[0], item(115, 30, 0, 1, 1)], "relative to a heading that is not known yet"),
        ([ITEMS[0], item(195, 0, 0, 0, 0, 0, 0, 0)], "DO_SET_ROI_LOCATION: kind 3.0, must be a"),
        ([{**ITEMS[0], "autoContinue": False}], "item 1: autoContinue is false"),
        (
            [ITEMS[0], {"type": "ComplexItem", "complexItemType": "survey", "version": 5}],
            "item 2: 'survey' is no simple item",
        ),
        ([ITEMS[0], item(16, 0, 0, 0, 0, *place(5, 0, 3), frame=10)], "frame 10, must be one of"),
        ([ITEMS[0], item(16, 0, 0, 2, 0, *place(5, 0, 3))], "param 3, pass by, is 2"),
        ([ITEMS[2]], "item 1, NAV_WAYPOINT (goto): the ship has not taken off"),
        ([ITEMS[0], item(178, 1, 99), ITEMS[2]], "speed_mps = 99.0"),
        ([ITEMS[0], item(16, 0, 0, 0, None, *place(20000, 0, 3))], "north_m = 20000"),
        ([ITEMS[0], item(16, 0, 0, 0, None, *place(15.5, 0, 3))], "ends 0.5 m outside (fence 1)"),
        (
            [ITEMS[0], item(16, 0, 0, 0, None, *place(1, 12, 3)),
             item(16, 0, 0, 0, None, *place(-4.3, 12, 3))],
            "item 3, NAV_WAYPOINT (goto): crosses fence 2",
        ),
        ([{**ITEMS[0], "params": [0, 1]}], "item 1: 2 params, must be 7"),
        ([], "0 legs, the limits are 1 to 200"),
        ([item(22, 0, 0, 0, None, 0, 0, None)], "NAV_TAKEOFF: has no altitude"),
    ],
)  # fmt: skip
def test_what_a_blimp_does_not_do_is_refused_by_name_and_place(
    tmp_path: Path, items: list[dict[str, Any]], words: str
) -> None:
    with pytest.raises(MissionError) as caught:
        load_mission(written(tmp_path, plan(items)))
    assert words in str(caught.value)
    assert "site.plan" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "site.plan: Input data was truncated"),
        (plan(fileType="Mission"), "fileType 'Mission', version 1; must be 'Plan'"),
        (plan(mission={"items": []}), "plannedHomePosition"),
        (plan(geoFence={"breachReturn": [1, 2, 3]}), "breachReturn: give a rally point instead"),
        (plan(rallyPoints={"points": [place(40, 0, 3)]}), "rally point 1 ends 25.0 m outside"),
        (plan(mission={"items": [], "plannedHomePosition": HOME, "version": 1}), "mission has ve"),
        (plan(geoFence={"version": 42}), "geoFence has version 42, known are 1 and 2"),
        (plan(geoFence={"version": 2, "corridor": []}), "corridor"),
        (plan(noFly=[]), "noFly"),
        ("[" * 9000, "site.plan"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(MissionError) as caught:
        load_mission(written(tmp_path, text))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("QGC WPL 110", "QGC WPL 120", "line 1: 'QGC WPL 120', must be 'QGC WPL 110'"),
        ("2\t0\t3\t178", "9\t0\t3\t178", "line 4: index 9, must be 2"),
        ("4.000000\t0.000000\t0.000000", "4.000000\t0.000000", "line 6: 11 columns, must be 12"),
        ("52.518090", "fifty", "line 5: could not convert"),
        ("52.518090", "inf", "line 5, NAV_WAYPOINT: a parameter is inf"),
        ("0\t1\t0\t16", "0\t1\t0\t22", "line 2: must be home"),
    ],
)
def test_a_bad_waypoint_is_refused_by_its_line(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(MissionError) as caught:
        load_mission(written(tmp_path, WAYPOINTS.replace(old, new), "w.waypoints"))
    assert words in str(caught.value)


def test_a_file_is_known_by_what_it_holds(tmp_path: Path) -> None:
    for text, name in ((WAYPOINTS, "field.txt"), (WAYPOINTS, "field.toml"), (plan(), "site.txt")):
        assert len(load_mission(written(tmp_path, text, name)).legs) > 5


def test_the_fence_of_an_older_qgroundcontrol_counts(tmp_path: Path) -> None:
    """Version 1 has one polygon under another key; it was dropped without a word."""
    around = [place(n, e, 0)[:2] for n, e in ((-5, -5), (6, -5), (6, 5), (-5, 5))]
    text = plan([ITEMS[0]], geoFence={"version": 1, "polygon": around}, rallyPoints={})
    assert len(load_mission(written(tmp_path, text)).geofence.zones) == 1
    text = plan(ITEMS[:3], geoFence={"version": 1, "polygon": around}, rallyPoints={})
    with pytest.raises(MissionError, match="outside"):
        load_mission(written(tmp_path, text))


def test_a_home_without_an_altitude_is_enough_for_heights_above_it(tmp_path: Path) -> None:
    home = [*HOME[:2], None]
    assert load_mission(written(tmp_path, plan(ITEMS[:3], home))).legs
    with pytest.raises(MissionError, match="above the sea, and the file's home has no altitude"):
        load_mission(written(tmp_path, plan(ITEMS[:6], home)))
    zeros = WAYPOINTS.replace("52.518000", "0.0").replace("13.408000", "0.0")
    assert zeros != WAYPOINTS
    with pytest.raises(MissionError, match="home is at 0, 0"):
        load_mission(written(tmp_path, zeros, "w.waypoints"))


def test_a_loop_is_flown_with_its_rounds(tmp_path: Path) -> None:
    there, back = (item(16, 0, 0, 0, None, *place(north, 0, 3)) for north in (8, 2))
    items = [ITEMS[0], there | {"doJumpId": 2}, back, item(177, 2, 2, frame=2, jump=4), item(20)]
    legs = load_mission(written(tmp_path, plan(items))).legs
    norths = [round(leg.north_m) for leg in legs if isinstance(leg, Goto)]
    assert norths == [8, 2, 8, 2, 8, 2]
    assert legs[-1].do == "land"


def test_the_nose_points_to_a_region_of_interest_until_there_is_none(tmp_path: Path) -> None:
    items = [
        ITEMS[0],
        item(195, 0, 0, 0, 0, *place(8, 8, 0)),
        item(16, 0, 0, 0, None, *place(8, 0, 3)),
        item(16, 0, 0, 0, None, *place(0, 8, 3)),
        item(197),
        item(16, 0, 0, 0, None, *place(0, 0, 3)),
    ]
    legs = load_mission(written(tmp_path, plan(items))).legs
    yaws = [leg.yaw_deg for leg in legs if isinstance(leg, Goto)]
    assert yaws == [*(pytest.approx(deg, abs=0.1) for deg in (45.0, 90.0, 0.0)), None]
    older = [ITEMS[0], item(201, 3, 0, 0, 0, *place(8, 8, 0)), items[2], item(80, 0), items[3]]
    legs = load_mission(written(tmp_path, plan(older))).legs
    yaws = [leg.yaw_deg for leg in legs if isinstance(leg, Goto)]
    assert yaws == [*(pytest.approx(deg, abs=0.1) for deg in (45.0, 90.0)), None]


def test_a_relative_turn_counts_from_the_course_of_the_leg_before(tmp_path: Path) -> None:
    items = [ITEMS[0], item(16, 0, 0, 0, None, *place(0, 8, 3)), item(115, 30, 0, -1, 1, frame=2)]
    legs = load_mission(written(tmp_path, plan(items))).legs
    turned = next(leg for leg in reversed(legs) if isinstance(leg, Goto))
    assert turned.yaw_deg == pytest.approx(60.0, abs=0.1)


_number = st.none() | st.floats(width=32) | st.integers(-10, 10)
_items = st.lists(
    st.builds(
        lambda command, params, frame: {**item(command, *params), "frame": frame},
        st.sampled_from([16, 19, 20, 21, 22, 80, 93, 112, 115, 177, 178, 183, 195, 197, 201]),
        st.lists(_number, min_size=7, max_size=7),
        st.sampled_from([0, 2, 3, 10]),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(_items, st.binary(max_size=40), st.integers(0, 3000))
def test_no_file_does_anything_but_raise_mission_error(
    items: list[dict[str, Any]], junk: bytes, at: int
) -> None:
    whole = plan([ITEMS[0], *items])
    cut = whole[:at] + junk.decode("latin-1") + whole[at + len(junk) :]
    words = WAYPOINTS[: at % len(WAYPOINTS)] + junk.decode("latin-1")
    for reader, text in ((parse_plan, whole), (parse_plan, cut), (parse_waypoints, words)):
        with contextlib.suppress(MissionError):
            reader(text, where="x")


# --- for a certain ship ---------------------------------------------------------------------------

UP = '[[leg]]\ndo = "arm"\n[[leg]]\ndo = "takeoff"\naltitude_m = 3.0\n'


def twin(battery_v: float | None = None) -> Ability:
    ship = load("twin")
    return ability(ship, battery_v=full_v(ship.battery) if battery_v is None else battery_v)


def mission_of(legs: str, head: str = "") -> Mission:
    return parse_mission(f'name = "m"\n{head}{UP}{legs}', where="m")


@pytest.mark.parametrize(
    ("leg", "words"),
    [
        ('do = "goto"\nnorth_m = 5\neast_m = 0\naltitude_m = 31', "leg 3 (goto): is at 31 m, the"),
        ('do = "goto"\nnorth_m = 101\neast_m = 0\naltitude_m = 3', "is 101.0 m from the pad"),
        (
            'do = "goto"\nnorth_m = 5\neast_m = 0\naltitude_m = 3\nspeed_mps = 1.2',
            "flies at 1.2 m/s, the ship's limit is 0.7 m/s",
        ),
        (
            'do = "velocity"\nnorth_mps = 0.6\neast_mps = 0.6\nup_mps = 0\nseconds = 2',
            "flies at 0.85 m/s",
        ),
        (
            'do = "velocity"\nnorth_mps = 0\neast_mps = 0\nup_mps = -0.5\nseconds = 2',
            "climbs at -0.5 m/s, the ship's limits are -0.3 to 0.4 m/s",
        ),
        ('do = "payload"\nname = "hook"\ndeg = 3', "no payload servo 'hook'; it has none"),
    ],
)
def test_what_this_ship_cannot_fly_is_refused_with_the_numbers(leg: str, words: str) -> None:
    with pytest.raises(MissionError) as caught:
        judge(mission_of("[[leg]]\n" + leg), twin())
    assert words in str(caught.value)


def test_a_mission_beyond_the_battery_is_refused_with_the_numbers() -> None:
    square = load_mission("square")
    full = judge(square, twin())
    assert 100.0 < full.duration_s < 220.0
    assert full.charge_ah < 0.1
    with pytest.raises(
        MissionError, match=r"takes 0\.0\d Ah in \d min, 20 % of reserve .* 0\.00 Ah"
    ):
        judge(square, twin(battery_v=7.0))
    long = '[[leg]]\ndo = "hold"\nseconds = 600\n' * 13
    with pytest.raises(MissionError, match=r"takes 2\.\d+ Ah in 1\d\d min.*has 2\.0\d Ah"):
        judge(mission_of(long), twin())
    judge(mission_of(long), Ability(**{**_fields(twin()), "usable_ah": None}))


def _fields(ship: Ability) -> dict[str, Any]:
    return {name: getattr(ship, name) for name in ship.__struct_fields__}


def test_the_fence_of_a_toml_mission() -> None:
    head = "ceiling_m = 5\nfloor_m = 1\n[[geofence]]\ncircle = [0, 0, 10]\n"
    leg = '[[leg]]\ndo = "goto"\nnorth_m = {}\neast_m = 0\naltitude_m = {}\n'
    mission = mission_of(leg.format(5, 3), head)
    assert mission.legs[0].arguments() == {
        "zones": ({"polygon": (), "circle": (0.0, 0.0, 10.0), "exclude": False},),
        "ceiling_m": 5.0,
        "floor_m": 1.0,
    }
    for place, words in (
        ((12, 3), "leg 3 (goto): ends 2.0 m outside"),
        ((5, 6), "leg 3 (goto): is at 6.0 m, above the ceiling of 5 m"),
        ((5, 0.5), "under the floor of 1 m"),
    ):
        with pytest.raises(MissionError) as caught:
            mission_of(leg.format(*place), head)
        assert words in str(caught.value)
    out = '[[leg]]\ndo = "velocity"\nnorth_mps = 0.5\neast_mps = 0\nup_mps = 0\nseconds = 60\n'
    with pytest.raises(MissionError, match=r"leg 3 \(velocity\): ends 20.0 m outside"):
        mission_of(out, head)
    with pytest.raises(MissionError, match=r"geofence: zone 1: the pad is 5\.0 m"):
        mission_of("", "[[geofence]]\ncircle = [15, 0, 10]\n")


def test_a_yaw_needs_a_place_that_is_known() -> None:
    velocity = '[[leg]]\ndo = "velocity"\nnorth_mps = 0.1\neast_mps = 0\nup_mps = 0\nseconds = 5\n'
    yaw = '[[leg]]\ndo = "yaw"\ndeg = 90\n'
    assert mission_of(yaw).legs[2] == Goto(north_m=0.0, east_m=0.0, altitude_m=3.0, yaw_deg=90.0)
    with pytest.raises(
        MissionError, match=r"leg 4 \(yaw\): the ship's position is unknown at this leg"
    ):
        mission_of(velocity + yaw)
