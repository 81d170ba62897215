"""The types of tasks, as pyright and a caller see them; `make check` has mypy read the same."""

import json
import sys
from pathlib import Path

import pytest

from blimp.queue import AsyncResult, Task, TaskApp, TaskContext
from tests.forked import ran
from tests.queue.conftest import DEADLINE_S, working
from tests.queue.server_view import Look

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_pyright_reads_the_examples_as_mypy_does(tmp_path: Path) -> None:
    """An ignore that is not needed is an error, so each line that must be wrong is."""
    project = tmp_path / "pyrightconfig.json"
    settings = {
        "include": [str(ROOT / "tests" / "queue" / "typed_examples.py")],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "standard",
        "enableTypeIgnoreComments": True,
        "reportUnnecessaryTypeIgnoreComment": "error",
        "pythonVersion": "3.11",
    }
    project.write_text(json.dumps(settings))
    checker = [sys.executable, "-m", "basedpyright", "-p", str(project)]
    checked = ran([*checker, "--pythonpath", sys.executable], timeout=10 * DEADLINE_S)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 errors" in checked.stdout


def test_wrong_arguments_are_an_error_of_the_call(app: TaskApp, look: Look) -> None:
    """A message that no function can take went to a worker, which refused it."""

    @app.task(name="add")
    def add(x: int, *, y: int = 1) -> int:
        return x + y

    @app.task(name="bound", bind=True)
    def bound(context: TaskContext, x: int) -> str:
        return f"{context.message.id} {x}"

    for call in (
        lambda: add.delay(),  # type: ignore[call-arg]
        lambda: add.delay(1, 2),  # type: ignore[call-arg]
        lambda: add.delay(1, z=2),  # type: ignore[call-arg]
        lambda: add.apply_async((1, 2)),
        lambda: bound.delay(),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=r"arguments of '(add|bound)'"):
            call()
    assert look.left_behind() == []
    with working(app):
        assert add.delay(1, y=3).get(DEADLINE_S) == 4
        assert bound.delay(1).get(DEADLINE_S).endswith(" 1")


def test_tasks_and_results_can_be_written_with_their_types() -> None:
    """In annotations that are evaluated, as those of pydantic's models are."""
    assert Task[[int], str] is not None
    assert AsyncResult[int].__origin__ is AsyncResult  # type: ignore[attr-defined]
