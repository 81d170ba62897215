"""A worker with the ship's tasks, a real mailbox, and the fixtures of the queue's tests."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from blimp.clock import SystemClock
from blimp.link.mailbox import MailboxClient
from blimp.queue import TaskApp
from blimp.queue.redis.client import RedisServer
from blimp.service.parameters import FlownFile
from blimp.tasks.app import build_ship_app
from blimp.tasks.client import VehicleClient
from tests.queue.conftest import look, own_broker, server, start_worker, transport, url, working
from tests.tasks.ship import FlightSide

__all__ = ["look", "own_broker", "server", "start_worker", "transport", "url"]


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="blimp-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def link(url: str) -> Iterator[RedisServer]:
    with closing(RedisServer(url)) as link:
        yield link


@pytest.fixture
def ship(directory: Path) -> Iterator[FlightSide]:
    with FlightSide(directory / "flight.sock") as side:
        yield side


@pytest.fixture
def mailbox(directory: Path) -> Iterator[MailboxClient]:
    with MailboxClient(
        server_path=directory / "flight.sock",
        path=directory / "worker.sock",
        clock=SystemClock(),
    ) as client:
        yield client


@pytest.fixture
def app(url: str, mailbox: MailboxClient, directory: Path) -> Iterator[TaskApp]:
    flown = FlownFile(directory / "airframe.json")
    with build_ship_app(vehicle="twin", broker=url, mailbox=mailbox, flown=flown) as app:
        yield app


@pytest.fixture
def ground(app: TaskApp, url: str) -> Iterator[VehicleClient]:
    with working(app, name="twin", sync_workers=12), VehicleClient(url, "twin") as client:
        yield client
