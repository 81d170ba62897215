"""The kernel seam: where smbus2, pyserial, RPi.GPIO and picamera2 meet the simulated wires.

Inside `linux_devices(world, clock=clock)` this process has the device files of a Raspberry
Pi: /dev/i2c-N, /dev/spidevB.C, the serial ports, /sys/class/pwm, and importable RPi.GPIO and
picamera2. The packages above are the real ones (these two excepted, which only install on a Pi),
unmodified; what is answered here is `open`, `close`, `ioctl` and `write` on those files, as in
uapi/linux/i2c-dev.h and i2c.h. Drivers of strangers are answered too: `driver_time.py` says how
time passes for them.
A device file that the ship does not have does not exist, whatever this machine has: real
hardware and simulated hardware never mix.
"""

import builtins
import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from blimp.clock import Clock, ManualClock
from blimp.sim import driver_time, sysfs_pwm
from blimp.sim.electrical import Electrical
from blimp.sim.i2c_file import I2CFile, I2CStream
from blimp.sim.memory_line import MemoryLine, serial_module
from blimp.sim.rpi_gpio import RpiGpio
from blimp.sim.spidev import SpiFile
from blimp.system import HAS_TERMINALS, OPEN_FLAGS, fcntl, fcntl_in_place

if TYPE_CHECKING or HAS_TERMINALS:
    from blimp.sim.serial_line import PtyLine as Line
else:
    Line = MemoryLine

_I2C_PATH = re.compile(r"/dev/i2c-(\d+)")
# What must not fall through to this machine's own hardware.
_HARDWARE = re.compile(
    r"/dev/(i2c-|spidev|gpiochip|gpiomem|serial|ttyAMA|ttyS\d|ttyUSB|ttyACM|mem$|pwm)"
)

# Loaded when a name of theirs is asked for: they need numpy, which a ship without eyes does not.
_CAMERA_MODULES = (
    "picamera2", "picamera2.allocators", "picamera2.controls", "picamera2.encoders",
    "picamera2.outputs", "picamera2.request", "libcamera",
)  # fmt: skip

_REVISION_PATH = "/proc/device-tree/system/linux,revision"
_REVISION = bytes.fromhex("00a020d3")  # a Pi 3 B+, as `RPi.GPIO` says


