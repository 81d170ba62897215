"""Two versions of one app, for worker processes: `old` does not know the task `new`.

Nor that `pair` takes two arguments.
"""

import os
from pathlib import Path
from typing import Any

from blimp.queue import TaskApp


def build(url: str, directory: Path, *, is_new: bool) -> TaskApp:
    app = TaskApp("tests", broker=url, result_backend=url)

    def note(x: int) -> int:
        with (directory / "ran").open("a") as file:
            file.write(f"{x}\n")
        return x

    app.task(name="old")(note)
    app.task(name="pair", cpu_bound=True)(sum_of if is_new else first_of)
    if is_new:
        app.task(name="new")(note)
    return app


def first_of(x: int) -> int:
    return x


def sum_of(x: int, more: int) -> int:
    return x + more


def ran(directory: Path) -> list[int]:
    file = directory / "ran"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def __getattr__(name: str) -> Any:
    if name not in ("old", "new"):
        raise AttributeError(name)
    directory = Path(os.environ["KILLED_DIRECTORY"])
    return build(os.environ["KILLED_BROKER"], directory, is_new=name == "new")
