"""Mission files: what is flown, what is refused and how that is said, the line they draw."""

import os
from math import inf
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.actions import ACTIONS
from blimp.errors import MissionError
from blimp.forms import arguments_of
from ground_station.legs import CEILING_M, MAX_LEGS, Goto, Hold, Planned, Takeoff
from ground_station.mission_file import (
    MAX_BYTES,
    builtin_missions,
    load_mission,
    parse_mission,
)
from ground_station.track import TrackLeg, cross_track_m

UP = '[[leg]]\ndo = "arm"\n[[leg]]\ndo = "takeoff"\naltitude_m = 3.0\n'


def mission(legs: str, head: str = 'name = "m"\n') -> str:
    return head + legs


def test_square_is_the_default_mission() -> None:
    square = load_mission("square")
    assert [leg.do for leg in square.legs] == ["arm", "takeoff", *["goto"] * 4, "land"]
    assert square.legs[1] == Takeoff(altitude_m=3.0)
    assert square.legs[3] == Goto(north_m=10.0, east_m=10.0, altitude_m=3.0)
    assert square.legs[3].arguments() == {"north_m": 10.0, "east_m": 10.0, "altitude_m": 3.0}
    assert square.reach_m() == pytest.approx((200.0**0.5, 3.0))
    assert square.track() == {
        2: TrackLeg((0, 0, 0), (0, 0, 3)),
        3: TrackLeg((0, 0, 3), (10, 0, 3)),
        4: TrackLeg((10, 0, 3), (10, 10, 3)),
        5: TrackLeg((10, 10, 3), (0, 10, 3)),
        6: TrackLeg((0, 10, 3), (0, 0, 3)),
        7: TrackLeg((0, 0, 3), (0, 0, 0)),
    }


def test_every_built_in_mission_can_be_read() -> None:
    assert builtin_missions() == ("hop", "show", "square")
    for name in builtin_missions():
        assert load_mission(name).name == name
    assert Hold(seconds=2.0) in load_mission("hop").legs


