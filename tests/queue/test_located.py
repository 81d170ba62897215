"""Names of what a file defines that is run, and pickles that name an app by its module."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from blimp.errors import ConfigError
from blimp.queue import AsyncResult, GroupResult, TaskApp, chain, chord, group
from tests.forked import ran
from tests.queue.conftest import DEADLINE_S
from tests.queue.depending_app import app as somewhere

PROGRAM = """
from blimp.queue import TaskApp

app = TaskApp("demo", broker={url!r}, result_backend={url!r})


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(name="named", cpu_bound=True)
def named() -> int:
    return 3


def child(task: object, sent: object) -> None:
    print(task.name, sent.get(timeout={deadline}), task.delay(2, 3).get(timeout={deadline}))


if __name__ == "__main__":
    import multiprocessing

    print(add.name, named.name, named.delay().get(timeout={deadline}), flush=True)
    one = multiprocessing.get_context("spawn").Process(target=child, args=(add, add.delay(1, 2)))
    one.start()
    one.join()
"""


@pytest.mark.parametrize(
    ("file", "words", "folder", "name"),
    [
        ("demo.py", ["demo.py"], ".", "demo"),
        ("pkg/demo.py", ["-m", "pkg.demo"], ".", "pkg.demo"),
        ("pkg/demo.py", ["pkg/demo.py"], ".", "pkg.demo"),
        ("pkg/demo.py", ["demo.py"], "pkg", "demo"),
    ],
)
def test_a_worker_knows_what_a_script_sends(
    file: str, words: list[str], folder: str, name: str, url: str, tmp_path: Path
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / file).write_text(PROGRAM.format(url=url, deadline=DEADLINE_S))
    here = tmp_path / folder
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    worker = subprocess.Popen(
        [sys.executable, "-m", "blimp.queue", "worker", "-A", f"{name}:app"],
        cwd=here, env=environment, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        done = ran([sys.executable, *words], cwd=here, env=environment, timeout=DEADLINE_S)
    finally:
        worker.terminate()
        worker.wait(DEADLINE_S)
    assert done.stdout == f"{name}.add named 3\n{name}.add 3 5\n", done.stderr


def test_what_an_app_has_is_copied_and_pickled_with_it() -> None:
    task = next(iter(somewhere.tasks.values()))
    for kept in (somewhere, task):
        assert pickle.loads(pickle.dumps(kept)) is kept
        assert copy.copy(kept) is kept
        assert copy.deepcopy([kept]) == [kept]
    for signature in (
        task.s(1, n=2).set(queue="q"),
        chain(task.s(1), task.s()),
        group([task.s(1)]),
        chord([task.s(1)], task.s()),
    ):
        for again in (pickle.loads(pickle.dumps(signature)), copy.deepcopy(signature)):
            assert (again, type(again), again.app) == (signature, type(signature), somewhere)
    one = AsyncResult("a", app=somewhere, task=task.name, ignored=True)
    many = GroupResult("g", [one], app=somewhere, parent=one)
    for again in (pickle.loads(pickle.dumps(many)), copy.deepcopy(many), copy.copy(many)):
        assert (again.id, again.app, again.parent and again.parent.id) == ("g", somewhere, "a")
        assert [(r.id, r.task, r.ignored) for r in again.results] == [("a", task.name, True)]


def test_an_app_in_no_module_says_why_it_has_no_pickle() -> None:
    with TaskApp("local", broker="redis+socket:///nowhere") as app:
        assert copy.deepcopy(app) is app
        with pytest.raises(ConfigError, match="app 'local' cannot be pickled: it is no attribute"):
            pickle.dumps(app.task(name="t")(print))
