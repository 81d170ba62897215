"""BNO055: three-axis accelerometer, gyro and magnetometer, on its UART.

Source: BST-BNO055-DS000 revision 1.4: 3.3 (modes), 3.6 (units and scales), 4.3 (registers), 4.7
(UART). On I2C it stretches the clock, which a Pi's controller corrupts: it is not driven there.
Its own fusion stays off: the estimator of the ship wants what was measured.
"""

import math
from collections.abc import Generator
from struct import Struct
from typing import ClassVar

from blimp.airframe import Device as Row
from blimp.errors import DeviceError
from blimp.hardware.bus import Buses
from blimp.hardware.calibration import Calibration, Correction
from blimp.hardware.device import Steps, Wiring, read_options
from blimp.hardware.inertial import FROZEN_READS, MAX_TEMPERATURE_STEP_C, values
from blimp.hardware.mounting import FLAT, Mounting
from blimp.hardware.plausible import Plausible
from blimp.hardware.registers.inertial import BNO055 as R
from blimp.hardware.serial_sensor import SerialSensor
from blimp.types import ImuSample

ACCEL_LSB_MPS2 = 0.01
GYRO_LSB_RADPS = math.radians(1.0 / 16.0)
MAGNETIC_LSB_T = 1e-6 / 16.0
REPLY_S = 0.05  # 49 bytes take 4 ms; the chip takes as long again when it is busy

_DATA = Struct("<9h")
_LOOKS = 10  # for a reply during the start
_LOOK_S = 0.01


class Options(Calibration, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mounting: which chip axis, with its sign, points forward, right and down."""

    mounting: tuple[str, str, str] = FLAT


def read_order(register: int, length: int) -> bytes:
    return bytes((R.START, R.READ, register, length))


def write_order(register: int, value: int) -> bytes:
    return bytes((R.START, R.WRITE, register, 1, value))


def reply(data: bytes) -> bytes | None:
    """Return the bytes a read brought, b"" for a write that was done, None if more must come.

    Raises DeviceError with the chip's own reason, or on what is no reply.
    """
    if len(data) < 2:
        return None
    kind, second = data[:2]
    if kind == R.STATUS:
        if second == R.WRITE_SUCCESS:
            return b""
        raise DeviceError(f"it answers 0x{second:02X}: {R.STATUSES.get(second, 'unknown')}")
    if kind != R.DATA:
        raise DeviceError(f"a reply begins with 0x{kind:02X}: the bytes are garbage")
    return data[2 : 2 + second] if len(data) >= 2 + second else None


class Bno055(SerialSensor[ImuSample]):
    """Asks at each poll for what the next one reads: no poll waits for the line.

    Samples in the body frame (forward-right-down): (0, 0, -9.81) m/s² level and at rest.
    """

    UNIT: ClassVar[str] = "m/s², rad/s, µT"
    WIRING: ClassVar = Wiring(bus="serial")
    STALE_ERROR: ClassVar[str] = "frozen: the same bytes"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        options = read_options(row.options, Options, who=row.name)
        mounting = Mounting(options.mounting, who=row.name)
        self._correction = Correction(options, who=row.name)
        self._accel = mounting.turn(ACCEL_LSB_MPS2)
        self._gyro = mounting.turn(GYRO_LSB_RADPS)
        self._magnetic = mounting.turn(MAGNETIC_LSB_T)
        self._stale_s = max(FROZEN_READS / row.rate_hz, 2.0 * REPLY_S)
        self._temperature = Plausible(
            f"{self.name}: its temperature", "°C", low=-40.0, high=85.0, step=MAX_TEMPERATURE_STEP_C
        )
        self._received = b""
        self._asked_s: float | None = None
        self._raw = b""

    def _start(self) -> Steps:
        self._open()
        self._asked_s = None
        # A killed process may have left half an order, which the chip gives up after a while.
        yield R.CHARACTER_TIMEOUT_S
        self._send(write_order(R.SYS_TRIGGER, R.RST_SYS))
        yield R.RESET_S
        identity = yield from self._ask(read_order(R.CHIP_ID, len(R.IDENTITY)))
        if identity != R.IDENTITY:
            raise DeviceError(
                f"{self.name}: bno055 at {self._row.port}: its identities read "
                f"{identity.hex(' ')}, expected {R.IDENTITY.hex(' ')}"
            )
        for register, value in (
            (R.UNIT_SEL, R.UNITS_SI_DEGREES),
            (R.OPR_MODE, R.AMG_MODE),
        ):
            yield from self._ask(write_order(register, value))
            yield R.MODE_SWITCH_S
        self._temperature.forget()

    def _ask(self, order: bytes) -> Generator[float, None, bytes]:
        """Send an order and return its reply. Raises DeviceError if none comes."""
        self._send(order)
        for _ in range(_LOOKS):
            yield _LOOK_S
            found = self._reply()
            if found is not None:
                return found
        raise DeviceError(f"{self.name}: no reply to {order.hex(' ')} within {_LOOKS * _LOOK_S} s")

    def _read(self, now_s: float) -> ImuSample | None:
        data = None
        if self._asked_s is not None:
            since_s = now_s - self._asked_s
            try:
                data = self._reply()
            except DeviceError:
                self._asked_s = None  # the next poll asks again
                raise
            if data is None and since_s <= REPLY_S:
                return None
            if data is None:
                self._asked_s = None
                raise DeviceError(f"{self.name}: no reply within {REPLY_S} s")
        self._send(read_order(R.ACC_DATA, R.DATA_LENGTH))
        self._asked_s = now_s
        return None if data is None else self._sample(data, now_s)

    def _sample(self, data: bytes, now_s: float) -> ImuSample | None:
        if len(data) != R.DATA_LENGTH:
            raise DeviceError(
                f"{self.name}: {len(data)} bytes came, {R.DATA_LENGTH} were asked for"
            )
        ax, ay, az, mx, my, mz, gx, gy, gz = _DATA.unpack_from(data)
        if ax == ay == az == 0:
            # Not even free fall reads so: after a reset its registers are 0.
            raise self._lost("all accelerometer axes read 0: the chip was reset")
        before, self._raw = self._raw, data[: _DATA.size]
        if self._raw == before:
            return None
        celsius = data[R.TEMP - R.ACC_DATA]
        temperature_c = self._temperature.check(float(celsius - ((celsius & 0x80) << 1)))
        self._alive(now_s)
        correction, field = self._correction, None
        if (mx, my, mz) != (0, 0, 0):
            field = correction.field(self._magnetic(mx, my, mz))
        return ImuSample(
            t_s=now_s,
            accel_body_mps2=correction.acceleration(self._accel(ax, ay, az)),
            gyro_body_radps=correction.rates(self._gyro(gx, gy, gz)),
            temperature_c=temperature_c,
            magnetic_body_t=field,
        )

    def _send(self, order: bytes) -> None:
        port = self._port
        port.read_available()  # what belongs to no order of ours
        self._received = b""
        port.write(order)

    def _reply(self) -> bytes | None:
        self._received += self._port.read_available()
        try:
            return reply(self._received)
        except DeviceError as error:
            raise DeviceError(f"{self.name}: {error}") from error

    def _value(self, sample: ImuSample) -> tuple[float, ...]:
        return values(sample)
