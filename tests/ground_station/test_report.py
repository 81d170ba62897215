"""What a person reads of a report."""

from typing import Any

import pytest

from ground_station.report import value_words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-0.0, "0"),
        (-0.0002754966, "0"),
        (0.14142, "0.141"),
        (101181.0, "101181"),
        (True, "yes"),
        (False, "no"),
        ([1.0, -0.0], "1 0"),
        ({"left": 0.25, "safe": True}, "left 0.25, safe yes"),
        ("twin", "twin"),
        (None, "None"),
    ],
)
def test_a_value_is_words_and_not_python(value: Any, words: str) -> None:
    assert value_words(value) == words
