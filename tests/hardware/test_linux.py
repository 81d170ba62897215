"""LinuxBuses on what any Linux machine has: a pseudo-terminal, and no I2C bus or GPIO."""

import fcntl
import os
import struct
import sys
import termios
from collections.abc import Iterator

import pytest

from blimp.clock import ManualClock
from blimp.errors import BusError
from blimp.hardware.linux import LinuxBuses, LinuxSerial


@pytest.fixture
def buses() -> Iterator[LinuxBuses]:
    with LinuxBuses(clock=ManualClock()) as opened:
        yield opened


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    controller, device = os.openpty()
    yield controller, os.ttyname(device)
    os.close(device)
    os.close(controller)


@pytest.mark.timeout(20)
def test_a_full_port_refuses_a_frame_whole_and_never_waits(
    buses: LinuxBuses, terminal: tuple[int, str]
) -> None:
    controller, path = terminal
    port = buses.serial(path, 115200)
    os.set_blocking(controller, False)
    sent, arrived, refused = 0, b"", []
    for number in range(1000):
        try:
            port.write(bytes([number % 251]) * 61)  # no divisor of what a terminal holds
            sent += 1
        except BusError as error:
            refused.append(str(error))
            arrived += os.read(controller, 1000)
    for _ in range(100):
        port.read_available()  # goes on with a rest as well
        try:
            arrived += os.read(controller, 100_000)
        except BlockingIOError:
            break
    assert len(refused) > 5
    assert set(refused) == {f"serial port {path}: full: 61 bytes are not sent"}
    assert len(arrived) == 61 * sent
    assert all(len(set(arrived[k : k + 61])) == 1 for k in range(0, len(arrived), 61))


def test_the_baud_rate_is_set(buses: LinuxBuses, terminal: tuple[int, str]) -> None:
    controller, path = terminal
    buses.serial(path, 9600)
    assert termios.tcgetattr(controller)[4] == termios.B9600


def test_a_port_that_hangs_up_is_a_bus_error(buses: LinuxBuses) -> None:
    controller, device = os.openpty()
    path = os.ttyname(device)
    port = buses.serial(path, 115200)
    os.close(device)
    os.close(controller)
    with pytest.raises(BusError, match=path):
        port.read_available()


def test_a_closed_port_is_a_bus_error(buses: LinuxBuses, terminal: tuple[int, str]) -> None:
    _, path = terminal
    port = buses.serial(path, 115200)
    assert isinstance(port, LinuxSerial)
    descriptor, port._port.fd = port._port.fd, None  # as pyserial's close leaves it for a moment
    with pytest.raises(BusError, match=path):
        port.write(b"lep")
    port._port.fd = descriptor
    port.close()
    with pytest.raises(BusError, match=path):
        port.read_available()


@pytest.mark.parametrize("path", ["/dev/no-such-port", "/dev/null"])
def test_what_is_no_port_is_named(buses: LinuxBuses, path: str) -> None:
    with pytest.raises(BusError, match=path):
        buses.serial(path, 115200)


@pytest.mark.parametrize("name", ["i2c", "i2c-one", "gpio", "", "i2c-1 "])
def test_what_is_no_bus_name_is_refused(buses: LinuxBuses, name: str) -> None:
    with pytest.raises(BusError, match="must look like i2c-1"):
        buses.i2c(name)


def test_a_pin_without_rpi_gpio_is_named(
    buses: LinuxBuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "RPi", None)
    for opened in (lambda: buses.digital(17), lambda: buses.pwm(17, 100.0)):
        with pytest.raises(BusError, match="GPIO 17"):
            opened()
    with pytest.raises(BusError, match="GPIO 23"):
        buses.echo(23, 24)


def test_an_spi_message_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """uapi/linux/spi/spidev.h: one ioctl, two transfers of 32 bytes, the pause after the first."""
    requests: list[tuple[int, bytes]] = []
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda _path, flags: real_open(os.devnull, flags))
    monkeypatch.setattr(fcntl, "ioctl", lambda _fd, request, data: requests.append((request, data)))
    with LinuxBuses(clock=ManualClock()) as buses:
        chip = buses.spi("spi-0.1", mode=3, speed_hz=2_000_000)
        chip.exchange(b"\x16", 12, pause_s=35e-6)
    (mode, speed, message) = requests
    assert mode == (0x40016B01, b"\x03")
    assert speed == (0x40046B04, (2_000_000).to_bytes(4, sys.byteorder))
    assert message[0] == 0x40406B00
    form = struct.Struct("@QQIIHBBBBBB")
    first, second = form.iter_unpack(message[1])
    assert first[0] != 0
    assert first[1:] == (0, 1, 2_000_000, 35, 0, 0, 0, 0, 0, 0)
    assert second[0] == 0
    assert second[1] != 0
    assert second[2:] == (12, 2_000_000, 0, 0, 0, 0, 0, 0, 0)
