"""The ships that a stop without a name is for: all of this machine, and of the broker.

A ship that was heard on the broker in the last ten minutes is one of them, however silent it is
now: one that cannot be asked may fly.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from msgspec import structs

from blimp.closing import Closing
from blimp.errors import BlimpError, ConfigError, LinkError
from blimp.queue.redis.urls import hide_password
from blimp.tasks.client import VehicleClient
from blimp.web.outcome import Outcome
from ground_station.discover import ShipAddress, nothing_runs, ship_on_board, ships_heard
from ground_station.report import outcome_of
from ground_station.session import Session
from ground_station.stops import MAX_SHIPS, Find


class EveryShip(Closing):
    """Each ship's connection for stops, by its name. Thread-safe.

    broker: that of ships which are called by their name alone; None if no broker is configured.
    on_silence, hear_all_s: see `VehicleClient.estop`; the first gets the ship, too.
    """

    def __init__(
        self,
        session: Session,
        *,
        broker: str | None,
        on_silence: Callable[[ShipAddress, bool], None] = lambda *_: None,
        hear_all_s: float = 0.0,
    ) -> None:
        self._session = session
        self._broker = broker
        self._on_silence, self._hear_all_s = on_silence, hear_all_s
        self._lock = threading.Lock()
        self._ships: dict[str, ShipAddress] = {}
        self._clients: dict[ShipAddress, VehicleClient] = {}

    def finders(self) -> Sequence[Find]:
        return (self._here, *(partial(self._heard, one) for one in self._session.brokers()))

    def _here(self) -> list[str]:
        found = self._session.ships_here()
        if not found and not self._session.brokers():
            raise LinkError(nothing_runs(self._session.registry))
        with suppress(BlimpError):  # a stack of this user hides the ship that this machine is
            found += [ship for ship in ship_on_board() if ship not in found]
        return [self._name(ship) for ship in found]

    def _heard(self, broker: str) -> list[str]:
        self._session.check(broker)
        return [self._name(ship) for ship in ships_heard(broker)[:MAX_SHIPS]]

    def _name(self, ship: ShipAddress) -> str:
        """Return what a ship is called: another broker's may have the same name."""
        if ship.broker == self._broker:
            return ship.vehicle
        with self._lock:
            name = ship.vehicle
            if self._broker is not None or self._ships.get(name, ship) != ship:
                name = f"{name} on {hide_password(ship.broker)}"
            self._ships[name] = ship
            return name

    def ready(self, vehicle: str) -> None:
        self._client(self._ship(vehicle)).ready_to_stop()

    def stop(self, vehicle: str) -> Outcome:
        """Stop a ship on a connection that is kept; return how it ended. Raises BlimpError."""
        ship = self._ship(vehicle)
        reply = self._client(ship).estop(
            timeout_s=self._session.options.timeout_s,
            on_silence=partial(self._on_silence, ship),
            hear_all_s=self._hear_all_s,
        )
        outcome = outcome_of(reply)
        if reply.roads_ms:
            result = {**outcome.result, "roads_ms": reply.roads_ms}
            outcome = structs.replace(outcome, result=result)
        return outcome

    def _ship(self, vehicle: str) -> ShipAddress:
        with self._lock:
            found = self._ships.get(vehicle)
        return found or ShipAddress(vehicle=vehicle, broker=self._broker or "")

    def _client(self, ship: ShipAddress) -> VehicleClient:
        with self._lock:
            if ship not in self._clients:
                if len(self._clients) >= MAX_SHIPS:
                    raise ConfigError(f"{ship.vehicle}: {MAX_SHIPS} ships are known already")
                self._clients[ship] = self._session.client(ship, to_stop=True)
            return self._clients[ship]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
