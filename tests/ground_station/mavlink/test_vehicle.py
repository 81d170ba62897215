"""What stations send, before a ship that does all it is asked, on a clock that the test moves.

The gateway before it is the real one: see tests/faults/fuzz_mavlink.py.
"""

import asyncio
import math
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pymavlink.dialects.v20 import all as dialect

from blimp.config import log_directory
from blimp.errors import ConfigError
from blimp.recording.directory import Entry, logs_of
from blimp.tasks.reply import Reply, ReplyState
from ground_station.mavlink import logs, setpoints
from ground_station.mavlink.commands import MAX_STOPS
from ground_station.mavlink.missions import ACTIVE
from ground_station.mavlink.signing import read_key
from ground_station.mavlink.system import TEXTS_OF_ALL, TEXTS_OF_ONE
from ground_station.mavlink.telemetry import Seen
from tests.faults.fuzz_mavlink import KEY, OTHER_KEY, Bench, Twin, framed, twin

NAN = math.nan
HOME = (360143000, -756679000)
TOOK = (400, 1, 0, 0, 0, 0, 0, 0)
OFFBOARD = (176, 1, 6, 0, 0, 0, 0, 0)
ALONG, PLACE = 0x0DC7, 0x0DF8  # type masks: a velocity, a place without a yaw
Flight = Callable[[Bench], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def standing() -> Twin:
    return twin()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def fly(standing: Twin, flight: Flight, *, key: bytes | None = None) -> None:
    async def run() -> None:
        async with asyncio.timeout(60.0):
            bench = Bench(standing, key=key)
            try:
                await flight(bench)
            finally:
                bench.close()

    asyncio.run(run())


async def send(bench: Bench, sent: Any, *, system: int = 255, address: str = "a") -> None:
    """Send a message of one of pymavlink's classes and let the gateway answer it."""
    bench.feed(bytes(sent.pack(dialect.MAVLink(None, system, 190))), address=address)
    await bench.turn()


def in_the_air(standing: Twin) -> Seen:
    ship = msgspec.structs.replace(standing.seen.ship, armed=True, altitude_m=2.0)
    return msgspec.structs.replace(standing.seen, ship=ship)


def command(number: int, *params: float, target: int = 1) -> Any:
    return dialect.MAVLink_command_long_message(target, 1, number, 0, *params)


def item(seq: int, number: int, *, z: float = 2.0, p4: float = NAN, target: int = 1) -> Any:
    return dialect.MAVLink_mission_item_int_message(
        target, 1, seq, 6, number, 0, 1, 0, 0, 0, p4, *HOME, z, 0
    )


def count(number: int, *, target: int = 1) -> Any:
    return dialect.MAVLink_mission_count_message(target, 1, number, 0)


def velocity(frame: int = 1, mask: int = ALONG, *, vx: float = 0.1, target: int = 1) -> Any:
    return dialect.MAVLink_set_position_target_local_ned_message(
        0, target, 1, frame, mask, NAN, NAN, NAN, vx, 0.0, 0.0, NAN, NAN, NAN, NAN, NAN
    )


def place(frame: int, mask: int = PLACE, *, latitude: int = HOME[0], alt: float = 2.0) -> Any:
    return dialect.MAVLink_set_position_target_global_int_message(
        0, 1, 1, frame, mask, latitude, HOME[1], alt, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN
    )


async def upload(bench: Bench, *items: Any, **at: Any) -> int:
    """Upload a mission; return its MAV_MISSION_RESULT."""
    await send(bench, count(len(items)), **at)
    for one in items:
        await send(bench, one, **at)
    return int(bench.read("MISSION_ACK")[-1].type)


def acks(bench: Bench, number: int) -> list[int]:
    return [one.result for one in bench.read("COMMAND_ACK") if one.command == number]


def test_what_is_sent_to_all_systems_changes_none(standing: Twin) -> None:
    async def flight(bench: Bench) -> None:
        everyone = [
            count(1, target=0), velocity(target=0),
            dialect.MAVLink_param_set_message(0, 1, b"LIM_SPEED", 0.5, 9),
            dialect.MAVLink_mission_clear_all_message(0, 1, 255),
            dialect.MAVLink_manual_control_message(0, 0, 0, 500, 0, 0),
        ]  # fmt: skip
        for one in everyone:
            await send(bench, one)
            assert f"{one.get_type()}: sent to all systems" in bench.texts
        await send(bench, count(1, target=7))
        assert not bench.read("MISSION_REQUEST_INT")
        assert bench.ship.asked == []

    fly(standing, flight)


def test_texts_are_bounded_and_stops_are_not(standing: Twin) -> None:
    async def flight(bench: Bench) -> None:
        def said() -> int:
            return len({one.text for one in bench.read("STATUSTEXT")})

        for number in range(5000, 5100):
            await send(bench, command(number, *[0] * 7))
        assert said() == TEXTS_OF_ONE
        for system in range(1, 60):
            await send(bench, command(6000 + system, *[0] * 7), system=system, address="b")
        assert said() == TEXTS_OF_ALL
        bench.system.say("failsafe: link lost")  # the ship's own
        assert "failsafe: link lost" in bench.texts
        for number in range(10 * MAX_STOPS):
            data = command(185, 1 + number, *[0] * 6).pack(dialect.MAVLink(None, 255, 190))
            bench.feed(bytes(data))  # so that all are under way
        assert len(asyncio.all_tasks()) <= MAX_STOPS + 1
        await bench.turn()
        assert bench.ship.stops == 10 * MAX_STOPS
        bench.clock.advance(1.0)
        await send(bench, command(5000, *[0] * 7))
        assert sum("5000" in one.text for one in bench.read("STATUSTEXT")) == 1 + 2  # to a and b

    fly(standing, flight)


def test_a_stop_is_pressed_again_while_the_first_is_not_confirmed(standing: Twin) -> None:
    async def flight(bench: Bench) -> None:
        unconfirmed = Unconfirmed()
        bench.ship.estop = unconfirmed  # type: ignore[method-assign]
        for count in (1, 2, 3):
            await send(bench, command(185, 1, *[0] * 6))
            assert unconfirmed.presses == count
        unconfirmed.end()
        await bench.turn()

    fly(standing, flight)


class Unconfirmed:
    """An emergency stop whose confirmations are lost."""

    def __init__(self) -> None:
        self.presses = 0
        self._open: list[asyncio.Future[Reply]] = []

    def __call__(self) -> asyncio.Future[Reply]:
        self.presses += 1
        self._open.append(asyncio.get_running_loop().create_future())
        return self._open[-1]

    def end(self) -> None:
        for one in self._open:
            one.set_result(Reply(id="1", task="blimp.estop", state="TIMEOUT"))


def test_logs_are_sent_to_two_stations_and_looked_for_once(
    standing: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = log_directory()
    directory.mkdir(parents=True)
    (directory / "twin-000001-20261128T101112Z.mcap").write_bytes(bytes(30_000))
    looks = []
    go = threading.Event()
    go.set()

    def noted(directory: Path, vehicle: str) -> list[Entry]:
        looks.append(os.getpid())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # it is a thread's
        assert go.wait(60.0)
        return logs_of(directory, vehicle)

    async def until(bench: Bench, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.001)

    async def flight(bench: Bench) -> None:
        wanted = dialect.MAVLink_log_request_list_message(1, 1, 0, 0xFFFF)
        for number in range(50):
            await send(bench, wanted, address="ab"[number % 2])
        await until(bench, lambda: len(bench.read("LOG_ENTRY")) >= 2)
        assert len(looks) == 1
        data = dialect.MAVLink_log_request_data_message(1, 1, 1, 0, 0xFFFFFFFF)
        for address in "ab":
            await send(bench, data, address=address)
        pieces = math.ceil(30_000 / logs.PIECE_BYTES)
        await until(bench, lambda: len(bench.read("LOG_DATA")) == 2 * pieces)
        go.clear()
        bench.clock.advance(logs.LOOK_S)
        for number in range(logs.MAX_READERS + 1):
            await send(bench, data, system=number + 1)
            await send(bench, wanted, system=number + 1)
        go.set()
        await until(bench, lambda: len(asyncio.all_tasks()) == 1)
        before = len(bench.read("LOG_DATA"))
        await send(bench, data, system=logs.MAX_READERS)
        bench.clock.advance(100.0)  # it is gone: nothing is sent for ever
        await until(bench, lambda: len(asyncio.all_tasks()) == 1)
        assert len(bench.read("LOG_DATA")) < before + pieces

    monkeypatch.setattr(logs, "logs_of", noted)
    fly(standing, flight)


def test_gaps_of_a_log_that_are_asked_for_at_once_are_all_sent(standing: Twin) -> None:
    """MAVProxy asks for up to 20 of them, and again for those that do not come."""
    directory = log_directory()
    directory.mkdir(parents=True)
    for number in (1, 2):
        flown = directory / f"twin-00000{number}-20261128T101112Z.mcap"
        flown.write_bytes(bytes(100_000))

    async def flight(bench: Bench) -> None:
        async def sent(*asked: tuple[int, int, int]) -> list[tuple[int, int, int]]:
            """Ask for log, offset, count in one burst; return what comes."""
            bench.sent.clear()
            bench.clock.advance(1.0)  # for its rate
            for one in asked:
                request = dialect.MAVLink_log_request_data_message(1, 1, *one)
                bench.feed(bytes(request.pack(dialect.MAVLink(None, 255, 190))))
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)
            return [(one.id, one.ofs, one.count) for one in bench.read("LOG_DATA")]

        await send(bench, dialect.MAVLink_log_request_list_message(1, 1, 0, 0xFFFF))
        await sent()
        gaps = [(1, 180 * number, 90) for number in range(logs.MAX_SPANS)]
        assert await sent(*gaps) == gaps
        beyond = (1, 90_000, 90)  # replaces those that wait
        assert await sent(*gaps, beyond) == [gaps[0], beyond]
        assert await sent(*gaps, (2, 0, 90)) == [gaps[0], (2, 0, 90)]
        assert await sent((1, 0, 0xFFFFFFFF), gaps[1]) == [gaps[0], gaps[1]]

    fly(standing, flight)


def test_with_a_key_nothing_unsigned_forged_or_sent_again_is_taken(standing: Twin) -> None:
    async def flight(bench: Bench) -> None:
        wanted = dialect.MAVLink_log_request_list_message(1, 1, 0, 0xFFFF)
        kinds = [command(*TOOK), wanted]
        now = int(1000e5)
        for one in kinds:
            raw = one.pack(dialect.MAVLink(None))[10:-2]
            for key, at in ((None, now), (OTHER_KEY, now + 1), (OTHER_KEY, 2**47), (KEY, 5)):
                bench.feed(framed(type(one), raw, system=255, key=key, time=at))
                await bench.turn()
        assert not bench.read("LOG_ENTRY")
        assert bench.ship.asked == []
        arm = command(*TOOK)
        right = framed(type(arm), arm.pack(dialect.MAVLink(None))[10:-2], system=255, key=KEY,
                       time=now + 2)  # fmt: skip
        for address in "aab":
            bench.feed(right, address=address)
            await bench.turn()
        assert bench.ship.asked == [("arm", {})]

    fly(standing, flight, key=KEY)


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mavlink.key"
    file.write_text("a passphrase")
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(ConfigError, match=rf"others? users? may read it: chmod 600 {file}"):
            read_key(file)
    file.chmod(0o600)
    assert len(read_key(file)) == 32


def test_an_upload_that_stops_is_followed_by_a_good_one(standing: Twin) -> None:
    async def flight(bench: Bench) -> None:
        good = (item(0, 22), item(1, 16), item(2, 21, z=0.0))
        await send(bench, count(3))
        await send(bench, good[0])
        assert await upload(bench, *good) == 0
        assert await upload(bench, good[0], item(1, 16, z=math.inf)) == 5  # a used field
        await send(bench, count(3))
        await send(bench, count(2), system=254, address="b")
        assert "another station is uploading" in bench.texts
        await send(bench, command(*TOOK), system=254, address="b")  # and now has the ship
        assert await upload(bench, *good, system=254, address="b") == 0
        refused = [one for one in bench.read("MISSION_ACK") if one.target_system == 255]
        assert refused[-1].type == 14
        await send(bench, good[0])
        assert bench.read("MISSION_ACK")[-1].type != 0

    fly(standing, flight)


def test_an_upload_does_not_replace_the_mission_that_flies_by_now(
    standing: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was checked when it began only."""

    async def flight(bench: Bench) -> None:
        flying = asyncio.Event()

        async def mission(*_: object, **__: object) -> None:
            await flying.wait()

        monkeypatch.setattr(bench.system.ship, "mission", mission)
        assert await upload(bench, item(0, 22), item(1, 21, z=0.0)) == 0
        await send(bench, count(1))
        await send(bench, command(300, *[0] * 7))
        assert bench.vehicle.parts.missions.is_active
        await send(bench, item(0, 22))
        assert bench.read("MISSION_ACK")[-1].type == 14
        assert "the mission is under way" in bench.texts
        assert bench.vehicle.parts.missions._state == ACTIVE
        await send(bench, command(21, *[NAN] * 7))  # another command ends its begin
        assert acks(bench, 300) == [5, 6] or acks(bench, 300) == [6]
        assert "emergency stop" not in bench.texts

    fly(standing, flight)


def test_setpoints_are_flown_as_their_frame_and_mask_say_and_others_are_refused(
    standing: Twin,
) -> None:
    async def flight(bench: Bench) -> None:
        refused = [
            (velocity(99), "frame 99"), (place(11), "frame 11"), (place(99, ALONG), "frame 99"),
            (velocity(1, ALONG & ~4), "no whole place or velocity"),  # a height, and a velocity
            (velocity(1, ALONG | 8), "no whole"), (velocity(1, ALONG | 512), "no whole"),
            (place(6, PLACE | 512), "no whole"), (velocity(vx=NAN), "north_mps is no number"),
            (velocity(vx=math.inf), "north_mps is no number"),
            (place(6, alt=NAN), "altitude_m is no number"),
            (place(6, PLACE & ~1024), "yaw_deg is no number"),
            (place(6, latitude=910000000), "no place on Earth"),
        ]  # fmt: skip
        for one, words in refused:
            bench.clock.advance(1.0)
            bench.sent.clear()
            await send(bench, one)
            assert words in bench.texts
            await send(bench, command(*OFFBOARD))
            assert acks(bench, 176) == [1], one
        assert bench.ship.asked == []
        await send(bench, velocity())  # NaN where it says that nobody looks
        await send(bench, command(*OFFBOARD))
        assert bench.ship.asked[0][0] == "velocity"

    fly(standing, flight)


@pytest.mark.parametrize(("state", "is_held"), [("SUPERSEDED", False), ("EXPIRED", True)])
def test_offboard_ends_when_its_place_is_not_flown_to(
    standing: Twin, monkeypatch: pytest.MonkeyPatch, state: ReplyState, is_held: bool
) -> None:
    """LOITER is sent unless the ship says that something else flies it."""

    async def flight(bench: Bench) -> None:
        ends = asyncio.Event()
        asked: list[str] = []

        async def ordered(name: str, *_: object, **__: object) -> Reply:
            asked.append(name)
            if name != "goto":
                return Reply(id="2", task=name, state="SUCCESS")
            await ends.wait()
            return Reply(id="1", task=name, state=state, reason="something came")

        monkeypatch.setattr(bench.ship, "command", ordered)
        bench.system.seen = in_the_air(standing)
        await send(bench, place(6))
        await send(bench, command(*OFFBOARD))
        while not acks(bench, 176):
            await asyncio.sleep(0.001)
        assert acks(bench, 176) == [0]
        ends.set()
        while "offboard ends: something came" not in bench.texts:
            await send(bench, place(6))
            assert asked in (["goto"], ["goto", "mode"])
            await asyncio.sleep(0.001)
        await bench.turn()
        assert asked == ["goto", *["mode"] * is_held]

    fly(standing, flight)


def test_a_place_is_offboard_until_something_else_flies_the_ship(
    standing: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MAVSDK sends no more setpoints to a ship that it sees in another mode."""
    news: asyncio.Queue[Any] = asyncio.Queue()

    async def flight(bench: Bench) -> None:
        monkeypatch.setattr(setpoints, "PERIOD_S", 0.0)
        monkeypatch.setattr(bench.ship, "snapshot", lambda _: news.get())
        running = asyncio.create_task(bench.vehicle.run())

        async def seen_in(mode: str) -> int:
            bench.clock.advance(1.0)
            await send(bench, place(6))
            bench.sent.clear()
            news.put_nowait(msgspec.structs.replace(standing.seen.ship, mode=mode, armed=True))
            while not (beats := bench.read("HEARTBEAT")):
                await bench.turn()
            return int(beats[-1].custom_mode) >> 16 & 255

        await send(bench, place(6))
        await send(bench, command(*OFFBOARD))
        while not acks(bench, 176):
            await bench.turn()
        assert acks(bench, 176) == [0]
        assert await seen_in("LOITER") == 6
        assert await seen_in("LOITER") == 6
        await bench.turn()  # the stream's next turn sees that the place is held
        assert await seen_in("RTL") == 6
        while "offboard ends: the ship flies RTL" not in bench.texts:
            await send(bench, place(6))
        assert await seen_in("RTL") == 4
        assert [name for name, _ in bench.ship.asked] == ["goto"]
        running.cancel()

    fly(standing, flight)


def test_offboard_on_the_ground_is_refused_and_says_what_to_do(
    standing: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def flight(bench: Bench) -> None:
        async def refused(name: str, *_: object, **__: object) -> Reply:
            await asyncio.sleep(2.0 * setpoints.PERIOD_S)  # as through a queue
            return Reply(id="1", task=name, state="REFUSED", reason="goto: on the ground")

        monkeypatch.setattr(bench.ship, "command", refused)
        await send(bench, place(6))
        await send(bench, command(*OFFBOARD))
        while not acks(bench, 176):
            await send(bench, place(6))
        assert acks(bench, 176) == [2]
        assert "on the ground; offboard begins in the air: arm, take off, then" in bench.texts

    fly(standing, flight)


def test_a_velocity_along_a_ship_that_is_not_heard_is_not_flown_northwards(
    standing: Twin,
) -> None:
    async def flight(bench: Bench) -> None:
        bench.system.seen = None
        await send(bench, velocity(8))
        await send(bench, command(*OFFBOARD))
        assert acks(bench, 176) == [1]
        assert bench.ship.asked == []

    fly(standing, flight)
