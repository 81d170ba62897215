"""docs/failsafe.html is made of the table and of the flights kept; it must be current."""

from benchmarks.failsafe_page import PAGE, page


def test_the_failsafe_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m benchmarks.failsafe_page"
