"""What the fuzzer feeds: the real readers of everything that comes from outside.

A target reads one input at a time and raises on whatever must never be: an exception that is no
declared refusal, an actuator that moves, a worker that does not answer any more. What comes over
the broker is in fuzz_queue.py; here a whole worker reads it, too.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import socket
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from blimp import airframe as airframes
from blimp.ability import ability, full_v
from blimp.airframe import Device as Row
from blimp.clock import ManualClock
from blimp.config import check_broker_is_closed
from blimp.control.failsafe import Flags
from blimp.errors import BlimpError, MissionError
from blimp.hardware import crsf, nmea, ubx
from blimp.hardware.board import check, driver
from blimp.hardware.device import Sensor
from blimp.hardware.registers.inertial import BNO055
from blimp.hardware.registers.position import UBX
from blimp.hardware.registers.receivers import CRSF, SBUS
from blimp.link.mailbox import MailboxServer
from blimp.link.paths import emergency_socket
from blimp.service.computer.configuration import read_configuration
from blimp.ship import Lockstep
from blimp.ship.assembly import Ship
from blimp.types import Command, Heartbeat
from ground_station.mission_check import judge
from ground_station.mission_file import ENDINGS, builtin_missions, load_mission
from ground_station.mission_file import Mission as Mission_
from tests.faults import fuzz_queue
from tests.faults.fuzz_mavlink import Mavlink
from tests.faults.fuzz_target import Broken, Target, check_at_rest, unarmable
from tests.ground_station.mavlink.test_plan_file import ITEMS, WAYPOINTS, plan

CYCLE_EVERY = 32  # datagrams: as many as one cycle reads
PROBE_EVERY = 250  # messages
PROBE_S = 60.0  # for an answer, on a machine that does other things
MOST_RECONNECTIONS = 5  # such a machine costs one; what cannot be read comes twenty times


# --- the mailbox ----------------------------------------------------------------------------


class MailboxShip(Lockstep):
    """A lockstep ship behind a real mailbox."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        super().__init__("twin", seed=1)

    def _boot(self) -> Ship:
        self.mailbox = MailboxServer(path=self._directory / "flight.sock", clock=self._clock)
        self._inbox = self.mailbox  # type: ignore[assignment]
        return super()._boot()


class Mailbox(Target):
    """The first byte chooses the socket; what follows is one datagram."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-")))
        self._ship = self._stack.enter_context(MailboxShip(directory))
        self._stack.enter_context(self._ship.mailbox)
        unarmable(self._ship)
        self._sender = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._sender.setblocking(False)
        self._sender.bind(str(directory / "fuzz.sock"))
        path = directory / "flight.sock"
        self._addresses = (str(path), str(emergency_socket(path)))
        self._count = 0
        encode = msgspec.json.encode
        names: dict[str, dict[str, Any]] = {
            "arm": {}, "takeoff": {"altitude_m": 3.0}, "mode": {"name": "MANUAL"}, "estop": {},
            "goto": {"north_m": 1.0, "east_m": 0.0, "altitude_m": 2.0, "yaw_deg": 90.0},
            "velocity": {"north_mps": 0.1, "east_mps": 0.0, "up_mps": 0.0, "seconds": 3.0},
            "motor": {"name": "left", "percent": 20.0, "seconds": 1.0}, "land": {}, "disarm": {},
            "servo": {"name": "tilt", "deg": 10.0}, "sensor": {"name": "baro"}, "ping": {},
            "hold": {}, "return": {},
        }  # fmt: skip
        self.seeds = [
            *(
                b"\x00"
                + encode(Command(id=f"i{n}", name=name, arguments=given, sent_s=9.0, ttl_s=5.0))
                for n, (name, given) in enumerate(names.items())
            ),
            b"\x01" + encode(Command(id="e", name="estop")),
            b"\x00" + encode(Heartbeat(session="s", sequence=1, authority=1, sent_s=9.0)),
            b'\x00{"type":"hello","link":true}',
        ]

    def feed(self, data: bytes) -> None:
        address = self._addresses[data[:1] == b"\x01"]
        for _ in range(3):
            try:
                self._sender.sendto(data[1:60_000], address)
                break
            except BlockingIOError:
                self._cycle()
        self._count += 1
        if self._count % CYCLE_EVERY == 0:
            self._cycle()
        elif self._count // CYCLE_EVERY % 2:
            self._read()

    def _read(self) -> None:
        """Read one by itself, as a cycle does: what is new in the code then is this input's."""
        loop, inbox, now_s = self._ship._ship.loop, self._ship.mailbox, self._ship.now_s
        loop._obey_emergencies(now_s)
        for command in inbox.receive():
            flags = loop._flags_seen or Flags()
            handle = loop._commander.handle
            inbox.post(handle(command, now_s=now_s, state=loop.state, flags=flags))
        for heartbeat in inbox.heartbeats():
            loop._pilot_link.receive(heartbeat, now_s)

    def finish(self) -> None:
        self._cycle()

    def _cycle(self) -> None:
        self._ship.step(0.01)
        check_at_rest(self._ship)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._sender.recv(65_536)

    def close(self) -> None:
        self._stack.close()


