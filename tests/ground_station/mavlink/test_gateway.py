"""Ships as systems of MAVLink: pymavlink as the station, a real queue, the ship in lockstep."""

import asyncio
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from blimp.config import log_directory
from blimp.queue.redis.client import RedisServer
from blimp.tasks.authority import pilots
from ground_station.mavlink import missions, system
from ground_station.mavlink.gateway import GatewayOptions, run
from ground_station.mavlink.places import Place
from ground_station.mavlink.telemetry import STREAMS
from tests.ground_station.ship import FlyingShip

os.environ["MAVLINK20"] = "1"
from pymavlink import mavutil

pytestmark = pytest.mark.long
DEADLINE_S = 30.0
NAN = math.nan
STREAMED = {name.upper() for name in STREAMS} | {"MISSION_CURRENT"}


class Station:
    """A ground station that pymavlink runs. port: of UDP, or a link that is open.

    system: its number.
    """

    def __init__(self, port: Any, *, system: int = 255) -> None:
        self.link: Any = port
        if isinstance(port, int):
            self.link = mavutil.mavlink_connection(
                f"udpout:127.0.0.1:{port}",
                source_system=system,
                source_component=190,
                dialect="all",
            )
        self.send = self.link.mav
        self.kept: list[Any] = []
        self.is_silent = False
        self.answers_ping = True  # as QGroundControl and MAVSDK do
        self.beat()

    def beat(self) -> None:
        if not self.is_silent:
            self.send.heartbeat_send(6, 8, 0, 0, 4)

    def close(self) -> None:
        self.link.close()

    def get(self, kind: str, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        """Return the next message of a kind, or of several, that fits; others are kept."""
        for number, found in enumerate(self.kept):
            if found.get_type() in kind.split() and fits(found):
                return self.kept.pop(number)
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s:
            found = self.link.recv_match(blocking=True, timeout=1.0)
            if found is None or found.get_type() == "HEARTBEAT":
                self.beat()
            if found is None:
                continue
            if found.get_type() == "PING" and self.answers_ping:
                self.send.ping_send(found.time_usec, found.seq, 1, 1)
            if found.get_type() in kind.split() and fits(found):
                return found
            if found.get_type() == "STATUSTEXT" or found.get_type() not in STREAMED:
                self.kept.append(found)
        raise AssertionError(f"no {kind} within {DEADLINE_S:g} s, but {self.kept}")

    def text(self, words: str) -> str:
        """Return the next text with some words; a long one comes in pieces."""
        whole = ""
        while words not in whole:
            piece = self.get("STATUSTEXT")
            whole = whole + piece.text if piece.chunk_seq else piece.text
        return whole

    def command(self, number: int, *params: float, target: int = 1, long: bool = True) -> int:
        """Send a command and return the MAV_RESULT that it ends with."""
        given = (*params, *[NAN] * (7 - len(params)))
        if long:
            self.send.command_long_send(target, 1, number, 0, *given)
        else:
            x, y = (int(1e7 * value) for value in given[4:6])
            self.send.command_int_send(target, 1, 6, number, 0, 0, *given[:4], x, y, given[6])
        ack = self.get("COMMAND_ACK", lambda m: m.command == number and m.result != 5)
        return int(ack.result)

    def upload(self, kind: int, items: Sequence[tuple[float, ...]]) -> int:
        """Send items (command, frame, four parameters, x, y, z); return the MAV_MISSION_RESULT."""
        self.send.mission_count_send(1, 1, len(items), kind)
        while True:
            found = self.get("MISSION_REQUEST_INT MISSION_ACK", lambda m: m.mission_type == kind)
            if found.get_type() == "MISSION_ACK":
                return int(found.type)
            command, frame, *rest = items[found.seq]
            x, y = round(1e7 * rest[4]), round(1e7 * rest[5])
            self.send.mission_item_int_send(
                1, 1, found.seq, int(frame), int(command), 0, 1, *rest[:4], x, y, rest[6], kind
            )


@contextmanager
def gateway(twin: FlyingShip) -> Iterator[int]:
    """Run the gateway of a ship, whose time passes; yield its port."""
    options = GatewayOptions(
        vehicles=(twin.vehicle,), broker=twin.broker.url, signing_key_file=None, system=1,
        listen=(Place("udp", "127.0.0.1", 0),), connect=(), serial=(), mavlink_key_file=None,
    )  # fmt: skip
    ready: Future[list[int]] = Future()
    loop, tasks = asyncio.new_event_loop(), []

    def work() -> None:
        tasks.append(loop.create_task(run(options, on_ready=ready.set_result)))
        try:
            loop.run_until_complete(tasks[0])
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            ready.set_exception(error)
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        (port,) = ready.result(DEADLINE_S)
        with twin.telling():
            yield port
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(tasks[0].cancel)
        thread.join()


@contextmanager
def opened(port: Any, **options: Any) -> Iterator[Station]:
    with closing(Station(port, **options)) as station:
        station.get("HEARTBEAT")
        yield station


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def port(twin: FlyingShip) -> Iterator[int]:
    with gateway(twin) as found:
        yield found


@pytest.fixture
def station(port: int) -> Iterator[Station]:
    with opened(port) as found:
        yield found


def test_what_a_station_asks_at_connection_is_answered(station: Station) -> None:
    beat = station.get("HEARTBEAT")
    assert (beat.type, beat.autopilot, beat.base_mode & 128) == (7, 0, 0)
    for kind in ("SYS_STATUS", "BATTERY_STATUS", "ATTITUDE", "LOCAL_POSITION_NED", "VFR_HUD",
                 "GLOBAL_POSITION_INT", "ESTIMATOR_STATUS", "EXTENDED_SYS_STATE"):  # fmt: skip
        station.get(kind)
    home = station.get("HOME_POSITION")
    assert (home.latitude, home.longitude) == (360143000, -756679000)
    assert station.command(512, 148) == 0
    assert station.get("AUTOPILOT_VERSION").capabilities & 2048
    assert station.command(512, 435, 0) == 0
    names = {station.get("AVAILABLE_MODES").mode_name for _ in range(9)}
    assert {"LAND", "LOITER", "HOLD", "VELOCITY"} <= names
    assert station.command(512, 30.0) == 0
    assert station.command(512, 9999.0) == 3
    assert station.command(511, 31, 100000) == 0
    station.get("ATTITUDE_QUATERNION")
    assert station.command(511, 31, 1) == 2
    assert station.command(2500) == 3
    station.send.timesync_send(0, 77)
    assert station.get("TIMESYNC", lambda m: m.ts1 == 77).tc1 > 0


def test_what_is_not_for_this_ship_or_is_no_number_moves_nothing(
    twin: FlyingShip, station: Station
) -> None:
    station.send.command_long_send(7, 1, 400, 0, 1, 0, 0, 0, 0, 0, 0)  # another system
    station.send.command_long_send(1, 99, 400, 0, 1, 0, 0, 0, 0, 0, 0)  # another component
    assert station.command(400, 1, target=0) == 2  # all systems at once
    assert station.command(400, NAN) == 2
    station.text("parameter 1 is nan")
    assert station.command(400, 0.5) == 2
    assert station.command(176, NAN, 4, 3) == 2
    assert station.command(512, NAN) == 2
    assert station.command(22) == 2
    station.text("not armed")
    assert not twin.ship.snapshot().armed
    assert station.command(400, 1) == 0
    assert station.command(22, 0, 0, 0, 0, 0, 0, math.inf) in (2, 4)
    assert station.command(22, 0, 0, 0, 0, 0, 0, 500) == 2
    station.text("altitude_m is 500, must be within 0.5 to 30 m")
    assert twin.ship.truth.on_ground


def test_a_stop_needs_no_control_and_another_pilot_is_named(
    twin: FlyingShip, station: Station
) -> None:
    with closing(RedisServer(twin.broker.url)) as link:
        pool = pilots(link, twin.vehicle, ttl_s=60.0)
        pool.add(twin.vehicle)
        grant = pool.acquire("ann@shed/1", 1.0)
        assert station.command(400, 1) == 1
        station.text("ann")
        assert station.command(400, 0, 21196) == 0  # QGroundControl's emergency button
        assert twin.ship.snapshot().killed
        pool.release(grant)


def test_a_stop_is_not_dropped_however_much_is_asked(
    twin: FlyingShip, station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MAX_TASKS", 0)
    station.send.command_long_send(1, 1, 400, 0, 1, 0, 0, 0, 0, 0, 0)
    station.text("too many requests")
    assert station.command(185, 1) == 0
    assert twin.ship.snapshot().killed


def test_recorded_flights_are_listed_and_sent_and_others_are_not(
    twin: FlyingShip, station: Station, tmp_path: Path
) -> None:
    logs = log_directory()
    logs.mkdir(parents=True)
    flown = random.Random(1).randbytes(20_000)
    (logs / f"{twin.vehicle}-000007-20261128T101112Z.mcap").write_bytes(flown)
    (logs / f"{twin.vehicle}-000003-20261127T101112Z.mcap").write_bytes(b"older")
    (logs / "other-000009-20261128T101112Z.mcap").write_bytes(b"another ship's")
    (logs / f"{twin.vehicle}-000008-20261128T101113Z.mcap").symlink_to(tmp_path / "elsewhere")
    station.send.log_request_list_send(1, 1, 0, 0xFFFF)
    entries = [station.get("LOG_ENTRY") for _ in range(2)]
    assert [(one.id, one.num_logs, one.size) for one in entries] == [(1, 2, 5), (2, 2, 20_000)]
    assert entries[1].time_utc == 1795860672
    got: dict[int, bytes] = {}
    station.send.log_request_data_send(1, 1, 2, 0, 0xFFFFFFFF)
    while sum(map(len, got.values())) < len(flown):
        piece = station.get("LOG_DATA")
        got[piece.ofs] = bytes(piece.data[: piece.count])
    assert b"".join(got[at] for at in sorted(got)) == flown
    station.send.log_request_data_send(1, 1, 2, 20_000, 90)
    assert station.get("LOG_DATA", lambda m: m.ofs == 20_000).count == 0
    station.send.log_request_data_send(1, 1, 3, 0, 90)
    station.text("no log 3: the list has 1 to 2")
    station.send.log_erase_send(1, 1)
    station.text("not erased")
    assert station.command(400, 1) == 0
    station.get("HEARTBEAT", lambda m: m.base_mode & 128)
    station.send.log_request_data_send(1, 1, 2, 0, 90)
    station.text("while the ship is disarmed")


def test_parameters_are_listed_set_and_refused_in_words(station: Station) -> None:
    station.send.param_request_list_send(1, 1)
    first = station.get("PARAM_VALUE")
    names = {first.param_id} | {
        station.get("PARAM_VALUE").param_id for _ in range(first.param_count - 1)
    }
    assert len(names) == first.param_count
    assert {"LIM_SPEED", "BAT_CELLS", "MIS_TAKEOFF_ALT"} <= names
    for value, kind, words in (
        (-1.0, 9, "limits.speed_mps is -1"), (NAN, 9, "must be a number"), (1.0, 6, "type 6"),
    ):  # fmt: skip
        station.send.param_set_send(1, 1, b"LIM_SPEED", value, kind)
        station.text(words)
        kept = station.get("PARAM_VALUE", lambda m: m.param_id == "LIM_SPEED")
        assert kept.param_value == pytest.approx(0.7)
    station.send.param_set_send(1, 1, b"NOBODY", 1.0, 9)
    station.text("no parameter 'NOBODY'")
    station.send.param_set_send(1, 1, b"MIS_TAKEOFF_ALT", 2.5, 9)
    assert station.get("PARAM_VALUE").param_value == 2.5


def test_plans_go_up_and_down_and_are_refused_whole(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = (36.0143, -75.6679)
    near = (home[0] + 2e-5, home[1])
    station.send.mission_count_send(1, 1, 10_000, 0)
    station.text("10000 items, the limit is 400")
    assert station.get("MISSION_ACK").type == 4
    good = [(22, 6, 0, 0, 0, NAN, *home, 2), (16, 6, 0, 0, 0, NAN, *near, 2),
            (21, 6, 0, 0, 0, NAN, *home, 0)]  # fmt: skip
    assert station.upload(0, good) == 0
    bad = [*good[:1], (16, 6, 0, 0, 0, NAN, *near, 2), (94, 6, 0, 0, 0, NAN, *near, 2)]
    assert station.upload(0, bad) == 5
    station.text("item 2: NAV_PAYLOAD_PLACE")
    far = [good[0], (16, 6, 0, 0, 0, NAN, *near, NAN), (16, 99, 0, 0, 0, NAN, *near, 2)]
    assert station.upload(0, far) == 5
    station.send.mission_request_list_send(1, 1, 0)
    assert station.get("MISSION_COUNT").count == 3
    station.send.mission_request_int_send(1, 1, 1, 0)
    item = station.get("MISSION_ITEM_INT")
    assert (item.command, item.x, item.z) == (16, round(1e7 * near[0]), 2.0)
    assert math.isnan(item.param4)
    corners = [(home[0] + a * 1e-4, home[1] + b * 1e-4) for a, b in ((2, 0), (-1, 2), (-1, -2))]
    fence = [(5001, 3, 3, 0, 0, 0, *corner, 0) for corner in corners]
    assert station.upload(1, fence[:2]) == 5
    assert station.upload(1, fence) == 0
    assert station.upload(2, [(5100, 3, 0, 0, 0, 0, *near, 3)]) == 0
    monkeypatch.setattr(missions, "ASK_S", 0.05)
    station.send.mission_count_send(1, 1, 3, 0)  # and no item comes
    station.text("0 of 3 items came: the upload is forgotten")
    assert station.get("MISSION_ACK").type == 15
    station.send.mission_request_list_send(1, 1, 0)
    assert station.get("MISSION_COUNT").count == 3
    station.send.mission_clear_all_send(1, 1, 255)
    assert station.get("MISSION_ACK").type == 0
    assert station.command(300, 0, 0) == 2
    station.text("no mission is uploaded")
