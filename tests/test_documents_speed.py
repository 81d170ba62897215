"""The tables of the speed page are those of the kept run."""

from benchmarks.speed_page import PAGE, page


def test_the_speed_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m benchmarks.speed_page"
