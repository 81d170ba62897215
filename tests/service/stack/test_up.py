"""What `blimp up` puts together: one ship as ever, several each with what is its own."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from blimp import airframe
from blimp.clock import SystemClock
from blimp.errors import ConfigError
from blimp.link.paths import RuntimePaths
from blimp.service.stack.supervisor import Event, Role, Stack, StackShip, _tell
from blimp.service.stack.up import StackOptions, _camera, build_stack, vehicle_names
from blimp.ship import Lockstep
from tests.camera.frames import with_camera


def roles_of(
    directory: Path, *, on_event: Event = print, **options: float | str | None
) -> list[Role]:
    settings: dict[str, object] = {"airframe": "twin", "vehicle": None, "seed": 1, "wind_mps": 0.0}
    stack = build_stack(
        StackOptions(runtime_dir=directory, **(settings | options)),  # type: ignore[arg-type]
        on_event=on_event,
    )
    return [running.role for running in stack._roles.values()]


def value(role: Role, option: str) -> str:
    return role.arguments[role.arguments.index(option) + 1]


@pytest.fixture
def directory() -> Path:
    return Path("/tmp/run")


def test_one_ship_keeps_its_name_and_has_the_directory_to_itself(directory: Path) -> None:
    roles = roles_of(directory)
    assert [role.name for role in roles] == ["broker", "world", "flight", "worker", "relay"]
    assert {value(role, "--runtime-dir") for role in roles[1:]} == {str(directory)}
    assert value(roles[3], "--vehicle") == "twin"


def test_of_several_ships_each_has_its_own_and_all_have_one_broker(directory: Path) -> None:
    roles = roles_of(directory, ships=3, vehicle="red", seed=2**31 - 1)
    assert [role.name for role in roles] == ["broker", *["world", "flight", "worker", "relay"] * 3]
    assert [r.vehicle for r in roles[1::4]] == ["red-1", "red-2", "red-3"]
    assert {value(r, "--runtime-dir") for r in roles if r.vehicle == "red-2"} == {"/tmp/run/red-2"}
    assert len({str(role.environment) for role in roles if role.name == "worker"}) == 1
    worlds = [role for role in roles if role.name == "world"]
    assert [value(role, "--seed") for role in worlds] == ["2147483647", "0", "1"]
    assert "--pad-east" not in worlds[0].arguments
    for name in ("world", "flight"):  # both must think the pad in the same place
        pads = [value(r, "--pad-east") for r in roles[5:] if r.name == name]
        assert pads == ["20.0", "40.0"]


def test_more_ships_than_fill_half_the_processors_do_not_go_before_the_rest(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    said: list[dict[str, object]] = []
    for ships, first in ((4, True), (5, False)):
        roles = roles_of(directory, on_event=said.append, ships=ships)
        timed = [role for role in roles if role.name in ("world", "flight")]
        assert len(timed) == 2 * ships
        assert {role.environment.get("BLIMP_REALTIME") for role in timed} == {
            None if first else "0"
        }
        assert bool(said) is not first
    assert "5 ships take about 1.25 of 2 processors" in str(said[0]["warning"])
    assert "up to 4 ships are punctual here" in str(said[0]["warning"])


ENDS_WITH_ITS_PEERS = """
import signal, sys, time
from pathlib import Path

kind, ship, here = sys.argv[1], sys.argv[2], Path(sys.argv[3])

def end(*_):
    (here / f"{kind}-{ship}-ending").touch()
    while len(list(here.glob(f"{kind}-*-ending"))) < 3:
        time.sleep(0.01)
    with (here / "ended").open("a") as ended:
        ended.write(kind + " ")
    sys.exit()

signal.signal(signal.SIGTERM, end)
(here / f"{kind}-{ship}-up").touch()
while True:
    signal.pause()
