"""COMMAND_LONG and COMMAND_INT: each is answered, by the table at the end.

A long one is answered IN_PROGRESS at once and every half second, then with its end. A command that
is repeated while it is under way is not sent again. What the ship refuses is DENIED, with the
ship's own words as a STATUSTEXT.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from blimp.ability import lacking
from blimp.actions import ACTIONS, Action, MavCommand, Progress
from blimp.airframe import Home
from blimp.errors import BlimpError
from blimp.tasks.reply import Reply
from blimp.types import Mode
from ground_station.mavlink import telemetry
from ground_station.mavlink.camera import CameraComponent
from ground_station.mavlink.frames import means_stop
from ground_station.mavlink.items import GLOBAL, RELATIVE
from ground_station.mavlink.missions import Missions
from ground_station.mavlink.modes import asked_mode, standard_mode
from ground_station.mavlink.parameters import Parameters
from ground_station.mavlink.peer import Peer
from ground_station.mavlink.setpoints import Demands
from ground_station.mavlink.stations import Station
from ground_station.mavlink.system import (
    ACCEPTED,
    BUSY,
    CANCELLED,
    DENIED,
    FAILED,
    IN_PROGRESS,
    INT_ONLY,
    OK,
    UNSUPPORTED,
    Answer,
    System,
    answer_of,
)
from ground_station.mavlink.wire import (
    AUTOPILOT,
    CAMERA,
    PROTOCOL_VERSION,
    Message,
    message,
    number_of,
    protocol_version,
)

MAX_RUNNING = 32  # commands at once, stops apart: a station sends one after the other
# At once that are answered, of a peer and of all: what is beyond is pressed, and not waited for
MAX_STOPS, MAX_ALL_STOPS = 4, 64
PROGRESS_S = 0.5  # MAVSDK waits 1.5 s for the next sign of life
_NO_PLACE = (2**31 - 1, -(2**31))
# Bits of AUTOPILOT_VERSION: mission, integers, commands, parameters by bits, files, targets, stop,
# version 2, fence, rally
CAPABILITIES = 2 | 4 | 8 | 16 | 32 | 128 | 256 | 2048 | 8192 | 16384 | 32768


Choice = tuple[tuple[Action, MavCommand], ...]  # the actions that share a number


class Parts(NamedTuple):
    """What a command can reach: the system, and its parts that act or keep something."""

    system: System
    missions: Missions
    demands: Demands
    parameters: Parameters
    camera: CameraComponent

    def flown_by(self) -> Mode | None:
        """Return the mode in which a part flies the ship now."""
        if self.missions.is_active:
            return Mode.AUTO
        return Mode.VELOCITY if self.demands.is_active else None


class Asked(msgspec.Struct, frozen=True):
    """A command. params: seven, NaN for none; degrees in 5 and 6. frame: None from COMMAND_LONG."""

    command: int
    params: tuple[float, ...]
    frame: int | None
    station: Station
    peer: Any
    everyone: bool  # sent to all systems, not to this one
    component: int = AUTOPILOT  # that answers


class Row(msgspec.Struct, frozen=True):
    """used: the parameters that must be numbers. acts: needs the ship's control."""

    name: str
    do: Callable[[Parts, Asked], Awaitable[Answer]]
    used: tuple[int, ...] = ()
    acts: bool = True
    long: bool = False