# --- serial ports ---------------------------------------------------------------------------


class Port:
    """A serial port that says what it is given, and to a BNO055 what starts it."""

    name = "/dev/fuzz"

    def __init__(self) -> None:
        self.waiting = b""
        self.answer = b""

    def read_available(self) -> bytes:
        found, self.waiting = self.waiting, b""
        return found

    def write(self, data: bytes) -> None:
        if data[:2] == bytes((BNO055.START, BNO055.WRITE)):
            self.waiting = bytes((BNO055.STATUS, BNO055.WRITE_SUCCESS))
        elif data[:3] == bytes((BNO055.START, BNO055.READ, BNO055.CHIP_ID)):
            self.waiting = bytes((BNO055.DATA, len(BNO055.IDENTITY))) + BNO055.IDENTITY
        elif data[:2] == bytes((BNO055.START, BNO055.READ)):
            self.waiting, self.answer = self.answer, b""

    def close(self) -> None: ...


class Ports:
    """The buses of one device: its port."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def serial(self, port: str, baud: int, *, framing: str = "8N1") -> Port:
        return self._port


SERIAL_CHIPS = ("gps-nmea", "gps-ubx", "dwm1001", "bno055", "crsf", "sbus")
FRAMED = 0x80


class Serial(Target):
    """The first byte chooses the driver, and with its highest bit a frame around the rest."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self._ports = [Port() for _ in SERIAL_CHIPS]
        self._sensors: list[Sensor[Any]] = []
        for chip, port in zip(SERIAL_CHIPS, self._ports, strict=True):
            row = Row(name=chip, chip=chip, bus="serial", port="/dev/fuzz", rate_hz=5.0)
            kind: Any = driver(chip)
            self._sensors.append(kind(row=row, buses=Ports(port)))
        pvt = bytes(20) + b"\x03\x01\x00\x09" + bytes(UBX.NAV_PVT_LENGTH - 24)
        self.seeds = [
            b"\x80GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,",
            b"\x80GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W",
            b"\x00$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n",
            b"\x81" + pvt,
            b"\x01" + ubx.frame(UBX.NAV_PVT, pvt),
            b"\x02POS,1.2,3.4,0.5,90\r\n",
            b"\x02dwm> POS,-1.2,3.4,0.5,9\r\nPOS,1,2,3,4\r\n",
            b"\x83" + bytes(range(1, 1 + BNO055.DATA_LENGTH)),
            b"\x03\xee\x03",
        ]

    def feed(self, data: bytes) -> None:
        first, rest = data[:1] or b"\0", data[1:]
        number = (first[0] & 0x7F) % len(SERIAL_CHIPS)
        if first[0] & FRAMED:
            rest = _framed(number, rest)
        port, sensor = self._ports[number], self._sensors[number]
        self._clock.advance(0.03)
        if SERIAL_CHIPS[number] == "bno055":
            port.answer = rest
        else:
            port.waiting += rest
        sensor.poll(self._clock.now_s())
        if sensor.sample is not None:
            _check_finite(msgspec.to_builtins(sensor.sample))
        _check_finite(sensor.status(self._clock.now_s()).value)


def _framed(number: int, rest: bytes) -> bytes:
    match SERIAL_CHIPS[number]:
        case "gps-nmea":
            body = rest.decode("latin-1").replace("*", "")
            return f"${body}*{nmea.checksum(body):02X}\r\n".encode("latin-1")
        case "gps-ubx":
            size = UBX.NAV_PVT_LENGTH
            return ubx.frame(UBX.NAV_PVT, (rest + bytes(size))[:size])
        case "bno055":
            rest = rest[: BNO055.DATA_LENGTH]
            return bytes((BNO055.DATA, len(rest))) + rest
        case "crsf":
            return crsf.frame(CRSF.RC_CHANNELS, (rest + bytes(22))[:22])
        case "sbus":
            return bytes([SBUS.BEGIN]) + (rest + bytes(23))[:23] + b"\0"
        case _:
            return b"POS," + rest + b"\r\n"


