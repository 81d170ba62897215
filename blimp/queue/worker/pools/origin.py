"""Where a fresh process finds a task: `module:attribute` of its app, or of the task itself."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from blimp.errors import ConfigError
from blimp.queue.task import Task

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp


def locate_all(app: TaskApp, *, app_path: str | None) -> dict[str, str]:
    """Return, by task name, where to find each cpu_bound task of `app`.

    app_path: where the app itself is, if that is known. Raises ConfigError naming a task that
    no other process can find.
    """
    return {
        task.name: app_path or _locate(task)
        for task in app.tasks.values()
        if task.options.cpu_bound
    }


def find(origin: str, name: str) -> Task:
    """Return the task `name` at `origin`. Raises ConfigError if it is not there."""
    from blimp.queue.app import TaskApp

    module_name, _, attribute = origin.partition(":")
    found = getattr(importlib.import_module(module_name), attribute, None)
    if isinstance(found, TaskApp):
        found = found.tasks.get(name)
    if not isinstance(found, Task) or found.name != name:
        raise ConfigError(
            f"task {name!r} is not in {origin}: a process of its own sees what the module makes "
            "when it is imported, and no more"
        )
    return found


def _locate(task: Task) -> str:
    module_name = task.function.__module__
    if module_name != "__main__":
        for attribute, value in list(vars(sys.modules[module_name]).items()):
            if value is task or value is task.app:
                return f"{module_name}:{attribute}"
    raise ConfigError(
        f"task {task.name!r} is cpu_bound, and a process of its own cannot find it in module "
        f"{module_name!r}: have it or its app an attribute of a module that can be imported, "
        "or give Worker(app_path='module:attribute')"
    )
