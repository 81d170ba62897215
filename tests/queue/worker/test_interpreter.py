"""Which interpreter a worker runs on, and who turned its lock on."""

import os
import sys
from types import ModuleType

import pytest

from blimp.queue.worker import interpreter
from blimp.queue.worker.interpreter import described, extension_names, gil, warn
from tests.forked import ran


class Lines:
    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.warnings.append((event, fields))


def test_says_version_and_lock_of_this_build() -> None:
    assert described() == {"version": ".".join(map(str, sys.version_info[:3])), "gil": gil()}


@pytest.mark.parametrize(
    ("is_built_without", "is_enabled", "said"),
    [(False, True, "enabled"), (True, False, "disabled"), (True, True, "turned on again")],
)
def test_lock_by_build_and_by_what_was_loaded(
    monkeypatch: pytest.MonkeyPatch, is_built_without: bool, is_enabled: bool, said: str
) -> None:
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: is_built_without)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: is_enabled, raising=False)
    assert gil() == said


def test_ordinary_build_is_no_reason_for_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines()
    monkeypatch.setattr(interpreter, "is_free_threaded", lambda: False)
    warn(lines)
    assert lines.warnings == []


def test_warning_names_the_packages_or_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "gil", lambda: "turned on again")
    monkeypatch.setattr(interpreter, "names_that_turn_it_on", lambda: ("lz4", "zstandard"))
    lines = Lines()
    warn(lines)
    ((event, fields),) = lines.warnings
    assert "turned on again" in event
    assert fields == {"by": "lz4, zstandard", "cure": "PYTHON_GIL=0, if they can do without it"}

    monkeypatch.setattr(interpreter, "names_that_turn_it_on", tuple)
    warn(lines)
    assert lines.warnings[-1][1] == {"by": "PYTHON_GIL or -X gil", "cure": "neither of them"}


def test_extensions_of_packages_are_asked_and_the_library_s_are_not() -> None:
    names = extension_names(dict(sys.modules))
    assert "msgspec._core" in names
    assert not [name for name in names if name.partition(".")[0] in sys.stdlib_module_names]
    assert extension_names({"plain": ModuleType("plain")}) == ()


@pytest.mark.skipif(not interpreter.is_free_threaded(), reason="an ordinary build has its lock")
def test_of_what_a_worker_imports_only_hiredis_turns_it_on() -> None:
    """Tests run with PYTHON_GIL=0 for it: only one thread at a time uses a connection's Reader."""
    assert gil() == "disabled"
    code = (
        "import blimp.queue.cli, blimp.queue.worker.worker, blimp.queue.brokers.streams.consumer\n"
        "from blimp.queue.worker.interpreter import names_that_turn_it_on\n"
        "print(*names_that_turn_it_on())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    said = ran(command, env=environment, check=True)
    assert {*said.stdout.split()} <= {"hiredis"}
