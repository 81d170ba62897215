"""Celery's own integration tests on kombu's Redis transport and on this one.

    python -m benchmarks.celery_suite [--checkout DIR] [--environment DIR] [--json]

checkout: a source tree of Celery 5.7 with its `t` folder; by default the source distribution
of that version is fetched. environment: a virtual environment with Celery, what its tests
need and this project; made if it is missing. Each run has a server of its own for broker and
results, and a copy of the checkout. There `integration-tests-config.json`, the file that
Celery's tests read to be configured, names the transport.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benchmarks.figures import make_parser, print_figures
from tests.redis_server import RedisServer

VERSION = "5.7.0"
SUITES = ("t/integration/test_tasks.py", "t/integration/test_inspect.py")
TRANSPORTS = {"stock": None, "streams": "blimp.queue.kombu_transport:Transport"}
REQUIREMENTS = (
    f"celery[redis]=={VERSION}", "pytest==9.1.1", "pytest-celery>=1.3", "pytest-click",
    "pytest-order", "pytest-rerunfailures", "pytest-subtests", "pytest-timeout", "pydantic",
)  # fmt: skip
PROJECT = Path(__file__).parents[1]


def make_environment(directory: Path) -> Path:
    """Return the interpreter of the environment, made if it is missing."""
    python, suite = directory / "bin" / "python", directory / "suite.installed"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    if not suite.exists():  # the environment of tests/interop lacks what Celery's tests need
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *REQUIREMENTS, "--editable", str(PROJECT)], check=True)
        suite.touch()
    return python


def fetch(python: Path, requirement: str, directory: Path) -> Path:
    """Return the source tree of a release, unpacked in `directory`."""
    pip = [str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-binary", ":all:", "--dest", str(directory)]
    subprocess.run([*pip, *options, requirement], check=True)
    with tarfile.open(next(directory.glob("*.tar.gz"))) as archive:
        archive.extractall(directory, filter="data")
    return next(directory.glob("*/PKG-INFO")).parent


def run(python: Path, checkout: Path, *, transport: str | None, directory: Path) -> str:
    """Run the suites once; return pytest's last line."""
    here = directory / "checkout"
    shutil.copytree(checkout, here)
    if transport is not None:
        config = here / "integration-tests-config.json"
        config.write_text(json.dumps({"broker_transport": transport}))
    with RedisServer(directory) as server, (directory / "log").open("w+") as log:
        port = server.url.rpartition(":")[2].partition("/")[0]
        environment = os.environ | {
            "TEST_BROKER": server.url,
            "TEST_BACKEND": server.url,
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": port,
            "PYTHONPATH": str(PROJECT),  # this tree, whichever the environment was made for
            "WORKER_LOGLEVEL": "INFO",  # as in Celery's tox.ini: two tests read the log
        }
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES]
        subprocess.run(command, cwd=here, env=environment, stdout=log, stderr=log, check=False)
        log.seek(0)
        lines = log.read().splitlines()
    for line in lines:
        if line.startswith(("FAILED t/", "ERROR t/")):
            print("   ", line, file=sys.stderr)
    return re.sub(r"^=+ | =+$", "", lines[-1]) if lines else "nothing was printed"


def not_passed(summary: str) -> float:
    """Return how many tests failed by pytest's last line; infinite if none passed."""
    if " passed" not in summary:
        return math.inf
    return sum(int(count) for count in re.findall(r"(\d+) (?:failed|error)", summary))


def main() -> int:
    parser = make_parser("benchmarks.celery_suite", __doc__)
    parser.add_argument("--checkout", type=Path, metavar="DIR", help="default: it is fetched")
    parser.add_argument("--environment", type=Path, default=PROJECT / ".venv-celery", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="on one line")
    options = parser.parse_args()
    python = make_environment(options.environment.resolve())
    with tempfile.TemporaryDirectory(prefix="celery-suite-") as name:
        directory = Path(name)
        checkout = options.checkout or fetch(python, f"celery=={VERSION}", directory)
        results: dict[str, str] = {}
        for label, transport in TRANSPORTS.items():
            (directory / label).mkdir()
            results[label] = run(python, checkout, transport=transport, directory=directory / label)
    print_figures("benchmarks.celery_suite", {"suite": results}, one_line=options.json)
    return int(not_passed(results["streams"]) > not_passed(results["stock"]))


if __name__ == "__main__":
    sys.exit(main())
