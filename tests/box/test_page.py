"""The tables of what a box runs of docs/pi.md fit the page."""

from tests.box.page import BESIDE, LAPTOP, NOT_IN_A_BOX, PAGE, SHOWN, TYPED, blocks, reason
from tests.test_shell_blocks import typed

LINES = [line for _, block in blocks() for line in typed(block)]
# What a block may begin with: anything else is what a program prints, and belongs into `SHOWN`.
COMMAND = (".", "blimp", "echo", "git", "ls", "pip", "python3", "ssh", "sudo", "uname")


def test_each_block_of_the_page_is_typed_or_is_what_a_program_prints() -> None:
    unknown = [(line, block) for line, block in blocks() if block.split()[0] not in COMMAND]
    assert unknown == []


def test_each_row_of_the_tables_is_about_a_line_of_the_page() -> None:
    text = PAGE.read_text("utf-8")
    assert [words for words in SHOWN if f"\n    {words}" not in text] == []
    begins = [block.strip() for _, block in blocks()]
    assert [w for w in LAPTOP if not any(b.startswith(w) for b in begins)] == []
    lines = (*BESIDE, *NOT_IN_A_BOX, *TYPED)
    assert [w for w in lines if not any(line.startswith(w) for line in LINES)] == []


def test_what_a_box_cannot_do_is_counted() -> None:
    assert len([line for line in LINES if reason(line) is None]) == 36
    assert len([line for line in LINES if reason(line) is not None]) == 16
