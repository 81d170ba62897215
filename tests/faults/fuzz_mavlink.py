"""MAVLink for the fuzzer: what a gateway hears, before a ship that notes what it is asked.

Everything between a link's bytes and a command of the ship is real: decoder, signatures, commands,
missions, parameters, setpoints, logs. What may be asked of the ship is derived from the frames by
rules of this file, and not by the gateway's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import os
import random
import struct
import tempfile
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pymavlink.dialects.v20 import all as dialect
from pymavlink.generator.mavcrc import x25crc

from blimp.actions import ACTIONS
from blimp.airframe import Airframe, load
from blimp.clock import ManualClock
from blimp.config import ground_config, log_directory
from blimp.ship import Lockstep
from blimp.tasks.reply import Reply
from blimp.types import Snapshot
from ground_station.following import CommandListener
from ground_station.mavlink.ftp import BURST, CRC, HEADER, LIST, OPEN, READ
from ground_station.mavlink.gateway import hear, tell
from ground_station.mavlink.link import Links
from ground_station.mavlink.signing import Signing
from ground_station.mavlink.stations import Stations
from ground_station.mavlink.system import System
from ground_station.mavlink.telemetry import Seen
from ground_station.mavlink.vehicle import Vehicle
from ground_station.mavlink.wire import Encoder
from ground_station.ship import Ship
from tests.faults.fuzz_target import Broken, Mutated, Target

KEY, OTHER_KEY = b"k" * 32, b"x" * 32
NAN = math.nan
TURNS = 12  # of the event loop: a command passes four tasks
EPOCH_S = 1420070400.0  # of signatures
FORCE = 21196.0
PING = bytes((4, 0, 0))
LOG = b"twin-000001-20261128T101112Z.mcap"


class NotingShip:
    """A transport whose ship does whatever it is asked, at once, and notes it.

    asked: task and arguments. Nothing but a stop may come without control.
    """

    vehicle = "twin"

    def __init__(self, clock: ManualClock, twin: Twin) -> None:
        self._clock = clock
        self._twin = twin
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.stops = 0
        self.is_held = False

    async def command(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        coalesce: str | None = None,
        listener: CommandListener | None = None,
    ) -> Reply:
        await asyncio.sleep(0)
        return self._note(name, arguments)

    async def send(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> str:
        return self._note(name, arguments).id

    def ready_to_stop(self) -> None:
        """Nothing."""

    async def push(
        self, key: str, arguments: dict[str, Any], *, ttl_s: float, task: str = "velocity"
    ) -> Reply | None:
        await asyncio.sleep(0)
        self._note(task, arguments)
        return None

    def _note(self, name: str, arguments: dict[str, Any]) -> Reply:
        if not self.is_held and (name not in ACTIONS or ACTIONS[name].needs_control):
            raise Broken(f"{name} without control")
        self.asked.append((name, arguments))
        result = self._twin.limits if name == "limits" else {}
        return Reply(id="1", task=f"blimp.{name}", state="SUCCESS", result=result)

    def estop(self) -> asyncio.Future[Reply]:
        self.stops += 1
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        done.set_result(Reply(id="1", task="blimp.estop", state="SUCCESS"))
        return done

    async def result(self, id: str) -> Reply:
        return Reply(id=id, task="", state="TIMEOUT")

    @contextlib.asynccontextmanager
    async def control(
        self, *, pilot: str | None, ttl_s: float, wait_s: float
    ) -> AsyncIterator[None]:
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False

    async def airframe(self, *, timeout_s: float = 0.0) -> Airframe:
        return self._twin.airframe

    async def snapshot(self, after: Snapshot | None) -> Snapshot | None:
        await asyncio.sleep(0)
        return None

    def now_s(self) -> float:
        return self._clock.now_s()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Bench:
    """A gateway of one ship, system 1, as of one snapshot. Made and used in an event loop."""

    def __init__(self, twin: Twin, *, key: bytes | None = None, at_s: float = 1000.0) -> None:
        self.clock = ManualClock(start_s=at_s)
        self.ship = NotingShip(self.clock, twin)
        self.step_s = 0.0  # of the broker's clock
        self._own = contextlib.ExitStack()
        self.signing = None
        if key is not None:
            state = ground_config().state
            self.signing = Signing(key, unix_s=self._unix_s, directory=state, ship="twin")
            self._own.callback(self.signing.close)
        self.stations = Stations(self.clock.now_s)
        vehicles: list[Vehicle] = []
        self.links = Links(
            on_frame=partial(hear, vehicles), on_refused=partial(tell, vehicles),
            now_s=self.clock.now_s, signing=self.signing, has_ship=self.stations.holder_at,
        )  # fmt: skip
        encoder = Encoder(system=1, key=key, now=int if self.signing is None else self.signing.now)
        self.system = System(
            ship=Ship(self.ship), stations=self.stations, links=self.links, encoder=encoder
        )
        self.vehicle = Vehicle(self.system)
        vehicles.append(self.vehicle)
        self.system.airframe, self.system.seen = twin.airframe, twin.seen
        self.sent: list[bytes] = []
        self.answers_ping = True  # as QGroundControl and MAVSDK do

    def close(self) -> None:
        self._own.close()

    def _unix_s(self) -> float:
        return EPOCH_S + self.clock.now_s() + self.step_s

    def feed(self, data: bytes, *, address: str = "a") -> None:
        """Hear a datagram from an address."""
        self.links.received_from((address, 0), data, self._receive)

    def _receive(self, data: bytes, address: tuple[str, int]) -> None:
        """Be the station at an address."""
        self.sent.append(data)
        if self.answers_ping and data[7:10] == PING:
            asked = dialect.MAVLink(None).decode(bytearray(data))
            answer = dialect.MAVLink_ping_message(asked.time_usec, asked.seq, 1, 1)
            frame = bytes(answer.pack(dialect.MAVLink(None, 255, 190)))
            asyncio.get_running_loop().call_soon(lambda: self.feed(frame, address=address[0]))

    async def turn(self, turns: int = TURNS) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
            if len(asyncio.all_tasks()) == 1:
                return

    def read(self, kind: str) -> list[Any]:
        """Return the messages of a kind that were sent so far."""
        reader = dialect.MAVLink(None)
        found = [reader.parse_char(data) for data in self.sent]
        return [one for one in found if one is not None and one.get_type() == kind]

    @property
    def texts(self) -> str:
        return "".join(one.text for one in self.read("STATUSTEXT"))


class Twin(NamedTuple):
    """A ship as it stands on its pad. limits: its answer to that question."""

    seen: Seen
    airframe: Airframe
    limits: dict[str, Any]


def twin() -> Twin:
    with Lockstep("twin", seed=1) as ship:
        seen = Seen(ship.snapshot(), ship.airframe.home, None, 8.4, 6.4)
        return Twin(seen, load("twin"), ship.command("limits").result)


async def ended() -> None:
    """End every other task of this loop."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)


