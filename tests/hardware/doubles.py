"""Byte-level doubles of the bus protocols: register arrays and pins, no chip behaviour."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from blimp.airframe import Device as Row
from blimp.errors import BusError
from blimp.hardware.device import Device, Output
from tests.hardware.ships import with_devices

D = TypeVar("D", bound=Device)
A = TypeVar("A", bound=Output)
C = TypeVar("C", bound="RegisterChip")


def well(device: Device) -> bool:
    """Ask again: a type checker takes an attribute for what an earlier assert said of it."""
    return device.healthy


def polled(device: Device, times: int, *, start_s: float = 0.0, every_s: float = 0.01) -> float:
    """Poll a device so many times; return the time of the next poll, in seconds."""
    for step in range(times):
        device.poll(start_s + every_s * step)
    return start_s + every_s * times


def poll_until(device: Device, end_s: float, start_s: float = 0.0) -> None:
    polled(device, round((end_s - start_s) * 100) + 1, start_s=start_s)


class RegisterChip:
    """256 byte registers that keep what is written; reads and writes increment."""

    def __init__(self, registers: dict[int, bytes] | None = None) -> None:
        self.memory = bytearray(512)
        self.writes: list[tuple[int, bytes]] = []
        self.on_write: Callable[[int, bytes], None] = lambda register, data: None
        for register, data in (registers or {}).items():
            self.set(register, data)

    def set(self, register: int, data: bytes) -> None:
        self.memory[register : register + len(data)] = data

    def read(self, register: int, length: int) -> bytes:
        return bytes(self.memory[register : register + length])

    def write(self, register: int, data: bytes) -> None:
        self.writes.append((register, data))
        self.set(register, data)
        self.on_write(register, data)

    def cut_once(self, register: int, whole: int) -> None:
        """Answer the next read of `register` with so many bytes of it, and zeros behind them."""
        read, cut = self.read, [register]

        def partial(register: int, length: int) -> bytes:
            data = read(register, length)
            if register not in cut:
                return data
            cut.clear()
            return data[:whole].ljust(length, b"\0")

        self.read = partial  # type: ignore[method-assign]

    def command(self, command: int) -> None:
        raise BusError(f"no command {command} here")


class WideChip(RegisterChip):
    """One with 16-bit register numbers."""


class CommandChip(RegisterChip):
    """Answers by command, not by memory."""

    def __init__(self, answers: dict[int, bytes]) -> None:
        super().__init__()
        self.answers = dict(answers)
        self.commands: list[int] = []

    def read(self, register: int, length: int) -> bytes:
        return self.answers.get(register, b"")[:length].ljust(length, b"\0")

    def command(self, command: int) -> None:
        self.commands.append(command)


class WordChip(RegisterChip):
    """16-bit big-endian registers, no increment, as the INA219 has."""

    def __init__(self, words: dict[int, int]) -> None:
        super().__init__()
        self.words = dict(words)

    def read(self, register: int, length: int) -> bytes:
        return self.words.get(register, 0).to_bytes(2, "big")[:length]

    def write(self, register: int, data: bytes) -> None:
        self.writes.append((register, data))
        self.words[register] = int.from_bytes(data, "big")
        self.on_write(register, data)


class RegisterBus:
    """An I2CBus of such chips. An address that is absent or in `dead` gives BusError."""

    def __init__(self, name: str = "i2c-1") -> None:
        self.name = name
        self.chips: dict[int, RegisterChip] = {}
        self.dead: set[int] = set()

    def _chip(self, address: int) -> RegisterChip:
        if address in self.dead or address not in self.chips:
            raise BusError(f"{self.name} address 0x{address:02X}: no answer")
        return self.chips[address]

    def read(self, address: int, register: int, length: int) -> bytes:
        assert 1 <= length <= 32
        return self._chip(address).read(register, length)

    def write(self, address: int, register: int, data: bytes) -> None:
        assert 1 <= len(data) <= 31
        self._chip(address).write(register, bytes(data))

    def command(self, address: int, command: int) -> None:
        self._chip(address).command(command)

    def read16(self, address: int, register: int, length: int) -> bytes:
        assert 1 <= length <= 32
        return self._wide(address).read(register, length)

    def write16(self, address: int, register: int, data: bytes) -> None:
        assert 1 <= len(data) <= 31
        self._wide(address).write(register, bytes(data))

    def _wide(self, address: int) -> RegisterChip:
        chip = self._chip(address)
        if not isinstance(chip, WideChip):
            raise BusError("no 16-bit chip here")
        return chip

    def close(self) -> None:
        pass


class Pin:
    """A digital or PWM output. `level` is its share of time high."""

    def __init__(self, buses: "Doubles", number: int) -> None:
        self.number = number
        self.level = 0.0
        self.is_open = True
        self._buses = buses

    def write(self, high: bool) -> None:
        self._set(float(high))

    def duty(self, fraction: float) -> None:
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"duty {fraction!r}")
        self._set(fraction)

    def close(self) -> None:
        self.level = 0.0
        self.is_open = False
        self._buses.pins.pop(self.number, None)

    def _set(self, level: float) -> None:
        if self.number in self._buses.dead_pins:
            raise BusError(f"GPIO {self.number}: no answer")
        self.level = level
        self._buses.levels.append((self.number, level))


class Pulses:
    """A channel of hardware PWM. `width_s` is 0 without pulses."""

    def __init__(self, buses: "Doubles", channel: int) -> None:
        self.width_s = 0.0
        self.is_open = True
        self._channel = channel
        self._buses = buses

    def pulse(self, width_s: float) -> None:
        if self._channel in self._buses.dead_channels:
            raise BusError(f"pwm-0 channel {self._channel}: no answer")
        self.width_s = width_s
        self._buses.widths.append((self._channel, width_s))

    def close(self) -> None:
        self.width_s = 0.0
        self.is_open = False


class Spi:
    """A chip on SPI. `answer` makes the bytes read from the bytes sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[bytes] = []
        self.dead = False
        self.is_open = True
        self.answer: Callable[[bytes, int], bytes] = lambda out, length: bytes(length)

    def exchange(self, out: bytes, length: int, *, pause_s: float = 0.0) -> bytes:
        assert pause_s <= 1e-3
        if self.dead:
            raise BusError(f"{self.name}: gone")
        self.sent.append(out)
        return self.answer(out, length)

    def close(self) -> None:
        self.is_open = False


