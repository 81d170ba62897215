"""The kernel's side of `bus.py`: /dev/i2c-N, GPIO and serial ports.

The only importer of smbus2, pyserial and RPi.GPIO. They are imported where they are used,
so that a machine without RPi.GPIO can still open an I2C bus, and a simulator can put its
own `RPi` package in place before the first pin is opened.

Every failure of theirs leaves here as a BusError that names bus and address, port or pin.
"""

import contextlib
import ctypes
import errno
import os
import re
import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from blimp.clock import Clock, SystemClock
from blimp.closing import Closing
from blimp.errors import BusError
from blimp.hardware.bus import (
    Datagrams,
    DigitalOutput,
    EchoPin,
    I2CBus,
    PulseOutput,
    PwmOutput,
    SerialPort,
    SpiDevice,
)
from blimp.hardware.gpio import GPIO_ERRORS, GpioEcho, GpioOutput, GpioPwm
from blimp.hardware.spidev import SpidevDevice
from blimp.hardware.sysfs_pwm import SysfsPulses
from blimp.system import TerminalError, fcntl

_I2C_TIMEOUT = 0x0702  # uapi/linux/i2c-dev.h: the adapter's time-out, in units of 10 ms
_I2C_SLAVE, _I2C_SMBUS = 0x0703, 0x0720
# On the wires, beside 9 bits a byte of data: start, address, register, stop; reading, start and
# address again (UM10204, 3.1.10).
_WRITE_BITS = 1 + 9 + 9 + 1
_READ_BITS = _WRITE_BITS + 1 + 9
_SMBUS_DATA = struct.Struct("@BBIP")  # read or write, register, kind, pointer to the block
_SMBUS_WRITE, _SMBUS_READ, _SMBUS_I2C_BLOCK = 0, 1, 8
_SMBUS_BLOCK_SIZE = 34  # its length, up to 32 bytes, and one that the kernel uses
_HUNG_S = 0.05  # chosen: a bus that hangs takes 10 ms out of so long, not out of every read
_I2C_NAME = re.compile(r"i2c-(\d{1,3})")
_SCANNED = range(0x08, 0x78)  # the others are reserved
_READ_TO_SCAN = (*range(0x30, 0x38), *range(0x50, 0x60))
_SERIAL_CHUNK = 4096


class _Closable(Protocol):
    def close(self) -> None: ...


_C = TypeVar("_C", bound=_Closable)