# --- what is fed ------------------------------------------------------------------------------
#
# An input is a byte (bit 0: with a key) and records: how, kind, system, length, payload.

NUMBERS = (0, 4, 11, 20, 21, 23, 41, 43, 44, 45, 47, 51, 69, 73, 75, 76, 84, 86, 111, 117, 119, 121,
           122, 40, 110)  # fmt: skip
RIGHT, OTHER_TARGET, RAW, CUT, FLIPPED, UNSIGNED, FORGED, REPLAYED, STALE = range(9)
MODE_COMMANDS = (176, 262)
MISSION_TASKS = {"limits", "geofence", "arm", "takeoff", "goto", "yaw", "velocity", "hold",
                 "payload", "return", "land", "disarm", "mode", "photo", "photo_stop"}  # fmt: skip
TASKS = {20: {"return", "land"}, 21: {"land"}, 22: {"takeoff"}, 192: {"goto"}, 193: {"mode"},
         183: {"payload"}, 185: set(), 224: set(), 300: set(),
         400: {"arm", "disarm", "geofence"}}  # fmt: skip
STREAM_KINDS = ("SET_POSITION_TARGET_LOCAL_NED", "SET_POSITION_TARGET_GLOBAL_INT")


def record(kind: Any, *, how: int = RIGHT, system: int = 255) -> bytes:
    """Return a record of a message: its payload as it is sent, not cut."""
    raw = kind.pack(dialect.MAVLink(None))
    payload = bytes(raw[10:-2] + bytes(255))[: kind.unpacker.size]
    return bytes((how, NUMBERS.index(kind.get_msgId()), system, len(payload))) + payload


