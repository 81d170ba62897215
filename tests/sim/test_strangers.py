"""Drivers that others wrote, as they come from PyPI, on the simulated Pi: time passes for them."""

import builtins
import fcntl
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import bmp280
import gpiozero
import pytest
import smbus2
from Adafruit_PureIO.smbus import SMBus as PureBus

from blimp.clock import ManualClock, SystemClock
from blimp.ship import Lockstep
from blimp.sim import driver_time
from blimp.sim.remote import RemoteWorld
from blimp.sim.seam import linux_devices
from blimp.sim.world import World
from tests.sim.served import served_world
from tests.sim.ships import twin

DEADLINE_S = 30.0
MACHINE_S = time.monotonic  # bound before any ship is in place, as a test's deadline should be


@pytest.fixture
def world() -> Iterator[World]:
    clock = ManualClock()
    with World(twin(), clock=clock) as world, linux_devices(world, clock=clock):
        world.advance(1.0)  # its chips have been on for a while
        yield world


def now_s(world: World) -> float:
    assert world.clock is not None
    return world.clock.now_s()


def test_pimoronis_bmp280_waits_for_its_conversion(world: World) -> None:
    """Without time it read the chip before its first conversion: 820 hPa."""
    began_s = now_s(world)
    sensor = bmp280.BMP280(i2c_dev=smbus2.SMBus(1))
    sensor.setup(mode="forced")
    assert 100.0 * sensor.get_pressure() == pytest.approx(world.physics.pressure_pa, abs=150.0)
    assert sensor.get_temperature() == pytest.approx(world.physics.temperature_c, abs=2.0)
    assert 0.005 < now_s(world) - began_s < 1.0  # the data sheet's 5.5 to 43.2 ms of a conversion


def test_adafruits_pureio_opens_the_bus_as_a_file(world: World) -> None:
    """The builtin open, plain reads and writes, and an `ioctl` bound by name; pi-ina219 uses it."""
    with PureBus(1) as bus:
        bus.write_word_data(0x41, 0x05, 0x0010)  # INA219: calibration, in SMBus's order
        assert bus.read_i2c_block_data(0x41, 0x05, 2) == bytearray((0x10, 0x00))
        bus.write_byte(0x41, 0x02)
        volts = int.from_bytes(bus.read_bytes(0x41, 2), "big") >> 3
        assert 0.004 * volts == pytest.approx(world.physics.battery_v, abs=0.02)
        sensor = bmp280.BMP280(i2c_dev=bus)
        sensor.setup(mode="forced")
        assert 100.0 * sensor.get_pressure() == pytest.approx(world.physics.pressure_pa, abs=150.0)
        with pytest.raises(OSError, match="Remote I/O error"):
            bus.read_byte(0x77)


def test_sleeping_moves_the_whole_world(world: World) -> None:
    began_s, ship_s = time.monotonic(), world.physics.state.t_s
    time.sleep(0.25)
    assert world.physics.state.t_s - ship_s == pytest.approx(0.25, abs=1e-3)
    assert 0.25 <= time.monotonic() - began_s < 0.26
    until_s = time.perf_counter() + 0.01
    while time.perf_counter() < until_s:  # a driver that spins gets on as well
        pass
    assert time.time() == pytest.approx(1.7e9, abs=100.0)
    with pytest.raises(ValueError, match="negative"):
        time.sleep(-1.0)


def test_the_standard_library_keeps_the_machines_time(world: World) -> None:
    """A thread that waits, an event loop or a log must not stand still with a ship."""
    began_s, ship_s = MACHINE_S(), now_s(world)
    ended = subprocess.run([sys.executable, "-c", "pass"], timeout=60.0, check=False)
    assert ended.returncode == 0
    slept = threading.Thread(target=time.sleep, args=(0.01,))
    slept.start()
    slept.join()
    assert MACHINE_S() - began_s >= 0.01
    assert now_s(world) - ship_s < 0.01  # another thread's sleep moves no world


def test_names_bound_by_name_are_exchanged_and_harmless_outside() -> None:
    stranger = ModuleType("stranger")
    stranger.sleep, stranger.monotonic = time.sleep, time.monotonic  # type: ignore[attr-defined]
    sys.modules["stranger"] = stranger
    before = (time.sleep, time.monotonic, builtins.open, io.open)
    clock = ManualClock()
    try:
        with World(twin(), clock=clock) as world:
            with linux_devices(world, clock=clock):
                assert (time.sleep, time.monotonic, builtins.open) != before[:3]
                began_s = clock.now_s()
                stranger.sleep(0.5)
                assert clock.now_s() - began_s == pytest.approx(0.5)
            assert (time.sleep, time.monotonic, builtins.open, io.open) == before
            began_s = clock.now_s()
            stranger.sleep(0.0)
            assert abs(stranger.monotonic() - MACHINE_S()) < 60.0
            assert clock.now_s() == began_s
    finally:
        del sys.modules["stranger"]


def test_a_class_that_keeps_a_clock_or_sleep_can_call_it(world: World) -> None:
    """As pyserial's does: what `time` has is built in, and becomes no method of a class."""

    class Kept:
        sleep: Any = time.sleep
        monotonic: Any = time.monotonic
        time: Any = time.time

    began_s = now_s(world)
    for kept in (Kept, Kept()):
        kept.sleep(0.25)
        assert kept.monotonic() == pytest.approx(now_s(world), abs=1e-3)
        assert kept.time() > 0.0
    assert now_s(world) - began_s == pytest.approx(0.5, abs=1e-3)


