"""Fixtures for every test: a real broker, one for each test process."""

from collections.abc import Iterator

import pytest

from tests.broker import EmbeddedBroker
from tests.directory import socket_directory

# A test that asks for one of these fixtures, or whose module uses one of these names, starts a
# process or talks to one.
FIXTURES = {
    "broker_server", "own_broker", "other_broker", "broker", "ground", "rabbit", "postgres",
    "postgres_url", "tcp_server", "guest", "database",
}  # fmt: skip
NAMES = {
    "subprocess", "multiprocessing", "EmbeddedBroker", "RedisServer", "WorkerProcess", "Child",
    "ChildProcess", "StackProcess", "open_runs", "campaign", "proving_ground",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a process; begin with what may take longest.

    Of two workers, none ends with the longest test alone.
    """

    def allowed_s(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return float(mark.args[0]) if mark is not None and mark.args else 0.0

    for item in items:
        module = item.getparent(pytest.Module)
        names = vars(module.obj) if module is not None else {}
        if FIXTURES & set(getattr(item, "fixturenames", ())) or NAMES & set(names):
            item.add_marker("process")
    items.sort(key=allowed_s, reverse=True)


@pytest.fixture(scope="session")
def broker_server() -> Iterator[EmbeddedBroker]:
    """A real Valkey or Redis on a Unix socket. Fails, never skips, if there is none."""
    with socket_directory() as directory, EmbeddedBroker(directory=directory / "b") as broker:
        yield broker