class LinuxBuses(Closing):
    """Opens buses, pins and ports of this machine, each once. Implements `bus.Buses`."""

    def __init__(
        self, *, clock: Clock, datagrams: Callable[[str], Datagrams] | None = None
    ) -> None:
        """datagrams: opens the socket of a name; without one there is none."""
        self._clock = clock
        self._datagrams = datagrams
        self._open: dict[str, _Closable] = {}
        self._gpio: Any = None

    def i2c(self, bus: str) -> I2CBus:
        """Open `bus` ("i2c-1"), or return it when it is open already: a bus is shared."""
        held = self._open.get(bus)
        if isinstance(held, LinuxI2C):
            return held
        opened = LinuxI2C(name=bus, clock=self._clock, closed=self._forget(bus))
        self._open[bus] = opened
        return opened

    def i2c_bits(self) -> dict[str, int]:
        """Return how many bits each open I2C bus has carried."""
        return {bus.name: bus.bits for bus in self._open.values() if isinstance(bus, LinuxI2C)}

    def spi(self, device: str, *, mode: int, speed_hz: int) -> SpiDevice:
        """Open a chip on SPI ("spi-0.0"). Raises BusError when it is open already."""
        if device in self._open:
            raise BusError(f"{device} is already open")
        return self._keep(
            device,
            SpidevDevice(name=device, mode=mode, speed_hz=speed_hz, closed=self._forget(device)),
        )

    def digital(self, pin: int) -> DigitalOutput:
        """Make `pin` an output, low. Raises BusError when it is open already."""
        key = self._claim(pin)
        return self._keep(key, GpioOutput(gpio=self._gpio, pin=pin, closed=self._forget(key)))

    def pwm(self, pin: int, frequency_hz: float) -> PwmOutput:
        """Make `pin` a PWM output at duty 0. Software PWM: for slow DC motors only."""
        key = self._claim(pin)
        return self._keep(
            key,
            GpioPwm(gpio=self._gpio, pin=pin, frequency_hz=frequency_hz, closed=self._forget(key)),
        )

    def pulses(self, bus: str, channel: int, frequency_hz: float) -> PulseOutput:
        """Open a channel of hardware PWM ("pwm-0"), without pulses yet."""
        key = f"{bus} channel {channel}"
        if key in self._open:
            raise BusError(f"{key} is already open")
        return self._keep(
            key,
            SysfsPulses(
                bus=bus, channel=channel, frequency_hz=frequency_hz, closed=self._forget(key)
            ),
        )

    def echo(self, trigger_pin: int, echo_pin: int) -> EchoPin:
        """Open an ultrasonic ranger's two pins."""
        key = self._claim(trigger_pin)
        self._claim(echo_pin)
        return self._keep(
            key,
            GpioEcho(
                gpio=self._gpio,
                trigger_pin=trigger_pin,
                echo_pin=echo_pin,
                clock=self._clock,
                closed=self._forget(key),
            ),
        )

    def serial(self, port: str, baud: int, *, framing: str = "8N1") -> SerialPort:
        """Open `port` at `baud`. Raises BusError when it is open already."""
        if port in self._open:
            raise BusError(f"serial port {port} is already open")
        return self._keep(
            port,
            LinuxSerial(name=port, baud=baud, framing=framing, closed=self._forget(port)),
        )

    def datagrams(self, name: str) -> Datagrams:
        """Open the socket of this name. Raises BusError without a runtime directory for it."""
        if self._datagrams is None:
            raise BusError(f"no runtime directory: nothing can be received on {name}")
        return self._datagrams(name)

    def close(self) -> None:
        """Close all that is open, newest first. Idempotent; one failure stops no other."""
        failures = []
        for opened in reversed(list(self._open.values())):
            try:
                opened.close()
            except BusError as error:
                failures.append(str(error))
        self._open.clear()
        if failures:
            raise BusError("; ".join(failures))

    def _claim(self, pin: int) -> str:
        key = f"GPIO {pin}"
        if key in self._open:
            raise BusError(f"{key} is already open")
        for held in self._open.values():
            if isinstance(held, GpioEcho) and held.echo_pin == pin:
                raise BusError(f"{key} is already open as an echo input")
        if self._gpio is None:
            try:
                import RPi.GPIO as GPIO

                GPIO.setwarnings(False)  # a pin left configured by a killed process is no news
                GPIO.setmode(GPIO.BCM)
            except GPIO_ERRORS as error:
                raise BusError(f"{key}: {error}") from error
            self._gpio = GPIO
        return key

    def _keep(self, key: str, opened: _C) -> _C:
        self._open[key] = opened
        return opened

    def _forget(self, key: str) -> Callable[[], None]:
        def forget() -> None:
            self._open.pop(key, None)

        return forget


class _BlockRead:
    """One read of a register, with the buffer that the kernel fills (uapi/linux/i2c.h)."""

    __slots__ = ("_block", "_end", "_request")

    def __init__(self, register: int, length: int) -> None:
        self._end = length + 1
        self._block = ctypes.create_string_buffer(_SMBUS_BLOCK_SIZE)
        self._block[0] = bytes((length,))
        self._request = _SMBUS_DATA.pack(
            _SMBUS_READ, register, _SMBUS_I2C_BLOCK, ctypes.addressof(self._block)
        )

    def ask(self, file: Any) -> bytes:
        fcntl.ioctl(file.fd, _I2C_SMBUS, self._request)
        return self._block.raw[1 : self._end]


