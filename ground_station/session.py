"""What `ground` and its like know before a command: the ship, its broker, the keys, the pilot.

`ground_station/perform.py` carries the commands out. A person at a terminal is asked before a
command that may start a propeller (arm, motor, servo, a mission). A program (no terminal, or
`--json`) is not asked, because the ship checks every command itself: it refuses to arm with a
fault, and to turn a motor outside MANUAL. Only what the ship cannot check needs `--yes` from a
program, too: a mission that reaches farther than a hall (see `mission run`). An emergency stop
never asks.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.actions import ACTIONS
from blimp.clock import Clock
from blimp.config import (
    GroundConfig,
    check_broker_is_closed,
    read_signing_keys,
    signing_keys_from_environment,
)
from blimp.errors import BlimpError, ConfigError, LinkError, NotAuthorised
from ground_station.discover import (
    HEARD_LATELY_S,
    ShipAddress,
    check_known,
    find_broker,
    find_ship,
    flight_socket,
    key_on_board,
    ships_heard,
    ships_here,
)
from ground_station.kept import KeptControl
from ground_station.report import (
    NO_LINK,
    NOT_AUTHORISED,
    NOT_CONFIRMED,
    UNKNOWN,
    USAGE,
    Outcome,
    Report,
)

if TYPE_CHECKING:
    from blimp.link.telemetry import TelemetryReader
    from blimp.queue.extras.observability.tracing import Tracer
    from blimp.queue.resources import Grant
    from blimp.tasks.client import VehicleClient
    from ground_station.control import Control
    from ground_station.photos import PhotoFetcher, PhotoFiles

FOR_EVERYBODY = (
    *(name for name, action in ACTIONS.items() if not action.needs_control),
    "airframe",
)
ALL_ROADS_S = 0.3  # usually enough for the slower roads of a stop to confirm it, too
SILENT_S = 1.0  # a ship that is silent for longer may not exist


class NotConfirmed(BlimpError):
    """A dangerous command without a confirmation."""


_STATUS: dict[type[BlimpError], int] = {  # the first that fits
    NotConfirmed: NOT_CONFIRMED,
    ConfigError: USAGE,
    NotAuthorised: NOT_AUTHORISED,
    LinkError: NO_LINK,
}


def status_of(error: BlimpError) -> int:
    """Return the exit status of a command that ended in `error`."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), UNKNOWN)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of every command. timeout_s: None for the command's own."""

    broker: str | None = None
    vehicle: str | None = None
    signing_key_file: Path | None = None
    as_json: bool = False
    timeout_s: float | None = None
    yes: bool = False
    dry_run: bool = False
    wait: bool = True