def test_the_builtin_open_sees_the_ships_files_only(world: World, tmp_path: Path) -> None:
    with open("/dev/i2c-1", "r+b", buffering=0) as bus:
        assert os.fstat(bus.fileno())
    for path in ("/dev/i2c-7", "/dev/ttyUSB0", "/dev/spidev9.9", Path("/dev/gpiochip0")):
        with pytest.raises(FileNotFoundError), open(path, "r+b", buffering=0):
            pass
    with (
        pytest.raises(io.UnsupportedOperation, match="only binary and unbuffered"),
        open("/dev/i2c-1"),
    ):
        pass
    (tmp_path / "notes").write_text("words", encoding="utf-8")
    with open(tmp_path / "notes", encoding="utf-8") as notes:
        assert notes.read() == "words"


def distance_m(sensor: gpiozero.DistanceSensor, step: object) -> float:
    """Return what the sensor's own thread has measured, once it has."""
    deadline_s = MACHINE_S() + DEADLINE_S
    while MACHINE_S() < deadline_s:
        if callable(step):
            step()
        threading.Event().wait(0.002)  # the machine's time: the sensor's thread runs in it
        if 0.0 < sensor.value < 1.0:
            return float(sensor.distance)
    raise AssertionError(f"no echo in {DEADLINE_S:g} s")


@pytest.fixture
def sensor(request: pytest.FixtureRequest) -> Iterator[gpiozero.DistanceSensor]:
    request.getfixturevalue(request.param)
    sys.modules.pop("gpiozero.pins.rpigpio", None)  # it keeps the RPi.GPIO it was loaded with
    from gpiozero.pins.rpigpio import RPiGPIOFactory

    factory = RPiGPIOFactory()
    sensor = gpiozero.DistanceSensor(
        echo=24, trigger=23, max_distance=4.0, queue_len=1, partial=True, pin_factory=factory
    )
    yield sensor
    sensor.close()
    factory.close()


QUIET = pytest.mark.filterwarnings(
    "ignore::gpiozero.exc.GPIOZeroWarning", "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


@QUIET
@pytest.mark.parametrize("sensor", ["world"], indirect=True)
def test_gpiozero_measures_echoes_in_lockstep(
    sensor: gpiozero.DistanceSensor, world: World
) -> None:
    world.physics.place(position_ned_m=(0.0, 0.0, -0.5))
    found_m = distance_m(sensor, lambda: world.advance(0.005))
    assert found_m == pytest.approx(world.physics.height_above_ground_m, abs=0.05)


def test_in_real_time_an_edge_is_as_late_as_it_was_on_the_wire() -> None:
    """However late the machine calls back: gpiozero asks `monotonic` only then."""
    seen: list[float] = []
    with World(twin()) as world, linux_devices(world, clock=SystemClock()):
        import RPi.GPIO as GPIO

        world.physics.place(position_ned_m=(0.0, 0.0, -1.0))
        GPIO.setmode(GPIO.BCM)
        GPIO.setup(23, GPIO.OUT, initial=0)
        GPIO.setup(24, GPIO.IN)
        GPIO.add_event_detect(24, GPIO.BOTH, callback=lambda _: seen.append(time.monotonic()))
        GPIO.output(23, 1)
        threading.Event().wait(20e-6)
        GPIO.output(23, 0)
        world.advance(0.05)
        rose_s, fell_s = seen
        assert 0.5 * 340.4 * (fell_s - rose_s) == pytest.approx(
            world.physics.height_above_ground_m, abs=0.03
        )
        assert abs(time.monotonic() - MACHINE_S()) < 60.0


@pytest.fixture
def remote() -> Iterator[None]:
    with (
        served_world() as path,
        RemoteWorld(path) as world,
        linux_devices(world, clock=SystemClock()),
    ):
        yield


@QUIET
@pytest.mark.parametrize("sensor", ["remote"], indirect=True)
def test_gpiozero_measures_echoes_in_real_time(sensor: gpiozero.DistanceSensor) -> None:
    assert distance_m(sensor, None) == pytest.approx(0.02, abs=0.03)  # the sensor's least


class _Ending(list[driver_time._Place]):
    """The ships in place, of which the last ends between two looks of another thread."""

    def __len__(self) -> int:
        count = super().__len__()
        self.clear()
        return count


def test_a_clock_is_there_while_a_ship_of_another_thread_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that waited for a broker died of an IndexError in the middle of a call."""
    stranger: dict[str, Any] = {"__name__": "stranger"}
    exec("import time\ndef now_s(): return time.monotonic()", stranger)
    monkeypatch.setattr(driver_time, "_in_place", _Ending(driver_time._in_place))
    assert stranger["now_s"]() > 0.0


class _Unreadable:
    """A module that cannot be looked through."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("it is being imported")


def test_a_ship_that_fails_to_start_leaves_the_machines_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = (time.sleep, time.monotonic, time.time, fcntl.ioctl)
    monkeypatch.setitem(sys.modules, "stranger", _Unreadable())
    with pytest.raises(RuntimeError, match="being imported"):
        Lockstep("gtmab")
    assert (time.sleep, time.monotonic, time.time, fcntl.ioctl) == before
