"""Ships for the ground's tests, each under a name of its own on the one broker."""

import itertools
from collections.abc import Iterator

import pytest

from blimp.ship import Lockstep
from tests.broker import EmbeddedBroker
from tests.ground_station.ship import FlyingShip

_numbers = itertools.count(1)


@pytest.fixture
def parked(broker_server: EmbeddedBroker) -> Iterator[FlyingShip]:
    """A ship whose worker does not run."""
    with Lockstep("twin", seed=1) as ship:
        yield FlyingShip(broker=broker_server, vehicle=f"ship{next(_numbers)}", ship=ship)


@pytest.fixture
def twin(parked: FlyingShip) -> Iterator[FlyingShip]:
    """A ship that answers, and has been heard: others that were are no reason to miss it."""
    with parked.worker():
        parked.publish()
        yield parked


@pytest.fixture
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlyingShip]:
    """A ship on a broker of its own that may be killed."""
    with (
        EmbeddedBroker(directory=tmp_path_factory.mktemp("b")) as broker,
        Lockstep("twin", seed=1) as ship,
    ):
        yield FlyingShip(broker=broker, vehicle="mortal", ship=ship)
