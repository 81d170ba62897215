"""Fixtures for every test: a real broker, one for each test process."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker_server() -> Iterator[EmbeddedBroker]:
    """A real Valkey or Redis on a Unix socket. Fails, never skips, where there is none."""
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))  # pytest's own are too long for a socket
    try:
        with EmbeddedBroker(directory=directory / "b") as broker:
            yield broker
    finally:
        shutil.rmtree(directory, ignore_errors=True)
