"""A world behind a socket, served by a thread of the test's own process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blimp import airframe
from blimp.airframe import Airframe
from blimp.clock import SystemClock
from blimp.sim.server import Server
from blimp.sim.world import World
from tests.directory import socket_directory


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.run, name="world")
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10.0)
        assert not thread.is_alive(), "the world does not stop"
        server.close()


@contextmanager
def served_world(*, seed: int = 1, ship: Airframe | None = None) -> Iterator[Path]:
    """Yield the socket's path of a running ship, the twin where none is given."""
    with socket_directory() as directory:
        path = directory / "run" / "world.sock"
        world = World(ship or airframe.load("twin"), seed=seed)
        with running(Server(world, socket_path=path, clock=SystemClock())):
            yield path