class Session:
    """Finds the ship on first use, and opens the ways to it."""

    def __init__(
        self, *, options: Options, config: GroundConfig, report: Report, clock: Clock
    ) -> None:
        self.options = options
        self.report = report
        self.clock = clock
        self._config = config
        self._ship: ShipAddress | None = None

    @property
    def ship(self) -> ShipAddress:
        """The ship that the user means. Raises LinkError or ConfigError, see `find_ship`."""
        if self._ship is None:
            self.check(self.configured_broker)
        self.check(self.ship_to_stop.broker)
        return self.ship_to_stop

    @property
    def ship_to_stop(self) -> ShipAddress:
        """The same for a user who names it: a stop may have a road past a broker to refuse."""
        if self._ship is None:
            self._ship = find_ship(
                config=self._config, broker=self.options.broker, vehicle=self.options.vehicle
            )
        return self._ship

    @property
    def names_a_ship(self) -> bool:
        """Whether the command line or the environment says which ship is meant."""
        return (self.options.vehicle or self._config.vehicle) is not None

    @property
    def configured_broker(self) -> str | None:
        return self.options.broker or self._config.broker

    def ships(self) -> list[ShipAddress]:
        """Return the ship that is named; else those of this machine, and those heard lately.

        Raises LinkError if there is none.
        """
        if self.names_a_ship:
            return [self.ship]
        found = dict.fromkeys(self.ships_here())
        for broker in self.brokers():
            self.check(broker)
            found |= dict.fromkeys(ships_heard(broker, within_s=HEARD_LATELY_S))
        return list(found) or [self.ship]

    def ships_here(self) -> list[ShipAddress]:
        """Return the ships of this machine. Raises ConfigError for a registry of another user."""
        return ships_here(self.registry, is_needed=self.configured_broker is None)

    def brokers(self) -> list[str]:
        """Return the broker that is configured; without one, those of the ships of this machine."""
        found = self.configured_broker
        return [found] if found else sorted({ship.broker for ship in ships_here(self.registry)})

    @property
    def registry(self) -> Path:
        """The directory in which the stacks of this machine are registered."""
        return self._config.registry

    def of(self, ship: ShipAddress) -> "Session":
        """Return a session of another ship, by whatever name it sends telemetry."""
        found = self._with(self.report, vehicle=ship.vehicle, broker=ship.broker)
        found._ship = ship
        return found

    def like(self, report: Report, *, vehicle: str, yes: bool = False) -> "Session":
        """Return a session of a program with the same broker and keys, for one command.

        yes: a person has confirmed it.
        """
        yes = yes or self.options.yes
        more = {"vehicle": vehicle, "broker": self.ship.broker, "yes": yes}
        return self._with(report, **more, as_json=True, timeout_s=None)

    def _with(self, report: Report, **changes: Any) -> "Session":
        options = msgspec.structs.replace(self.options, **changes)
        return Session(options=options, config=self._config, report=report, clock=self.clock)

    @cached_property
    def signing_keys(self) -> tuple[str, ...] | None:
        """The keys that sign this user's commands. Raises ConfigError or NotAuthorised."""
        file = self.options.signing_key_file
        keys = signing_keys_from_environment() if file is None else None
        if file is None and keys is None and self.configured_broker is None:
            file = key_on_board(self.registry)
        return keys if file is None else read_signing_keys(file)

    def check(self, broker: str | None) -> None:
        """Raise ConfigError for a broker that strangers can reach, before anything is sent."""
        if broker:
            check_broker_is_closed(broker, self.signing_keys)

    def client(
        self, ship: ShipAddress, *, tracer: "Tracer | None" = None, to_stop: bool = False
    ) -> "VehicleClient":
        """Return a connection to a ship: for `ground_station.ship_on_broker`, and for stops.

        to_stop: if the broker is refused, past it, to a ship that is this machine.
        """
        from blimp.link.stop_socket import StopSocket
        from blimp.tasks.client import VehicleClient

        flight = flight_socket(ship, registry=self.registry)  # None on another machine
        broker: str | tuple[()] = ship.broker
        keys = None
        try:
            self.check(ship.broker)
            keys = self.signing_keys
        except (ConfigError, NotAuthorised) as error:
            if flight is None or not to_stop:
                raise
            self.report.say(f"ground: {ship.vehicle}: by its own socket alone: {error}")
            broker = ()
        return VehicleClient(
            broker=broker,
            vehicle=ship.vehicle,
            signing_key=keys,
            tracer=tracer,
            stop_road=None if flight is None else StopSocket(flight, clock=self.clock),
        )

    @contextmanager
    def heartbeat(
        self,
        grant: "Grant | None",
        *,
        present: Callable[[], bool] = lambda: True,
    ) -> Iterator[None]:
        """Let the ship know during the block that its pilot's link is alive.

        grant: the pilot's control of it, None without.
        present: whether the pilot's own link is alive; if it is not, no heartbeat is sent.
        """
        from blimp.tasks.pilot_link import HeartbeatSender

        def token() -> int | None:
            return None if grant is None or grant.is_lost else grant.token

        with HeartbeatSender(
            broker=self.ship.broker,
            vehicle=self.ship.vehicle,
            token=token,
            clock=self.clock,
            signing_key=self.signing_keys,
            say=lambda why: self.report.say(f"ground: {why}"),
            present=present,
        ) as sender:
            sender.start()
            yield

    def control_token(self) -> int | None:
        """Return the token of this user's control of the ship as it was kept, None for none."""
        ship = self.ship
        file = KeptControl(state=self._config.state, broker=ship.broker, vehicle=ship.vehicle)
        kept = file.load()
        return None if kept is None else kept.token

    @contextmanager
    def kept_control(self) -> Iterator["Grant | None"]:
        """Renew this user's control of the ship during the block, if the user has it."""
        if self.control_token() is None:  # the usual case: no import, and no question to the broker
            yield None
            return
        with self.control() as control, control.kept() as grant:
            yield grant

    def check_there(self) -> None:
        """Raise LinkError, naming the others, for a ship that is not on its broker."""
        try:
            check_known(self.ship)
        except LinkError:
            with self.client(self.ship) as client:  # it may be there and send no telemetry
                if client.ping(timeout_s=SILENT_S).state == "TIMEOUT":
                    raise

    def control(self) -> "Control":
        from ground_station.control import Control

        return Control(
            ship=self.ship, state=self._config.state, clock=self.clock, say=self.report.say
        )

    def find_broker(self) -> str:
        """Return the broker that the user means, for any ship. Raises LinkError or ConfigError."""
        found = find_broker(config=self._config, broker=self.options.broker)
        self.check(found)
        return found

    @contextmanager
    def telemetry(self) -> Iterator["TelemetryReader"]:
        with self.reader(self.ship) as reader:
            yield reader

    def reader(self, ship: ShipAddress) -> "TelemetryReader":
        """Return a reader of a ship's telemetry; with a key it accepts only signed snapshots."""
        from blimp.link.telemetry import TelemetryReader, signer_of

        return TelemetryReader(ship.broker, ship.vehicle, signer=signer_of(self.signing_keys))

    def photo_files(self, vehicle: str) -> "PhotoFiles":
        """Return the photographs of a ship that are on this machine."""
        from ground_station.photos import PhotoFiles

        return PhotoFiles(self._config.state.expanduser() / "photos" / vehicle)

    @contextmanager
    def photos(
        self, ship: ShipAddress, *, is_wanted: Callable[[], bool] = lambda: True
    ) -> Iterator["PhotoFetcher"]:
        """Fetch a ship's photographs, by a connection of their own: no command waits for them."""
        from ground_station.photos import PhotoFetcher

        files = self.photo_files(ship.vehicle)
        with (
            self.client(ship) as client,
            PhotoFetcher(client, files, clock=self.clock, is_wanted=is_wanted) as found,
        ):
            yield found

    def timeout_s(self, default_s: float) -> float:
        return default_s if self.options.timeout_s is None else self.options.timeout_s

    @property
    def has_person(self) -> bool:
        """Whether a person at a terminal may be asked, and reads what is printed."""
        return sys.stdin.isatty() and sys.stderr.isatty() and not self.options.as_json

    def confirm(self, question: str, *, programs_too: bool = False) -> None:
        """Ask before something dangerous; raise NotConfirmed unless the answer is yes.

        programs_too: refuse without --yes if there is no terminal to ask on.
        """
        if self.options.yes or self.options.dry_run:
            return
        if not self.has_person:
            if programs_too:
                raise NotConfirmed(f"{question} There is no terminal to ask on: give --yes")
            return
        self.report.ask(f"{question} [y/N] ")
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            print(file=sys.stderr)
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            raise NotConfirmed("not confirmed: nothing was sent")

    def dry_run(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Return the message and its ship, which is looked up; nothing is sent."""
        result = {"dry_run": True, "vehicle": self.ship.vehicle, "arguments": arguments}
        return Outcome(id=None, task=f"blimp.{name}", state="SUCCESS", result=result)
