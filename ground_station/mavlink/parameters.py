"""Parameters: the numbers of the airframe, by names of 16 letters; the ship keeps what is set.

"limits.speed_mps" is LIM_SPEED: the section's first letters and the name without its unit, the
longest word cut until it fits. Whole numbers are INT32, in MAVLink's bytewise form. The place of
home is none of them: 32 bits have it to a metre only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import AsyncIterator, Callable

from blimp.airframe import Airframe
from blimp.errors import BlimpError
from blimp.parameters import Parameter, parameters
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.stations import Station
from ground_station.mavlink.system import System
from ground_station.mavlink.wire import Message, message, text_of

LETTERS = 16
INT32, REAL32 = 6, 9  # MAV_PARAM_TYPE
UNKNOWN, RANGE, DENIED = 1, 2, 3  # MAV_PARAM_ERROR
TAKEOFF = "MIS_TAKEOFF_ALT"  # MAVSDK's name for the altitude of a takeoff that says none
TAKEOFF_M, LEAST_TAKEOFF_M = 3.0, 0.5
_LEFT_OUT = ("home.latitude_deg", "home.longitude_deg")


def id_of(parameter: Parameter) -> str:
    """Return the name in MAVLink."""
    words = parameter.name.split("_")
    if parameter.unit and len(words) > 1:
        words.pop()
    words = [parameter.section[:3], *words]
    while len("_".join(words)) > LETTERS:
        longest = max(range(len(words)), key=lambda k: len(words[k]))
        words[longest] = words[longest][:-1]
    return "_".join(words).upper()


def by_id(airframe: Airframe) -> dict[str, Parameter]:
    """Return the parameters by their names in MAVLink, in their order there."""
    return {id_of(one): one for one in parameters(airframe) if one.path not in _LEFT_OUT}


class Parameters:
    """The parameter protocol of one ship. takeoff_m: kept until this process ends."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._listing: set[Peer] = set()
        self._setting: set[tuple[str, float]] = set()
        self.takeoff_m = TAKEOFF_M
        self._read_of: Airframe | None = None
        self._airframes: dict[str, Parameter] = {}
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "PARAM_REQUEST_LIST": self._list,
            "PARAM_REQUEST_READ": self._read,
            "PARAM_SET": self._set,
        }

    @property
    def _known(self) -> dict[str, Parameter]:
        airframe = self._system.airframe
        if airframe is None:
            return {}
        own = Parameter(
            section="mission", name="takeoff_altitude", value=self.takeoff_m, unit="m",
            limits=f"{LEAST_TAKEOFF_M:g} to {airframe.limits.max_altitude_m:g}",
        )  # fmt: skip
        if self._read_of is not airframe:  # reading them takes a millisecond, and anybody may ask
            self._read_of, self._airframes = airframe, by_id(airframe)
        return self._airframes | {TAKEOFF: own}

    async def _list(self, peer: Peer, _: Station, __: Message) -> AsyncIterator[Message]:
        if peer in self._listing:
            return  # it is on its way
        self._listing.add(peer)
        try:
            known = self._known
            for index, id in enumerate(known):
                yield _value(known, id, index)
        finally:
            self._listing.discard(peer)

    def _read(self, peer: Peer, _: Station, m: Message) -> None:
        known = self._known
        ids = list(known)
        id = text_of(m.param_id) if m.param_index < 0 else ""
        if 0 <= m.param_index < len(ids):
            id = ids[m.param_index]
        if id in known:
            self._system.send(_value(known, id, ids.index(id)), peer)
        elif known:
            self._refuse(peer, m, UNKNOWN, f"no parameter {id or m.param_index}")

    def _set(self, peer: Peer, station: Station, m: Message) -> None:
        """Set one; a station that asks again meanwhile is answered once."""
        key = (text_of(m.param_id), m.param_value)
        if key not in self._setting:
            self._setting.add(key)
            if self._system.start(self._set_once(peer, station, m, key)) is None:
                self._setting.discard(key)

    async def _set_once(
        self, peer: Peer, station: Station, m: Message, key: tuple[str, float]
    ) -> None:
        try:
            await self._answer(peer, station, m)
        finally:
            self._setting.discard(key)

    async def _answer(self, peer: Peer, station: Station, m: Message) -> None:
        id = text_of(m.param_id)
        known = self._known
        one = known.get(id)
        if one is None:
            self._refuse(peer, m, UNKNOWN, f"no parameter {id!r}")
            return
        value = _number(m)
        wanted = _type(one)
        if m.param_type != wanted:
            words = f"{id}: type {m.param_type}, must be {wanted}"
            error = RANGE
        elif not math.isfinite(value):
            error, words = RANGE, f"{id} is {value:g}, must be a number"
        elif why := await self._system.may_act(station):
            error, words = DENIED, f"{id}: {why}"
        else:
            error, words = await self._store(id, one, value)
        if words:
            self._refuse(peer, m, error, words)
        known = self._known
        self._system.send(_value(known, id, list(known).index(id)))  # all stations see it

    async def _store(self, id: str, one: Parameter, value: float) -> tuple[int, str]:
        """Return why the value is refused: MAV_PARAM_ERROR and words, "" for stored."""
        system = self._system
        if id == TAKEOFF:
            most_m = system.airframe.limits.max_altitude_m if system.airframe else 0.0
            if not LEAST_TAKEOFF_M <= value <= most_m:
                return RANGE, f"{id} is {value:g} m, must be {one.limits} m"
            self.takeoff_m = value
            return 0, ""
        # 0.35 comes as 0.34999999: the shortest number that means these 32 bits was meant.
        wanted = _shortest(value)
        if wanted == one.value:
            return 0, ""
        arguments = {"name": one.path, "value": wanted}
        try:
            reply = await system.command("param", arguments)
        except BlimpError as error:
            return DENIED, f"{id}: {error}"
        if reply.state != "SUCCESS":
            return RANGE, f"{id}: {reply.reason or reply.state.lower()}"
        await system.refresh()
        return 0, ""

    def _refuse(self, peer: Peer, m: Message, error: int, words: str) -> None:
        self._system.say(words)
        system, component = m.get_srcSystem(), m.get_srcComponent()
        self._system.send(
            message(
                "param_error", target_system=system, target_component=component,
                param_id=text_of(m.param_id).encode("ascii", "replace")[:LETTERS],
                param_index=getattr(m, "param_index", -1), error=error,
            ),
            peer,
        )  # fmt: skip


def _type(one: Parameter) -> int:
    return INT32 if isinstance(one.value, int) else REAL32


def _value(known: dict[str, Parameter], id: str, index: int) -> Message:
    one = known[id]
    value = float(one.value)
    if isinstance(one.value, int):
        (value,) = struct.unpack("<f", struct.pack("<i", one.value))
    return message(
        "param_value", param_id=id.encode(), param_value=value, param_type=_type(one),
        param_count=len(known), param_index=index,
    )  # fmt: skip


def _number(m: Message) -> float:
    if m.param_type == INT32:
        return float(struct.unpack("<i", struct.pack("<f", m.param_value))[0])
    return float(m.param_value)


def _shortest(value: float) -> float:
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value