class LinuxI2C:
    """One /dev/i2c-N through smbus2.

    One open file per chip address: the kernel keeps the address with the file, so the
    watchdog's thread cannot redirect a transfer that the flight loop is about to make, and
    going from chip to chip costs no extra call. What is read every cycle is asked for by a request
    that was made once; reads are the loop's alone.

    A bus that hangs keeps its caller for the adapter's time-out. So one read finds it out, and the
    others fail at once for a while. Writes always go out: one of them may make an output safe.
    """

    def __init__(self, *, name: str, clock: Clock, closed: Callable[[], None]) -> None:
        match = _I2C_NAME.fullmatch(name)
        if match is None:
            raise BusError(f"{name!r} is no I2C bus: it must look like i2c-1")
        from smbus2 import SMBus, i2c_msg

        self._name = name
        self._clock = clock
        self._hung_until_s = float("-inf")
        self._message = i2c_msg
        self._closed = closed
        self.bits = 0  # that have been on the wires
        self._number = int(match[1])
        self._open = SMBus
        self._is_open = True
        self._files: dict[int, Any] = {}
        self._reads: dict[tuple[int, int], _BlockRead] = {}
        self._bus = self._opened()  # for transfers that carry their address with them

    @property
    def name(self) -> str:
        return self._name

    def read(self, address: int, register: int, length: int) -> bytes:
        if not 1 <= length <= 32:
            raise ValueError(f"an I2C read has 1 to 32 bytes, not {length}")
        self._check_free(address)
        self.bits += _READ_BITS + 9 * length
        read = self._reads.get((register, length))
        if read is None:
            read = self._reads[register, length] = _BlockRead(register, length)
        try:
            return read.ask(self._files.get(address) or self._file(address))
        except OSError as error:
            raise self._failed(address, register, "read", error) from error

    def write(self, address: int, register: int, data: bytes) -> None:
        if not 1 <= len(data) <= 31:
            raise ValueError(f"an I2C write has 1 to 31 bytes, not {len(data)}")
        self.bits += _WRITE_BITS + 9 * len(data)
        try:
            file = self._files.get(address) or self._file(address)
            if len(data) == 1:
                file.write_byte_data(address, register, data[0])
            else:
                block = ctypes.create_string_buffer(bytes((len(data),)) + data, _SMBUS_BLOCK_SIZE)
                request = (_SMBUS_WRITE, register, _SMBUS_I2C_BLOCK, ctypes.addressof(block))
                fcntl.ioctl(file.fd, _I2C_SMBUS, _SMBUS_DATA.pack(*request))
        except OSError as error:
            raise self._failed(address, register, "write", error) from error

    def command(self, address: int, command: int) -> None:
        self.bits += _WRITE_BITS
        try:
            (self._files.get(address) or self._file(address)).write_byte(address, command)
        except OSError as error:
            raise self._failed(address, command, "write", error) from error

    def read16(self, address: int, register: int, length: int) -> bytes:
        if not 1 <= length <= 32:
            raise ValueError(f"an I2C read has 1 to 32 bytes, not {length}")
        self._check_free(address)
        self._check_open()
        self.bits += _READ_BITS + 9 * (1 + length)
        pointer = self._message.write(address, register.to_bytes(2, "big"))
        answer = self._message.read(address, length)
        try:
            self._bus.i2c_rdwr(pointer, answer)
        except OSError as error:
            raise self._failed(address, register, "read", error) from error
        return bytes(answer)

    def write16(self, address: int, register: int, data: bytes) -> None:
        if not 1 <= len(data) <= 31:
            raise ValueError(f"an I2C write has 1 to 31 bytes, not {len(data)}")
        self._check_open()
        self.bits += _WRITE_BITS + 9 * (1 + len(data))
        try:
            self._bus.i2c_rdwr(self._message.write(address, register.to_bytes(2, "big") + data))
        except OSError as error:
            raise self._failed(address, register, "write", error) from error

    def acknowledges(self, address: int) -> bool:
        """Say whether a chip answers, without a register. Raises BusError if the bus hangs."""
        self._check_open()
        try:
            # A quick write may lock some EEPROMs, and a read some sensors: as i2cdetect.
            if address in _READ_TO_SCAN:
                self._bus.read_byte(address)
            else:
                self._bus.write_quick(address)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return True  # a driver of the kernel has it
            if error.errno in (errno.EREMOTEIO, errno.ENXIO, errno.EIO):
                return False
            raise BusError(f"{self._name} address 0x{address:02X}: scan: {error}") from error
        return True

    def close(self) -> None:
        self._is_open = False
        self._closed()
        for file in (self._bus, *self._files.values()):
            file.close()
        self._files.clear()

    def _file(self, address: int) -> Any:
        self._check_open()
        file = self._opened()
        try:
            fcntl.ioctl(file.fd, _I2C_SLAVE, address)
        except OSError:
            file.close()
            raise
        self._files[address] = file
        return file

    def _check_open(self) -> None:
        if not self._is_open:
            raise BusError(f"{self._name} is closed")

    def _check_free(self, address: int) -> None:
        if self._clock.now_s() < self._hung_until_s:
            raise BusError(f"{self._name} address 0x{address:02X}: the bus has just hung")

    def _opened(self) -> Any:
        try:
            bus = self._open(self._number)
        except OSError as error:
            raise BusError(f"{self._name}: {error}") from error
        # The kernel's default is a second, which a stuck bus would take out of the flight
        # loop at every transfer. An adapter that cannot be configured keeps its own limit.
        with contextlib.suppress(OSError):
            fcntl.ioctl(bus.fd or -1, _I2C_TIMEOUT, 1)
        return bus

    def _failed(self, address: int, register: int, what: str, error: OSError) -> BusError:
        if error.errno == errno.ETIMEDOUT:
            self._hung_until_s = self._clock.now_s() + _HUNG_S
        return BusError(
            f"{self._name} address 0x{address:02X}: {what} of register 0x{register:02X}: {error}"
        )


