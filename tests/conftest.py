"""Fixtures for every test: a real broker, one for each test process."""

from collections.abc import Iterator

import pytest

from tests.broker import EmbeddedBroker
from tests.directory import socket_directory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what may take longest: of two workers, none ends with it alone."""

    def allowed_s(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return float(mark.args[0]) if mark is not None and mark.args else 0.0

    items.sort(key=allowed_s, reverse=True)


@pytest.fixture(scope="session")
def broker_server() -> Iterator[EmbeddedBroker]:
    """A real Valkey or Redis on a Unix socket. Fails, never skips, where there is none."""
    with socket_directory() as directory, EmbeddedBroker(directory=directory / "b") as broker:
        yield broker
