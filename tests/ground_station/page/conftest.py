"""A served page on a ship that answers, and a browser to look at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from blimp.clock import SystemClock
from blimp.config import GroundConfig
from ground_station.page.chaos import Harm
from ground_station.page.server import Page
from ground_station.page.ships import BrokerShips
from ground_station.report import Report
from ground_station.session import Options, Session
from tests.browser import chromium
from tests.ground_station.page.client import Served
from tests.ground_station.ship import FlyingShip

__all__ = ["chromium"]


@pytest.fixture
def served(twin: FlyingShip, tmp_path: Path) -> Iterator[Served]:
    """The page of a ship that flies in real time."""
    with serving(twin, tmp_path) as found:
        yield found


@contextmanager
def serving(twin: FlyingShip, tmp_path: Path, *, harm: Harm | None = None) -> Iterator[Served]:
    clock = SystemClock()
    session = Session(
        options=Options(broker=twin.broker.url, vehicle=twin.vehicle, as_json=True),
        config=GroundConfig(
            broker=None, vehicle=None, registry=tmp_path / "run", state=tmp_path / "state"
        ),
        report=Report(as_json=True),
        clock=clock,
    )
    with (
        twin.telling() as silence,
        BrokerShips(session, harm=harm) as ships,
        Page(ships=ships, parts=ships.parts(), clock=clock, view_host="127.0.0.1") as page,
    ):
        page.start()
        yield Served(page=page, ship=twin, silence=silence)