class Commands:
    """The commands of one ship."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._system = parts, parts.system
        self._running: dict[tuple[Station, int], Asked] = {}
        self._count = 0  # of those under way, superseded ones included
        self._acting: set[asyncio.Task[Any]] = set()  # a stop ends them: an arm would undo it
        self._stopping: Counter[Peer] = Counter()
        self.hears: dict[str, Callable[[Peer, Station, Message], object]] = {
            "COMMAND_LONG": self._long,
            "COMMAND_INT": self._int,
            "SET_MODE": self._set_mode,
        }

    def _long(self, peer: Peer, station: Station, m: Message) -> None:
        params = (m.param1, m.param2, m.param3, m.param4, m.param5, m.param6, m.param7)
        self._take(self._asked(m, params, None, peer, station))

    def _int(self, peer: Peer, station: Station, m: Message) -> None:
        scale = 1e-7 if m.frame in (*GLOBAL, *RELATIVE) else 1e-4
        x, y = (math.nan if v in _NO_PLACE else v * scale for v in (m.x, m.y))
        params = (m.param1, m.param2, m.param3, m.param4, x, y, m.z)
        self._take(self._asked(m, params, m.frame, peer, station))

    @staticmethod
    def _asked(
        m: Message, params: tuple[float, ...], frame: int | None, peer: Peer, station: Station
    ) -> Asked:
        component = CAMERA if m.target_component == CAMERA else AUTOPILOT
        return Asked(m.command, params, frame, station, peer, m.target_system == 0, component)

    def _set_mode(self, peer: Peer, station: Station, m: Message) -> None:
        """The older form of DO_SET_MODE, answered as that is."""
        params = (float(m.base_mode), float(m.custom_mode), 0.0, 0.0, 0.0, 0.0, 0.0)
        self._take(Asked(176, params, None, station, peer, m.target_system == 0))

    def _take(self, asked: Asked) -> None:
        row = COMMANDS.get(asked.command)
        if row is None:
            self._system.say(f"MAV_CMD {asked.command} is not supported", 6)
            self._ack(asked, UNSUPPORTED)
        elif row.acts and asked.everyone and not _stops(asked):
            self._end(asked, row, (DENIED, "sent to all systems: name one"))
        elif any(not math.isfinite(asked.params[k - 1]) for k in row.used):
            bad = next(k for k in row.used if not math.isfinite(asked.params[k - 1]))
            words = f"parameter {bad} is {asked.params[bad - 1]:g}, must be a number"
            self._end(asked, row, (DENIED, words))
        elif not _stops(asked) and _same(self._running.get((asked.station, asked.command)), asked):
            self._ack(asked, IN_PROGRESS)  # its answer was lost, or takes long
        elif self._count >= MAX_RUNNING and not _stops(asked):
            words = f"{MAX_RUNNING} commands are under way, the limit: send it again"
            self._end(asked, row, (BUSY, words))
        else:
            if _stops(asked):
                for acting in self._acting:
                    acting.cancel()
                if (
                    self._stopping[asked.peer] >= MAX_STOPS
                    or self._stopping.total() >= MAX_ALL_STOPS
                ):
                    with suppress(BlimpError):  # those under way say it
                        _press(self._parts)
                    self._ack(asked, IN_PROGRESS)
                    return
            started = self._system.start(self._run(asked, row), is_stop=_stops(asked))
            if started is not None and _stops(asked):
                self._stopping[asked.peer] += 1
                started.add_done_callback(lambda _: self._stopped(asked.peer))
            elif started is not None and row.acts:
                self._acting.add(started)
                started.add_done_callback(self._acting.discard)

    def _stopped(self, peer: Peer) -> None:
        self._stopping[peer] -= 1
        if not self._stopping[peer]:
            del self._stopping[peer]

    async def _run(self, asked: Asked, row: Row) -> None:
        key = (asked.station, asked.command)
        self._running[key] = asked
        self._count += 1
        try:
            answer = await self._answer(asked, row)
            if self._running.get(key) is asked:  # a newer one of its number has its own answer
                self._end(asked, row, answer)
        except asyncio.CancelledError:
            if self._running.get(key) is asked:
                self._end(asked, row, (CANCELLED, "ended by an emergency stop"))
            raise
        finally:
            self._count -= 1
            if self._running.get(key) is asked:
                del self._running[key]

    async def _answer(self, asked: Asked, row: Row) -> Answer:
        try:
            if row.acts and not _stops(asked):
                why = await self._system.may_act(asked.station)
                if why:
                    return BUSY, why
            doing = asyncio.ensure_future(row.do(self._parts, asked))
            try:
                while row.long and not (await asyncio.wait([doing], timeout=PROGRESS_S))[0]:
                    if self._running.get((asked.station, asked.command)) is asked:
                        self._ack(asked, IN_PROGRESS)
                return await doing
            finally:
                doing.cancel()
        except BlimpError as error:
            return FAILED, str(error)

    def _end(self, asked: Asked, row: Row, answer: Answer) -> None:
        result, words = answer
        if words:
            self._system.say(f"{row.name}: {words}")
        self._ack(asked, result)

    def _ack(self, asked: Asked, result: int) -> None:
        progress = 255 if result == IN_PROGRESS else 0
        self._system.send(
            message(
                "command_ack", command=asked.command, result=result, progress=progress,
                target_system=asked.station.system, target_component=asked.station.component,
            ),
            asked.peer,
            component=asked.component,
        )  # fmt: skip


async def _order(parts: Parts, name: str, arguments: dict[str, Any]) -> Answer:
    """Send a command that ends what flew before: a mission, a stream of setpoints."""
    parts.system.take_over()
    return answer_of(await parts.system.command(name, arguments))


def _same(one: Asked | None, other: Asked) -> bool:
    # By their text: a NaN is not equal to itself.
    return one is not None and str(one.params) == str(other.params) and one.frame == other.frame


def _stops(asked: Asked) -> bool:
    """Whether it is an emergency stop, which nobody needs control for."""
    return means_stop(asked.command, *asked.params[:2])


def _press(parts: Parts) -> Awaitable[Reply]:
    stopping = parts.system.ship.press()
    parts.system.take_over()
    return stopping


class _NotTaken(Exception):
    """args: an Answer."""


async def _act(choice: Choice, parts: Parts, asked: Asked) -> Answer:
    """Do the action of this number that the parameters mean."""
    if _stops(asked):
        return answer_of(await _press(parts))
    try:
        action, command = _meant(choice, asked)
        arguments = action.checked(_arguments(action, command, parts, asked))
    except _NotTaken as error:
        result, words = error.args
        return result, words
    except ValueError as error:
        return DENIED, str(error)
    return await _carry_out(parts, action.name, arguments)


async def _carry_out(parts: Parts, name: str, arguments: dict[str, Any]) -> Answer:
    fence = parts.missions.fence_arguments() if name == "arm" else None
    if fence is not None:
        fenced = answer_of(await parts.system.command("geofence", fence))
        if fenced != OK:
            return fenced
    if not ACTIONS[name].flies:  # what flies the ship goes on
        reply = await parts.system.command(name, arguments)
        parts.camera.noted(name, arguments, reply)
        return answer_of(reply)
    answer = await _order(parts, name, arguments)
    # RTL means to land there, too; a stop or another command in between ends it.
    return await _order(parts, "land", {}) if name == "return" and answer == OK else answer


def _meant(choice: Choice, asked: Asked) -> tuple[Action, MavCommand]:
    for action, command in choice:
        if all(asked.params[number - 1] == value for number, value in command.only.items()):
            return action, command
    number = next(iter(choice[0][1].only))
    values = " or ".join(f"{command.only[number]:g}" for _, command in choice)
    value = asked.params[number - 1]
    raise _NotTaken(DENIED, f"parameter {number} is {value:g}, must be {values}")


def _arguments(action: Action, command: MavCommand, parts: Parts, asked: Asked) -> dict[str, Any]:
    """Return what the parameters say, in the form's units. Raises _NotTaken, BlimpError."""
    if 5 in command.params:
        found = _place(parts, asked)
    else:
        found = {}
        if why := _here_only(asked):
            raise _NotTaken(DENIED, why)
    if 7 in command.params:
        found["altitude_m"] = _height_m(action, parts, asked)
    return found | action.from_mavlink(asked.params)


