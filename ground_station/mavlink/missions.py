"""The mission protocol, for missions, geofences and rally points, and the mission that is flown.

A plan is taken whole and checked whole, before it replaces the one before; an upload that stops is
forgotten. Plans are kept until this process ends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from blimp.errors import BlimpError, MissionError
from blimp.geofence import Geofence
from ground_station.legs import SetGeofence, Takeoff
from ground_station.mavlink.items import ALL, FENCE, MISSION, NAMES, RALLY, Item, fence_of
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.plans import MOST, Flown, mission_of
from ground_station.mavlink.stations import Station
from ground_station.mavlink.system import BUSY, CANCELLED, DENIED, OK, Answer, System
from ground_station.mavlink.telemetry import ON_GROUND
from ground_station.mavlink.wire import Message, message

ASK_S, ASKED_AGAIN = 1.0, 5  # for one item
NONE, NOT_STARTED, ACTIVE, PAUSED, COMPLETE = 1, 2, 3, 4, 5  # MISSION_STATE
# MAV_MISSION_RESULT
TAKEN, ERROR, UNSUPPORTED, NO_SPACE, INVALID, SEQUENCE, REFUSED, GIVEN_UP = (
    0,
    1,
    3,
    4,
    5,
    13,
    14,
    15,
)


class _Upload:
    """One upload under way."""

    def __init__(self, peer: Peer, station: Station, kind: int, count: int) -> None:
        self.peer, self.station, self.kind, self.count = peer, station, kind, count
        self.items: list[Item] = []
        self.came = asyncio.Event()


class Missions:
    """The plans of one ship. current: the item that is flown, or comes next."""

    def __init__(self, system: System) -> None:
        self._system = system
        system.flown_by(self.pause)
        self._items: dict[int, list[Item]] = {kind: [] for kind in NAMES}
        self._upload: _Upload | None = None
        self._flying: asyncio.Task[Any] | None = None
        self._state = NONE
        self._sent_s = 0.0
        self._next_leg = 1
        self.current = 0
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "MISSION_COUNT": self._count,
            "MISSION_ITEM_INT": self._item,
            "MISSION_REQUEST_LIST": self._list,
            "MISSION_REQUEST_INT": self._request,
            "MISSION_REQUEST": self._request,
            "MISSION_CLEAR_ALL": self._clear,
            "MISSION_SET_CURRENT": self._set_current,
            "MISSION_ACK": self._acknowledged,
        }

    @property
    def is_active(self) -> bool:
        return self._flying is not None and not self._flying.done()

    # --- flying ---------------------------------------------------------------------------

    async def begin(self) -> Answer:
        """Fly the mission from its present item on; returns once it is under way."""
        system = self._system
        if self.is_active:
            return OK
        if not self._items[MISSION]:
            return DENIED, "no mission is uploaded"
        if system.airframe is None or system.seen is None:
            return BUSY, "the ship has sent nothing yet"
        try:
            flown = self._checked(MISSION, self._items[MISSION])
        except MissionError as error:
            return DENIED, str(error)
        assert flown is not None
        first = self._next_leg if self._state == PAUSED else 1
        legs = flown.mission.legs
        if system.seen.landed == ON_GROUND:
            first = 1
        elif first == 1:  # it has taken off already
            first = next((k for k, leg in enumerate(legs, 2) if isinstance(leg, Takeoff)), 1)
        if first > len(legs):
            return DENIED, "the mission ends with its takeoff"
        system.take_over()
        begun = asyncio.Event()
        self._state = ACTIVE
        self._flying = flying = asyncio.create_task(self._fly(flown, first, begun))
        waiting = asyncio.create_task(begun.wait())
        try:
            await asyncio.wait([flying, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if flying.cancelled() or (self._flying is flying and self._state == PAUSED):
            return CANCELLED, "another command came"
        words = flying.result() if flying.done() else ""
        return (DENIED, words) if words else OK

    async def _fly(self, flown: Flown, first: int, begun: asyncio.Event) -> str:
        """Fly it; return why it ended before its end, "" if it did not."""
        system = self._system
        reached: list[int] = []

        def on_leg(number: int) -> None:
            if number > first:
                begun.set()  # the ship has taken a leg
            self._next_leg = number
            item = flown.seqs[number - 1]
            if reached and reached[-1] != item:
                system.send(message("mission_item_reached", seq=reached[-1]))
            reached.append(item)
            self.current = item
            self.tell(at_once=True)

        try:
            await system.ship.mission(flown.mission, first=first, on_leg=on_leg)
        except BlimpError as error:
            notes = "; ".join(getattr(error, "__notes__", ()))
            words = f"mission: {error} ({notes})" if notes else f"mission: {error}"
            self._state, self._next_leg = NOT_STARTED, 1
            if begun.is_set():
                system.say(words)
            return words
        system.send(message("mission_item_reached", seq=reached[-1]))
        self._state, self._next_leg = COMPLETE, 1
        system.say("mission: done", 6)
        self.tell(at_once=True)
        return ""

    def pause(self) -> None:
        """Send no further leg: another command flies the ship, or will in a moment."""
        if self._flying is not None and not self._flying.done():
            self._flying.cancel()
            self._state = PAUSED

    def set_current(self, seq: float) -> str:
        """Have the mission go on with an item; return why not, "" if it does."""
        items = self._items[MISSION]
        if not (0 <= seq < len(items) and seq == int(seq)):
            return f"item {seq:g}, the mission has {len(items)}"
        if self.is_active:
            return "the mission is under way: pause it first"
        try:
            flown = self._checked(MISSION, items)
        except MissionError as error:
            return str(error)
        assert flown is not None
        self._next_leg = next((k for k, s in enumerate(flown.seqs, 1) if s >= seq), 1)
        self.current = int(seq)
        self._state = PAUSED if seq else NOT_STARTED
        return ""

    def tell(self, *, at_once: bool = False) -> None:
        """Send where the mission is, once a second."""
        now_s = self._system.ship.now_s
        if at_once or now_s - self._sent_s >= 1.0:
            self._sent_s = now_s
            total = len(self._items[MISSION])
            state = self._state if total else NONE
            self._system.send(
                message("mission_current", seq=self.current, total=total, mission_state=state)
            )

    def fence_arguments(self) -> dict[str, Any] | None:
        """Return the geofence as the ship's command takes it; None if none was ever uploaded."""
        if not (self._items[FENCE] or self._items[RALLY]):
            return None
        fence = self._fence()
        return SetGeofence(zones=fence.zones, rally=fence.rally).arguments()

    def _fence(self) -> Geofence:
        airframe = self._system.airframe
        if airframe is None:
            raise MissionError("the ship has sent nothing yet")
        return fence_of(self._items[FENCE], self._items[RALLY], airframe.home)

    def _checked(self, kind: int, items: list[Item]) -> Flown | None:
        """Return the mission, None for another plan. Raises MissionError for what is refused."""
        airframe = self._system.airframe
        if airframe is None:
            raise MissionError("the ship has sent nothing yet")
        if kind == MISSION:
            return mission_of(items, airframe.home, self._fence()) if items else None
        parts = self._items | {kind: items}
        fence_of(parts[FENCE], parts[RALLY], airframe.home)
        return None

    # --- up -------------------------------------------------------------------------------

    def _count(self, peer: Peer, station: Station, m: Message) -> None:
        kind, system = m.mission_type, self._system
        if kind not in NAMES:
            self._ack(peer, station, kind, UNSUPPORTED)
        elif m.count > MOST[kind]:
            system.say(f"{NAMES[kind]}: {m.count} items, the limit is {MOST[kind]}")
            self._ack(peer, station, kind, NO_SPACE)
        elif why := self._locked(station):
            system.say(f"{NAMES[kind]}: {why}")
            self._ack(peer, station, kind, REFUSED)
        elif m.count == 0:
            self._drop(station)
            self._store(peer, station, kind, [])
        else:
            self._drop(station)
            self._upload = _Upload(peer, station, kind, m.count)
            if system.start(self._ask(self._upload)) is None:
                self._upload = None
                self._ack(peer, station, kind, ERROR)

    def _locked(self, station: Station) -> str:
        """Return why a station may not change a plan, "" if it may.

        One that may no longer, because another has the ship by now, keeps nobody from uploading.
        """
        upload, refusal = self._upload, self._system.stations.refusal
        if self.is_active:
            return "the mission is under way: pause it first"
        if upload is not None and upload.station != station and not refusal(upload.station):
            return "another station is uploading"
        return refusal(station)

    def _drop(self, station: Station) -> None:
        """Forget the upload that is under way; a station that loses its own to another hears it."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.came.set()
            if upload.station != station:
                self._ack(upload.peer, upload.station, upload.kind, REFUSED)

    async def _ask(self, upload: _Upload) -> None:
        """Ask for each item until it comes; give up after some times."""
        tries = 0
        while self._upload is upload and len(upload.items) < upload.count:
            upload.came.clear()
            self._system.send(
                message(
                    "mission_request_int", target_system=upload.station.system,
                    target_component=upload.station.component,
                    seq=len(upload.items), mission_type=upload.kind,
                ),
                upload.peer,
            )  # fmt: skip
            try:
                await asyncio.wait_for(upload.came.wait(), ASK_S)
                tries = 0
            except TimeoutError:
                tries += 1
            if tries >= ASKED_AGAIN and self._upload is upload:
                self._upload = None
                came = f"{len(upload.items)} of {upload.count} items came"
                self._system.say(f"{NAMES[upload.kind]}: {came}: the upload is forgotten")
                self._ack(upload.peer, upload.station, upload.kind, GIVEN_UP)
        if self._upload is upload:
            self._upload = None
            self._store(upload.peer, upload.station, upload.kind, upload.items)

    def _item(self, peer: Peer, station: Station, m: Message) -> None:
        upload = self._upload
        if upload is None or (station, m.mission_type) != (upload.station, upload.kind):
            self._ack(peer, station, m.mission_type, ERROR if upload is None else REFUSED)
        elif m.seq == len(upload.items):
            problem = "autocontinue is 0: no mission waits for a word"
            if upload.kind == MISSION and not m.autocontinue:  # MAVProxy's fences have 0
                self._upload = None
                upload.came.set()
                self._system.say(f"item {m.seq}: {problem}")
                self._ack(peer, station, upload.kind, INVALID)
                return
            values = (m.param1, m.param2, m.param3, m.param4, 1e-7 * m.x, 1e-7 * m.y, m.z)
            params = tuple(None if math.isnan(value) else value for value in values)
            name = f"item {m.seq}"
            upload.items.append(
                Item(name=name, id=m.seq, command=m.command, frame=m.frame, params=params)
            )
            upload.came.set()
        # Another one was sent before, and is asked for again if it is missed.

    def _store(self, peer: Peer, station: Station, kind: int, items: list[Item]) -> None:
        if why := self._locked(station):  # since it began
            self._system.say(f"{NAMES[kind]}: {why}")
            self._ack(peer, station, kind, REFUSED)
            return
        try:
            self._checked(kind, items)
        except MissionError as error:
            self._system.say(f"{NAMES[kind]}: {error}")
            self._ack(peer, station, kind, INVALID)
            return
        self._items[kind] = items
        if kind == MISSION:
            self.current, self._next_leg, self._state = 0, 1, NOT_STARTED
        self._ack(peer, station, kind, TAKEN)

    def _clear(self, peer: Peer, station: Station, m: Message) -> None:
        kinds = tuple(NAMES) if m.mission_type == ALL else (m.mission_type,)
        if any(kind not in NAMES for kind in kinds):
            self._ack(peer, station, m.mission_type, UNSUPPORTED)
        elif why := self._locked(station):
            self._system.say(f"{NAMES[kinds[0]]}: {why}")
            self._ack(peer, station, m.mission_type, REFUSED)
        else:
            self._drop(station)
            for kind in kinds:
                self._items[kind] = []
            if MISSION in kinds:
                self.current, self._next_leg, self._state = 0, 1, NONE
            self._ack(peer, station, m.mission_type, TAKEN)

    def _set_current(self, _: Peer, station: Station, m: Message) -> None:
        why = self._system.stations.refusal(station) or self.set_current(m.seq)
        if why:
            self._system.say(f"mission: {why}")
        self.tell(at_once=True)

    # --- down -----------------------------------------------------------------------------

    def _list(self, peer: Peer, station: Station, m: Message) -> None:
        if m.mission_type not in NAMES:
            self._ack(peer, station, m.mission_type, UNSUPPORTED)
            return
        self._system.send(
            message(
                "mission_count", target_system=station.system, target_component=station.component,
                count=len(self._items[m.mission_type]), mission_type=m.mission_type,
            ),
            peer,
        )  # fmt: skip

    def _request(self, peer: Peer, station: Station, m: Message) -> None:
        items = self._items.get(m.mission_type, [])
        if m.seq >= len(items):
            self._ack(peer, station, m.mission_type, SEQUENCE)
            return
        item = items[m.seq]
        p1, p2, p3, p4, x, y, z = (math.nan if value is None else value for value in item.params)
        self._system.send(
            message(
                "mission_item_int", target_system=station.system,
                target_component=station.component,
                seq=item.id, frame=item.frame, command=item.command, autocontinue=1,
                current=int(m.mission_type == MISSION and item.id == self.current),
                param1=p1, param2=p2, param3=p3, param4=p4, x=round(1e7 * x), y=round(1e7 * y), z=z,
                mission_type=m.mission_type,
            ),
            peer,
        )  # fmt: skip

    def _acknowledged(self, _: Peer, station: Station, m: Message) -> None:
        """A station that gives its upload up says so; else it has all it asked for."""
        upload = self._upload
        if upload is None or (station, m.mission_type) != (upload.station, upload.kind):
            return
        if m.type == GIVEN_UP:
            self._upload = None
            upload.came.set()

    def _ack(self, peer: Peer, station: Station, kind: int, result: int) -> None:
        self._system.send(
            message(
                "mission_ack", target_system=station.system, target_component=station.component,
                type=result, mission_type=kind,
            ),
            peer,
        )  # fmt: skip
