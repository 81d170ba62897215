"""Unmodified smbus2 and pyserial against the simulated kernel interfaces.

Everything here runs on both worlds: the one in this process and the one behind a socket.
"""

import errno
import fcntl
import os
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import serial
import smbus2
import smbus2.smbus2 as smbus2_module

from blimp import airframe
from blimp.clock import Clock, ManualClock, SystemClock
from blimp.errors import ConfigError
from blimp.ship import Lockstep
from blimp.sim.electrical import Electrical
from blimp.sim.remote import RemoteWorld
from blimp.sim.seam import linux_devices
from blimp.sim.world import World
from tests.sim.served import served_world

I2C_TIMEOUT = 0x0702  # uapi/linux/i2c-dev.h, in units of 10 ms
TAG, GPS = "/dev/ttyAMA0", "/dev/ttyAMA1"
ADDRESSES = [0x10, 0x40, 0x41, 0x68, 0x70, 0x76]  # 0x70: the PCA9685 answers its all-call


class Ship:
    def __init__(self, electrical: Electrical, clock: Clock) -> None:
        self.electrical = electrical
        self.clock = clock

    def fault(self, device: str, kind: str) -> None:
        assert isinstance(self.electrical, World | RemoteWorld)
        self.electrical.fault(device, kind)


@pytest.fixture(params=["in this process", "behind a socket"])
def ship(request: pytest.FixtureRequest) -> Iterator[Ship]:
    if request.param == "in this process":
        clock = ManualClock()
        with World(airframe.load("twin"), clock=clock) as world:
            yield Ship(world, clock)
    else:
        with served_world() as path, RemoteWorld(path) as remote:
            yield Ship(remote, SystemClock())


@pytest.fixture
def bus(ship: Ship) -> Iterator[smbus2.SMBus]:
    with linux_devices(ship.electrical, clock=ship.clock), smbus2.SMBus(1) as opened:
        yield opened