def _seeds() -> list[bytes]:
    m = dialect
    command, item = m.MAVLink_command_long_message, m.MAVLink_mission_item_int_message
    near = (360143200, -756679000)
    alone = [
        m.MAVLink_heartbeat_message(6, 8, 0, 0, 4, 3), m.MAVLink_ping_message(1, 1, 0, 0),
        m.MAVLink_set_mode_message(1, 1, 4 << 16), m.MAVLink_param_request_list_message(1, 1),
        m.MAVLink_param_request_read_message(1, 1, b"LIM_SPEED", -1),
        m.MAVLink_param_set_message(1, 1, b"LIM_SPEED", 0.5, 9),
        m.MAVLink_param_set_message(1, 1, b"MIS_TAKEOFF_ALT", NAN, 9),
        m.MAVLink_mission_set_current_message(1, 1, 1), m.MAVLink_timesync_message(0, 77),
        m.MAVLink_mission_clear_all_message(1, 1, 255), m.MAVLink_mission_ack_message(1, 1, 15, 0),
        m.MAVLink_mission_request_int_message(1, 1, 0, 0),
        m.MAVLink_mission_request_list_message(1, 1, 0),
        m.MAVLink_mission_count_message(1, 1, 10_000, 0),
        m.MAVLink_manual_control_message(1, 100, 0, 600, -5, 0),
        m.MAVLink_set_position_target_local_ned_message(
            0, 1, 1, 1, 0x0DC7, 0, 0, 0, 0.1, 0.2, 0, 0, 0, 0, 0, 0),
        m.MAVLink_set_position_target_local_ned_message(
            0, 1, 1, 8, 0x0DC7, NAN, NAN, NAN, NAN, 0.2, 0, 0, 0, 0, 0, 0),
        m.MAVLink_set_position_target_global_int_message(
            0, 1, 1, 6, 0x0DF8, *near, 3.0, 0, 0, 0, 0, 0, 0, 0, 0),
        m.MAVLink_command_int_message(1, 1, 6, 192, 0, 0, 0.5, 0, 0, NAN, *near, 3.0),
        m.MAVLink_log_request_list_message(1, 1, 0, 0xFFFF),
        m.MAVLink_log_request_data_message(1, 1, 1, 0, 90),
        m.MAVLink_log_request_end_message(1, 1), m.MAVLink_log_erase_message(1, 1),
        *(m.MAVLink_file_transfer_protocol_message(
            0, 1, 1, list((HEADER.pack(0, 0, *head, 0, 0, 0) + b"/logs/" + LOG).ljust(251, b"\0")))
          for head in ((OPEN, 6 + len(LOG)), (BURST, 239), (READ, 90), (LIST, 5), (CRC, 99))),
        *(command(1, 1, number, 0, *params) for number, *params in (
            (400, 1, 0, 0, 0, 0, 0, 0), (400, 0, FORCE, 0, 0, 0, 0, 0), (22, 0, 0, 0, 0, 0, 0, 2),
            (185, 1, 0, 0, 0, 0, 0, 0), (176, 1, 6, 0, 0, 0, 0, 0), (176, 1, 4, 3, 0, 0, 0, 0),
            (20, NAN, NAN, NAN, NAN, NAN, NAN, NAN), (21, 0, 0, 0, NAN, 0, 0, 0),
            (300, 0, 0, 0, 0, 0, 0, 0), (193, 0, 0, 0, 0, 0, 0, 0), (224, 1, 0, 0, 0, 0, 0, 0),
            (511, 30, 1e5, 0, 0, 0, 0, 0), (512, 148, 0, 0, 0, 0, 0, 0), (262, 6, 0, 0, 0, 0, 0, 0),
            (510, 30, 0, 0, 0, 0, 0, 0), (520, 1, 0, 0, 0, 0, 0, 0), (22, *[NAN] * 7),
        )),
    ]  # fmt: skip
    plan = [
        m.MAVLink_mission_count_message(1, 1, 3, 0),
        item(1, 1, 0, 6, 22, 0, 1, 0, 0, 0, NAN, *near, 2.0, 0),
        item(1, 1, 1, 6, 16, 0, 1, 0, 0, 0, NAN, *near, 2.0, 0),
        item(1, 1, 2, 6, 21, 0, 1, 0, 0, 0, NAN, *near, 0.0, 0),
        command(1, 1, 400, 0, 1, 0, 0, 0, 0, 0, 0), command(1, 1, 300, 0, *[0] * 7),
    ]  # fmt: skip
    offboard = [alone[15], command(1, 1, 176, 0, 1, 6, 0, 0, 0, 0, 0), alone[16]]
    return [record(one) for one in alone] + [
        b"".join(record(one) for one in several) for several in (plan, offboard)
    ]