def _place(parts: Parts, asked: Asked) -> dict[str, Any]:
    """Return parameters 5 and 6 in metres from the pad; where the ship is for none."""
    latitude, longitude = asked.params[4:6]
    if asked.frame is None:
        raise _NotTaken(INT_ONLY, "a place in COMMAND_LONG is not exact: send COMMAND_INT")
    if asked.frame not in (*GLOBAL, *RELATIVE):
        words = f"frame {asked.frame}, must be one of {(*GLOBAL, *RELATIVE)}"
        raise _NotTaken(DENIED, words)
    if math.isnan(latitude) != math.isnan(longitude):
        raise _NotTaken(DENIED, "a latitude or a longitude alone is no place")
    north_m, east_m, _ = _seen(parts).ship.position_ned_m
    if not math.isnan(latitude):
        if abs(latitude) > 90.0 or abs(longitude) > 180.0:
            words = f"latitude {latitude:g}, longitude {longitude:g}: no place on Earth"
            raise _NotTaken(DENIED, words)
        north_m, east_m = _home(parts).local_m(latitude, longitude)
    return {"north_m": north_m, "east_m": east_m}


def _height_m(action: Action, parts: Parts, asked: Asked) -> float:
    """Return parameter 7 in metres above the pad; for none the ship's, or that of a takeoff."""
    altitude = asked.params[6]
    if not math.isnan(altitude):
        return altitude - (_home(parts).altitude_msl_m if asked.frame in GLOBAL else 0.0)
    if action.name == "takeoff":
        return parts.parameters.takeoff_m
    return _seen(parts).ship.altitude_m


