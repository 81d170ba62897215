"""The ships of one broker, as the page sees and commands them."""

import io
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from blimp.actions import ACTIONS
from blimp.airframe import Airframe, load
from blimp.closing import Closing
from blimp.errors import BlimpError
from blimp.link.paths import RuntimePaths
from blimp.link.picture import PictureReader
from blimp.link.telemetry import signer_of, vehicles
from blimp.types import LINK_HOLD_S, LINK_LAND_S, LINK_RETURN_S
from ground_station.discover import HEARD_LATELY_S, ShipAddress
from ground_station.every_ship import EveryShip
from ground_station.page.actions import run_action
from ground_station.page.chaos import ChaosRoom, Harm
from ground_station.page.fleet import Fleet
from ground_station.page.flight_logs import FlightLogs
from ground_station.page.journey import QUESTIONS, Journeys, Recorded
from ground_station.page.joystick import Joystick
from ground_station.page.photos import Photographs
from ground_station.page.picture import Pictures
from ground_station.page.program import here
from ground_station.page.queue_room import queue_room
from ground_station.page.server import Part
from ground_station.page.setup import Setup
from ground_station.page.source import LiveShip, Source
from ground_station.page.state import airframe_object
from ground_station.photos import PhotoFetcher
from ground_station.plain import Ship
from ground_station.report import Report
from ground_station.session import Session

LINK_LOSS = (
    (LINK_HOLD_S, "holds its place"),
    (LINK_RETURN_S, "flies back to the pad"),
    (LINK_LAND_S, "lands"),
)


class Clients(Closing):
    """This page's connections to ships, by their names; each is opened once, and kept.

    A page is a pilot's from its first command on, not while it is only looked at; it stays so
    until it ends, as its pilot may only look for minutes. open_session: for the ship of a name.
    present: see `Session.heartbeat`.
    """

    def __init__(
        self, open_session: Callable[[str], Session], *, present: Callable[[], bool]
    ) -> None:
        self._open_session = open_session
        self._present = present
        self._lock = threading.Lock()
        self._own = ExitStack()
        self._ships: dict[str, Ship] = {}

    def of(self, vehicle: str) -> Ship:
        with self._lock:
            if vehicle not in self._ships:
                connected = Ship.of(self._open_session(vehicle), present=self._present)
                self._ships[vehicle] = self._own.enter_context(connected)
            return self._ships[vehicle]

    def close(self) -> None:
        with self._lock:
            self._own.close()
            self._ships.clear()


class BrokerShips(Closing):
    """The ships that `ground` would find with the same options.

    session: says which broker, which ship and which keys. airframe: that of all ships; None to
    look for each one's on this machine. harm: does harm to the ship that is shown first.
    present: whether a pilot is at this page, see `Session.heartbeat`.
    """

    def __init__(
        self,
        session: Session,
        *,
        airframe: Airframe | None = None,
        harm: Harm | None = None,
        present: Callable[[], bool] = lambda: True,
    ) -> None:
        self._airframe = airframe
        self._harm = harm
        self._journeys: dict[str, Journeys] = {}
        self._logs = FlightLogs(session)
        self._pictures = Pictures(
            self._open_pictures, vehicle=session.ship.vehicle, clock=session.clock
        )
        self._photographs = Photographs(
            self._open_photos, session.photo_files, vehicle=session.ship.vehicle,
            clock=session.clock,
        )  # fmt: skip
        self._session = session
        self._ship = session.ship
        self.stoppable = EveryShip(session, broker=self._ship.broker)
        self._joysticks: dict[str, Joystick] = {}
        self._clients = Clients(self._quiet, present=present)

    @property
    def vehicle(self) -> str:
        return self._ship.vehicle

    def vehicles(self) -> list[str]:
        """Return the ships that were heard lately, and the one that is shown."""
        ages_s = vehicles(self._ship.broker)
        lately = {name for name, age_s in ages_s.items() if age_s < HEARD_LATELY_S}
        return sorted(lately | {self.vehicle})

    def about(self, vehicle: str) -> dict[str, Any]:
        """Return the ship's shape and limits, if it runs on this machine, and its link's rules."""
        found: dict[str, Any] = {"link_loss": LINK_LOSS}
        airframe = self._airframe or self._airframe_here(vehicle)
        if airframe is not None:
            found["airframe"] = airframe_object(airframe)
        found["chaos"] = self._harm is not None and vehicle == self.vehicle
        return found

    def _airframe_here(self, vehicle: str) -> Airframe | None:
        try:
            place = here(self._session, vehicle)
            return None if place is None else load(str(RuntimePaths(place.directory).airframe))
        except (BlimpError, OSError):
            return None

    def airframe(self, vehicle: str) -> Airframe:
        """Return what a ship flies: from this machine, else the ship is asked, which may wait.

        Raises BlimpError if it does not say.
        """
        return self._airframe_here(vehicle) or self._clients.of(vehicle).airframe()

    def source(self, vehicle: str) -> Source:
        session, ship = self._session, ShipAddress(vehicle=vehicle, broker=self._ship.broker)
        journeys = Journeys(ship, keys=session.signing_keys, clock=session.clock)
        self._journeys[vehicle] = journeys
        return LiveShip(
            ship,
            open_reader=lambda: session.reader(ship),
            journeys=journeys,
            joystick=self._joystick(vehicle),
            clock=session.clock,
        )

    def command(
        self, vehicle: str, name: str, arguments: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        is_flown = name not in (*QUESTIONS, "result") and (
            name not in ACTIONS or ACTIONS[name].flies
        )
        if is_flown and vehicle in self._joysticks:
            self._joysticks[vehicle].drop()
        return run_action(self._quiet(vehicle), partial(self._clients.of, vehicle), name, arguments)

    def _joystick(self, vehicle: str) -> Joystick:
        open_ship = partial(self._clients.of, vehicle)
        self._joysticks[vehicle] = Joystick(open_ship, clock=self._session.clock)
        return self._joysticks[vehicle]

    def _open_pictures(self, vehicle: str) -> PictureReader:
        signer = signer_of(self._session.signing_keys)
        return PictureReader(self._ship.broker, vehicle, signer=signer, clock=self._session.clock)

    def _open_photos(
        self, vehicle: str, is_wanted: Callable[[], bool]
    ) -> AbstractContextManager[PhotoFetcher]:
        session = self._quiet(vehicle)
        return session.photos(session.ship, is_wanted=is_wanted)

    def _quiet(self, vehicle: str) -> Session:
        """Return a session whose words nobody reads."""
        silent = Report(as_json=True, out=io.StringIO(), err=io.StringIO())
        return self._session.like(silent, vehicle=vehicle)

    def _last_command(self) -> Recorded | None:
        journeys = self._journeys.get(self.vehicle)
        return None if journeys is None else journeys.last

    def parts(self) -> tuple[Part, ...]:
        """Return what panels need of the server beside the ships."""
        return (
            self._logs,
            self._pictures,
            self._photographs,
            Setup(self._session, airframe=self.airframe),
            ChaosRoom(self._harm, session=self._session, recorded=self._last_command),
            queue_room(self._session, vehicles=self.vehicles),
            Fleet(self._session, vehicles=self.vehicles),
        )

    def close(self) -> None:
        self._clients.close()
        self._logs.close()
        self._pictures.close()
        self._photographs.close()
        self.stoppable.close()
