"""How the command line is read: numbers and their limits, options in any place."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from ground_station.arguments import hoist_global_options, looks_negative, number

metres = number(low=-10.0, high=10.0, unit="m")
seconds = number(low=0.0, high=60.0, unit="s", above=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3.0), ("-3", -3.0), ("+.5", 0.5), ("1e1", 10.0), ("-0", 0.0), ("2.", 2.0)],
)
def test_numbers(text: str, value: float) -> None:
    assert metres(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "nan",
        "NaN",
        "inf",
        "-inf",
        "Infinity",
        "",
        " 1",
        "1_0",
        "0x1",
        "3m",
        "1,5",
        "٣",
        "1e",
        "--1",
    ],
)
def test_what_is_no_finite_decimal_number_is_named(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a finite decimal number"):
        metres(text)


@pytest.mark.parametrize(
    ("text", "limits"), [("10.01", "-10 to 10"), ("-1e300", "-10 to 10"), ("1e999", "-10 to 10")]
)
def test_what_is_outside_is_refused_with_the_limits(text: str, limits: str) -> None:
    with pytest.raises(typer.BadParameter, match=limits):
        metres(text)


@pytest.mark.parametrize("text", ["0", "-1", "-0.0"])
def test_a_time_must_be_more_than_nothing(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="more than 0 to 60"):
        seconds(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_back_or_refused(value: float) -> None:
    if -10.0 <= value <= 10.0:
        assert metres(repr(value)) == value
    else:
        with pytest.raises(typer.BadParameter):
            metres(repr(value))


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
        (["ping", "--broker"], ["--broker", "ping"]),
        (["ping", "--wait"], ["--wait", "ping"]),
        (
            ["--vehicle", "dispatch", "goto", "1", "2", "3", "--wait"],
            ["--vehicle", "dispatch", "--wait", "goto", "1", "2", "3"],
        ),
        (
            ["--yes", "dispatch", "--any", "a", "--wait", "9", "--json"],
            ["--yes", "--json", "dispatch", "--any", "a", "--wait", "9"],
        ),
        (
            ["control", "take", "--wait=9", "--no-wait"],
            ["--no-wait", "control", "take", "--wait=9"],
        ),
    ],
)
def test_global_options_may_stand_anywhere(given: list[str], made: list[str]) -> None:
    assert hoist_global_options(given) == made