def _check_finite(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise Broken(f"a sample holds {value}")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            _check_finite(one)


# --- files ----------------------------------------------------------------------------------


class Configuration(Target):
    """The first byte chooses the reader; what follows is the file. A refusal is a BlimpError."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")  # a million files on a card would take days
        place = memory if memory.is_dir() else None
        self._directory = tempfile.TemporaryDirectory(prefix="fuzz-", dir=place)
        self._path = Path(self._directory.name) / "file.toml"
        twin = Path(airframes.__file__).parent / "airframes" / "twin.toml"
        text = twin.read_text()
        small = "\n".join(line.partition("#")[0].rstrip() for line in text.splitlines())
        missions = Path(load_mission.__code__.co_filename).parent / "missions"
        small_files = [
            b'\0airframe = "twin"\nvehicle = "red"\nbroker = "redis://h:6379/0"\n'
            b'signing_key_file = "/etc/blimp/signing.key"\n',
            b'\0broker = "rediss://user:secret@[::1]:6379/0?a=b"\n',
            b"\3redis://10.0.0.1:6379/0;sentinel://:p@a:1,b/0?master_name=m",
            b"\3redis+socket:///run/b.sock?virtual_host=0",
            b'\1name = "n"\n[[leg]]\ndo = "arm"\n[[leg]]\ndo = "takeoff"\naltitude_m = 2.0\n'
            b'[[leg]]\ndo = "velocity"\nnorth_mps = 0.1\neast_mps = 0\nup_mps = 0\nseconds = 3\n'
            b'[[leg]]\ndo = "land"\n',
        ]
        # An airframe takes forty times as long to read: it comes as much more rarely.
        self.seeds = [
            *small_files * 12,
            *(b"\1" + (missions / f"{name}.toml").read_bytes() for name in builtin_missions()),
            b"\2" + small.encode(),
        ]

    def feed(self, data: bytes) -> None:
        first, rest = (data[:1] or b"\0")[0], data[1:]
        with contextlib.suppress(BlimpError):
            if first % 4 == 3:
                check_broker_is_closed(rest.decode("utf-8", "replace"), ("k" * 32,))
                return
            self._path.write_bytes(rest)
            _READERS[first % 4](self._path)

    def close(self) -> None:
        self._directory.cleanup()


class Mission(Target):
    """The first byte chooses the ending; what follows is the file. A refusal is a MissionError."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        place = memory if memory.is_dir() else None
        self._directory = tempfile.TemporaryDirectory(prefix="fuzz-", dir=place)
        self._paths = [Path(self._directory.name) / f"site{ending}" for ending in ENDINGS]
        twin = airframes.load("twin")
        self._ability = ability(twin, battery_v=full_v(twin.battery))
        missions = Path(load_mission.__code__.co_filename).parent / "missions"
        self.seeds = [
            *(b"\0" + (missions / f"{name}.toml").read_bytes() for name in builtin_missions()),
            b"\1" + plan().encode(),
            *(b"\1" + plan([one]).encode() for one in ITEMS),
            b"\2" + WAYPOINTS.encode(),
        ]

    def feed(self, data: bytes) -> None:
        path = self._paths[(data[:1] or b"\0")[0] % len(self._paths)]
        path.write_bytes(data[1:])
        with contextlib.suppress(MissionError):
            judge(_read_mission(path), self._ability)

    def close(self) -> None:
        self._directory.cleanup()


def _read_mission(path: Path) -> Mission_:
    mission = load_mission(str(path))
    _check_finite([mission.reach_m(), [tuple(line) for line in mission.track().values()]])
    _check_finite(msgspec.to_builtins(mission))
    msgspec.json.encode(mission)  # as it is sent
    return mission


def _read_airframe(path: Path) -> None:
    check(airframes.load(str(path)))


def _read_configuration(path: Path) -> None:
    configuration = read_configuration(path)
    if not isinstance(configuration.broker_is_of_this_machine, bool):
        raise Broken("a broker is neither here nor there")


_READERS: tuple[Callable[[Path], object], ...] = (
    _read_configuration,
    _read_mission,
    _read_airframe,
)


# --- what comes over the broker -------------------------------------------------------------


class Worker(Target):
    """A whole worker of a ship on a broker of its own, asked again and again whether it lives."""

    def __init__(self) -> None:
        from blimp.queue.redis.keys import Keys
        from blimp.tasks.app import build_ship_app
        from blimp.tasks.client import VehicleClient
        from tests.broker import EmbeddedBroker
        from tests.directory import socket_directory
        from tests.ground_station.ship import LockstepMailbox
        from tests.queue.conftest import working

        self._stack = contextlib.ExitStack()
        directory = self._stack.enter_context(socket_directory())
        broker = self._stack.enter_context(EmbeddedBroker(directory=directory / "b"))
        self._ship = self._stack.enter_context(Lockstep("twin", seed=1))
        unarmable(self._ship)
        app = build_ship_app(vehicle="twin", broker=broker.url, mailbox=LockstepMailbox(self._ship))
        self._stack.enter_context(app)
        self._worker = self._stack.enter_context(working(app, name="twin"))
        self._ground = self._stack.enter_context(VehicleClient(broker.url, "twin"))
        self._keys = Keys()
        self._server: Any = app.broker_link.client
        self._pending: list[tuple[str, bytes, bytes]] = []

    def put(self, key: str, head: bytes, body: bytes) -> None:
        self._pending.append((key, head, body))
        if len(self._pending) >= PROBE_EVERY:
            self.finish()

    def finish(self) -> None:
        with self._server.pipeline(transaction=False) as pipe:
            for key, head, body in self._pending:
                pipe.xadd(key, {"h": head, "b": body}, maxlen=20_000, approximate=True)
            pipe.execute()
        self._pending.clear()
        reply = self._ground.send("ping", ttl_s=PROBE_S).wait(PROBE_S)
        if reply.state != "SUCCESS":
            raise Broken(f"the worker does not answer: {reply}")
        if self._worker.counts["reconnects"] > MOST_RECONNECTIONS:
            raise Broken("the worker loses its broker over what it reads")
        self.probe()
        check_at_rest(self._ship)

    def probe(self) -> None: ...

    def close(self) -> None:
        self._stack.close()


class WorkerMessage(Worker):
    """Two bytes say how long the head is; what follows it is the body."""

    def __init__(self) -> None:
        super().__init__()
        from blimp.actions import ACTIONS
        from blimp.queue.brokers.streams.envelope import post
        from blimp.queue.protocol.message import TaskMessage

        self._key = self._keys.queue("blimp.twin").levels[2]
        found = []
        for number, name in enumerate(ACTIONS):
            packed = post(
                TaskMessage(
                    id=f"seed-{number}", task=f"blimp.{name}", queue="blimp.twin",
                    kwargs={"name": "left", "altitude_m": 2.0}, issued_ms=1, ttl_s=5.0,
                    headers={"blimp_vehicle": "twin", "blimp_source": "me"},
                )
            )  # fmt: skip
            found.append(len(packed.head).to_bytes(2, "big") + packed.head + packed.body)
        self.seeds = found

    def feed(self, data: bytes) -> None:
        size = int.from_bytes(data[:2], "big") % (len(data) + 1)
        self.put(self._key, data[2 : 2 + size], data[2 + size :])


class WorkerBroadcast(Worker):
    """The first byte chooses emergency or remote control, the next two the head's length."""

    def __init__(self) -> None:
        super().__init__()
        self._places = [
            self._keys.fanout(name) for name in ("blimp.twin.emergency", "celery.pidbox")
        ]
        head = json.dumps(
            {
                "headers": {}, "properties": {"delivery_info": {}}, "kind": "bytes",
                "content-type": "application/json", "content-encoding": "utf-8",
            }
        ).encode()  # fmt: skip
        bodies = (
            (0, {"id": "b1", "name": "estop", "payload": {"source": "me"}}),
            (0, {"id": "b2", "name": "revoke", "payload": {"id": "x", "terminate": True}}),
            (0, {"id": "b3", "name": "blimp.wake", "payload": {}}),
            (1, {"method": "ping", "arguments": {}, "ticket": "t", "pattern": "tw*",
                 "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": "r"}}),
            (1, {"method": "rate_limit", "arguments": {"task_name": "blimp.ping",
                 "rate_limit": "1/s"}, "destination": ["twin"], "matcher": "pcre"}),
            (1, {"method": "inspect", "arguments": None, "app": "blimp.twin", "sent_s": 1.0}),
        )  # fmt: skip
        self.seeds = [
            bytes((place,)) + len(head).to_bytes(2, "big") + head + json.dumps(body).encode()
            for place, body in bodies
        ]

    def feed(self, data: bytes) -> None:
        first, rest = (data[:1] or b"\0")[0], data[1:]
        size = int.from_bytes(rest[:2], "big") % (len(rest) + 1)
        self.put(self._places[first % 2], rest[2 : 2 + size], rest[2 + size :])

    def probe(self) -> None:
        reply = self._ground.estop(timeout_s=PROBE_S)
        if reply.state != "SUCCESS":
            raise Broken(f"an emergency stop is not confirmed: {reply}")


