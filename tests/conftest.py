"""Fixtures for every test: a real broker for each test process, and one of what starts slowly."""

import ast
import functools
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.mariadb import MariaDB, find_mariadb
from tests.needs import not_run
from tests.postgres import Postgres, find_postgres
from tests.rabbitmq import RabbitMQ, find_rabbitmq
from tests.shared import shared

# An example on a loaded machine may take longer than Hypothesis' 0.2 s. Under CI it has no deadline
# by itself.
if "CI" not in os.environ:
    settings.register_profile("no deadline", deadline=None)
    settings.load_profile("no deadline")

# Warnings are errors (pyproject.toml) in the children of a test as well. What was left open cannot
# be one: it is found when nobody is there to raise it to, and Ctrl-C may leave anything open.
os.environ["PYTHONWARNINGS"] = "error,ignore::ResourceWarning"

# A recorder for each stack would cost a second of each. Tests of the log start it by themselves.
os.environ["BLIMP_LOG_MB"] = "0"

# A ship of the user who runs the tests is found by none of them.
for name in ("BLIMP_BROKER_URL", "BLIMP_VEHICLE"):
    os.environ.pop(name, None)

# A test that asks for one of these fixtures, or whose module uses one of these names, starts a
# process or talks to one.
FIXTURES = {
    "broker_server", "own_broker", "other_broker", "broker", "ground", "rabbit", "postgres",
    "own_server", "postgres_url", "mariadb", "mariadb_url", "tcp_server", "guest", "database",
    "mortal", "chromium",
}  # fmt: skip
NAMES = {
    "subprocess", "multiprocessing", "EmbeddedBroker", "RedisServer", "WorkerProcess", "Child",
    "ChildProcess", "StackProcess", "RunningStack", "under_systemd", "open_runs",
    "campaign", "proving_ground", "running_cluster", "running_sentinels",
}  # fmt: skip

# Modules and tests are found once and stay: to look through them for garbage costs seconds in all.
gc.disable()

_parse = ast.parse


@functools.wraps(_parse)
def _parse_without_collection(*arguments: Any, **keywords: Any) -> Any:
    """Parse while no garbage is collected.

    A finalizer that parses too, as the formatting of a traceback does, makes `ast.parse` fail:
    "AST constructor recursion depth mismatch" (CPython issue 106905). pytest parses each module
    that it rewrites, also one that a test imports late.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _parse(*arguments, **keywords)
    finally:
        if was_enabled:
            gc.enable()


ast.parse = _parse_without_collection

# A shell starts its background jobs with SIGINT ignored, and every process of a test would
# inherit that: none could be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a process; begin with the long tests, and with what may take longest.

    Each worker of xdist begins with an equal share of the list, and takes from the end of others'
    when it has none left. So what takes long is at the heads of the shares, and quick tests are
    left for the end: flights in real time, which mostly wait, one after the other at the heads of
    two, and those in lockstep, which compute, at the head of the third.
    """

    def allowed_s(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return float(mark.args[0]) if mark is not None and mark.args else 0.0

    for item in items:
        module = item.getparent(pytest.Module)
        names = vars(module.obj) if module is not None else {}
        if FIXTURES & set(getattr(item, "fixturenames", ())) or NAMES & set(names):
            item.add_marker("process")
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    heads: list[list[pytest.Item]] = [[] for _ in range(workers)]
    flights = [one for one in items if one.get_closest_marker("long") is not None]
    modules: list[pytest.Module | None] = []
    for item in sorted(flights, key=allowed_s, reverse=True):
        module = item.getparent(pytest.Module)
        if item.get_closest_marker("process") is None:
            head = min(2, workers - 1)
        else:
            if module not in modules:
                modules.append(module)
            head = modules.index(module) % min(2, workers)
        heads[head].append(item)
    quick = [one for one in items if one.get_closest_marker("long") is None]
    quick.sort(key=allowed_s, reverse=True)
    left, items[:] = len(items), []
    for number, first in enumerate(heads):
        share = left // (workers - number)  # as xdist counts
        room = max(0, share - len(first))
        own = first + quick[:room]
        del quick[:room]
        items += own
        left -= len(own)
    items += quick


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("root")
    if mark is not None and os.getuid() != 0:
        raise not_run(f"{mark.args[0]}: needs root")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say what is NOT RUN in one line, not in one for each test: where it was looked for."""
    report = yield
    if report.skipped and call.excinfo is not None and "NOT RUN" in str(call.excinfo.value):
        found = call.excinfo.traceback[-1]
        report.longrepr = (str(found.path), found.lineno + 1, f"Skipped: {call.excinfo.value}")
    return report


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def broker_server() -> Iterator[EmbeddedBroker]:
    """A real Valkey or Redis on a Unix socket. Fails, never skips, if there is none."""
    with socket_directory() as directory, EmbeddedBroker(directory=directory / "b") as broker:
        yield broker


@pytest.fixture(scope="session")
def rabbit(shared_root: Path, worker_id: str) -> Iterator[RabbitMQ]:
    """One node for all test processes, and a virtual host for each."""
    command = find_rabbitmq()
    with shared(shared_root, "rabbitmq", lambda at: RabbitMQ(directory=at, command=command)) as (
        directory
    ):
        yield RabbitMQ(directory=directory, command=command, virtual_host=worker_id)


@pytest.fixture(scope="session")
def postgres(shared_root: Path) -> Iterator[Postgres]:
    """One cluster for all test processes. Skips if there is none, and fails under CI."""
    programs = find_postgres()

    def start(at: Path) -> Postgres:
        return Postgres(directory=at, programs=programs, is_durable=False)

    with shared(shared_root, "postgres", start) as directory:
        yield start(directory)


@pytest.fixture(scope="session")
def mariadb(shared_root: Path) -> Iterator[MariaDB]:
    """One server for all test processes. Skips if there is none, and fails under CI."""
    program = find_mariadb()
    with shared(shared_root, "mariadb", lambda at: MariaDB(directory=at, program=program)) as (
        directory
    ):
        yield MariaDB(directory=directory, program=program)


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory of this run that all its processes have."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent
