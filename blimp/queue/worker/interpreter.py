"""The interpreter that a worker runs on: with its lock, plain tasks in threads take turns.

A free-threaded build of CPython runs without the lock, until an extension module is imported that
does not say it can do without: that turns the lock on again for the whole process, with a warning
at import which nobody may have seen. hiredis 3.5 is one; PYTHON_GIL=0 keeps the lock off all the
same.
"""

from __future__ import annotations

import importlib.machinery
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from types import ModuleType
from typing import Any

PROBE_TIMEOUT_S = 30.0
# Imports each module in a child of its own, and prints those after which the lock is on.
PROBE = """
import importlib, os, sys
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        finally:
            os._exit(sys._is_gil_enabled())
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def gil() -> str:
    """Return "enabled" on an ordinary build; else "disabled", or "turned on again"."""
    if not is_free_threaded():
        return "enabled"
    return "turned on again" if sys._is_gil_enabled() else "disabled"  # type: ignore[attr-defined, unused-ignore]


def described() -> dict[str, str]:
    return {"version": platform.python_version(), "gil": gil()}


def extension_names(modules: Mapping[str, ModuleType]) -> tuple[str, ...]:
    """Return the extension modules among `modules`, without those of the standard library."""
    return tuple(
        name
        for name, module in modules.items()
        if isinstance(getattr(module, "__loader__", None), importlib.machinery.ExtensionFileLoader)
        and name.partition(".")[0] not in sys.stdlib_module_names
    )


def names_that_turn_it_on() -> tuple[str, ...]:
    """Return the loaded packages that do. None if the lock is on by PYTHON_GIL or -X gil.

    A process cannot ask which of its modules it was, so another one imports them again.
    """
    if getattr(sys.flags, "gil", None) == 1:
        return ()
    names = extension_names(dict(sys.modules))
    command = [sys.executable, "-W", "ignore", "-c", PROBE, *names]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ("an extension module",)
    found = {name.partition(".")[0] for name in done.stdout.split()}
    return tuple(sorted(found)) or ("an extension module",)


def warn(log: Any) -> None:
    """Log a warning if this build could do without the lock, and has it all the same."""
    if gil() == "turned on again":
        names = names_that_turn_it_on()
        by = ", ".join(names) or "PYTHON_GIL or -X gil"
        cure = "PYTHON_GIL=0, if they can do without it" if names else "neither of them"
        log.warning("interpreter lock turned on again: plain tasks take turns", by=by, cure=cure)