class Echo:
    def __init__(self) -> None:
        self.triggers = 0
        self.pulses: list[tuple[float, float]] = []
        self.is_open = True

    def trigger(self) -> None:
        self.triggers += 1

    def take_pulses(self) -> Sequence[tuple[float, float]]:
        taken, self.pulses = self.pulses, []
        return taken

    def close(self) -> None:
        self.is_open = False


class Port:
    """A serial port fed by `arrive`."""

    def __init__(self, name: str, baud: int, framing: str = "8N1") -> None:
        self.name = name
        self.framing = framing
        self.baud = baud
        self.written = b""
        self.dead = False
        self.is_open = True
        self._waiting = b""

    def arrive(self, data: bytes) -> None:
        self._waiting += data

    def read_available(self) -> bytes:
        if self.dead:
            raise BusError(f"serial port {self.name}: gone")
        data, self._waiting = self._waiting, b""
        return data

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_open = False


class Messages:
    """A socket, with what a test puts on it."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def receive(self) -> list[bytes]:
        found, self.waiting = self.waiting, []
        return found

    def close(self) -> None:
        self.waiting.clear()


class Doubles:
    """All of them behind `Buses`."""

    def __init__(self) -> None:
        self.bus = RegisterBus()
        self.pins: dict[int, Pin] = {}
        self.dead_pins: set[int] = set()
        self.levels: list[tuple[int, float]] = []  # every level set, in order
        self.spi_chips: dict[str, Spi] = {}
        self.pulse_outputs: dict[int, Pulses] = {}
        self.widths: list[tuple[int, float]] = []  # every pulse width set, in order
        self.dead_channels: set[int] = set()
        self.echoes: dict[tuple[int, int], Echo] = {}
        self.ports: dict[str, Port] = {}
        self.opened_ports = 0
        self.messages: dict[str, Messages] = {}
        self.missing: set[str] = set()

    def i2c(self, bus: str) -> RegisterBus:
        if bus in self.missing:
            raise BusError(f"{bus}: no such bus")
        return self.bus

    def digital(self, pin: int) -> Pin:
        if pin in self.pins:
            raise BusError(f"GPIO {pin} is already open")
        if pin in self.dead_pins:
            raise BusError(f"GPIO {pin}: no answer")
        self.pins[pin] = Pin(self, pin)
        return self.pins[pin]

    def pwm(self, pin: int, frequency_hz: float) -> Pin:
        assert frequency_hz > 0.0
        return self.digital(pin)

    def spi(self, device: str, *, mode: int, speed_hz: int) -> Spi:
        if device in self.missing:
            raise BusError(f"{device}: no such file")
        assert mode in range(4)
        assert speed_hz > 0
        return self.spi_chips.setdefault(device, Spi(device))

    def pulses(self, bus: str, channel: int, frequency_hz: float) -> Pulses:
        if bus in self.missing:
            raise BusError(f"{bus} channel {channel}: no such file")
        self.pulse_outputs[channel] = Pulses(self, channel)
        return self.pulse_outputs[channel]

    def echo(self, trigger_pin: int, echo_pin: int) -> Echo:
        self.echoes[trigger_pin, echo_pin] = Echo()
        return self.echoes[trigger_pin, echo_pin]

    def serial(self, port: str, baud: int, *, framing: str = "8N1") -> Port:
        if port in self.missing:
            raise BusError(f"serial port {port}: no such file")
        self.opened_ports += 1
        self.ports[port] = Port(port, baud, framing)
        return self.ports[port]

    def datagrams(self, name: str) -> "Messages":
        return self.messages.setdefault(name, Messages())

    def close(self) -> None:
        pass


def on_i2c(kind: type[D], registers: C, /, **row: Any) -> tuple[D, C, Doubles]:
    """Return a driver that was not polled yet, its chip at the row's address, and the buses."""
    buses, fitted = Doubles(), Row(bus="i2c-1", **row)
    assert fitted.address is not None
    buses.bus.chips[fitted.address] = registers
    return kind(row=fitted, buses=buses), registers, buses


def on_port(
    kind: type[D], /, *, port: str, polls: int = 2, every_s: float = 0.0, **row: Any
) -> tuple[D, Port, Doubles]:
    """Return a driver after so many polls, by which its serial port is open, and the buses."""
    buses = Doubles()
    device = kind(row=Row(bus="serial", port=port, **row), buses=buses)
    polled(device, polls, every_s=every_s)
    return device, buses.ports[port], buses


def on_pins(
    kind: type[A], outputs: Mapping[str, str], pins: Mapping[str, int], /, *, chip: str, polls: int
) -> tuple[A, Doubles]:
    """Return the twin's motors on these pins after so many polls, and the buses."""
    row = Row(name="motors", chip=chip, bus="gpio", pins=dict(pins), outputs=dict(outputs))
    buses = Doubles()
    motors = kind(row=row, buses=buses, airframe=with_devices(row))
    polled(motors, polls)
    assert well(motors) is (polls > 0)
    return motors, buses
