"""Which ship is meant: what was said, the environment, the run registry, the broker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blimp.config import GroundConfig, ground_config, registry_dir, vehicle_name
from blimp.errors import ConfigError, LinkError
from ground_station.discover import (
    ShipAddress,
    find_broker,
    find_ship,
    flight_socket,
    running_stacks,
    ships_here,
)
from tests.ground_station.ship import FlyingShip


def config(registry: Path, **fields: Any) -> GroundConfig:
    return GroundConfig(**({"broker": None, "vehicle": None, "registry": registry} | fields))


def register(registry: Path, vehicle: str, *, pid: int | None = None) -> str:
    registry.mkdir(mode=0o700, exist_ok=True)
    broker = f"redis+socket:///run/{vehicle}.sock?virtual_host=0"
    entry = {
        "vehicle": vehicle,
        "broker": broker,
        "pid": os.getpid() if pid is None else pid,
        "runtime_dir": "/run/x",
    }
    (registry / f"{vehicle}.json").write_text(json.dumps(entry))
    return broker


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_one_ship_on_this_machine_is_found(tmp_path: Path) -> None:
    broker = register(tmp_path, "twin")
    found = find_ship(config=config(tmp_path), broker=None, vehicle=None)
    assert found == ShipAddress(vehicle="twin", broker=broker)


def test_of_several_one_must_be_named(tmp_path: Path) -> None:
    register(tmp_path, "one")
    two = register(tmp_path, "two")
    with pytest.raises(ConfigError, match="choose one with --vehicle: one, two"):
        find_ship(config=config(tmp_path), broker=None, vehicle=None)
    assert find_ship(config=config(tmp_path), broker=None, vehicle="two").broker == two
    assert find_ship(
        config=config(tmp_path, vehicle="two"), broker=None, vehicle=None
    ) == ShipAddress(vehicle="two", broker=two)
    with pytest.raises(LinkError, match=r"no ship 'three'.*one, two"):
        find_ship(config=config(tmp_path), broker=None, vehicle="three")


def test_the_dead_the_torn_and_the_foreign_are_no_ships(tmp_path: Path) -> None:
    register(tmp_path, "dead", pid=dead_pid())
    register(tmp_path, "zero", pid=0)
    register(tmp_path, "huge", pid=2**70)
    (tmp_path / "torn.json").write_text('{"vehicle": "torn", "bro')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "wrong.json").write_text('{"vehicle": 3}')
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "note.txt").write_text("hello")
    register(tmp_path, "alive")
    assert [entry.vehicle for entry in running_stacks(tmp_path)] == ["alive"]


def test_a_registry_that_others_may_write_is_refused(tmp_path: Path) -> None:
    register(tmp_path, "twin")
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="written by others"):
        running_stacks(tmp_path)


def test_a_registry_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(tmp_path, "twin")
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=f"belongs to user {owner}"):
        running_stacks(tmp_path)


@pytest.fixture
def on_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of the ship that this machine is, not written yet."""
    path = tmp_path / "etc.toml"
    monkeypatch.setattr("ground_station.discover.CONFIG_PATH", path)
    return path


def test_on_board_the_configuration_names_the_ship_and_its_broker(
    tmp_path: Path, on_board: Path
) -> None:
    here = config(tmp_path / "none")
    with pytest.raises(LinkError, match=f"no ship runs on this machine .*{on_board}"):
        find_ship(config=here, broker=None, vehicle=None)
    on_board.write_text('airframe = "twin"\nof_a_newer_program = 1\n')
    local = "redis+socket:///var/lib/blimp/broker/broker.sock?virtual_host=0"
    twin = ShipAddress(vehicle="twin", broker=local)
    assert find_ship(config=here, broker=None, vehicle=None) == twin
    on_board.write_text('vehicle = "red"\nbroker = "redis://localhost/1"\n')
    red = ShipAddress(vehicle="red", broker="redis://localhost/1")
    assert find_ship(config=here, broker=None, vehicle=None) == red
    assert (find_broker(config=here, broker=None), ships_here(here.registry)) == (red.broker, [red])
    with pytest.raises(LinkError, match="no ship 'blue' runs on this machine; there are: red"):
        find_ship(config=here, broker=None, vehicle="blue")
    # A simulated ship of this user is meant before the real one.
    broker = register(tmp_path / "none", "simulated")
    sim = ShipAddress(vehicle="simulated", broker=broker)
    assert find_ship(config=here, broker=None, vehicle=None) == sim


