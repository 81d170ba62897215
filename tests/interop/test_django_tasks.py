"""The tests of `django.tasks` in a Python that is new enough for them."""

import os
import subprocess
from pathlib import Path

import django
import pytest

PROJECT = Path(__file__).parents[2]
ENVIRONMENT = PROJECT / ".venv-django"
DEADLINE_S = 280.0
OURS = ("PYTEST", "PROJECT_", "DJANGO_")  # variables that tests in this process may have set

if django.VERSION >= (6, 0):
    pytest.skip("they run where they are", allow_module_level=True)
if not (ENVIRONMENT / "installed").exists():
    reason = "NOT RUN: needs Python 3.12: make .venv-django/installed"
    pytest.skip(reason, allow_module_level=True)


def test_the_tests_of_django_tasks_pass_there() -> None:
    folder = "tests/queue/extras/django"
    words = [f"{folder}/test_tasks_backend.py", f"{folder}/test_outbox.py", "-k", "tasks or mails"]
    ended = subprocess.run(
        [
            str(ENVIRONMENT / "bin" / "python"),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *words,
        ],
        cwd=PROJECT,
        env={key: value for key, value in os.environ.items() if not key.startswith(OURS)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout
