"""Where another process finds an app and its tasks: "module:attribute".

A file that is run, `python demo.py`, is the module `__main__`; for a worker, `-A demo:app`, it is
`demo`. Tested by test_located.py.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from blimp.errors import ConfigError

T = TypeVar("T")
MAIN = ("__main__", "__mp_main__")  # the latter in a process that multiprocessing has started


class ByName:
    """What there is once in a process: a copy of it is itself."""

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: object) -> T:
        return self


def module_name(name: str) -> str:
    """Return the name under which another process imports module `name`: of `__main__`, its file's.

    `__main__` if it has no file. A file in a package has the name that it has from the present
    directory, where a worker is started, too.
    """
    if name not in MAIN or (module := sys.modules.get(name)) is None:
        return name
    if (spec := getattr(module, "__spec__", None)) is not None:  # python -m package.demo
        return str(spec.name)
    file = getattr(module, "__file__", None)
    if file is None:
        return name
    path = Path(os.path.abspath(file))
    names, directory, here = [path.stem], path.parent, Path.cwd()
    while directory != here and (directory / "__init__.py").exists():
        names.insert(0, directory.name)
        directory = directory.parent
    return ".".join(names)


def path_of(*things: object, modules: Iterable[str]) -> str | None:
    """Return where the first of `things` that is an attribute of `modules` is found."""
    for name in modules:
        found = module_name(name)
        if found in MAIN:
            continue
        for attribute, value in list(getattr(sys.modules.get(name), "__dict__", {}).items()):
            if any(value is one for one in things):
                return f"{found}:{attribute}"
    return None


def path_of_app(app: Any) -> str:
    """Return where `app` is found. Raises ConfigError if it is no attribute of a module."""
    first = [task.function.__module__ for task in app.tasks.values()]
    path = path_of(app, modules=[*dict.fromkeys(first), *sys.modules])
    if path is None:
        raise ConfigError(
            f"app {app.name!r} cannot be pickled: it is no attribute of a module that can be "
            "imported, by which another process would find it"
        )
    return path


def imported(path: str) -> Any:
    """Return what is at "module:attribute", None if there is nothing. Raises ImportError."""
    name, _, attribute = path.partition(":")
    for main in MAIN:
        if main in sys.modules and module_name(main) == name:
            return getattr(sys.modules[main], attribute, None)
    return getattr(importlib.import_module(name), attribute, None)


def app_at(path: str) -> Any:
    """Return the app at `path`, as a pickle names it. Raises ConfigError if there is none."""
    found = imported(path)
    if not isinstance(found, ByName):
        raise ConfigError(f"there is no app at {path!r}")
    return found


def task_at(path: str, name: str) -> Any:
    """Return task `name` of the app at `path`. Raises ConfigError, UnknownTask."""
    return app_at(path).get_task(name)