async def _set_mode(parts: Parts, asked: Asked) -> Answer:
    base, first, second = asked.params[:3]
    if not int(base) & telemetry.CUSTOM:
        return DENIED, "MAV_MODE_FLAG_CUSTOM_MODE_ENABLED is not set"
    mode = asked_mode(first, second)
    if mode is None:
        return DENIED, f"no mode {first:g}, {second:g}: AVAILABLE_MODES lists them"
    return await _enter(parts, mode, asked)


async def _set_standard_mode(parts: Parts, asked: Asked) -> Answer:
    mode = standard_mode(asked.params[0])
    if mode is None:
        return DENIED, f"no standard mode {asked.params[0]:g}: AVAILABLE_MODES lists them"
    return await _enter(parts, mode, asked)


async def _enter(parts: Parts, mode: Mode, asked: Asked) -> Answer:
    """Enter a mode. The long ones are accepted when the ship flies them, as modes are."""
    match mode:
        case Mode.AUTO:
            return await parts.missions.begin()
        case Mode.VELOCITY:
            return await parts.demands.begin(asked.station)
        case Mode.RTL | Mode.LAND:
            name = "return" if mode is Mode.RTL else "land"
            doing = asyncio.ensure_future(_carry_out(parts, name, {}))
            done, _ = await asyncio.wait([doing], timeout=PROGRESS_S)
            if done:
                return await doing
            parts.system.start(_said(parts, mode, doing))
            return OK
        case Mode.HOLD:
            return await _order(parts, "hold", {})
        case _:
            return await _order(parts, "mode", {"name": mode.name})


async def _said(parts: Parts, mode: Mode, doing: Awaitable[Answer]) -> None:
    """Say how a mode ended that its station was answered for before."""
    result, words = await doing
    if result not in (ACCEPTED, CANCELLED):
        parts.system.say(f"{mode.name}: {words}")


async def _start_mission(parts: Parts, asked: Asked) -> Answer:
    first, last = (0.0 if math.isnan(value) else value for value in asked.params[:2])
    if first not in (0.0, float(parts.missions.current)) or last > 0.0:
        return DENIED, f"items {first:g} to {last:g}: flown is the whole mission"
    return await parts.missions.begin()


async def _pause(parts: Parts, asked: Asked) -> Answer:
    if asked.params[0] not in (0.0, 1.0):
        return DENIED, f"parameter 1 is {asked.params[0]:g}, must be 0 or 1"
    if asked.params[0] == 1.0:
        return await parts.missions.begin()
    return await _order(parts, "mode", {"name": Mode.LOITER.name})


async def _set_current(parts: Parts, asked: Asked) -> Answer:
    why = parts.missions.set_current(asked.params[0])
    return (DENIED, why) if why else OK


async def _set_interval(parts: Parts, asked: Asked) -> Answer:
    name = telemetry.BY_NUMBER.get(int(asked.params[0]))
    if name is None:
        return UNSUPPORTED, ""
    why = parts.system.streams.ask(name, asked.params[1])
    return (DENIED, why) if why else OK


async def _get_interval(parts: Parts, asked: Asked) -> Answer:
    number = int(asked.params[0])
    period_s = parts.system.streams.period_s.get(telemetry.BY_NUMBER.get(number, ""))
    if not 0 <= number < 2**16:
        return DENIED, f"message {number}"
    interval_us = 0 if period_s is None else int(1e6 * period_s) or -1
    reply = message("message_interval", message_id=number, interval_us=interval_us)
    parts.system.send(reply, asked.peer)
    return OK


async def _request(parts: Parts, asked: Asked) -> Answer:
    return _sent(parts, asked, int(asked.params[0]))


async def _request_home(parts: Parts, asked: Asked) -> Answer:
    return _sent(parts, asked, number_of("home_position"))


async def _digicam(parts: Parts, asked: Asked) -> Answer:
    """The older form of IMAGE_START_CAPTURE."""
    if asked.params[4] != 1.0:
        return DENIED, f"parameter 5 is {asked.params[4]:g}, must be 1: take a photograph"
    return await _carry_out(parts, "photo", {})


async def _camera_mode(parts: Parts, asked: Asked) -> Answer:
    return parts.camera.set_mode(asked.params[1])


async def _request_of(name: str, parts: Parts, asked: Asked) -> Answer:
    """The older form of REQUEST_MESSAGE for one message."""
    return _sent(parts, asked, number_of(name))


async def _request_version(parts: Parts, asked: Asked) -> Answer:
    return _sent(parts, asked, number_of("autopilot_version"))


