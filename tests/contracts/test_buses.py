"""What drivers may rely on of `blimp.hardware.bus`, on every implementation of it."""

import math
from collections.abc import Callable, Iterator

import pytest

from blimp.errors import BusError
from blimp.hardware.linux import LinuxBuses
from blimp.sim.seam import linux_devices
from tests.contracts.machines import MACHINES, Machine, lockstep
from tests.contracts.rows import ship

IMU, BARO, SERVOS, POWER, NOBODY = 0x68, 0x76, 0x40, 0x41, 0x23
FREE_PIN, MOTOR_PIN = 5, 6
TRIGGER, ECHO = 23, 24
TAG_PORT, TAG_BAUD = "/dev/ttyAMA0", 115200


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with MACHINES[request.param]() as made:
        yield made


# --- I2C -----------------------------------------------------------------------------------


def test_what_is_written_reads_back(machine: Machine) -> None:
    bus = machine.buses.i2c("i2c-1")
    bus.write(SERVOS, 0x00, b"\x20")  # auto-increment, awake
    for data in (b"\x01", b"\x01\x02\x03\x04", bytes(range(12))):
        bus.write(SERVOS, 0x06, data)
        assert bus.read(SERVOS, 0x06, len(data)) == data
    bus.write(POWER, 0x05, b"\x50\x00")
    assert bus.read(POWER, 0x05, 2) == b"\x50\x00"


@pytest.mark.parametrize("length", [0, 33, -1])
def test_a_read_of_another_length_is_refused(machine: Machine, length: int) -> None:
    with pytest.raises(ValueError, match="1 to 32"):
        machine.buses.i2c("i2c-1").read(BARO, 0x88, length)


@pytest.mark.parametrize("data", [b"", bytes(32)])
def test_a_write_of_another_length_is_refused(machine: Machine, data: bytes) -> None:
    with pytest.raises(ValueError, match="1 to 31"):
        machine.buses.i2c("i2c-1").write(SERVOS, 0x06, data)


def test_no_answer_names_bus_and_address_and_the_next_transfer_is_well(machine: Machine) -> None:
    bus = machine.buses.i2c("i2c-1")
    with pytest.raises(BusError, match=r"i2c-1 address 0x23"):
        bus.read(NOBODY, 0x00, 1)
    with pytest.raises(BusError, match=r"i2c-1 address 0x23"):
        bus.write(NOBODY, 0x00, b"\x00")
    with pytest.raises(BusError, match=r"i2c-1 address 0x23"):
        bus.read16(NOBODY, 0x010F, 2)
    with pytest.raises(BusError, match=r"i2c-1 address 0x23"):
        bus.write16(NOBODY, 0x0087, b"\x40")
    assert bus.read(IMU, 0x75, 1) == b"\x68"


def test_sixteen_bit_pointers_go_out_big_endian(machine: Machine) -> None:
    bus = machine.buses.i2c("i2c-1")
    bus.write(SERVOS, 0x00, b"\x20")
    # On a chip with 8-bit pointers the second byte is data: pointer 0x06, value 0x12, then 0x34.
    bus.write16(SERVOS, 0x0612, b"\x04")
    assert bus.read(SERVOS, 0x06, 2) == b"\x12\x04"
    assert len(bus.read16(SERVOS, 0x0612, 3)) == 3


def test_a_command_is_one_byte_on_the_wire(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bytes, int]] = []

    def transfer(_bus: int, address: int, data: bytes, length: int) -> bytes:
        seen.append((address, data, length))
        return bytes(length)

    monkeypatch.setattr(machine.world.electronics, "i2c", transfer)
    machine.buses.i2c("i2c-1").command(BARO, 0x1E)
    assert seen == [(BARO, b"\x1e", 0)]
    monkeypatch.undo()
    with pytest.raises(BusError, match="i2c-1 address 0x23"):
        machine.buses.i2c("i2c-1").command(NOBODY, 0x1E)


def test_a_closed_bus_is_an_error_not_a_surprise(machine: Machine) -> None:
    bus = machine.buses.i2c("i2c-1")
    bus.read(IMU, 0x75, 1)
    bus.close()
    bus.close()
    calls: list[Callable[[], object]] = [
        lambda: bus.read(IMU, 0x75, 1),
        lambda: bus.read(BARO, 0xD0, 1),
        lambda: bus.read16(IMU, 0x75, 1),
    ]
    for call in calls:
        with pytest.raises(BusError, match="i2c-1"):
            call()
    assert machine.buses.i2c("i2c-1").read(IMU, 0x75, 1) == b"\x68"


