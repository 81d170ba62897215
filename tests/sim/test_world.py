"""The world as a whole: time, determinism, outputs, faults by name."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from blimp import airframe
from blimp.airframe import Airframe
from blimp.clock import ManualClock
from blimp.errors import BoardError, ConfigError
from blimp.sim.electrical import Pull
from blimp.sim.world import World

BUS = 1


def wake(world: World) -> None:
    """Set the chips going, as a driver's open would."""
    world.i2c(BUS, 0x68, b"\x6b\x01", 0)
    world.i2c(BUS, 0x76, b"\xf4\x57", 0)
    world.i2c(BUS, 0x40, b"\xfe\x79", 0)
    world.i2c(BUS, 0x40, b"\x00\x21", 0)


def record(world: World, seconds: float = 2.0) -> bytes:
    """Poll every chip as a flight loop would; return all the bytes."""
    heard: list[bytes] = []
    for port in world.serial_ports():
        world.serial_listen(port, heard.append)
    wake(world)
    for _ in range(round(seconds * 100)):
        world.advance(0.01)
        for address, register, length in (
            (0x68, 0x3B, 14),
            (0x76, 0xF7, 6),
            (0x10, 0x00, 10),
            (0x41, 0x02, 2),
        ):
            heard.append(world.i2c(BUS, address, bytes((register,)), length))
    return b"".join(heard)


@pytest.fixture
def twin() -> Airframe:
    return airframe.load("twin")


@pytest.fixture
def world(twin: Airframe) -> Iterator[World]:
    with World(twin) as made:
        yield made


def test_the_same_seed_gives_the_same_bytes(twin: Airframe) -> None:
    first = record(World(twin, seed=7, wind_mps=0.3))
    assert record(World(twin, seed=7, wind_mps=0.3)) == first
    assert record(World(twin, seed=8, wind_mps=0.3)) != first


def test_a_device_more_changes_no_other_devices_noise(twin: Airframe) -> None:
    def readings(ship: Airframe) -> list[bytes]:
        world = World(ship, seed=3)
        wake(world)
        world.advance(0.5)
        return [world.i2c(BUS, 0x68, b"\x3b", 14), world.i2c(BUS, 0x76, b"\xf7", 6)]

    fewer = msgspec.structs.replace(
        twin, device=tuple(row for row in twin.device if row.name not in ("ranger", "tag"))
    )
    assert readings(fewer) == readings(twin)


def test_time_moves_exactly_as_commanded(twin: Airframe) -> None:
    clock = ManualClock(start_s=100.0)
    world = World(twin, clock=clock)
    for _ in range(100):
        world.advance(0.01)
    assert clock.now_s() == pytest.approx(101.0, abs=1e-9)
    assert world.truth.t_s == pytest.approx(1.0, abs=1e-9)
    assert world.t_s == pytest.approx(1.0, abs=1e-9)
    world.advance(0.0)
    with pytest.raises(ValueError, match="cannot go back"):
        world.advance(-0.1)


def test_a_driver_that_sleeps_on_the_clock_is_caught_up_with(twin: Airframe) -> None:
    clock = ManualClock()
    world = World(twin, clock=clock)
    world.i2c(BUS, 0x68, b"\x6b\x01", 0)
    clock.advance(0.05)  # the gyro needs 30 ms
    assert world.i2c(BUS, 0x68, b"\x3b", 14) != bytes(14)
    world.advance(0.01)
    assert clock.now_s() == pytest.approx(0.06)
    assert world.truth.t_s == pytest.approx(0.06)


def test_outputs_are_what_reaches_motors_and_servos(world: World, twin: Airframe) -> None:
    assert world.outputs == dict.fromkeys(twin.thruster_names + twin.servo_names, 0.0)
    for pin in (6, 13, 12):
        world.pin_mode(pin, output=True, pull=Pull.OFF)
    world.pin_write(12, True, held_s=0.0)
    world.pin_pwm(13, 0.75, frequency_hz=100.0)
    assert world.outputs["left"] == -0.75
    wake(world)
    world.i2c(BUS, 0x40, b"\x06\x00\x00\x00\x02", 0)  # tilt: 512 counts at 50 Hz, 2.5 ms
    assert world.outputs["tilt"] == pytest.approx(1.7453, abs=0.02)


def test_faults_are_named_by_device(world: World) -> None:
    with pytest.raises(ConfigError, match=r"no device 'radar': this ship has servos, power"):
        world.fault("radar", "frozen")
    with pytest.raises(ConfigError, match=r"'motors_main' has no fault 'garbage'"):
        world.fault("motors_main", "garbage")
    with pytest.raises(ConfigError, match=r"'tag' has no fault 'bus_stuck'"):
        world.fault("tag", "bus_stuck")
    with pytest.raises(ConfigError, match=r"no channel 'middle'.*left, right"):
        world.fault("motors_main", "stuck", value=1.0, channel="middle")
    world.fault("motors_main", "stuck", value=1.0, channel="right")
    assert world.outputs["right"] == 0.0  # asleep its bridge drives nothing
    world.pin_mode(12, output=True, pull=Pull.OFF)
    world.pin_write(12, True, held_s=0.0)
    assert world.outputs["right"] == 1.0
    world.fault("motors_main", "clear")
    assert world.outputs["right"] == 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"chip": "bme680"}, "'baro': the simulator has no chip 'bme680'.*bmp280"),
        ({"address": 0x41}, "'baro': address 0x41 of i2c-1 is taken"),
        ({"bus": "gpio"}, "'baro': 'gpio' is no I2C bus"),
        ({"chip": "dwm1001"}, "'baro': needs bus \"serial\" and a port"),
        ({"chip": "drv8833"}, "'baro': needs bus \"gpio\""),
    ],
)
def test_a_row_that_cannot_be_built_is_named(
    twin: Airframe, changes: dict[str, Any], words: str
) -> None:
    rows = tuple(
        msgspec.structs.replace(row, **changes) if row.name == "baro" else row
        for row in twin.device
    )
    with pytest.raises(BoardError, match=words):
        World(msgspec.structs.replace(twin, device=rows))
