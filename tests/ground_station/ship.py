"""A ship for the ground's tests: the real queue and the real flight control, off real time.

What the ground sends goes through the broker, a worker and the vehicle's tasks into the
lockstep ship, which flies on whenever somebody waits for it.
"""

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from blimp.link.telemetry import TelemetryPublisher
from blimp.queue.extras.observability.watch import watched
from blimp.queue.watching import Watching
from blimp.service.parameters import FlownFile
from blimp.service.photos import ShipPhotos
from blimp.ship import Lockstep
from blimp.tasks.app import build_ship_app
from blimp.types import Command, Heartbeat, Outcome, Snapshot
from tests.broker import EmbeddedBroker
from tests.queue.conftest import wait_until, working

UNWATCHED = Watching()


class LockstepMailbox:
    """The worker's mailbox, with the ship's time passing while it is waited on.

    commands: those that came, each time.
    """

    def __init__(self, ship: Lockstep) -> None:
        self._ship = ship
        self.commands: list[Command] = []
        self._lock = threading.Lock()

    def call(self, command: Command, *, timeout_s: float) -> Outcome | None:
        with self._lock:
            self.commands.append(command)
            return self._ship.deliver(command)

    def wait(self, id: str, *, timeout_s: float) -> Outcome | None:
        with self._lock:
            self._ship.step(timeout_s)
            return self._ship.outcome(id)

    def fly(self, seconds: float) -> None:
        with self._lock:
            self._ship.step(seconds)

    def snapshot(self) -> Snapshot | None:
        with self._lock:
            return self._ship.snapshot()

    def snapshot_age_s(self) -> float | None:
        return 0.0

    def greet(self, *, link: bool, deaf: str | None = None) -> bool:
        return True

    def relay(self, heartbeat: Heartbeat) -> bool:
        return True  # it comes in real time, and this ship's passes faster


class FlyingShip:
    """A vehicle on a broker."""

    def __init__(self, *, broker: EmbeddedBroker, vehicle: str, ship: Lockstep) -> None:
        self.broker = broker
        self.vehicle = vehicle
        self.ship = ship
        self.mailbox = LockstepMailbox(ship)

    @contextlib.contextmanager
    def worker(self, watching: Watching = UNWATCHED) -> Iterator[None]:
        """Run its worker; ending and running it again is a restart under the same name."""
        with tempfile.TemporaryDirectory(prefix="blimp-") as directory:
            flown = Path(directory) / "airframe.json"
            flown.write_bytes(msgspec.json.encode(self.ship.airframe))
            self.runtime = Path(directory)
            app = build_ship_app(
                vehicle=self.vehicle,
                broker=self.broker.url,
                mailbox=self.mailbox,
                flown=FlownFile(flown),
                photos=ShipPhotos(
                    self.runtime / "photos",
                    control=self.runtime / "camera-control.sock",
                    flown=FlownFile(flown),
                ),
            )
            with app, watched(app, watching), working(app, name=self.vehicle):
                yield

    def publish(self, age_s: float = 0.0) -> Snapshot:
        """Send the present snapshot to everybody who watches."""
        snapshot = self.mailbox.snapshot()
        assert snapshot is not None
        with TelemetryPublisher(self.broker.url, self.vehicle) as publisher:
            # It waits a quarter of a second for the broker, which a loaded machine exceeds.
            wait_until(lambda: publisher.publish(snapshot, age_s), "the broker takes no snapshot")
        return snapshot

    @contextlib.contextmanager
    def telling(self, *, period_s: float = 0.05) -> Iterator[threading.Event]:
        """Fly on and publish all the time; while the event that is yielded is set, be silent."""
        silent, ended = threading.Event(), threading.Event()

        def run() -> None:
            with TelemetryPublisher(self.broker.url, self.vehicle) as publisher:
                while not ended.wait(period_s):
                    self.mailbox.fly(period_s)
                    snapshot = self.mailbox.snapshot()
                    if snapshot is not None and not silent.is_set():
                        publisher.publish(snapshot, 0.0)

        thread = threading.Thread(target=run, name="telling")
        thread.start()
        try:
            yield silent
        finally:
            ended.set()
            thread.join()
