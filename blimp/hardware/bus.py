"""What a driver may ask of a bus: small protocols, no implementation.

`linux.py` implements them on the kernel's interfaces. The simulator stands below those
interfaces, so that there is one implementation and every byte passes through it.

No call here may block for longer than its transfer takes on the wire. Every call raises
`blimp.errors.BusError` naming bus and address (or port, or pin) when there is no answer.
"""

from collections.abc import Sequence
from typing import Protocol


class I2CBus(Protocol):
    """One I2C bus, 7-bit addresses. Close is idempotent."""

    @property
    def name(self) -> str:
        """The bus as a person names it, e.g. "i2c-1"."""
        ...

    def read(self, address: int, register: int, length: int) -> bytes:
        """Write the 8-bit `register`, then read `length` bytes (1 to 32) in one transfer."""
        ...

    def write(self, address: int, register: int, data: bytes) -> None:
        """Write the 8-bit `register` followed by `data` (1 to 31 bytes) in one transfer."""
        ...

    def command(self, address: int, command: int) -> None:
        """Write one byte that no data follow (MS5611)."""
        ...

    def read16(self, address: int, register: int, length: int) -> bytes:
        """As `read`, with a 16-bit big-endian register pointer (VL53L1X)."""
        ...

    def write16(self, address: int, register: int, data: bytes) -> None:
        """As `write`, with a 16-bit big-endian register pointer."""
        ...

    def close(self) -> None: ...


class SpiDevice(Protocol):
    """One chip on an SPI bus, with its own select line. Close is idempotent.

    No chip acknowledges here: one that is absent reads as all bits high or low.
    """

    @property
    def name(self) -> str: ...

    def exchange(self, out: bytes, length: int, *, pause_s: float = 0.0) -> bytes:
        """Select the chip, send `out` (1 byte or more), pause, read `length` bytes (0 or more)."""
        ...

    def close(self) -> None: ...


class DigitalOutput(Protocol):
    """One GPIO pin driven high or low."""

    def write(self, high: bool) -> None: ...

    def close(self) -> None:
        """Drive low and give the pin back."""
        ...


class PwmOutput(Protocol):
    """One GPIO pin with pulse-width modulation."""

    def duty(self, fraction: float) -> None:
        """Set the share of time the pin is high, 0 to 1. Raises ValueError outside it."""
        ...

    def close(self) -> None:
        """Stop, drive low and give the pin back."""
        ...


class PulseOutput(Protocol):
    """One channel of hardware PWM: pulses of an exact width, as servos and ESCs take them."""

    def pulse(self, width_s: float) -> None:
        """Send pulses this wide from now on; 0 sends none. Raises ValueError above a period."""
        ...

    def close(self) -> None:
        """Stop the pulses and give the channel back."""
        ...


class EchoPin(Protocol):
    """A trigger output and an echo input: one ultrasonic ranger, never waited for."""

    def trigger(self) -> None:
        """Send the trigger pulse (10 µs or a little more) and return."""
        ...

    def take_pulses(self) -> Sequence[tuple[float, float]]:
        """Return (end time s, width s) of every echo since the last call, oldest first."""
        ...

    def close(self) -> None: ...


class SerialPort(Protocol):
    """One serial port that is read without waiting."""

    @property
    def name(self) -> str: ...

    def read_available(self) -> bytes:
        """Return what has arrived, b"" when nothing has."""
        ...

    def write(self, data: bytes) -> None:
        """Send all of it or, with a BusError, none. Never waits."""
        ...

    def close(self) -> None: ...


class Datagrams(Protocol):
    """Messages of another process, which are read without waiting. Close is idempotent."""

    def receive(self) -> list[bytes]:
        """Return what has come, oldest first, none if nothing has."""
        ...

    def close(self) -> None: ...


class Buses(Protocol):
    """Opens each bus, pin or port once: the seam between drivers and the machine."""

    def i2c(self, bus: str) -> I2CBus: ...

    def spi(self, device: str, *, mode: int, speed_hz: int) -> SpiDevice: ...

    def digital(self, pin: int) -> DigitalOutput: ...

    def pwm(self, pin: int, frequency_hz: float) -> PwmOutput: ...

    def pulses(self, bus: str, channel: int, frequency_hz: float) -> PulseOutput: ...

    def echo(self, trigger_pin: int, echo_pin: int) -> EchoPin: ...

    def serial(self, port: str, baud: int, *, framing: str = "8N1") -> SerialPort:
        """framing: data bits, parity, stop bits; "8E2" is even parity with two stop bits."""
        ...

    def datagrams(self, name: str) -> Datagrams:
        """Open the socket of this name in the ship's runtime directory."""
        ...

    def close(self) -> None:
        """Close all that was opened, in reverse order. Idempotent."""
        ...
