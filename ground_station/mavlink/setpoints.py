"""Streams of a station: SET_POSITION_TARGET (offboard) and MANUAL_CONTROL.

Each demand replaces the one before and ends by itself after `TTL_S`: a velocity and a stick on
board, a place by a hold from here. They are flown for the station that has the ship, and no other.
A velocity has no heading on this ship: the yaw beside one is not flown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import msgspec

from blimp.actions import ACTIONS
from blimp.errors import BlimpError
from blimp.tasks.reply import Reply
from blimp.types import Mode
from ground_station.mavlink.items import GLOBAL, RELATIVE
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.stations import Station, name_of
from ground_station.mavlink.system import (
    ACCEPTED,
    BUSY,
    CANCELLED,
    DENIED,
    FAILED,
    OK,
    Answer,
    System,
    answer_of,
)
from ground_station.mavlink.telemetry import ON_GROUND
from ground_station.mavlink.wire import Message

TTL_S = 0.5
PERIOD_S = 0.1  # to the ship at most so often
REFUSAL_S = 2.0  # a ship on the ground flies to no place: its refusal is waited for so long
KEY = "mavlink setpoints"
LOCAL, BODY = (1, 7), (8, 9, 12)  # MAV_FRAME: north-east-down, along the ship
STICK_MODES = (Mode.STABILIZE.name, Mode.ALTHOLD.name)
_NO_AXIS = 2**15 - 1
_SAME_M = 0.02
_PLACE, _VELOCITY, _FORCE, _NO_YAW = 0b111, 0b111 << 3, 1 << 9, 1 << 10  # of a type mask


class Demand(msgspec.Struct, frozen=True):
    """task: of the ship, with its arguments; a velocity along the ship has `body`."""

    task: str
    arguments: dict[str, float]
    body: bool = False


class Demands:
    """The streams of one ship. Offboard is on from `begin` to `end`, or until they are silent."""

    def __init__(self, system: System) -> None:
        self._system = system
        system.flown_by(self.end)
        self._newest: tuple[Station, float, Demand] | None = None
        self._flying: asyncio.Task[Any] | None = None
        self._pushing: asyncio.Task[Any] | None = None
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "SET_POSITION_TARGET_LOCAL_NED": self._local,
            "SET_POSITION_TARGET_GLOBAL_INT": self._global,
            "MANUAL_CONTROL": self._stick,
        }

    # --- offboard -------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._flying is not None

    async def begin(self, station: Station) -> Answer:
        """Fly what the station streams from now on. It must be streaming already."""
        if self._fresh(station) is None:
            return BUSY, f"offboard: no setpoint within {TTL_S:g} s: stream them first"
        self._system.take_over()
        # Under way from here on, so that what comes before the first answer ends it, too.
        first: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._flying = flying = asyncio.create_task(self._fly(station, first))
        either: set[asyncio.Future[Any]] = {flying, first}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return first.result() if first.done() else (CANCELLED, "another command came")

    def end(self) -> None:
        """Fly no more of the stream; what flies now ends by itself or is superseded."""
        flying, self._flying = self._flying, None
        if flying is not None:
            flying.cancel()

    async def _fly(self, station: Station, first: asyncio.Future[Answer]) -> None:
        """Fly the stream to its end. first: gets the first answer."""
        state: dict[str, Any] = {}
        while True:
            try:
                result, words = await self._fly_once(station, state)
            except BlimpError as error:
                result, words = FAILED, str(error)
            if result != ACCEPTED:
                break
            if not first.done():
                first.set_result(OK)
            await asyncio.sleep(PERIOD_S)
        self._flying = None
        if not first.done():
            if self._is_on_ground():
                words = f"{words}; offboard begins in the air: arm, take off, then begin it"
            first.set_result((result, words))
            return
        self._system.say(f"offboard ends: {words}")
        # A velocity ends by itself. A place that was reached is held, and what took the place of
        # one, a failsafe or a person, flies on.
        if "going" in state and not _is_answered(state["going"]):
            loiter = {"name": Mode.LOITER.name}
            work = self._system.command("mode", loiter)
            self._system.start(work, is_stop=True)

    async def _fly_once(self, station: Station, state: dict[str, Any]) -> Answer:
        """Send the newest demand; `state` has the place that is flown to, and its command."""
        system, demand = self._system, self._fresh(station)
        if demand is None:
            return DENIED, f"no setpoint for {TTL_S:g} s"
        if not system.has(station):
            return DENIED, f"{name_of(station)} has not the ship"
        if demand.task == "velocity":
            state.clear()
            arguments = self._along(demand)
            if arguments is None:
                return BUSY, "the ship is not heard, and a velocity along it needs its heading"
            refused = await system.ship.push([(KEY, "velocity", arguments)], ttl_s=TTL_S)
            if refused is None:
                return OK
            await system.note(refused)
            return answer_of(refused)
        if (answer := await self._ended(state)) is not None:
            return answer
        if _far(state.get("goto"), demand.arguments):
            state.pop("held", None)
            state["goto"] = place = demand.arguments
            patience_s = ACTIONS["goto"].timeout_s(place)
            state["going"] = going = asyncio.create_task(
                system.ship.command("goto", place, timeout_s=patience_s, coalesce=KEY)
            )
            # The stream may end first: what becomes of the last place is nobody's question then.
            going.add_done_callback(lambda done: done.cancelled() or done.exception())
            answers_s = REFUSAL_S if self._is_on_ground() else PERIOD_S
            await asyncio.wait([going], timeout=answers_s)
            return await self._ended(state) or OK
        return OK

    def _is_on_ground(self) -> bool:
        return self._system.seen is not None and self._system.seen.landed == ON_GROUND

    async def _ended(self, state: dict[str, Any]) -> Answer | None:
        """Return why a place is not flown to; None if it is, or is held. Raises LinkError."""
        going: asyncio.Task[Reply] | None = state.get("going")
        if going is None or not going.done():
            return None
        if (answer := answer_of(going.result())) != OK:
            await self._system.note(going.result())
            return answer
        seen = self._system.seen
        if seen is not None and seen.ship.mode == Mode.LOITER.name:
            state["held"] = True  # telemetry may be older than the answer: not before
        elif seen is not None and "held" in state:
            return CANCELLED, f"the ship flies {seen.ship.mode}"
        return None

    def _along(self, demand: Demand) -> dict[str, float] | None:
        """Return a velocity in the world's axes; None if that needs a heading and none is known."""
        if not demand.body:
            return demand.arguments
        if self._system.seen is None:
            return None
        yaw = self._system.seen.ship.attitude_rad.yaw
        forward, right = demand.arguments["north_mps"], demand.arguments["east_mps"]
        return demand.arguments | {
            "north_mps": forward * math.cos(yaw) - right * math.sin(yaw),
            "east_mps": forward * math.sin(yaw) + right * math.cos(yaw),
        }

    def _fresh(self, station: Station) -> Demand | None:
        if self._newest is None:
            return None
        sender, at_s, demand = self._newest
        is_fresh = self._system.ship.now_s - at_s <= TTL_S
        return demand if is_fresh and sender == station else None

    # --- what is heard --------------------------------------------------------------------

    def _local(self, _: Peer, station: Station, m: Message) -> None:
        if m.coordinate_frame not in (*LOCAL, *BODY):
            self._system.say(f"offboard: frame {m.coordinate_frame} is not flown")
        elif self._is_place(m):
            if m.coordinate_frame != LOCAL[0]:
                self._system.say("offboard: a place must be in MAV_FRAME_LOCAL_NED")
            else:
                self._place(station, m, m.x, m.y, -m.z)
        else:
            self._velocity(station, m)

    def _global(self, _: Peer, station: Station, m: Message) -> None:
        airframe = self._system.airframe
        if airframe is None:
            return
        latitude, longitude = 1e-7 * m.lat_int, 1e-7 * m.lon_int
        if m.coordinate_frame not in (*RELATIVE, *GLOBAL):  # nobody knows the terrain
            self._system.say(f"offboard: frame {m.coordinate_frame} is not flown")
        elif not self._is_place(m):
            self._velocity(station, m)
        elif abs(latitude) > 90.0 or abs(longitude) > 180.0:
            where = f"latitude {latitude:g}, longitude {longitude:g}"
            self._system.say(f"offboard: {where}: no place on Earth")
        else:
            north_m, east_m = airframe.home.local_m(latitude, longitude)
            is_sea = m.coordinate_frame in GLOBAL
            height_m = m.alt - (airframe.home.altitude_msl_m if is_sea else 0.0)
            self._place(station, m, north_m, east_m, height_m)

    def _is_place(self, m: Message) -> bool:
        return not m.type_mask & (_PLACE | _FORCE)

    def _place(self, station: Station, m: Message, north: float, east: float, up: float) -> None:
        arguments = {"north_m": north, "east_m": east, "altitude_m": up}
        if not m.type_mask & _NO_YAW:
            arguments["yaw_deg"] = math.degrees(m.yaw)
        self._note(station, Demand("goto", arguments))

    def _velocity(self, station: Station, m: Message) -> None:
        if m.type_mask & _PLACE != _PLACE or m.type_mask & (_VELOCITY | _FORCE):
            self._system.say(f"offboard: type mask {m.type_mask}: no whole place or velocity")
            return
        arguments = {"north_mps": m.vx, "east_mps": m.vy, "up_mps": -m.vz, "seconds": TTL_S}
        frame = getattr(m, "coordinate_frame", 0)
        self._note(station, Demand("velocity", arguments, body=frame in BODY))

    def _note(self, station: Station, demand: Demand) -> None:
        bad = [name for name, value in demand.arguments.items() if not math.isfinite(value)]
        if bad:
            self._system.say(f"offboard: {bad[0]} is no number: the setpoint is refused")
        elif self._flying is not None and not self._system.has(station):
            self._system.say(f"offboard: {name_of(station)} has not the ship")
        elif why := self._system.stations.refusal(station):  # it would hide the holder's
            self._system.say(f"offboard: {why}")
        else:
            self._newest = station, self._system.ship.now_s, demand

    # --- sticks ---------------------------------------------------------------------------

    def _stick(self, _: Peer, station: Station, m: Message) -> None:
        """Push by the sticks, in a mode that is flown by them; the newest wins."""
        system = self._system
        if system.seen is None or system.seen.ship.mode not in STICK_MODES:
            return  # stations send sticks all the time
        if not system.has(station):
            system.say(f"sticks: {name_of(station)} has not the ship")
            return
        if self._pushing is not None and not self._pushing.done():
            return
        axes = [0 if axis == _NO_AXIS else axis for axis in (m.x, m.y, m.z, m.r)]
        if not all(-1000 <= axis <= 1000 for axis in axes) or axes[2] < 0:
            system.say(f"sticks: {axes}: the limits are -1000 to 1000, of z 0 to 1000")
            return
        forward, right, up, turn = axes
        arguments = {
            "forward_percent": 0.1 * forward, "right_percent": 0.1 * right,
            "up_percent": 0.0 if m.z == _NO_AXIS else 0.2 * (up - 500), "turn_percent": 0.1 * turn,
            "seconds": TTL_S,
        }  # fmt: skip
        self._pushing = asyncio.create_task(self._push(arguments))

    async def _push(self, arguments: dict[str, float]) -> None:
        try:
            sticks = [("mavlink sticks", "stick", arguments)]
            refused = await self._system.ship.push(sticks, ttl_s=TTL_S)
        except BlimpError as error:
            self._system.say(f"sticks: {error}")
            return
        if refused is not None:
            self._system.say(f"sticks: {refused.reason}")
            await self._system.note(refused)


def _is_answered(going: asyncio.Task[Reply]) -> bool:
    """Whether the ship has said how a place ended."""
    return (
        going.done()
        and going.exception() is None
        and going.result().state in ("SUCCESS", "REFUSED", "SUPERSEDED")
    )


def _far(old: dict[str, float] | None, new: dict[str, float]) -> bool:
    """Whether a place is another one than is flown to."""
    return (
        old is None
        or old.keys() != new.keys()
        or any(abs(old[name] - value) > _SAME_M for name, value in new.items())
    )
