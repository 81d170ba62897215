"""The real-time world: several clients, bad clients, clients and worlds that vanish."""

import errno
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp import airframe
from blimp.clock import ManualClock, SystemClock
from blimp.errors import ConfigError
from blimp.hardware.board import open_board
from blimp.hardware.linux import LinuxBuses
from blimp.sim import wire
from blimp.sim.electrical import Pull
from blimp.sim.remote import RemoteWorld
from blimp.sim.seam import linux_devices
from blimp.sim.server import Server, serve
from blimp.sim.world import World
from blimp.types import ActuatorCommand
from tests.contracts.rows import ship
from tests.directory import socket_directory
from tests.repeating import until
from tests.sim.served import running, served_world

DEADLINE_S = 60.0


@pytest.fixture
def path() -> Iterator[Path]:
    with served_world() as served:
        yield served


@pytest.fixture
def remote(path: Path) -> Iterator[RemoteWorld]:
    with RemoteWorld(path) as world:
        yield world


def start_motor(world: RemoteWorld) -> None:
    for pin in (6, 13, 12):
        world.pin_mode(pin, output=True, pull=Pull.OFF)
    world.pin_write(12, True, held_s=0.0)
    world.pin_pwm(6, 0.5, frequency_hz=100.0)


def test_the_world_runs_in_real_time(remote: RemoteWorld) -> None:
    began_s, world_began_s = time.monotonic(), remote.truth().t_s

    def ahead_s() -> float:
        return remote.truth().t_s - world_began_s - (time.monotonic() - began_s)

    until(lambda: remote.truth().t_s - world_began_s > 0.4)
    assert ahead_s() < 0.05
    until(lambda: ahead_s() > -0.05)  # it comes after, if the machine made it late


def test_the_socket_is_its_users_alone(path: Path) -> None:
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_motors_outlive_the_client_that_started_them(path: Path) -> None:
    with RemoteWorld(path) as pilot, RemoteWorld(path) as observer:
        start_motor(pilot)
        assert pilot.outputs()["left"] == 0.5
        pilot.close()
        assert observer.outputs()["left"] == 0.5
        assert observer.pin_is_output(6)
        observer.pin_mode(6, output=False, pull=Pull.OFF)
        assert observer.outputs()["left"] == 0.0


