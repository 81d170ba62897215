"""redis-py, without two halves of it that nobody here asks for: four megabytes of forty.

Where OpenTelemetry is installed, redis-py 7 and newer loads its metrics half: here it is loaded
as if there were none. And it loads all of its clients for asyncio: here when something is asked
of `redis.asyncio`, or it is imported. A program that wants either loads redis-py before.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

LATER = "redis.asyncio"

_modules: dict[str, Any] = sys.modules


def _stand_in(name: str) -> ModuleType | None:
    """Return a module that loads the package `name` when something is asked of it.

    What is imported from inside of that package is found; None where there is no such package.
    """
    parent, _, own = name.rpartition(".")
    found = importlib.util.find_spec(parent)
    if found is None or not found.submodule_search_locations:
        return None
    module: Any = ModuleType(name)
    module.__path__ = [f"{folder}/{own}" for folder in found.submodule_search_locations]

    def load(attribute: str) -> Any:
        if attribute.startswith("__") or _modules.get(name) is module:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(importlib.import_module(name), attribute)

    module.__getattr__ = load
    return module  # type: ignore[no-any-return]


def _load() -> ModuleType:
    later = _stand_in(LATER)
    if later is not None:
        _modules[LATER] = later
    try:
        return importlib.import_module("redis")
    finally:
        _modules.pop(LATER, None)  # whoever imports it has the real one


def _load_lean() -> ModuleType:
    if "redis" in _modules:
        return _modules["redis"]  # type: ignore[no-any-return]
    is_hidden = "opentelemetry" not in _modules
    if is_hidden:
        _modules["opentelemetry"] = None  # importing it fails, which redis-py is ready for
    try:
        return _load()
    except ImportError:  # a version that needs it at once
        for name in [one for one in _modules if one.partition(".")[0] == "redis"]:
            del _modules[name]
        return importlib.import_module("redis")
    finally:
        if is_hidden:
            del _modules["opentelemetry"]


if TYPE_CHECKING:
    import redis
else:
    redis = _load_lean()

__all__ = ["redis"]
