"""Bad airframes, directories and environments: nothing starts, and one line says why."""

import os
import re
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

import pytest

from blimp import airframe
from blimp.errors import AirframeError, BoardError
from blimp.service.fleet import StackOptions, build_stack
from blimp.sim.atmosphere import isa
from blimp.sim.world import World

TWIN = (resources.files("blimp.airframes") / "twin.toml").read_text("utf-8")


def with_number(key: str, value: str) -> str:
    changed, count = re.subn(rf"(?m)^{key} = \S+", f"{key} = {value}", TWIN, count=1)
    assert count == 1
    return changed


def replaced(old: str, new: str) -> str:
    assert old in TWIN
    return TWIN.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "maximum recursion depth"),
        (with_number("volume_m3", "9" * 5000), "Exceeds the limit (4300 digits)"),
        (with_number("volume_m3", "nan"), "`$.hull.volume_m3`"),
        (with_number("volume_m3", "1e-300"), ">= 1e-09 - at `$.hull.volume_m3`"),
        (with_number("volume_m3", "999999"), "volume_m3 999999 is more than its length"),
        (with_number("heaviness_kg", "-100"), "heaviness_kg -100 leaves -"),
        (with_number("altitude_msl_m", "1e6"), "<= 9000.0 - at `$.home.altitude_msl_m`"),
        (
            re.sub(r"(?m)^center_of_gravity_m = .*$", "center_of_gravity_m = [1e5, 0, 0]", TWIN),
            "is farther from the centre of buoyancy than the hull is long",
        ),
        (
            re.sub(r"(?m)^inertia_kg_m2 = .*$", "inertia_kg_m2 = [1e-300, 1, 1]", TWIN, count=1),
            ">= 1e-09 - at `$.mass.inertia_kg_m2[0]`",
        ),
    ],
)
def test_an_airframe_that_no_physics_can_fly_is_refused_by_key(text: str, reason: str) -> None:
    with pytest.raises(AirframeError) as refused:
        airframe.parse(text, where="bad.toml")
    assert reason in str(refused.value)
    assert "bad.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (replaced(", echo = 24", ""), "'sonar': the simulated hcsr04 has no use for, or lacks"),
        (replaced('a = "left"', 'z = "left"'), "'motors_main': the simulated drv8833 has no use"),
        (replaced("shunt_ohm = 0.05", 'shunt_ohm = "x"'), "'power': the simulated ina219: could"),
        (replaced("address = 0x41", "address = 0x40"), "'power': address 0x40 of i2c-1 is taken"),
        (replaced('chip = "ina219"', 'chip = "bno999"'), "'power': the simulator has no chip"),
    ],
)
def test_a_device_that_cannot_be_fitted_is_named(text: str, reason: str) -> None:
    with pytest.raises(BoardError) as refused:
        World(airframe.parse(text, where="bad.toml"))
    assert reason in str(refused.value)


@pytest.mark.parametrize("height_m", [-1e6, 44_331.0, 1e9])
def test_there_is_air_wherever_a_runaway_ship_goes(height_m: float) -> None:
    air = isa(height_m)
    assert air in (isa(-5_000.0), isa(11_000.0))
    assert air.pressure_pa > 0.0
    assert air.density_kg_m3 > 0.0


def blimp(*words: str, **environment: str) -> str:
    """Run `blimp`, which must fail at once; return the one line it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "blimp", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=20.0,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("command", [("up", "--sim"), ("sim",)])
def test_a_directory_that_cannot_be_made_is_named(command: tuple[str, ...]) -> None:
    said = blimp(*command, "--runtime-dir", "/proc/none")
    assert said.startswith("blimp: directory /proc/none cannot be made: ")


def test_a_broker_that_cannot_be_read_starts_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="blimp-") as directory:  # short: it is for sockets
        url = "redis://me:secret@h:x"
        said = blimp("up", "--sim", BLIMP_BROKER_URL=url, XDG_RUNTIME_DIR=directory)
        assert "broker URL 'redis://me:***@h:x': Port could not be cast" in said
        assert "secret" not in said
        assert list(Path(directory).iterdir()) == []


def test_a_brokers_password_is_on_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which every user of the machine can read."""
    url = "redis://me:secret@host/0"
    monkeypatch.setenv("BLIMP_BROKER_URL", url)
    options = StackOptions(
        airframe="twin", vehicle=None, seed=1, wind_mps=0.0, runtime_dir=tmp_path / "run"
    )
    roles = [one.role for one in build_stack(options, on_event=print)._roles.values()]
    assert "secret" not in str([role.arguments for role in roles])
    assert [role.environment for role in roles if role.name == "worker"] == [
        {"BLIMP_BROKER_URL": url}
    ]