def test_clients_see_one_world(path: Path) -> None:
    with RemoteWorld(path) as one, RemoteWorld(path) as other:
        one.i2c(1, 0x68, b"\x19\x07", 0)
        assert other.i2c(1, 0x68, b"\x19", 1) == b"\x07"
        one.fault("imu", "no_answer")
        with pytest.raises(OSError, match="Remote I/O") as raised:
            other.i2c(1, 0x68, b"\x19", 1)
        assert raised.value.errno == errno.EREMOTEIO
        other.fault("imu", "clear")
        assert one.i2c(1, 0x68, b"\x75", 1) == b"\x68"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",  # a frame of 4 GiB
        struct.pack("<I", 3) + b"\xc1\xc1\xc1",  # no msgpack
        struct.pack("<I", 2) + b"\x91\x63",  # no such request
        wire.frame(wire.PinRead(99)),  # no such pin
        wire.frame(wire.PinPwm(6, float("nan"), 50.0)),
        wire.frame(wire.I2cTransfer(1, 300, b"", 1)),
        wire.frame(wire.I2cTransfer(1, 0x68, b"", 10**9)),
    ],
)
def test_a_client_that_talks_nonsense_is_hung_up_on(path: Path, garbage: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, RemoteWorld(path) as good:
        client.settimeout(DEADLINE_S)
        client.connect(os.fspath(path))
        client.sendall(garbage)
        assert client.recv(100) == b""
        assert good.i2c(1, 0x68, b"\x75", 1) == b"\x68"


def test_frames_may_come_in_pieces(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(DEADLINE_S)
        client.connect(os.fspath(path))
        whole = wire.frame(wire.I2cTransfer(1, 0x68, b"\x75", 1))
        for i in range(len(whole)):
            client.sendall(whole[i : i + 1])
        buffer = wire.FrameBuffer()
        bodies: list[bytes] = []
        while not bodies:
            bodies = buffer.feed(client.recv(1))
        assert wire.decode_reply(bodies[0]) == wire.Data(b"\x68")


def test_a_client_that_never_reads_stops_nobody(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf, RemoteWorld(path) as good:
        deaf.connect(os.fspath(path))
        deaf.setblocking(False)
        ask = wire.frame(wire.I2cTransfer(1, 0x68, b"\x00", 128)) * 100

        def hung_up() -> bool:
            try:
                deaf.send(ask)
            except BlockingIOError:
                pass
            except OSError:
                return True
            return good.i2c(1, 0x68, b"\x75", 1) != b"\x68"

        until(hung_up)
        assert good.i2c(1, 0x68, b"\x75", 1) == b"\x68"


def test_a_world_that_is_gone_is_a_dead_bus_and_comes_back() -> None:
    clock = SystemClock()
    ship = airframe.load("twin")
    with socket_directory() as directory, RemoteWorld(directory / "w.sock") as remote:
        path = directory / "w.sock"
        with pytest.raises(OSError, match="Remote I/O"):
            remote.i2c_buses()
        with running(serve(World(ship), socket_path=path, clock=clock)):
            assert remote.i2c(1, 0x68, b"\x75", 1) == b"\x68"
            start_motor(remote)
            heard: list[bytes] = []
            remote.serial_listen("/dev/ttyAMA0", heard.append)
            until(lambda: bool(heard))
        assert not path.exists()
        begin_s = time.monotonic()
        for call in (
            lambda: remote.i2c(1, 0x68, b"\x75", 1),
            lambda: remote.pin_write(12, True, held_s=0.0),
            lambda: remote.truth(),
            lambda: remote.outputs(),
        ):
            with pytest.raises(OSError, match="Remote I/O") as raised:
                call()
            assert raised.value.errno == errno.EREMOTEIO
        assert time.monotonic() - begin_s < DEADLINE_S
        with running(serve(World(ship), socket_path=path, clock=clock)):
            # The computer's pins were never let go: the new world sees what they drive.
            assert remote.outputs()["left"] == 0.5
            heard.clear()
            until(lambda: bool(heard))


def test_a_world_that_hangs_costs_no_more_than_its_time_out() -> None:
    world = World(airframe.load("twin"))
    with (
        socket_directory() as directory,
        Server(world, socket_path=directory / "w.sock", clock=SystemClock()),  # never run
        RemoteWorld(directory / "w.sock") as remote,
    ):
        begin_s = time.monotonic()
        with pytest.raises(OSError, match="Remote I/O"):
            remote.i2c(1, 0x68, b"\x75", 1)
        assert 0.1 < time.monotonic() - begin_s < DEADLINE_S


def test_one_socket_has_one_world_and_a_killed_ones_is_taken_over() -> None:
    ship = airframe.load("twin")
    with socket_directory() as directory:
        path = directory / "w.sock"
        with Server(World(ship), socket_path=path, clock=SystemClock()) as first:
            with pytest.raises(ConfigError, match="another world already answers at"):
                Server(World(ship), socket_path=path, clock=SystemClock())
            first.close()
            first.close()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
            stale.bind(os.fspath(path))
        with Server(World(ship), socket_path=path, clock=SystemClock()):
            assert path.exists()
        assert not path.exists()
        with pytest.raises(ConfigError, match="the kernel's limit is 107"):
            Server(World(ship), socket_path=directory / ("x" * 120), clock=SystemClock())


def test_a_stall_is_caught_up_with_up_to_a_quarter_of_a_second() -> None:
    clock = ManualClock()
    world = World(airframe.load("twin"))
    with (
        socket_directory() as directory,
        running(Server(world, socket_path=directory / "w.sock", clock=clock)) as server,
        RemoteWorld(directory / "w.sock") as remote,
    ):
        remote.truth()  # it runs
        clock.advance(0.2)
        until(lambda: remote.truth().t_s > 0.195)
        assert server.lost_s == 0.0
        clock.advance(10.0)
        until(lambda: remote.truth().t_s > 0.44)
        assert remote.truth().t_s < 0.46
        assert server.lost_s == pytest.approx(9.75, abs=0.01)


def test_every_kind_of_bus_reaches_the_drivers_in_another_process() -> None:
    """A 16-bit and a command chip on I2C, SPI, hardware PWM, and two talkers on serial ports."""
    fitted = ship("vl53l1x", "ms5611", "pmw3901", "esc-pwm", "bno055", "gps-ubx")
    clock = SystemClock()
    with (
        served_world(ship=fitted) as path,
        RemoteWorld(path, clock=clock) as remote,
        linux_devices(remote, clock=clock),
        LinuxBuses(clock=clock) as buses,
        open_board(fitted, buses=buses, clock=clock) as board,
    ):

        def well() -> bool:
            board.read(clock.now_s())
            return not board.unhealthy

        until(well)
        board.actuators.enable()

        def driven() -> bool:
            board.read(clock.now_s())
            board.actuators.drive(ActuatorCommand(motors=(0.5, -0.5, 0.25), servos=(0.0,) * 3))
            outputs = remote.outputs()
            return abs(outputs["left"] - 0.5) < 0.01 and abs(outputs["right"] + 0.5) < 0.01

        until(driven)
        assert board.actuators.safe() == ()
        until(lambda: remote.outputs()["left"] == remote.outputs()["right"] == 0.0)
