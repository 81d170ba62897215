"""A proving ground for a test, and the tasks' fixtures."""

from collections.abc import Iterator

import pytest

from tests.faults.ground import Ground, proving_ground


@pytest.fixture
def ground() -> Iterator[Ground]:
    with proving_ground(appendfsync="always") as ground:
        yield ground