def scan_i2c(name: str) -> list[int]:
    """Return the addresses on a bus that acknowledge, found as i2cdetect finds them.

    Raises BusError if the bus cannot be opened, or hangs.
    """
    bus = LinuxI2C(name=name, clock=SystemClock(), closed=lambda: None)
    try:
        return [address for address in _SCANNED if bus.acknowledges(address)]
    finally:
        bus.close()


class LinuxSerial:
    """One serial port through pyserial, never waited for."""

    def __init__(self, *, name: str, baud: int, framing: str, closed: Callable[[], None]) -> None:
        import serial

        self._name = name
        self._closed = closed
        self._unsent = b""  # the rest of what the last write has begun
        try:
            self._port = serial.Serial(
                name,
                baud,
                bytesize=int(framing[0]),
                parity=framing[1],
                stopbits=int(framing[2]),
                timeout=0,
                write_timeout=0,
            )
        except (OSError, ValueError, TerminalError) as error:  # what it does not have
            # pyserial's own text names the port, and the reason twice
            number = getattr(error, "errno", None)
            why = os.strerror(number) if number else str(error)
            raise BusError(f"serial port {name} at {baud} baud: {why}") from error

    @property
    def name(self) -> str:
        return self._name

    def read_available(self) -> bytes:
        if self._unsent:
            self._send(b"")
        try:
            return bytes(self._port.read(_SERIAL_CHUNK))
        except (OSError, TypeError) as error:  # TypeError: pyserial's port closed under a read
            raise BusError(f"serial port {self._name}: {error}") from error

    def write(self, data: bytes) -> None:
        """Send `data` whole, what does not fit now with later calls. Never waits.

        Raises BusError, and sends none of it, if nothing fits or a write before has a rest.
        """
        if self._unsent:
            self._send(b"")
        if self._unsent or not self._send(data):
            raise BusError(f"serial port {self._name}: full: {len(data)} bytes are not sent")

    def _send(self, data: bytes) -> bool:
        """Go on with the rest, or else begin `data`; say whether a byte went out."""
        data = self._unsent or data
        try:
            # pyserial's own write waits for ever where nothing fits.
            sent = os.write(self._port.fileno(), data)
        except BlockingIOError:
            return False
        except (OSError, TypeError) as error:  # TypeError: as above
            raise BusError(f"serial port {self._name}: {error}") from error
        self._unsent = data[sent:]
        return True

    def close(self) -> None:
        self._closed()
        try:
            self._port.close()
        except OSError as error:
            raise BusError(f"serial port {self._name}: {error}") from error
