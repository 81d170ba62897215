"""A ship put together: its board opened on this machine's buses, and the loop that flies it.

The flight process and Lockstep fly the same ship, so both take it from here.
"""

import contextlib
from collections.abc import Callable

import msgspec

from blimp.airframe import Airframe
from blimp.clock import Clock
from blimp.closing import Closing
from blimp.control.build import build_flight_loop
from blimp.control.loop import FlightLoop, Inbox
from blimp.hardware.board import Board, open_board
from blimp.hardware.bus import Datagrams
from blimp.hardware.linux import LinuxBuses
from blimp.recording.tape import Session
from blimp.ship.meter import Meter, MeteredOutputs, MeteredSensors
from blimp.types import FlightRecord, Snapshot


class Ship(Closing):
    """An opened board and the loop that flies it. Closing it makes the outputs safe."""

    def __init__(self, *, board: Board, loop: FlightLoop, buses: LinuxBuses) -> None:
        self.board = board
        self.loop = loop
        self._buses = buses

    def i2c_bits(self) -> dict[str, int]:
        """Return how many bits each I2C bus has carried."""
        return self._buses.i2c_bits()

    def close(self) -> None:
        """Make the outputs safe, close devices and buses. Idempotent."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._buses.close)
            stack.callback(self.board.close)
            stack.callback(self.loop.close)


class _Downlinks:
    """The mailbox, whose snapshots the board's receivers send to their transmitters as well."""

    def __init__(self, inbox: Inbox, board: Board) -> None:
        self._inbox, self._board = inbox, board
        self.emergencies, self.receive = inbox.emergencies, inbox.receive
        self.heartbeats, self.post = inbox.heartbeats, inbox.post
        self.link_age_s, self.deaf = inbox.link_age_s, inbox.deaf

    def publish(self, snapshot: Snapshot) -> None:
        self._inbox.publish(snapshot)
        self._board.tell(snapshot)


def assemble(
    airframe: Airframe,
    *,
    clock: Clock,
    inbox: Inbox,
    vehicle: str,
    boot_id: str,
    rate_hz: float,
    bench: bool,
    simulated: bool,
    recorder: Callable[[FlightRecord], object] | None = None,
    left: FlightRecord | None = None,
    left_age_s: float = 0.0,
    meter: Meter | None = None,
    take_over: Callable[[Airframe], object] | None = None,
    datagrams: Callable[[str], Datagrams] | None = None,
) -> Ship:
    """Open the airframe's board on this machine's buses and build the loop that flies it.

    left: the record of a flight process that died; it was so old when this one started.
    take_over: see `build_flight_loop`. datagrams: opens the socket of a name, on which another
    process tells what it measures.
    """
    buses = LinuxBuses(clock=clock, datagrams=datagrams)
    try:
        board = open_board(airframe, buses=buses, clock=clock)
    except BaseException:
        buses.close()
        raise
    loop = build_flight_loop(
        airframe,
        sensors=board if meter is None else MeteredSensors(board, meter),
        outputs=board.actuators if meter is None else MeteredOutputs(board.actuators, meter),
        inbox=_Downlinks(inbox, board),
        vehicle=vehicle,
        boot_id=boot_id,
        rate_hz=rate_hz,
        bench=bench,
        simulated=simulated,
        recorder=recorder,
        left=left,
        left_age_s=left_age_s,
        take_over=take_over,
    )
    return Ship(board=board, loop=loop, buses=buses)


def session_of(
    airframe: Airframe,
    ship: Ship,
    *,
    vehicle: str,
    boot_id: str,
    rate_hz: float,
    simulated: bool,
    bench: bool,
    clock: Clock,
) -> Session:
    """Return what its log has to know of a flight process."""
    return Session(
        vehicle=vehicle,
        boot_id=boot_id,
        simulated=simulated,
        rate_hz=rate_hz,
        bench=bench,
        epoch_s=clock.wall_s() - clock.now_s(),
        actuators=tuple(ship.board.actuators.last),
        servos=airframe.servo_names,
        airframe=msgspec.to_builtins(airframe),
    )
