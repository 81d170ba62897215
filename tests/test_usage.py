"""How numbers of a command line are read, and their limits said."""

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from blimp.usage import number

metres = number(low=-10.0, high=10.0, unit="m")
seconds = number(low=0.0, high=60.0, unit="s", above=True)


@pytest.mark.parametrize(
    "text",
    [
        "nan",
        "inf",
        "",
        "1_0",
        "3m",
        "1,5",
        "٣",
        "--1",
    ],
)
def test_what_is_no_finite_decimal_number_is_refused_with_the_limits(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be -10 to 10 m, not "):
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
