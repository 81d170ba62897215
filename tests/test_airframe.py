"""Airframe files that no physics can fly, or whose devices cannot be fitted."""

import re
import tomllib
from importlib import resources
from math import pi
from pathlib import Path

import msgspec
import pytest

from blimp import airframe
from blimp.errors import AirframeError, BoardError
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


def test_a_file_that_is_like_another_says_only_what_differs() -> None:
    eye, mocap = airframe.load("gtmab-eye"), airframe.load("gtmab-mocap")
    was = {"name": mocap.name, "description": mocap.description, "device": mocap.device}
    assert msgspec.structs.replace(eye, **was) == mocap
    assert [one.chip for one in eye.device if one not in mocap.device] == ["imx296"]
    with pytest.raises(
        AirframeError, match=r"no airframe 'twine' .did you mean 'twin'.*or no `like`"
    ):
        airframe.parse('like = "twine"\nname = "mine"\n', where="mine.toml")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "maximum recursion depth"),
        (with_number("volume_m3", "9" * 5000), "Exceeds the limit (4300 digits)"),
        (replaced("lag_s", "dead_band = 0.31\nlag_s"), "<= 0.3 - at `$.thruster[0].dead_band`"),
        (replaced("lag_s", "reverse_dead_band = nan\nlag_s"), "$.thruster[0].reverse_dead_band"),
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


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("stop = { channel = 17 }", "Expected `int` <= 16"),
        ("stop = { channel = 6 }", "transmitter: modes and stop both use channel 6"),
        (
            'takes_control = "switch"\ncontrol = { channel = 3 }',
            "transmitter: up and control both use channel 3",
        ),
        ('mode_names = ["ALTHOLD", "AUTO"]', "transmitter: mode_names: no mode 'AUTO'"),
        ('mode_names = ["ALTHOLD"]', "length >= 2"),
        ("manual = { nose = { up = 1.0 } }", "transmitter: manual: 'nose' is no output"),
        ("manual = { left = { up = 1.5 } }", "<= 1.0"),
        ("manual = { left = {} }", "transmitter: manual: 'left' follows no stick"),
        (
            'mode_names = ["MANUAL", "ALTHOLD"]',
            "transmitter: manual: empty, and mode_names has MANUAL: no stick would move an output",
        ),
        ("deadband = 0.5", "<= 0.3"),
    ],
)
def test_a_transmitter_table_that_cannot_be_is_refused_by_key(table: str, reason: str) -> None:
    with pytest.raises(AirframeError, match=re.escape(reason)):
        airframe.parse(f"{TWIN}\n[transmitter]\n{table}\n", where="mine.toml")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('tilted_by = "tilt"', 'tilted_by = "tlit"', "'left' is tilted by no servo 'tlit'"),
        ('tilted_by = "tilt"', 'tilted_by = ["tilt", "rudder"]', "Expected `str`, got `array`"),
        (
            'tilted_by = "tilt"',
            'tilted_by = "tilt"\ntilt_axis = [1.0, 0.0, 0.0]',
            "thruster 'left': servo 'tilt' tilts nothing: axis lies along tilt_axis",
        ),
        (
            'tilted_by = "tilt"',
            'tilted_by = "tilt"\ntilt_axis = [0.0, 2.0, 0.0]',
            "thruster 'left': tilt_axis has length 2.0000, must be 1",
        ),
        (
            'tilted_by = "tilt"',
            "tilt_axis = [0.0, 0.0, 1.0]",
            "thruster 'left': tilt_axis is given, and no tilted_by",
        ),
        ('tilted_by = "tilt"', 'tilted_by = "rudder"', "'rudder' tilts a thruster and moves a"),
        ("force_per_rad = 0.218", "force_per_rad = 0.0", "on 'elevator': force_per_rad 0 is a fin"),
        ("axis = [1.0, 0.0, 0.0]", "axis = [1.0, 1.0, 0.0]", "axis has length 1.4142, must be 1"),
    ],
)
def test_a_tilt_or_a_fin_that_cannot_be_is_refused_by_name(old: str, new: str, reason: str) -> None:
    assert old in TWIN
    with pytest.raises(AirframeError, match=re.escape(reason)):
        airframe.parse(TWIN.replace(old, new, 1), where="mine.toml")


def test_a_positive_tilt_turns_forward_to_up_or_about_the_hinge_that_is_given() -> None:
    left = airframe.load("twin").thruster[0]
    assert left.axis_at(pi / 2) == pytest.approx((0.0, 0.0, -1.0))
    assert left.ways == (1.0, 0.0, 1.0)
    rear = msgspec.structs.replace(left, tilt_axis=(0.0, 0.0, 1.0))
    assert rear.axis_at(pi / 2) == pytest.approx((0.0, 1.0, 0.0))
    lift = msgspec.structs.replace(left, axis=(0.0, 0.0, -1.0), tilt_axis=(1.0, 0.0, 0.0))
    assert lift.axis_at(pi / 2) == pytest.approx((0.0, 1.0, 0.0))
    assert msgspec.structs.replace(left, tilted_by="").axis_at(1.0) == left.axis


@pytest.mark.parametrize("height_m", [-1e6, 44_331.0, 1e9])
def test_there_is_air_wherever_a_runaway_ship_goes(height_m: float) -> None:
    air = isa(height_m)
    assert air in (isa(-5_000.0), isa(11_000.0))
    assert air.pressure_pa > 0.0
    assert air.density_kg_m3 > 0.0


def test_home_is_a_place_on_a_sphere() -> None:
    home = airframe.Home(latitude_deg=60.0, longitude_deg=179.9999, altitude_msl_m=0.0)
    there = (60.0001, -179.9999)
    north_m, east_m = home.local_m(*there)
    assert (north_m, east_m) == pytest.approx((11.13, 11.13), abs=0.02)
    assert home.global_deg(north_m, east_m) == pytest.approx(there, abs=1e-9)


LAST_RELEASE = """
[estimator]
baro_sigma_m = 0.25
plumb_gain = 0.12
gyro_bias_gain = 0.004
thrust_accel_sigma_mps2 = 0.01
wind_accel_drift_mps2 = 0.008
"""


def test_numbers_that_an_earlier_version_read_are_passed_over_and_named(tmp_path: Path) -> None:
    """A ship keeps its file over an upgrade; found in a box, where it did not fly after one."""
    path = tmp_path / "mine.toml"
    path.write_text(TWIN + LAST_RELEASE, "utf-8")
    ship = airframe.load(str(path))
    assert ship.estimator.baro_sigma_m == 0.25
    assert airframe.retired(str(path)) == airframe.RETIRED
    assert airframe.retired("twin") == ()
    table = tomllib.loads(TWIN + LAST_RELEASE)
    assert airframe.from_table(table) == ship
    with pytest.raises(msgspec.ValidationError, match="plumb_gains"):
        airframe.from_table({**table, "estimator": {"plumb_gains": 1.0}})
    left = tmp_path / "airframe.json"
    left.write_bytes(msgspec.json.encode(table))
    assert airframe.load(str(left)) == ship
    for text in (b"[1]", b'{"estimator": 3}'):
        left.write_bytes(text)
        with pytest.raises(AirframeError, match="airframe file"):
            airframe.load(str(left))