# --- pins ----------------------------------------------------------------------------------


def test_closing_a_digital_output_drives_it_low_and_gives_it_back(machine: Machine) -> None:
    pin = machine.buses.digital(FREE_PIN)
    pin.write(True)
    pin.close()
    pin.close()
    assert machine.high(FREE_PIN) == 0.0
    with pytest.raises(BusError, match=f"GPIO {FREE_PIN}"):
        pin.write(True)
    machine.buses.pwm(FREE_PIN, 100.0)


def test_pwm_starts_at_nothing_and_follows(machine: Machine) -> None:
    pin = machine.buses.pwm(MOTOR_PIN, 200.0)
    assert machine.high(MOTOR_PIN) == 0.0
    for fraction in (0.25, 1.0, 0.0, 0.001):
        pin.duty(fraction)
        assert machine.high(MOTOR_PIN) == pytest.approx(fraction)


@pytest.mark.parametrize("fraction", [-0.01, 1.01, math.nan, math.inf])
def test_a_duty_out_of_range_is_refused_and_changes_nothing(
    machine: Machine, fraction: float
) -> None:
    pin = machine.buses.pwm(MOTOR_PIN, 200.0)
    pin.duty(0.5)
    with pytest.raises(ValueError, match="outside 0 to 1"):
        pin.duty(fraction)
    assert machine.high(MOTOR_PIN) == 0.5


def test_closing_pwm_drives_it_low_and_gives_it_back(machine: Machine) -> None:
    pin = machine.buses.pwm(MOTOR_PIN, 200.0)
    pin.duty(1.0)
    pin.close()
    pin.close()
    assert machine.high(MOTOR_PIN) == 0.0
    with pytest.raises(BusError, match=f"GPIO {MOTOR_PIN}"):
        pin.duty(0.5)
    machine.buses.digital(MOTOR_PIN)


def test_hardware_pwm_sends_pulses_of_an_exact_width() -> None:
    with lockstep(ship("esc-pwm")) as machine:
        pulses = machine.buses.pulses("pwm-0", 1, 50.0)
        wire = machine.world.electronics.pins
        assert wire.pulse_s(19) is None, "no pulses at first"
        for width_s in (0.001, 0.0015, 0.001503):
            pulses.pulse(width_s)
            assert wire.pulse_s(19) == pytest.approx(width_s, abs=1e-9)
        for wrong in (-0.001, 0.021, math.nan):
            with pytest.raises(ValueError):  # noqa: PT011 - NaN has words of Python's own
                pulses.pulse(wrong)
        assert wire.pulse_s(19) == pytest.approx(0.001503)
        with pytest.raises(BusError, match="pwm-0 channel 1 is already open"):
            machine.buses.pulses("pwm-0", 1, 50.0)
        pulses.close()
        pulses.close()
        assert wire.pulse_s(19) is None
        with pytest.raises(BusError, match="pwm-0 channel 1 is closed"):
            pulses.pulse(0.001)
        machine.buses.pulses("pwm-0", 1, 400.0).pulse(0.002)
        assert wire.pulse_s(19) == pytest.approx(0.002)


def test_pulses_go_on_when_their_process_dies_and_the_next_one_stops_them() -> None:
    with lockstep(ship("esc-pwm")) as machine:
        machine.buses.pulses("pwm-0", 0, 50.0).pulse(0.0018)
        world, wire = machine.world, machine.world.electronics.pins
        old, world.computer = world.computer, None
        assert wire.pulse_s(18) == pytest.approx(0.0018)
        with (
            linux_devices(world, clock=machine.clock),
            LinuxBuses(clock=machine.clock) as buses,
        ):
            buses.pulses("pwm-0", 0, 50.0)
            assert wire.pulse_s(18) is None
        world.computer = old


