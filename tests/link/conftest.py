"""A broker for the tests of a module, and a ship on it for each."""

from collections.abc import Iterator

import pytest

from tests.broker import EmbeddedBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(directory=tmp_path_factory.mktemp("b")) as server:
        yield server


@pytest.fixture
def vehicle(request: pytest.FixtureRequest) -> str:
    """A ship of its own for each test, on the one broker."""
    return f"t{abs(hash(request.node.name)) % 10**9}"