class Computer:
    """The simulated Pi: its open device files and its GPIO set-up.

    It lasts longer than one visit to the seam: a driver opens its files in one `with
    linux_devices` and reads them in the next.
    """

    def __init__(self, electrical: Electrical, *, clock: Clock) -> None:
        self.clock = clock
        self.electrical = electrical
        self.open_cameras: dict[int, Any] = {}  # by number: what can be closed
        self._lockstep = isinstance(clock, ManualClock)
        self._transfer = electrical.i2c
        self._i2c: dict[int, I2CFile] = {}
        self._serial: dict[int, Line] = {}
        self._lines: dict[str, Line] = {}
        self._gpio = RpiGpio(electrical, clock=clock)
        self.time = driver_time.DriverTime(electrical, clock, self._gpio.edge)
        self._modules = {"RPi": self._gpio.package, "RPi.GPIO": self._gpio.module}
        if not HAS_TERMINALS:
            self._modules["serial"] = serial_module(self._lines)
        for name in _CAMERA_MODULES:
            module = self._modules[name] = ModuleType(name)
            module.__path__ = []
            module.__getattr__ = partial(self._camera_name, name)  # type: ignore[method-assign]
        self._loaded: dict[str, ModuleType] = {}
        self._pwm = sysfs_pwm.PwmFiles(electrical)
        self._pwm_files: dict[int, str] = {}
        self._spi: dict[int, SpiFile] = {}
        self._depth = 0
        self._real_open = os.open
        self._real_close = os.close
        self._real_write = os.write
        self._real_ioctl: Callable[..., Any] = fcntl.ioctl
        self._real_builtin_open: Callable[..., Any] = open

    @property
    def lines(self) -> dict[str, Line]:
        """The serial ports that have been opened, by path."""
        return self._lines

    @contextmanager
    def devices(self) -> Iterator[None]:
        """Put the device files in place; take away exactly what was put there."""
        with fcntl_in_place():
            smbus2 = importlib.import_module("smbus2.smbus2")  # before fcntl.ioctl is another
        before = (os.open, os.close, os.write, fcntl.ioctl, smbus2.ioctl)
        opens = (builtins.open, io.open)
        modules = {name: sys.modules.get(name) for name in self._modules}
        if self._depth == 0:
            self._real_open, self._real_close, self._real_write, self._real_ioctl = before[:4]
            self._real_builtin_open = opens[0]
        times = driver_time.enter(self)
        self._depth += 1
        try:
            os.open = self._open
            os.close = self._close
            os.write = self._write
            fcntl.ioctl = self.ioctl
            smbus2.ioctl = self.ioctl  # type: ignore[attr-defined]
            builtins.open = io.open = self._builtin_open
            sys.modules.update(self._modules)
            yield
        finally:
            self._depth -= 1
            driver_time.leave(times)
            builtins.open, io.open = opens
            os.open, os.close, os.write, fcntl.ioctl, smbus2.ioctl = before  # type: ignore[attr-defined]
            for name, module in modules.items():
                if module is None:
                    sys.modules.pop(name, None)
                else:
                    sys.modules[name] = module

    def _camera_name(self, module: str, name: str) -> Any:
        """Return what a module of a camera has under a name; see PEP 562."""
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if not self._loaded:
            self._loaded = importlib.import_module("blimp.sim.picamera2").modules(self)
        return getattr(self._loaded[module], name)

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = os.fspath(path) if not isinstance(path, str) else path
        if isinstance(name, str) and name.startswith(sysfs_pwm.ROOT):
            self._pwm.check(name)
            fd = self._real_open(os.devnull, os.O_RDWR | OPEN_FLAGS)
            self._forget(fd)
            self._pwm_files[fd] = name
            return fd
        if isinstance(name, str) and name.startswith("/dev/"):
            line = self._line(name)
            if line is not None:
                fd = self._real_open(line.path, flags, mode)
                line.opened()
                self._forget(fd)
                self._serial[fd] = line
                return fd
            match = _I2C_PATH.fullmatch(name)
            if match is not None and int(match[1]) in self.electrical.i2c_buses():
                # A true descriptor, so that its number is nobody else's.
                fd = self._real_open(os.devnull, os.O_RDWR | OPEN_FLAGS)
                self._forget(fd)
                self._i2c[fd] = I2CFile(int(match[1]), self._transfer, clock=self.clock)
                return fd
            spi = SpiFile.opened(name, self.electrical)
            if spi is not None:
                fd = self._real_open(os.devnull, os.O_RDWR | OPEN_FLAGS)
                self._forget(fd)
                self._spi[fd] = spi
                return fd
            if _HARDWARE.match(name):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        fd = self._real_open(path, flags, mode, dir_fd=dir_fd)
        self._forget(fd)
        return fd

    def _builtin_open(
        self, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any
    ) -> Any:
        """As `os.open`: a driver may open a device as any other file."""
        name = os.fspath(file) if isinstance(file, str | os.PathLike) else ""
        if name == _REVISION_PATH:
            return io.BytesIO(_REVISION)
        if not (isinstance(name, str) and _HARDWARE.match(name)):
            return self._real_builtin_open(file, mode, buffering, *rest, **named)
        fd = self._open(name, os.O_RDWR | getattr(os, "O_NOCTTY", 0))
        i2c = self._i2c.get(fd)
        if i2c is None:
            return self._real_builtin_open(fd, mode, buffering, *rest, **named)
        if buffering != 0 or "b" not in mode:
            self._close(fd)
            raise io.UnsupportedOperation(f"{name}: only binary and unbuffered, not {mode!r}")
        return I2CStream(i2c, fd, self._close)

    def _close(self, fd: int) -> None:
        self._forget(fd)
        self._real_close(fd)

    def _forget(self, fd: int) -> None:
        """A number that is closed, or was closed behind our back, means no device any more."""
        self._i2c.pop(fd, None)
        self._pwm_files.pop(fd, None)
        self._spi.pop(fd, None)
        line = self._serial.pop(fd, None)
        if line is not None:
            line.released()

    def _write(self, fd: int, data: Any) -> int:
        line = self._serial.get(fd)
        if line is None:
            pwm = self._pwm_files.get(fd)
            if pwm is not None:
                return self._pwm.write(pwm, bytes(data))
            return self._real_write(fd, data)
        if os.fstat(fd).st_rdev != line.device_number:  # closed behind our back, and reused
            self._forget(fd)
            return self._real_write(fd, data)
        # Straight to the device: through the terminal it would arrive at no certain time.
        self.electrical.serial_write(line.port, bytes(data))
        return len(data)

    def ioctl(self, fd: Any, request: int, arg: Any = 0, mutate_flag: bool = True) -> Any:
        file = self._i2c.get(fd)
        if file is None:
            spi = self._spi.get(fd)
            if spi is not None:
                return spi.ioctl(request, arg)
            return self._real_ioctl(fd, request, arg, mutate_flag)
        return file.ioctl(request, arg)

    def _line(self, port: str) -> Line | None:
        line = self._lines.get(port)
        if line is None:
            baud = self.electrical.serial_ports().get(port)
            if baud is None:
                return None
            line = Line(port=port, baud=baud, lockstep=self._lockstep)
            self._lines[port] = line
            self.electrical.serial_listen(port, line.deliver)
        return line

    def settle(self) -> None:
        """Make readable what has arrived at the serial ports."""
        for line in self._lines.values():
            line.settle()

    def close(self) -> None:
        """Pull every plug: readers of serial ports see them hang up. Idempotent."""
        for camera in tuple(self.open_cameras.values()):
            camera.close()
        for port, line in self._lines.items():
            self.electrical.serial_listen(port, None)
            line.close()
        self._lines.clear()
        self._i2c.clear()
        self._pwm_files.clear()
        self._spi.clear()
        self._serial.clear()
        self._gpio.close()


@contextmanager
def linux_devices(electrical: Electrical, *, clock: Clock) -> Iterator[None]:
    """Within it `smbus2.SMBus(1)`, `serial.Serial(path)` and `import RPi.GPIO` see this ship.

    electrical: a `World`, or a `RemoteWorld` in another process. clock: the one the drivers
    read. May be entered again and again, nested, and from several ships in turn; files that
    were opened in one visit work in the next. Patches this whole process, all threads of it.
    """
    computer = electrical.computer
    if computer is None or computer.clock is not clock:
        if computer is not None:
            computer.close()
        computer = electrical.computer = Computer(electrical, clock=clock)
    with computer.devices():
        yield
