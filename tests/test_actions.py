"""The table of actions, and what is made from it or must agree with it."""

import re
from itertools import chain
from typing import Any

import msgspec
import pytest

from benchmarks.actions_page import PAGE, page
from blimp.actions import ACTIONS, MODE_NEEDS, Action, Progress
from blimp.control.commander import _CHECKS, HANDLERS
from blimp.forms import arguments_of
from tests.control.parts import twin

ROWS = pytest.mark.parametrize("action", ACTIONS.values(), ids=lambda row: row.name)


def test_every_action_that_flies_has_a_handler_on_board_and_every_need_its_check() -> None:
    assert set(HANDLERS) == {name for name, action in ACTIONS.items() if action.flies}
    needs = {*chain(*(action.needs for action in ACTIONS.values()), *MODE_NEEDS.values())}
    assert needs == set(_CHECKS)


@ROWS
def test_a_row_says_what_its_arguments_are(action: Action) -> None:
    limits = twin().limits
    for argument in arguments_of(action.arguments):
        assert argument.about.endswith("."), argument.name
        low, high = argument.bounds(limits)
        assert argument.low <= low <= high <= argument.high, argument.name
        if argument.is_bounded:
            assert argument.unit or argument.kind is int, argument.name
    names = [one.name for one in arguments_of(action.arguments)]
    assert ("seconds" in names) or action.progress is not Progress.TIME


def test_how_long_an_end_is_waited_for_has_its_seconds() -> None:
    assert ACTIONS["velocity"].timeout_s({"seconds": 3.0}) == 13.0
    assert ACTIONS["servo"].timeout_s({}) == 10.0
    assert ACTIONS["stick"].timeout_s({"seconds": 3.0}) == 10.0
    assert ACTIONS["goto"].timeout_s({}) == 180.0
    part = {"name": "a", "points": [[0.0, 0.0], [60.0, 1.0]]}
    assert ACTIONS["trajectory"].timeout_s(part) == 70.0
    assert ACTIONS["trajectory"].timeout_s(part | {"last": False}) == 10.0


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("takeoff", {}, "altitude_m is missing: Metres above the pad"),
        ("takeoff", {"altitude_m": None}, "altitude_m is missing"),
        ("takeoff", {"altitude_m": "3"}, "altitude_m must be a finite number, 0.5 to 10000 m"),
        ("takeoff", {"altitude_m": True}, "altitude_m must be a finite number"),
        ("takeoff", {"altitude_m": float("nan")}, "not nan"),
        ("takeoff", {"altitude_m": 0.4}, "0.5 to 10000 m, not 0.4"),
        ("takeoff", {"altitude": 3}, "did you mean 'altitude_m'"),
        ("hold", {"x": 3}, "hold has no argument 'x'; it has none"),
        ("arm", {"force": 1}, "force: must be true or false"),
        ("motor", {"name": 3, "percent": 1, "seconds": 1}, "name: must be a text"),
        ("motor", {"name": "a" * 201, "percent": 1, "seconds": 1}, "up to 200 letters"),
        *(
            (action.name, {one.name: "\ud800"}, f"{one.name}: '\\ud800' is no text")
            for action in ACTIONS.values()
            for one in arguments_of(action.arguments)
            if one.kind is str
        ),
        ("mode", {"name": "loitre"}, "no mode 'loitre' (did you mean 'loiter'?); modes are LAND,"),
        ("payload", {"channel": 1.5, "deg": 1}, "channel must be a whole number"),
        ("param", {"name": "a.b", "value": float("inf")}, "value must be a finite number, not inf"),
        ("param", {"name": "a.b", "value": 10**400}, "value must be a finite number, not 1000"),
        ("takeoff", {"altitude_m": 10**5000}, "altitude_m must be a finite number, 0.5 to 10000 m"),
        ("payload", {"channel": 2**63, "deg": 1}, "channel must be a whole number"),
        ("geofence", {"ceiling_m": -(10**400)}, "ceiling_m must be a finite number, not -1000"),
    ],
)
def test_what_no_ship_takes_is_refused_naming_argument_value_and_limit(
    name: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        ACTIONS[name].checked(arguments)


def test_what_is_sent_is_what_was_given() -> None:
    given = {"north_m": 1, "east_m": -2.0, "altitude_m": 3, "yaw_deg": None}
    sent = ACTIONS["goto"].checked(given)
    assert sent == {"north_m": 1, "east_m": -2.0, "altitude_m": 3}
    assert msgspec.convert(sent, ACTIONS["goto"].arguments)


def test_the_page_of_actions_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m benchmarks.actions_page"
