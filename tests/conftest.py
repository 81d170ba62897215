"""Fixtures for every test: a real broker, one for each test process."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import EmbeddedBroker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what may take longest: of two workers, none ends with it alone."""

    def allowed_s(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return float(mark.args[0]) if mark is not None and mark.args else 0.0

    items.sort(key=allowed_s, reverse=True)


@pytest.fixture(scope="session")
def broker_server() -> Iterator[EmbeddedBroker]:
    """A real Valkey or Redis on a Unix socket. Fails, never skips, where there is none."""
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))  # pytest's own are too long for a socket
    try:
        with EmbeddedBroker(directory=directory / "b") as broker:
            yield broker
    finally:
        shutil.rmtree(directory, ignore_errors=True)