class Mavlink(Target):
    """See above: an input is a flight before a gateway that has just begun."""

    def __init__(self) -> None:
        self._records = _seeds()
        self.seeds = [
            *(bytes((key,)) + one for one in self._records for key in (0, 1)),
            *(b"\1" + bytes((how,)) + self._records[-3][1:] for how in range(9)),
        ]
        self._twin = twin()
        self._directory = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._state = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = self._directory.name
        log_directory().mkdir(parents=True)
        (log_directory() / LOG.decode()).write_bytes(bytes(30_000))
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._caught)
        self._lost: list[str] = []
        self._log = _Refuser()

    def _caught(self, _: object, context: dict[str, Any]) -> None:
        self._lost.append(repr(context.get("exception") or context["message"]))

    def change(self, chance: random.Random, mutated: Mutated) -> bytes:
        """Return an input: right frames in any order, some of them changed."""
        picked = [chance.choice(self._records) for _ in range(chance.choice((1, 1, 2, 3, 6)))]
        for number, one in enumerate(picked):
            if chance.random() < 0.3:
                how = bytes((chance.randrange(9),))
                picked[number] = how + one[1:2] + bytes((chance.choice((255, 254, 1)),)) + one[3:]
            if chance.random() < 0.4:
                data = bytearray(picked[number])
                for _ in range(chance.choice((1, 2, 4))):
                    at = chance.randrange(4, len(data)) // 4 * 4
                    data[at : at + 4] = chance.choice(_WORDS)
                picked[number] = bytes(data[: len(picked[number])])
        joined = bytes((chance.randrange(2),)) + b"".join(picked)
        return bytes(mutated(chance, [joined])) if chance.random() < 0.2 else joined

    def feed(self, data: bytes) -> None:
        self._loop.run_until_complete(self._fed(data))
        if self._lost or self._log.found:
            found = self._lost + self._log.found
            self._lost, self._log.found = [], []
            raise Broken("; ".join(found))

    async def _fed(self, data: bytes) -> None:
        key = KEY if data[:1] and data[0] & 1 else None
        bench = Bench(self._twin, key=key)
        licence = Licence(key)
        try:
            for how, frame in _frames(data[1:], key):
                before = bench.ship.stops
                address = "b" if how == REPLAYED else "a"
                bench.feed(frame, address=address)
                licence.read(frame)
                await bench.turn()
                if licence.stops and licence.is_new_stop and bench.ship.stops == before:
                    raise Broken("a stop was dropped")
                licence.check(bench.ship)
                bench.clock.advance(0.05)
        finally:
            await ended()
            bench.close()
            for stamps in ground_config().state.glob("mavlink-*"):  # an input is a new process
                stamps.unlink()
        licence.check(bench.ship)

    def close(self) -> None:
        self._log.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._directory.cleanup()
        if self._state is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = self._state


_WORDS = (
    *(struct.pack("<f", one) for one in (NAN, math.inf, -math.inf, 3e38, -1.0, 0.5)),
    b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1\1\1\1",
)  # fmt: skip


class _Refuser:
    """A logging handler: what the gateway logs with a traceback is an exception that escaped."""

    def __init__(self) -> None:
        import logging

        self.found: list[str] = []
        self._logger, refuser = logging.getLogger("ground_station"), self

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.exc_info:
                    refuser.found.append(f"{record.exc_info[1]!r} for {record.args}")

        self._handler = Handler()
        self._logger.addHandler(self._handler)
        self._propagates, self._logger.propagate = self._logger.propagate, False

    def close(self) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.propagate = self._propagates