def _sent(parts: Parts, asked: Asked, number: int) -> Answer:
    """Send the message of this number once."""
    name = telemetry.BY_NUMBER.get(number)
    if name is not None:
        if parts.system.seen is None:
            return BUSY, ""
        parts.system.send(telemetry.STREAMS[name][0](parts.system.seen), asked.peer)
        return OK
    if number == number_of("autopilot_version"):
        parts.system.send(_version(parts), asked.peer)
        return OK
    if number == PROTOCOL_VERSION:
        parts.system.send(protocol_version(), asked.peer)
        return OK
    if number == number_of("available_modes"):
        airframe = parts.system.airframe
        modes = telemetry.available_modes(lacking(airframe) if airframe else ())
        index = int(asked.params[1]) if math.isfinite(asked.params[1]) else -1
        if not 0 <= index <= len(modes):
            return DENIED, f"mode {index}, the limits are 0 to {len(modes)}"
        for one in modes if index == 0 else modes[index - 1 : index]:
            parts.system.send(one, asked.peer)
        return OK
    if (make := parts.camera.messages.get(number)) is not None and parts.camera.chip:
        parts.system.send(make(), asked.peer, component=CAMERA)
        return OK
    if number == number_of("video_stream_information"):
        return UNSUPPORTED, "there is no video stream: the page has the camera's picture"
    if number == number_of("mission_current"):
        parts.missions.tell(at_once=True)
        return OK
    return UNSUPPORTED, ""


def _version(parts: Parts) -> Message:
    # 0.1.0, development: major, minor, patch, FIRMWARE_VERSION_TYPE
    return message(
        "autopilot_version", capabilities=CAPABILITIES, flight_sw_version=0x00010000,
        middleware_sw_version=0, os_sw_version=0, board_version=0, flight_custom_version=[0] * 8,
        middleware_custom_version=[0] * 8, os_custom_version=[0] * 8, vendor_id=0, product_id=0,
        uid=parts.system.number,
    )  # fmt: skip


def _here_only(asked: Asked) -> str:
    """Return why a place is refused; NaN and 0 are none."""
    latitude, longitude = asked.params[4:6]
    if (latitude or longitude) and not (math.isnan(latitude) or math.isnan(longitude)):
        return "a place is given: it is flown straight up or down, send a reposition first"
    return ""


def _home(parts: Parts) -> Home:
    if parts.system.airframe is None:
        raise BlimpError("the ship has sent nothing yet")
    return parts.system.airframe.home


def _seen(parts: Parts) -> telemetry.Seen:
    if parts.system.seen is None:
        raise _NotTaken(BUSY, "the ship has sent nothing yet")
    return parts.system.seen


def _rows_of_actions() -> dict[int, Row]:
    """Return a row for each number of the table of actions; several actions may share one."""
    found: dict[int, Choice] = {}
    for action in ACTIONS.values():
        if isinstance(command := action.mavlink, MavCommand):
            found[command.number] = (*found.get(command.number, ()), (action, command))
    rows = {}
    for number, choice in found.items():
        used = {parameter for _, command in choice for parameter in command.only}
        long = any(a.progress is not Progress.NONE or not a.flies for a, _ in choice)
        acts = any(action.needs_control or action.is_emergency for action, _ in choice)
        rows[number] = Row(
            choice[0][0].name, partial(_act, choice), tuple(sorted(used)), acts=acts, long=long
        )
    return rows


COMMANDS: dict[int, Row] = (
    _rows_of_actions()
    | {
        176: Row("mode", _set_mode, used=(1, 2)),
        193: Row("pause", _pause, used=(1,)),
        224: Row("mission item", _set_current, used=(1,)),
        262: Row("mode", _set_standard_mode, used=(1,)),
        300: Row("mission", _start_mission),
        410: Row("home", _request_home, acts=False),
        510: Row("interval", _get_interval, used=(1,), acts=False),
        511: Row("interval", _set_interval, used=(1, 2), acts=False),
        512: Row("message", _request, used=(1,), acts=False),
        520: Row("version", _request_version, acts=False),
        203: Row("photo", _digicam, used=(5,), acts=False, long=True),
        530: Row("camera mode", _camera_mode, used=(2,), acts=False),
    }
    | {
        number: Row(name, partial(_request_of, name), acts=False)
        for number, name in (
            (521, "camera_information"),
            (522, "camera_settings"),
            (525, "storage_information"),
            (527, "camera_capture_status"),
            (2504, "video_stream_information"),
        )
    }
)