def test_a_leg_with_an_unknown_end_has_no_line(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(
        mission(
            UP + '[[leg]]\ndo = "velocity"\nnorth_mps = 1\neast_mps = 0\nup_mps = 0\nseconds = 3\n'
            '[[leg]]\ndo = "goto"\nnorth_m = 1\neast_m = 2\naltitude_m = 3\nyaw_deg = -90\n'
            '[[leg]]\ndo = "return"\n[[leg]]\ndo = "land"\n[[leg]]\ndo = "disarm"\n'
        )
    )
    track = load_mission(str(path)).track()
    assert sorted(track) == [2, 5, 6]
    assert track[5] == TrackLeg((1, 2, 3), (0, 0, 3))


@pytest.mark.parametrize(
    ("legs", "words"),
    [
        ("", ["leg"]),
        ("leg = []", ["0 legs", "1 to 200"]),
        ("= 3", ["line 2"]),
        ('[[leg]]\ndo = "fly"', ["leg 1", "'fly'", "goto"]),
        ("[[leg]]\nnorth_m = 3", ["leg 1", "no 'do'"]),
        (UP + '[[leg]]\ndo = "goto"\nnorth_m = 1\neast_m = 2', ["leg 3", "goto", "altitude_m"]),
        (UP.replace("3.0", "nan"), ["leg 2", "altitude_m = nan", "finite"]),
        (UP.replace("3.0", "0.1"), ["leg 2", "altitude_m = 0.1", "0.5"]),
        (UP.replace("3.0", '"3"'), ["leg 2", "altitude_m = 3", "float", "str"]),
        (UP + '[[leg]]\ndo = "land"\nfast = true', ["leg 3", "land", "fast"]),
        (
            UP + '[[leg]]\ndo = "goto"\nnorth_m = 10001\neast_m = 0\naltitude_m = 3',
            ["leg 3", "north_m = 10001", "10000"],
        ),
        (UP + '[[leg]]\ndo = "hold"\nseconds = 0', ["leg 3", "seconds = 0", "> 0"]),
        (UP + '[[leg]]\ndo = "takeoff"\naltitude_m = 3', ["leg 3", "taken off already"]),
        (UP + '[[leg]]\ndo = "disarm"', ["leg 3", "disarmed in the air"]),
        ('[[leg]]\ndo = "takeoff"\naltitude_m = 3', ["leg 1", "not armed"]),
        ('[[leg]]\ndo = "arm"\n[[leg]]\ndo = "land"', ["leg 2", "not taken off"]),
        (UP + '[[leg]]\ndo = "land"\n' + '[[leg]]\ndo = "hold"', ["leg 4", "not taken off"]),
        ('[[leg]]\ndo = "arm"\n' * (MAX_LEGS + 1), ["201 legs", "200"]),
        ("x = " + "[" * 5000, ["mission m.toml"]),
    ],
)
def test_what_cannot_be_flown_is_refused_by_name(legs: str, words: list[str]) -> None:
    with pytest.raises(MissionError) as caught:
        parse_mission(mission(legs), where="m.toml")
    for word in ["mission m.toml", *words]:
        assert word in str(caught.value)


def test_files_that_are_no_missions(tmp_path: Path) -> None:
    big, latin, fifo = tmp_path / "big.toml", tmp_path / "latin.toml", tmp_path / "fifo.toml"
    big.write_bytes(b"#" * (MAX_BYTES + 1))
    latin.write_bytes(b'name = "\xe9"')
    os.mkfifo(fifo)
    for path, word in [
        (big, str(MAX_BYTES)),
        (latin, "utf-8"),
        (fifo, "neither a file"),
        (tmp_path, "neither a file"),
        (tmp_path / "none.toml", "hop, show, square"),
    ]:
        with pytest.raises(MissionError, match=word):
            load_mission(str(path))
    for name in ("", "squire", "a\0b"):
        with pytest.raises(MissionError):
            load_mission(name)


@given(st.text())
def test_no_text_does_anything_but_raise_mission_error(text: str) -> None:
    with pytest.raises(MissionError):
        parse_mission(text, where="m.toml")


def test_the_limits_of_a_leg_are_those_of_its_action() -> None:
    _, schemas = msgspec.json.schema_components([Planned])
    compared = 0
    for action in ACTIONS.values():
        form = next(
            (one for one in get_args(Planned) if one.__struct_config__.tag == action.name), None
        )
        properties = {} if form is None else schemas[form.__name__]["properties"]
        for argument in arguments_of(action.arguments):
            if argument.is_bounded and argument.name in properties:
                found = properties[argument.name]
                found = {**found, **found.get("anyOf", [{}])[0]}
                high = argument.high if argument.name != "altitude_m" else CEILING_M
                assert (found["minimum"], found["maximum"]) == (argument.low, high), argument.name
                compared += 1
    assert compared >= 10


coordinate = st.floats(min_value=-1000, max_value=1000)


@given(coordinate, coordinate, coordinate, coordinate, coordinate, coordinate)
def test_cross_track_is_the_least_distance_to_any_place_of_the_leg(
    n0: float, e0: float, n1: float, e1: float, north: float, east: float
) -> None:
    off_m = cross_track_m(TrackLeg((n0, e0, 3.0), (n1, e1, 3.0)), (north, east, -3.0))
    sampled_m = inf
    for step in range(101):
        n, e = n0 + step / 100 * (n1 - n0), e0 + step / 100 * (e1 - e0)
        sampled_m = min(sampled_m, ((n - north) ** 2 + (e - east) ** 2) ** 0.5)
    length_m = ((n1 - n0) ** 2 + (e1 - e0) ** 2) ** 0.5
    assert off_m <= sampled_m + 1e-6
    assert sampled_m <= off_m + length_m / 100 + 1e-6