def _frames(data: bytes, key: bytes | None) -> Sequence[tuple[int, bytes]]:
    """Return the datagrams of an input."""
    found: list[tuple[int, bytes]] = []
    time = int(1000e5)
    while len(data) >= 4 and len(found) < 64:
        how, number, system, size = data[0] % 9, data[1] % len(NUMBERS), data[2], data[3]
        payload, data = data[4 : 4 + size], data[4 + size :]
        kind = dialect.mavlink_map[NUMBERS[number]]
        if how == RAW:
            found.append((how, payload))
            continue
        if how == REPLAYED:
            if found:
                found.append((how, found[-1][1]))
            continue
        if how == OTHER_TARGET:
            payload = payload.replace(b"\1", b"\2")
        time += 1
        signed = {UNSIGNED: None, FORGED: OTHER_KEY}.get(how, key)
        at = time - 100 * 10**5 if how == STALE else time
        frame = framed(kind, payload, system=system, key=signed, time=at)
        if how == CUT:
            frame = frame[: len(frame) * 2 // 3]
        elif how == FLIPPED:
            place = (len(frame) * 7) // 10
            frame = frame[:place] + bytes((frame[place] ^ 4,)) + frame[place + 1 :]
        found.append((how, frame))
    return found


def framed(kind: Any, payload: bytes, *, system: int, key: bytes | None, time: int) -> bytes:
    """Return a frame of MAVLink 2 with a right checksum. time: of its signature, in 10 us."""
    head = struct.pack(
        "<BBBBBBBHB", 0xFD, len(payload), int(key is not None), 0, 0, system, 190,
        kind.id & 0xFFFF, kind.id >> 16,
    )  # fmt: skip
    check = x25crc(bytearray(head[1:] + payload + bytes((kind.crc_extra,)))).crc
    frame = head + payload + struct.pack("<H", check)
    if key is not None:
        frame += b"\0" + time.to_bytes(6, "little")
        frame += hashlib.sha256(key + frame).digest()[:6]
    return frame


# --- what it may lead to ----------------------------------------------------------------------


class Licence:
    """What the ship may be asked after the frames that were read. is_new_stop: by the last one."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self._tasks: set[str] = set()
        self._is_planned = self._is_streamed = self._is_offboard = self._is_flown = False
        self._signatures: set[bytes] = set()
        self.stops = 0
        self.is_new_stop = False

    def read(self, data: bytes) -> None:
        """Add what the valid frames in a datagram ask; one may begin at any byte."""
        self.is_new_stop = False
        for at in range(len(data)):
            if data[at] == 0xFD and len(data) - at >= 12:
                self._read_one(data[at:], is_first=at == 0)

    def _read_one(self, data: bytes, *, is_first: bool) -> None:
        size, flags, number = data[1], data[2], int.from_bytes(data[7:10], "little")
        kind, whole = dialect.mavlink_map.get(number), 12 + size + 13 * (flags & 1)
        if kind is None or flags & ~1 or len(data) < whole:
            return
        body = data[1 : 10 + size] + bytes((kind.crc_extra,))
        if x25crc(bytearray(body)).crc != int.from_bytes(data[10 + size : 12 + size], "little"):
            return
        if self._key is not None:
            signature = data[whole - 6 : whole]
            right = hashlib.sha256(self._key + data[: whole - 6]).digest()[:6]
            if not flags & 1 or signature != right or signature in self._signatures:
                return
            if int.from_bytes(data[whole - 12 : whole - 6], "little") < 1000e5 - 60e5:
                return
            self._signatures.add(signature)
        raw = (data[10 : 10 + size] + bytes(255))[: kind.unpacker.size]
        fields = dict(zip(kind.ordered_fieldnames, kind.unpacker.unpack(raw), strict=False))
        name = kind.__name__.removeprefix("MAVLink_").removesuffix("_message").upper()
        target = fields.get("target_system", fields.get("target", 0))
        if target in (0, 1) and fields.get("target_component", 0) in (0, 1):
            self._license(name, fields, is_named=target == 1, is_first=is_first)

    def _license(
        self, name: str, fields: dict[str, Any], *, is_named: bool, is_first: bool
    ) -> None:
        if name in ("COMMAND_LONG", "COMMAND_INT"):
            number, p1, p2 = fields["command"], fields["param1"], fields["param2"]
            if (number == 185 and 0.5 < p1 < math.inf) or (number, p1, p2) == (400, 0.0, FORCE):
                self.stops += 1
                self.is_new_stop = is_first
            if is_named:
                self._tasks |= TASKS.get(number, set())
                self._mode(number in MODE_COMMANDS)
                self._is_flown |= number in (300, 193)
        elif is_named:
            self._mode(name == "SET_MODE")
            self._is_planned |= name == "MISSION_ITEM_INT"
            self._is_streamed |= name in STREAM_KINDS
            self._tasks |= {"MANUAL_CONTROL": {"stick"}, "PARAM_SET": {"param"}}.get(name, set())

    def _mode(self, is_mode: bool) -> None:
        if is_mode:
            self._tasks |= {"mode", "hold", "return", "land"}
            self._is_offboard = self._is_flown = True

    def check(self, ship: NotingShip) -> None:
        """Raise Broken for what nobody asked the ship."""
        may = set(self._tasks)
        if self._is_planned and self._is_flown:
            may |= MISSION_TASKS
        if self._is_streamed and self._is_offboard:
            may |= {"velocity", "goto", "mode"}
        if ship.stops > self.stops:
            raise Broken(f"{ship.stops} stops, {self.stops} asked for")
        for name, arguments in ship.asked:
            if name not in may:
                raise Broken(f"{name} {arguments}, may be asked: {sorted(may)}")
            bad = [one for one in arguments.values() if isinstance(one, float)
                   and not math.isfinite(one)]  # fmt: skip
            if bad:
                raise Broken(f"{name} {arguments}")
        ship.asked.clear()