def failure(call: Callable[..., object], *arguments: object) -> int | None:
    """Return the error number of an OSError; None where the call succeeds."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return None


# --- I2C ---------------------------------------------------------------------------------------


def test_a_scan_finds_the_twins_addresses_and_no_others(bus: smbus2.SMBus) -> None:
    answers = {address: failure(bus.write_quick, address) for address in range(0x03, 0x78)}
    assert [address for address, number in answers.items() if number is None] == ADDRESSES
    assert set(answers.values()) == {None, errno.EREMOTEIO}


def test_every_kind_of_smbus_transfer(bus: smbus2.SMBus) -> None:
    bus.write_byte_data(0x68, 0x19, 7)
    assert bus.read_byte_data(0x68, 0x19) == 7
    bus.write_byte(0x68, 0x75)
    assert bus.read_byte(0x68) == 0x68
    assert bus.read_word_data(0x41, 0x00) == 0x9F39  # little-endian on SMBus
    bus.write_word_data(0x41, 0x05, 0x0010)  # 1000h in the chip's order
    assert bus.read_i2c_block_data(0x41, 0x05, 2) == [0x10, 0x00]
    assert bus.process_call(0x68, 0x75, 0) is not None
    bus.write_i2c_block_data(0x68, 0x1A, [3, 0x08, 0x10])
    assert bus.read_i2c_block_data(0x68, 0x1A, 3) == [3, 0x08, 0x10]
    bus.write_block_data(0x68, 0x1A, [1, 2])  # the length goes over the wire as well
    assert bus.read_i2c_block_data(0x68, 0x1A, 3) == [2, 1, 2]
    assert bus.read_block_data(0x68, 0x1A) == [1, 2]


def test_combined_transfers_fill_the_buffers_in_place(bus: smbus2.SMBus) -> None:
    pointer, answer = smbus2.i2c_msg.write(0x76, [0x88]), smbus2.i2c_msg.read(0x76, 24)
    bus.i2c_rdwr(pointer, answer)
    assert bytes(answer)[:2] == (27504).to_bytes(2, "little")
    a, b = smbus2.i2c_msg.read(0x68, 1), smbus2.i2c_msg.read(0x76, 1)
    bus.i2c_rdwr(
        smbus2.i2c_msg.write(0x68, [0x75]),
        smbus2.i2c_msg.write(0x76, [0xD0]),
        a,
        b,
    )
    assert (bytes(a), bytes(b)) == (b"\x68", b"\x58")
    bus.i2c_rdwr(smbus2.i2c_msg.write(0x68, [0x19, 4]))
    assert bus.read_byte_data(0x68, 0x19) == 4
    assert failure(bus.i2c_rdwr, smbus2.i2c_msg.read(0x77, 1)) == errno.EREMOTEIO
    assert failure(bus.i2c_rdwr, *[smbus2.i2c_msg.read(0x68, 1)] * 43) == errno.EINVAL


def test_a_bus_that_the_ship_does_not_have_does_not_exist(ship: Ship) -> None:
    with linux_devices(ship.electrical, clock=ship.clock):
        for path in ("/dev/i2c-0", "/dev/i2c-77", "/dev/ttyAMA7", "/dev/ttyUSB0", "/dev/serial0"):
            with pytest.raises(FileNotFoundError):
                os.open(path, os.O_RDWR)
        with pytest.raises(FileNotFoundError):
            smbus2.SMBus(3)
        with pytest.raises(serial.SerialException):
            serial.Serial("/dev/ttyUSB0", 9600)


def test_faults_of_the_bus(ship: Ship, bus: smbus2.SMBus) -> None:
    def failures(*addresses: int) -> list[int | None]:
        return [failure(bus.read_byte_data, address, 0x00) for address in addresses]

    ship.fault("baro", "no_answer")
    assert failures(0x76, 0x68) == [errno.EREMOTEIO, None]
    ship.fault("baro", "bus_stuck")
    fcntl.ioctl(bus.fd or -1, I2C_TIMEOUT, 1)
    assert failures(*ADDRESSES) == [errno.ETIMEDOUT] * 6
    ship.fault("baro", "clear")
    assert failures(*ADDRESSES) == [None] * 6
    ship.fault("imu", "garbage")
    reads = {tuple(bus.read_i2c_block_data(0x68, 0x3B, 14)) for _ in range(5)}
    assert len(reads) == 5
    ship.fault("imu", "wrong_identity")
    ship.fault("imu", "clear")
    ship.fault("imu", "wrong_identity")
    assert bus.read_byte_data(0x68, 0x75) != 0x68


def test_a_stuck_bus_keeps_its_caller_for_the_time_out_of_its_adapter(
    ship: Ship, bus: smbus2.SMBus
) -> None:
    """The kernel's is a second; a driver that sets none would cost a flight loop that."""
    ship.fault("baro", "bus_stuck")
    for units, expected_s in ((None, 1.0), (1, 0.01), (3, 0.03)):
        if units is not None:
            fcntl.ioctl(bus.fd or -1, I2C_TIMEOUT, units)
        began_s = ship.clock.now_s()
        assert failure(bus.read_byte_data, 0x76, 0x00) == errno.ETIMEDOUT
        took_s = ship.clock.now_s() - began_s
        assert expected_s - 1e-9 <= took_s < expected_s + 0.2


# --- serial -----------------------------------------------------------------------------------


def test_serial_ports_carry_lines_and_keep_quiet_while_closed() -> None:
    clock = ManualClock()
    world = World(airframe.load("twin"), clock=clock)
    with world, linux_devices(world, clock=clock):
        world.advance(1.0)
        with serial.Serial(TAG, 115200, timeout=0) as port:
            assert port.read(4096) == b""
            world.advance(1.0)
            lines = port.read(4096).splitlines()
            assert len(lines) == 10
            assert all(line.startswith(b"POS,") for line in lines)
            assert port.in_waiting == 0
        line = world.computer.lines[TAG]
        world.advance(1.0)
        assert line.dropped_bytes > 200
        with serial.Serial(TAG, 115200, timeout=0) as port:
            assert port.read(4096) == b""
            port.write(b"lep\r")  # the device hears it: its lines end
            world.advance(0.1)
            port.read(4096)
            world.advance(1.0)
            assert port.read(4096) == b""


