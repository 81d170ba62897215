"""The wires of a simulated ship, seen from the computer's side.

`World` has them in this process, `RemoteWorld` behind a socket; the seam puts either under
smbus2, pyserial and RPi.GPIO.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Protocol

import msgspec

from blimp.scene import EMPTY, Scenery
from blimp.types import Quaternion, Vec3

EdgeCallback = Callable[[int, bool, float], None]  # pin, level after the edge, time in seconds
BytesCallback = Callable[[bytes], None]


class Pull(IntEnum):
    OFF = 0
    DOWN = 1
    UP = 2


class CameraPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A camera and where it sits: what stays as it is while the world runs.

    full: the sensor's pixels, (width, height). readout_s: from its first row to its last, 0 of a
    global shutter. width, height, fx, fy, cx, cy, distortion (k1, k2, p1, p2, k3): its lens, for
    pictures of that size. position_m: forward, right, down of the hull's middle. rotation_deg:
    roll, pitch, yaw; all 0 look forward. stand_m: the floor below the hull's middle at rest.
    """

    name: str
    chip: str
    full: tuple[int, int]
    readout_s: float
    max_hz: float
    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)
    position_m: Vec3 = (0.0, 0.0, 0.0)
    rotation_deg: Vec3 = (0.0, -90.0, 0.0)
    stand_m: float = 0.0


class Cameras(msgspec.Struct, frozen=True, kw_only=True):
    """All of a ship's cameras, and what there is to see."""

    places: tuple[CameraPlace, ...] = ()
    scene: Scenery = EMPTY


class CameraState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong with a camera now; see `blimp.sim.faults`.

    light: of the lamps, over what it should be; focal: of its lens; latency_s: from the middle of
    an exposure until its frame can be had; dropped: the share of frames that are lost.
    """

    no_answer: bool = False
    frozen: bool = False
    garbage: bool = False
    covered: bool = False
    black: bool = False
    other_size: bool = False
    busy: bool = False
    light: float = 1.0
    focal: float = 1.0
    latency_s: float = 0.0
    dropped: float = 0.0


class CameraSight(msgspec.Struct, frozen=True, kw_only=True):
    """What a camera needs to know of the world for the exposures that have ended.

    poses: time, position of the hull's middle and attitude (NED), the oldest first. Times are the
    world's; zero_s is the clock's time at its zero. balloons: where they are now, with the floor
    at 0.
    """

    zero_s: float
    poses: tuple[tuple[float, Vec3, Quaternion], ...]
    balloons: tuple[Vec3, ...]
    state: CameraState


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

    def cameras(self) -> Cameras: ...

    def camera(self, number: int, since_s: float) -> CameraSight:
        """Open a camera for this caller if it is closed; return what it sees from `since_s` on.

        Raises OSError: ENODEV without such a camera, EBUSY if another caller has it.
        """
        ...

    def camera_close(self, number: int) -> None: ...
