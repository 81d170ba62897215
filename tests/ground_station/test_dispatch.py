"""Dispatching: a free ship is taken, looked at, flown, and given back, whatever happens."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blimp.clock import ManualClock
from blimp.queue.redis.client import RedisServer
from blimp.queue.resources import ResourcePool
from blimp.ship import Lockstep
from blimp.tasks.authority import holder_of, pilots
from blimp.tasks.fleet import FleetMember, ships
from ground_station import fleet
from tests.broker import EmbeddedBroker
from tests.ground_station.ship import FlyingShip
from tests.ground_station.test_cli import DEADLINE_S, Ground

ARM = '[[leg]]\ndo = "arm"\n'
CHECK = f'name = "check"\n{ARM}[[leg]]\ndo = "disarm"\n'
HOP = f'name = "hop"\n{ARM}[[leg]]\ndo = "takeoff"\naltitude_m = 0.6\n[[leg]]\ndo = "land"\n'
_numbers = itertools.count(1)


@pytest.fixture
def link(broker_server: EmbeddedBroker) -> Iterator[RedisServer]:
    with contextlib.closing(RedisServer(broker_server.url)) as link:
        yield link


@pytest.fixture
def pool(link: RedisServer) -> Iterator[ResourcePool]:
    pool = ships(link)
    yield pool
    stats = pool.stats()
    for name in (*stats.free, *(holding.resource for holding in stats.busy)):
        pool.remove(name, now=True)


@pytest.fixture
def check(tmp_path: Path) -> str:
    """The shortest of missions: it arms and disarms."""
    path = tmp_path / "check.toml"
    path.write_text(CHECK)
    return str(path)


@pytest.fixture
def ground(
    broker_server: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ground:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # A ship of these tests speaks once, and a loaded machine is slow to answer.
    monkeypatch.setattr(fleet, "HEARD_S", DEADLINE_S)
    monkeypatch.setattr(fleet, "PING_S", DEADLINE_S)
    ground = Ground(capsys)
    ground.options = ["--broker", broker_server.url]
    return ground


Launch = Callable[[], FlyingShip]


@pytest.fixture
def launch(broker_server: EmbeddedBroker, pool: ResourcePool) -> Iterator[Launch]:
    """Start a ship that is in the pool, and is heard."""
    with contextlib.ExitStack() as running:

        def start() -> FlyingShip:
            ship = running.enter_context(Lockstep("twin", seed=1))
            one = FlyingShip(broker=broker_server, vehicle=f"fleet{next(_numbers)}", ship=ship)
            running.enter_context(one.worker())
            one.publish()
            pool.add(one.vehicle)
            return one

        yield start


def test_a_free_ship_flies_the_mission_and_all_is_given_back(
    ground: Ground, launch: Launch, tmp_path: Path, pool: ResourcePool, link: RedisServer
) -> None:
    ship = launch()
    (tmp_path / "hop.toml").write_text(HOP)
    hop = str(tmp_path / "hop.toml")
    status, reply = ground.json("dispatch", "--any", hop, "--pilot", "alice")
    assert (status, reply["task"], reply["state"]) == (0, "dispatch", "SUCCESS"), reply
    assert reply["result"]["vehicle"] == ship.vehicle
    assert reply["result"]["completed"] == 3
    assert pool.stats().free == (ship.vehicle,)
    assert pilots(link, ship.vehicle).who(ship.vehicle) is None
    assert not ship.ship.snapshot().armed


def test_a_dispatch_waits_for_a_ship_that_is_given_back(
    ground: Ground, launch: Launch, check: str, pool: ResourcePool
) -> None:
    ship = launch()
    grant = pool.acquire(holder_of("alice"))

    def requeue() -> None:
        _until_waiting(pool)
        pool.release(grant)

    giving = threading.Thread(target=requeue)
    giving.start()
    status, reply = ground.json("dispatch", "--any", check, "--wait", "20")
    giving.join()
    assert (status, reply["result"]["vehicle"]) == (0, ship.vehicle)


def test_a_dead_ship_is_put_aside_and_the_next_one_flies(
    ground: Ground, launch: Launch, check: str, pool: ResourcePool
) -> None:
    pool.add("ghost")
    ship = launch()
    assert ground("dispatch", "--any", check) == 0
    assert "ghost is removed from the pool: last heard never, the limit is 60 s" in ground.err
    assert f"check: flown by {ship.vehicle}, 2 of 2 legs" in ground.out
    assert pool.stats().free == (ship.vehicle,)


def test_what_can_be_no_ship_is_put_aside_too(
    ground: Ground, launch: Launch, check: str, pool: ResourcePool
) -> None:
    """Everybody who reaches the broker can add anything; the others fly all the same."""
    for name in ("a{b}", "../../x", "two words", "x" * 200, "\n", "Ä", "{", "-x"):
        pool.add(name)
    ship = launch()
    status, reply = ground.json("dispatch", "--any", check)
    assert (status, reply["result"]["vehicle"]) == (0, ship.vehicle)
    assert pool.stats().free == (ship.vehicle,)


def test_none_at_all_is_no_link(ground: Ground, check: str, pool: ResourcePool) -> None:
    assert ground("dispatch", "--any", check) == 3
    assert "none is in the pool" in ground.err


def test_a_ship_that_somebody_flies_or_has_control_of_is_passed_over(
    ground: Ground, launch: Launch, check: str, pool: ResourcePool, link: RedisServer
) -> None:
    armed, stopped, held = launch(), launch(), launch()
    for ship, command in ((armed, "arm"), (stopped, "estop")):
        ship.ship.command(command)
        ship.publish()
    control = pilots(link, held.vehicle)
    control.add(held.vehicle)
    control.acquire(holder_of("alice"))
    assert ground("dispatch", "--any", check) == 7
    assert f"{armed.vehicle}: it is armed, so somebody may be flying it" in ground.err
    assert f"{stopped.vehicle}: an emergency stop has stopped it" in ground.err
    assert f"{held.vehicle}: alice holds control of {held.vehicle}" in ground.err
    assert set(pool.stats().free) == {armed.vehicle, stopped.vehicle, held.vehicle}
    free = launch()
    assert ground("dispatch", "--any", check) == 0
    assert f"flown by {free.vehicle}" in ground.out


def test_a_certain_ship_under_the_control_that_was_taken_before(
    ground: Ground, launch: Launch, check: str, link: RedisServer
) -> None:
    launch()
    ship = launch()
    ground.options += ["--vehicle", ship.vehicle]
    assert ground("control", "take", "--pilot", "alice") == 0
    assert ground("dispatch", check) == 0
    assert f"flown by {ship.vehicle}" in ground.out
    holding = pilots(link, ship.vehicle).who(ship.vehicle)
    assert holding is not None
    assert holding.holder.startswith("alice#")
    ship.publish()
    assert ground("control", "release") == 0
    assert ground("dispatch", check) == 0
    assert pilots(link, ship.vehicle).who(ship.vehicle) is None


def test_a_mission_that_fails_gives_the_ship_back_too(
    ground: Ground, launch: Launch, tmp_path: Path, pool: ResourcePool, link: RedisServer
) -> None:
    ship = launch()
    path = tmp_path / "high.toml"
    path.write_text(HOP.replace("altitude_m = 0.6", "altitude_m = 31"))  # its limit is 30
    assert ground("dispatch", "--any", str(path), "--yes") == 5
    assert pool.stats().free == (ship.vehicle,)
    assert pilots(link, ship.vehicle).who(ship.vehicle) is None


# --- the ship's side ------------------------------------------------------------------------------


def test_a_ship_is_in_the_pool_while_its_flight_process_is_heard(
    link: RedisServer, pool: ResourcePool
) -> None:
    clock = ManualClock()
    age_s: list[float | None] = [None]
    with FleetMember(
        link=link, vehicle="member", snapshot_age_s=lambda: age_s[0], clock=clock
    ) as member:
        member.look(True)
        assert pool.stats().free == ()
        age_s[0] = 0.1
        member.look(False)
        assert pool.stats().free == ()
        member.look(True)
        assert pool.stats().free == ("member",)
        pool.remove("member")  # put aside by mistake
        member.look(True)
        assert pool.stats().free == ()
        clock.advance(10.0)
        member.look(True)
        assert pool.stats().free == ("member",)
        age_s[0] = 2.5
        member.look(True)
        assert pool.stats().free == ()
        age_s[0] = 0.1
        member.look(True)
        grant = pool.acquire("somebody")
    assert pool.stats().size == 1  # it leaves when it is given back
    pool.release(grant)
    assert pool.stats().size == 0


def _until_waiting(pool: ResourcePool) -> None:
    deadline = threading.Event()
    for _ in range(2000):
        if pool.stats().waiting:
            return
        deadline.wait(0.005)
    raise AssertionError("nobody waits")