def test_a_computer_without_pseudo_terminals_is_no_wiring(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(errno.ENOENT, "out of pty devices")

    monkeypatch.setattr(os, "openpty", none_left)
    with pytest.raises(ConfigError, match=f"{TAG}.*no pseudo-terminal.*out of pty devices"):
        Lockstep("twin", seed=1).close()


# --- coming and going ---------------------------------------------------------------------------


def patched() -> tuple[object, ...]:
    return (
        os.open,
        os.close,
        os.write,
        fcntl.ioctl,
        vars(smbus2_module)["ioctl"],
        sys.modules.get("RPi"),
        sys.modules.get("RPi.GPIO"),
    )


def test_everything_is_put_back_even_after_an_error() -> None:
    before = patched()
    clock = ManualClock()
    with World(airframe.load("twin"), clock=clock) as world:
        with linux_devices(world, clock=clock):
            assert patched() != before
            with linux_devices(world, clock=clock):
                assert smbus2.SMBus(1).read_byte_data(0x76, 0xD0) == 0x58
            assert smbus2.SMBus(1).read_byte_data(0x76, 0xD0) == 0x58
        assert patched() == before
        with pytest.raises(RuntimeError, match="boom"), linux_devices(world, clock=clock):
            raise RuntimeError("boom")
        assert patched() == before


def test_open_files_work_in_the_next_visit_and_not_between() -> None:
    clock = ManualClock()
    with World(airframe.load("twin"), clock=clock) as world:
        with linux_devices(world, clock=clock):
            bus = smbus2.SMBus(1)
            port = serial.Serial(TAG, 115200, timeout=0)
        assert failure(bus.read_byte_data, 0x76, 0xD0) == errno.ENOTTY
        with linux_devices(world, clock=clock):
            assert bus.read_byte_data(0x76, 0xD0) == 0x58
            world.advance(0.5)
            assert port.read(4096).startswith(b"POS,")
            port.close()
            bus.close()


def test_two_ships_in_one_process_do_not_mix() -> None:
    ships = [World(airframe.load("twin"), seed=seed) for seed in (1, 2)]
    clocks = [ManualClock(), ManualClock()]
    for world, clock in zip(ships, clocks, strict=True):
        world.clock = clock
    buses = []
    for world, clock in zip(ships, clocks, strict=True):
        with linux_devices(world, clock=clock):
            buses.append(smbus2.SMBus(1))
    ships[0].fault("baro", "wrong_identity")
    identities = []
    for world, clock, bus in zip(ships, clocks, buses, strict=True):
        with linux_devices(world, clock=clock):
            identities.append(bus.read_byte_data(0x76, 0xD0))
    # The inner ship hides the outer one, and the outer one is back afterwards.
    with linux_devices(ships[0], clock=clocks[0]):
        with linux_devices(ships[1], clock=clocks[1]):
            with linux_devices(ships[0], clock=clocks[0]):
                identities.append(buses[0].read_byte_data(0x76, 0xD0))
            identities.append(buses[1].read_byte_data(0x76, 0xD0))
        identities.append(buses[0].read_byte_data(0x76, 0xD0))
    assert identities == [0x61, 0x58, 0x61, 0x58, 0x61]
    for world in ships:
        world.close()
    for bus in buses:
        bus.close()


def test_what_is_no_device_passes_through(tmp_path: Path) -> None:
    clock = ManualClock()
    with World(airframe.load("twin"), clock=clock) as world, linux_devices(world, clock=clock):
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        assert os.write(fd, b"words") == 5
        os.close(fd)
        assert (tmp_path / "file").read_bytes() == b"words"
        master, slave = os.openpty()
        assert len(fcntl.ioctl(slave, termios.FIONREAD, bytes(4))) == 4
        os.close(master)
        os.close(slave)
        reused = os.open(os.devnull, os.O_RDWR)  # a number that a device may have had
        assert failure(fcntl.ioctl, reused, 0x0703, 0x68) == errno.ENOTTY
        os.close(reused)


def test_a_closed_port_whose_number_is_reused_gets_no_bytes(tmp_path: Path) -> None:
    clock = ManualClock()
    with World(airframe.load("twin"), clock=clock) as world:
        with linux_devices(world, clock=clock):
            fd = os.open(TAG, os.O_RDWR | os.O_NOCTTY)
        os.close(fd)  # behind the seam's back
        with (tmp_path / "log").open("wb", buffering=0) as log:
            assert log.fileno() == fd
            with linux_devices(world, clock=clock):
                os.write(fd, b"a line of the log")
        assert (tmp_path / "log").read_bytes() == b"a line of the log"
