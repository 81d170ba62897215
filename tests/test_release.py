"""What `make release` compares before anything is installed."""

import pytest

from tests.release import BUILT, NotReleased, compare

TRACKED = {"Makefile", "blimp/cli.py", "ground_station/cli.py", "tests/release.py"}
WHEEL = {"blimp/cli.py", "ground_station/cli.py"} | BUILT


def test_gits_files_and_what_the_build_says_are_a_release() -> None:
    compare(TRACKED, sdist=TRACKED | BUILT, wheel=WHEEL)


@pytest.mark.parametrize(
    ("sdist", "wheel", "words"),
    [
        (TRACKED, WHEEL, "sdist: lacks"),
        (TRACKED - {"tests/release.py"} | BUILT, WHEEL, r"sdist: lacks \['tests/release.py'\]"),
        (TRACKED | BUILT | {"secret"}, WHEEL, r"sdist: .* has \['secret'\]"),
        (TRACKED | BUILT, WHEEL | {"blimp/gone.py"}, r"wheel: .* has \['blimp/gone.py'\]"),
        (TRACKED | BUILT, WHEEL - {"blimp/cli.py"}, r"wheel: lacks \['blimp/cli.py'\]"),
    ],
)
def test_what_is_missing_or_was_left_there_is_named(
    sdist: set[str], wheel: set[str], words: str
) -> None:
    with pytest.raises(NotReleased, match=words):
        compare(TRACKED, sdist=sdist, wheel=wheel)
