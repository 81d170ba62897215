"""How the command line is read: negative numbers, options in any place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ground_station.arguments import hoist_global_options, looks_negative


@given(st.floats())
def test_every_negative_number_is_an_argument(value: float) -> None:
    assert looks_negative(repr(-abs(value)) if value == value else "-nan")


@pytest.mark.parametrize("word", ["--json", "-h", "-", "--3", "x-3", ""])
def test_options_are_no_numbers(word: str) -> None:
    assert not looks_negative(word)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (["ping", "--json"], ["--json", "ping"]),
        (["goto", "-3", "4", "5", "--timeout", "9"], ["--timeout", "9", "goto", "-3", "4", "5"]),
        (["hold", "--vehicle=a", "--yes"], ["--vehicle=a", "--yes", "hold"]),
        (["result", "--", "--json"], ["result", "--", "--json"]),
        (["goto", "1", "2", "3", "--yaw-deg", "-9"], ["goto", "1", "2", "3", "--yaw-deg", "-9"]),
        (
            ["--vehicle", "dispatch", "goto", "1", "2", "3", "--wait"],
            ["--vehicle", "dispatch", "--wait", "goto", "1", "2", "3"],
        ),
        (
            ["--yes", "dispatch", "--any", "a", "--wait", "9", "--json"],
            ["--yes", "--json", "dispatch", "--any", "a", "--wait", "9"],
        ),
    ],
)
def test_global_options_may_stand_anywhere(given: list[str], made: list[str]) -> None:
    assert hoist_global_options(given) == made