@pytest.mark.parametrize("text", ["broker = 1", "broker", 'vehicle = "No Name"', "\xff"])
def test_a_configuration_that_is_wrong_is_no_ship(
    text: str, tmp_path: Path, on_board: Path
) -> None:
    on_board.write_bytes(text.encode("latin-1"))
    here = config(tmp_path / "none")
    with pytest.raises(ConfigError, match=str(on_board)):
        find_ship(config=here, broker=None, vehicle=None)
    found = find_ship(config=here, broker="redis://env", vehicle="a")
    assert found == ShipAddress(vehicle="a", broker="redis://env")
    assert ships_here(here.registry) == []


def test_what_is_said_wins_over_the_environment_and_that_over_the_registry(
    tmp_path: Path,
) -> None:
    register(tmp_path, "twin")
    said = config(tmp_path, broker="redis://env", vehicle="two")
    assert find_ship(config=said, broker="redis://said", vehicle="one") == ShipAddress(
        vehicle="one", broker="redis://said"
    )
    assert find_ship(config=said, broker=None, vehicle=None) == ShipAddress(
        vehicle="two", broker="redis://env"
    )


def test_the_registry_names_the_ship_of_a_broker(tmp_path: Path) -> None:
    broker = register(tmp_path, "twin")
    register(tmp_path, "other")
    assert find_ship(config=config(tmp_path), broker=broker, vehicle=None).vehicle == "twin"


def test_a_ship_that_speaks_on_a_broker_is_found(tmp_path: Path, parked: FlyingShip) -> None:
    from redis import Redis

    from blimp.queue.redis.urls import redis_url

    with Redis.from_url(redis_url(parked.broker.url)) as raw:
        for key in raw.scan_iter(match="blimp:telemetry:*"):
            raw.delete(key)
    registry = tmp_path / "none"
    with pytest.raises(LinkError, match="no ship has sent telemetry"):
        find_ship(config=config(registry), broker=parked.broker.url, vehicle=None)
    parked.publish()
    found = find_ship(config=config(registry), broker=parked.broker.url, vehicle=None)
    assert found.vehicle == parked.vehicle
    FlyingShip(broker=parked.broker, vehicle="another", ship=parked.ship).publish()
    with pytest.raises(ConfigError, match=f"--vehicle: another, {parked.vehicle}"):
        find_ship(config=config(registry), broker=parked.broker.url, vehicle=None)


@pytest.mark.parametrize("name", ["", "Twin", "../twin", "a b", "x" * 33, "-a", "tw\nin", "twin\n"])
def test_a_name_that_can_name_no_ship_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--vehicle"):
        find_ship(config=config(tmp_path), broker="redis://x", vehicle=name)


def test_environment(tmp_path: Path) -> None:
    found = ground_config(
        {"BLIMP_BROKER_URL": "redis://pi", "BLIMP_VEHICLE": "a1", "XDG_RUNTIME_DIR": str(tmp_path)}
    )
    assert (found.broker, found.vehicle) == ("redis://pi", "a1")
    assert found.registry == tmp_path / f"blimp-{os.getuid()}"
    empty = ground_config({"BLIMP_BROKER_URL": "", "BLIMP_VEHICLE": ""})
    assert (empty.broker, empty.vehicle) == (None, None)
    assert registry_dir({}) == Path(f"/tmp/blimp-{os.getuid()}")
    with pytest.raises(ConfigError, match="BLIMP_VEHICLE"):
        ground_config({"BLIMP_VEHICLE": "Not a name"})
    assert vehicle_name("ship-1", where="x") == "ship-1"


def test_a_ship_on_board_is_reached_by_its_socket_through_its_own_broker_or_one_of_this_machine(
    tmp_path: Path, on_board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the same name on another machine's broker is another ship."""
    monkeypatch.setattr("ground_station.discover.ON_BOARD_DIR", tmp_path)
    (tmp_path / "vehicle").write_text("twin")
    on_board.write_text('vehicle = "twin"\nbroker = "rediss://near.example/0"\n')

    def found(vehicle: str, broker: str) -> Path | None:
        return flight_socket(
            ShipAddress(vehicle=vehicle, broker=broker), registry=tmp_path / "none"
        )

    assert found("twin", "redis://localhost/0") == tmp_path / "flight.sock"
    assert found("twin", "unix:///run/broker.sock") == tmp_path / "flight.sock"
    assert found("twin", "rediss://near.example/0") == tmp_path / "flight.sock"
    assert found("twin", "rediss://far.example/0") is None
    assert found("twin", "nonsense") is None
    assert found("other", "redis://localhost/0") is None
    assert found("other", "rediss://near.example/0") is None
    on_board.write_text("broker = 1")
    assert found("twin", "redis://localhost/0") == tmp_path / "flight.sock"
    assert found("twin", "rediss://near.example/0") is None