TARGETS: dict[str, type[Target]] = {
    "message": fuzz_queue.Message,
    "broadcast": fuzz_queue.Broadcast,
    "mailbox": Mailbox,
    "serial": Serial,
    "configuration": Configuration,
    "mission": Mission,
    "mavlink": Mavlink,
    "worker-message": WorkerMessage,
    "worker-broadcast": WorkerBroadcast,
}

# --- generators -----------------------------------------------------------------------------

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**53, 2**63, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324, 1e-300,
    "", "x" * 300, "\x1b[2J", "\0", "é\u202e", "..", "NaN", "1" * 5000, [], {}, [[]] * 50,
    {"__type__": "decimal", "__value__": "x"}, {"__type__": "uuid", "__value__": {"hex": 5}},
    {"__type__": "bytes", "__value__": 5}, {"__type__": "decimal", "__value__": "1e999999999"},
    {"__type__": "datetime", "__value__": "0001-01-01T00:00:00+23:59"}, {"__type__": "x"},
)  # fmt: skip
_TOKENS = (
    b"\\ud800", b"1e999", b"-0", b"NaN", b"Infinity", b"[" * 3000, b'{"a":' * 500, b"\xff\xfe",
    b"\0", b"\r\n", b"9" * 400, b"__type__", b"estop", b"inf", b"1979-05-27T07:32:00Z", b"=", b"''",
    b"$", b"*", b",", b"\xb5\x62", b"\xaa\xbb",
)  # fmt: skip


