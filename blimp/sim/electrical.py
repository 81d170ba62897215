"""The wires of a simulated ship, seen from the computer's side.

`World` has them in this process, `RemoteWorld` behind a socket; the seam puts either under
smbus2, pyserial and RPi.GPIO.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Protocol

EdgeCallback = Callable[[int, bool, float], None]  # pin, level after the edge, time in seconds
BytesCallback = Callable[[bytes], None]


class Pull(IntEnum):
    OFF = 0
    DOWN = 1
    UP = 2


class Electrical(Protocol):
    """Every call returns at once. A world that cannot be reached raises OSError(EREMOTEIO).

    computer: a place for the seam to keep the open files of a user of these wires.
    """

    computer: Any

    def i2c_buses(self) -> tuple[int, ...]:
        """Return the numbers of the I2C buses this ship has."""
        ...

    def serial_ports(self) -> Mapping[str, int]:
        """Return the baud rate of the device at each serial port, by path."""
        ...

    def pwm_pins(self) -> Mapping[tuple[int, int], int]:
        """Return the pin of each channel of hardware PWM, by (chip, channel)."""
        ...

    def spi_devices(self) -> tuple[tuple[int, int], ...]:
        """Return bus and chip select of every chip on SPI."""
        ...

    def spi(self, bus: int, select: int, data: bytes) -> bytes:
        """Send `data` to a selected chip; return what it sent at the same time."""
        ...

    def i2c(self, bus: int, address: int, data: bytes, length: int) -> bytes:
        """Write `data` (none where empty), then read `length` bytes after a repeated start.

        Raises OSError as the kernel does: EREMOTEIO when nobody acknowledges, ETIMEDOUT
        when the clock line is held down.
        """
        ...

    def pin_mode(self, pin: int, *, output: bool, pull: Pull) -> None:
        """Make BCM `pin` an output or an input with a pull resistor."""
        ...

    def pin_is_output(self, pin: int) -> bool: ...

    def pin_write(self, pin: int, high: bool, *, held_s: float) -> None:
        """Drive `pin`; its level before this call has lasted `held_s`."""
        ...

    def pin_pwm(self, pin: int, duty: float | None, *, frequency_hz: float) -> None:
        """Start or change pulse-width modulation, `duty` in [0, 1]; None stops it, low."""
        ...

    def pin_read(self, pin: int) -> bool: ...

    def pin_watch(self, pin: int, callback: EdgeCallback | None) -> None:
        """Call `callback` at each edge a device makes on `pin`; None ends that."""
        ...

    def serial_listen(self, port: str, callback: BytesCallback | None) -> None:
        """Call `callback` with the bytes a device sends, when they have arrived."""
        ...

    def serial_write(self, port: str, data: bytes) -> None: ...
