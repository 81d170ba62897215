"""The table of mutants is about the code as it is, and what no test notices survives."""

from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.mutants.__main__ import copy_to, try_one
from tests.mutants.table import PROJECT, Mutant, rows

ALL = [mutant for mutants in rows().values() for mutant in mutants]


def test_a_row_names_one_place_and_tests_that_are_there(tmp_path: Path) -> None:
    """Where a line was changed or a test was dropped, its row needs another text."""
    wrong = []
    for mutant in ALL:
        (tmp_path / mutant.file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / mutant.file).write_text((PROJECT / mutant.file).read_text())
        try:
            mutant.break_in(tmp_path)
        except (ValueError, SyntaxError) as error:
            wrong.append(f"{mutant.promise}: {error}")
        for target in mutant.targets():
            file, _, name = target.partition("::")
            test = f"def {name.partition('[')[0]}("
            path = PROJECT / file
            if not path.exists() or (name and test not in path.read_text()):
                wrong.append(f"{mutant.promise}: {target} is not there")
    assert wrong == []


def test_no_promise_stands_twice() -> None:
    promises = [mutant.promise for mutant in ALL]
    assert len(promises) == len(set(promises))


@pytest.mark.process
def test_a_line_that_is_broken_is_noticed_only_by_tests_that_need_it(tmp_path: Path) -> None:
    copy_to(tmp_path)
    copies: SimpleQueue[Path] = SimpleQueue()
    copies.put(tmp_path)

    def by(tests: str) -> str:
        mutant = Mutant(
            promise="a text ends where it is cut", file="blimp/nesting.py", tests=(tests,),
            line="> MAX_DEPTH:\n        plain", broken="> 2 * MAX_DEPTH:\n        plain",
        )  # fmt: skip
        return try_one(mutant, copies)

    assert "test_nesting" in by("tests/test_nesting.py")
    assert by("tests/test_files.py") == ""
    assert (tmp_path / "blimp/nesting.py").read_text() == (PROJECT / "blimp/nesting.py").read_text()
