"""Runs Django's tests of its backends for tasks, on ours: see django_suite.py.

    python -m benchmarks.django_judged URL

The current directory has a copy of those tests, `tasks`, in which the names of Django's backends
are replaced by the classes here. Prints the names of the tests by their outcome, as JSON.
"""

from __future__ import annotations

import json
import sys
import unittest
from typing import Any, ClassVar

import django
from django.conf import settings


def set_up(url: str) -> None:
    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings.configure(
        INSTALLED_APPS=["tasks"],  # no outbox: most of the tests may use no database
        DATABASES={"default": memory},
        BLIMP_QUEUE={"broker": url, "result_backend": url},
        SECRET_KEY="of the tests",
        USE_TZ=True,
    )
    django.setup()


def main() -> int:
    set_up(sys.argv[1])
    from django.test.runner import DiscoverRunner

    from benchmarks.django_backends import RUNNING, start_worker

    worker, thread = start_worker()
    runner = DiscoverRunner(verbosity=0, interactive=False)
    runner.get_resultclass = lambda: Outcomes
    runner.run_tests(["tasks"])
    worker.stop()
    thread.join()
    RUNNING.close()
    print(json.dumps(Outcomes.found))
    return 0


class Outcomes(unittest.TextTestResult):
    """Keeps the outcome of each test; a subtest that fails is its test's failure."""

    found: ClassVar[dict[str, dict[str, str]]] = {"passed": {}, "failed": {}, "skipped": {}}

    def stopTest(self, test: Any) -> None:  # noqa: N802
        super().stopTest(test)
        bad = {one.id().split(" ")[0]: words for one, words in (*self.errors, *self.failures)}
        name = test.id()
        if name in bad:
            self.found["failed"][name] = bad[name].strip().splitlines()[-1]
        elif any(one is test for one, _ in self.skipped):
            self.found["skipped"][name] = ""
        else:
            self.found["passed"][name] = ""


if __name__ == "__main__":
    sys.exit(main())