def test_spi_keeps_the_chip_selected_from_address_to_data() -> None:
    with lockstep(ship("pmw3901")) as machine:
        chip = machine.buses.spi("spi-0.0", mode=3, speed_hz=2_000_000)
        assert chip.name == "spi-0.0"
        assert chip.exchange(b"\x00", 1, pause_s=35e-6) == b"\x49"
        assert chip.exchange(b"\xff\x07", 0) == b""  # bank 7, where no identity is
        assert chip.exchange(b"\x00", 1) == b"\x00"
        assert len(chip.exchange(b"\x16", 12)) == 12
        with pytest.raises(BusError, match=r"spi-0.0 is already open"):
            machine.buses.spi("spi-0.0", mode=3, speed_hz=2_000_000)
        for out, length in ((b"", 1), (bytes(4097), 0), (b"\x00", -1), (b"\x00", 4097)):
            with pytest.raises(ValueError, match="1 to 4096"):
                chip.exchange(out, length)
        machine.world.fault("flow", "no_answer")
        assert chip.exchange(b"\x00", 2) == b"\xff\xff", "nobody drives the wire"
        chip.close()
        chip.close()
        with pytest.raises(BusError, match=r"spi-0.0 is closed"):
            chip.exchange(b"\x00", 1)
        machine.buses.spi("spi-0.0", mode=3, speed_hz=2_000_000)


def test_a_pin_is_opened_once(machine: Machine) -> None:
    machine.buses.digital(FREE_PIN)
    machine.buses.echo(TRIGGER, ECHO)
    openings: list[Callable[[], object]] = [
        lambda: machine.buses.digital(FREE_PIN),
        lambda: machine.buses.pwm(FREE_PIN, 100.0),
        lambda: machine.buses.digital(TRIGGER),
        lambda: machine.buses.digital(ECHO),
    ]
    for open_again in openings:
        with pytest.raises(BusError, match="already open"):
            open_again()


@pytest.mark.parametrize("pin", [-1, 28, 99])
def test_a_pin_that_is_not_there(machine: Machine, pin: int) -> None:
    with pytest.raises(BusError, match=f"GPIO {pin}"):
        machine.buses.digital(pin)


# --- echo ----------------------------------------------------------------------------------


def test_a_trigger_brings_one_pulse_with_its_end_and_width(machine: Machine) -> None:
    echo = machine.buses.echo(TRIGGER, ECHO)
    assert list(echo.take_pulses()) == []
    started_s = machine.clock.now_s()
    echo.trigger()
    machine.run(0.06)
    ((end_s, width_s),) = echo.take_pulses()
    assert 0.0 < width_s < 0.04
    assert started_s < end_s - width_s < end_s < started_s + 0.06
    assert list(echo.take_pulses()) == []


def test_a_closed_echo_is_silent(machine: Machine) -> None:
    echo = machine.buses.echo(TRIGGER, ECHO)
    echo.trigger()
    echo.close()
    echo.close()
    machine.run(0.06)
    assert list(echo.take_pulses()) == []
    with pytest.raises(BusError, match=f"GPIO {TRIGGER}"):
        echo.trigger()
    machine.buses.echo(TRIGGER, ECHO)


# --- serial --------------------------------------------------------------------------------


def test_bytes_arrive_and_reading_never_waits(machine: Machine) -> None:
    port = machine.buses.serial(TAG_PORT, TAG_BAUD)
    machine.run(1.0)
    data = port.read_available()
    assert data.count(b"POS,") >= 8
    assert port.read_available() == b""
    assert port.name == TAG_PORT


def test_a_port_is_opened_once_and_again_after_it_was_closed(machine: Machine) -> None:
    port = machine.buses.serial(TAG_PORT, TAG_BAUD)
    with pytest.raises(BusError, match="already open"):
        machine.buses.serial(TAG_PORT, TAG_BAUD)
    port.close()
    port.close()
    with pytest.raises(BusError, match=TAG_PORT):
        port.read_available()
    again = machine.buses.serial(TAG_PORT, TAG_BAUD)
    machine.run(1.0)
    assert b"POS," in again.read_available()


# --- all -----------------------------------------------------------------------------------


def test_closing_all_lowers_every_pin_and_can_be_repeated(machine: Machine) -> None:
    machine.buses.digital(FREE_PIN).write(True)
    machine.buses.pwm(MOTOR_PIN, 100.0).duty(1.0)
    machine.buses.i2c("i2c-1")
    machine.buses.echo(TRIGGER, ECHO)
    machine.buses.serial(TAG_PORT, TAG_BAUD)
    machine.buses.close()
    machine.buses.close()
    assert machine.high(FREE_PIN) == machine.high(MOTOR_PIN) == 0.0
    machine.buses.digital(FREE_PIN)