"""


def test_the_ships_end_together_and_each_before_its_world() -> None:
    home = Path(tempfile.mkdtemp(prefix="blimp-"))  # short: it is for sockets
    paths = RuntimePaths(home / "run")
    names = ("a", "b", "c")
    ships = [
        StackShip(
            vehicle=name,
            paths=RuntimePaths(paths.directory / name),
            registration=home / f"{name}.json",
            safe_state=list,
        )
        for name in names
    ]

    said: list[dict[str, object]] = []

    def ready() -> bool:
        if len(list(home.glob("*-up"))) == 6:
            stack.stop()
        return False

    stack = Stack(
        roles=[
            Role(
                name=kind,
                vehicle=name,
                arguments=(sys.executable, "-c", ENDS_WITH_ITS_PEERS, kind, name, str(home)),
                ready=ready,
                end_within_s=20.0,
            )
            for name in names
            for kind in ("world", "flight")
        ],
        paths=paths,
        ships=ships,
        guard=("sleep", "3600"),
        clock=SystemClock(),
        on_event=said.append,
        broker="",
    )
    try:
        stack.run()
        assert (home / "ended").read_text().split() == ["flight"] * 3 + ["world"] * 3
        assert said == [{"event": "ending"}]
    finally:
        shutil.rmtree(home)


def test_a_ship_that_cannot_be_built_is_refused_once_and_starts_nothing(tmp_path: Path) -> None:
    twin = (Path(airframe.__file__).parent / "airframes" / "twin.toml").read_text()
    for wrong, reason in (
        (twin.replace("address = 0x76", "address = 0x68"), "'baro'"),
        (twin.replace('chip = "bmp280"', 'chip = "bmp281"'), "'bmp281'"),
    ):
        (tmp_path / "wrong.toml").write_text(wrong)
        with pytest.raises(ConfigError, match=reason):
            roles_of(tmp_path / "run", airframe=str(tmp_path / "wrong.toml"))


def test_a_name_too_long_for_its_number_is_named() -> None:
    assert vehicle_names("x" * 32, ships=1) == ["x" * 32]
    with pytest.raises(ConfigError, match=r"--vehicle with --ships 2: 'x+-1' cannot name a ship"):
        vehicle_names("x" * 31, ships=2)


def test_a_pad_to_the_east_is_another_place_for_gps_and_the_same_flight() -> None:
    twin = airframe.load("twin")
    moved = twin.with_pad_east(20.0)
    assert moved.home.longitude_deg - twin.home.longitude_deg == pytest.approx(2.2e-4, rel=0.02)
    assert moved.home.latitude_deg == twin.home.latitude_deg
    assert twin.with_pad_east(0.0) is twin
    with Lockstep(airframe=moved, seed=1) as ship:
        ship.step(3.0)
        snapshot = ship.snapshot()
        gps = snapshot.sensors["gps"].value
        assert isinstance(gps, tuple)
        assert gps[1] == pytest.approx(moved.home.longitude_deg, abs=5e-5)
        assert abs(snapshot.position_ned_m[1]) < 1.0


def test_a_brokers_password_is_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which every user of the machine can read."""
    url = "redis://me:secret@127.0.0.1/0"
    monkeypatch.setenv("BLIMP_BROKER_URL", url)
    options = StackOptions(
        airframe="twin", vehicle=None, seed=1, wind_mps=0.0, runtime_dir=tmp_path / "run"
    )
    roles = [one.role for one in build_stack(options, on_event=print)._roles.values()]
    assert "secret" not in str([role.arguments for role in roles])
    for name in ("worker", "relay"):
        environments = [role.environment for role in roles if role.name == name]
        assert environments == [{"BLIMP_BROKER_URL": url}]


def test_the_cameras_process_is_there_for_a_ship_that_has_one_and_nobody_waits_for_it(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ship.json"
    file.write_bytes(msgspec.json.encode(with_camera(monkeypatch)))
    ship = StackShip(
        vehicle="twin", paths=RuntimePaths(directory), registration=tmp_path, safe_state=list
    )

    def role_of(airframe: str) -> list[Role]:
        options = StackOptions(
            airframe=airframe, vehicle=None, seed=1, wind_mps=0.0, runtime_dir=directory
        )
        return _camera(options, ship=ship, url={"BLIMP_BROKER_URL": "redis://x"})

    assert role_of("twin") == []
    (role,) = role_of(str(file))
    assert (role.is_optional, role.restarts, role.needs) == (True, (), ("world",))
    assert role.arguments[3:5] == ("camera", "--sim")
    assert "redis://x" not in role.arguments


@pytest.mark.parametrize("wind_mps", [0.85, 20.0])
def test_a_wind_beyond_the_airframe_is_refused_by_number(directory: Path, wind_mps: float) -> None:
    with pytest.raises(ConfigError, match=r"--wind must be 0 to 0\.8 m/s for twin, not"):
        roles_of(directory, wind_mps=wind_mps)
    assert roles_of(directory, wind_mps=0.78)


def test_an_event_that_finds_no_room_on_its_disk_ends_no_flight() -> None:
    full = os.open("/dev/full", os.O_WRONLY)

    def write(event: dict[str, object]) -> None:
        os.write(full, str(event).encode())

    try:
        _tell(write, {"event": "restarted"})
    finally:
        os.close(full)
    with pytest.raises(OSError, match="Bad file descriptor"):  # that is no full disk
        _tell(write, {"event": "restarted"})
