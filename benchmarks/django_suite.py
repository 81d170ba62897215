"""Django's own tests of its backends for tasks, on ours.

    python -m benchmarks.django_suite [--environment DIR] [--checkout DIR] [--json]

environment: a virtual environment with Django 6.0, by default .venv-django, which
`make .venv-django/installed` makes. checkout: a source tree of Django with its folder `tests`; by
default the source distribution of the environment's version is fetched. The tests run in a copy in
which our class has the place of each of Django's; see django_backends.py. Fails if one of them
fails that is not in NOT_OURS.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.celery_suite import fetch
from benchmarks.figures import make_parser, print_figures
from tests.redis_server import RedisServer

PROJECT = Path(__file__).parents[1]
CLASSES = {
    "dummy": ("DummyBackend", "Waiting"),
    "immediate": ("ImmediateBackend", "Running"),
}
_IMMEDIATE = "test_immediate_backend.ImmediateBackendTestCase."
_DUMMY = "test_dummy_backend.DummyBackendTestCase."
_IN_MEMORY = "it changes the dummy's own memory, and looks for that in the result"
_WITH_THE_COMMIT = "it wants a task sent before the commit; ours is sent with it"
_CAN = "it wants an error for what Django's backend cannot do, and ours can"
NOT_OURS = {
    f"{_DUMMY}test_refresh_result": _IN_MEMORY,
    f"{_DUMMY}test_refresh_result_async": _IN_MEMORY,
    "test_dummy_backend.DummyBackendTransactionTestCase."
    "test_doesnt_wait_until_transaction_commit_by_default": _WITH_THE_COMMIT,
    "test_immediate_backend.ImmediateBackendTransactionTestCase."
    "test_doesnt_wait_until_transaction_commit_by_default": _WITH_THE_COMMIT,
    f"{_IMMEDIATE}test_cannot_get_result": _CAN,
    f"{_IMMEDIATE}test_cannot_refresh_result": _CAN,
    f"{_IMMEDIATE}test_cannot_pass_run_after": _CAN,
    f"{_IMMEDIATE}test_throws_keyboard_interrupt": "it wants the task to run in its sender",
}


def copy_tests(checkout: Path, directory: Path) -> None:
    """Copy the tests of tasks, with our classes in the place of Django's."""
    shutil.copytree(checkout / "tests" / "tasks", directory / "tasks")
    for path in (directory / "tasks").glob("test_*.py"):
        text = path.read_text("utf-8")
        for module, (theirs, ours) in CLASSES.items():
            known = f"django.tasks.backends.{module}"
            text = text.replace(f"{known}.{theirs}", f"benchmarks.django_backends.{ours}")
            text = text.replace(
                f"from {known} import {theirs}",
                f"from benchmarks.django_backends import {ours} as {theirs}",
            )
        path.write_text(text, "utf-8")


def judge(python: Path, directory: Path) -> dict[str, dict[str, str]]:
    """Return the names of the tests by their outcome, the failed with their last line."""
    with RedisServer(directory) as server:
        ended = subprocess.run(
            [str(python), "-m", "benchmarks.django_judged", server.url],
            cwd=directory,
            env=os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{PROJECT}"},
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr)
    found = json.loads(ended.stdout.splitlines()[-1])
    return {
        outcome: {name.removeprefix("tasks."): words for name, words in tests.items()}
        for outcome, tests in found.items()
    }


def main() -> int:
    parser = make_parser("benchmarks.django_suite", __doc__)
    parser.add_argument("--environment", type=Path, default=PROJECT / ".venv-django", metavar="DIR")
    parser.add_argument("--checkout", type=Path, metavar="DIR", help="default: it is fetched")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    python = options.environment.absolute() / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="django-suite-") as name:
        directory = Path(name)
        version = subprocess.check_output([str(python), "-m", "django", "--version"], text=True)
        checkout = options.checkout or fetch(python, f"Django=={version.strip()}", directory)
        copy_tests(checkout, directory)
        found = judge(python, directory)
    unexpected = {name: why for name, why in found["failed"].items() if name not in NOT_OURS}
    missing = sorted(NOT_OURS.keys() - found["failed"].keys())
    figures = {
        "passed": len(found["passed"]),
        "not ours": {name: NOT_OURS[name] for name in found["failed"] if name in NOT_OURS},
        "failed": unexpected,
        "passed against NOT_OURS": missing,
    }
    print_figures("benchmarks.django_suite", figures, one_line=options.json)
    return int(bool(unexpected or missing or not found["passed"]))


if __name__ == "__main__":
    sys.exit(main())