def mutated(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return a seed with a few of its parts changed, as structure or as bytes."""
    data = chance.choice(seeds)
    start = data.find(b"{")
    if start >= 0 and chance.random() < 0.6:
        data = _other_values(chance, data, start)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        data = _other_bytes(chance, data)
    return data


def _other_values(chance: random.Random, data: bytes, start: int) -> bytes:
    """Change values of the JSON documents in `data`; a length before them is kept right."""
    text, parts = data[start:].decode("utf-8", "replace"), []
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        parts.append(value)
    documents = []
    for value in parts:
        for _ in range(chance.choice((0, 1, 1, 2, 5))):
            value = _with_another(chance, value)
        documents.append(json.dumps(value).encode())
    prefix = data[:start]
    if len(prefix) >= 2 and documents:
        prefix = prefix[:-2] + len(documents[0]).to_bytes(2, "big")
    return prefix + b"".join(documents) + text[at:].encode()


def _with_another(chance: random.Random, value: Any) -> Any:
    if not value or not isinstance(value, dict | list) or chance.random() < 0.15:
        return chance.choice(HOSTILE)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        return [*value[:place], _with_another(chance, value[place]), *value[place + 1 :]]
    name = chance.choice(list(value))
    if chance.random() < 0.1:
        return {other: one for other, one in value.items() if other != name}
    return value | {name: _with_another(chance, value[name])}


def _other_bytes(chance: random.Random, data: bytes) -> bytes:
    place = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0:
            return data[:place] + bytes((chance.randrange(256),)) + data[place + 1 :]
        case 1:
            return data[:place] + chance.choice(_TOKENS) + data[place:]
        case 2:
            return data[:place]
        case 3:
            return data[:place] + data[chance.randrange(len(data) + 1) :]
        case 4:
            return data[:place] + chance.randbytes(chance.randrange(9)) + data[place:]
        case _:
            return data[:place] + str(chance.choice((0, -1, 1e309, 2**64))).encode() + data[place:]
