"""MPU-6050: three-axis accelerometer and gyro on I2C.

Source: RM-MPU-6000A-00 revision 4.2 (register map) and PS-MPU-6000A-00 (specification).
"""

import math
from struct import Struct
from typing import ClassVar

import msgspec

from blimp.airframe import Device as Row
from blimp.errors import BoardError, DeviceError
from blimp.hardware.bus import Buses, I2CBus
from blimp.hardware.device import Sensor, Steps, Wiring, read_options
from blimp.hardware.registers import MPU6050 as R
from blimp.types import ImuSample, Vec3

G_MPS2 = 9.80665
RANGES_DPS = {250: (R.FS_250_DPS, 131.0), 500: (R.FS_500_DPS, 65.5)}  # bits, LSB per degree/s
ACCEL_LSB_PER_G = 16384.0  # at ±2 g
FILTERS_HZ = {184: R.DLPF_184_HZ, 94: R.DLPF_94_HZ, 44: R.DLPF_44_HZ, 21: R.DLPF_21_HZ}
AXES = {"x": (1, 0, 0), "y": (0, 1, 0), "z": (0, 0, 1)}
FROZEN_READS = 25
MAX_TEMPERATURE_STEP_C = 5.0

_DATA = Struct(">7h")


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """mounting: which chip axis, with its sign, points forward, right and down.

    The default is a chip lying flat, its x forward and its z up; y is then to the left.
    """

    gyro_range_dps: int = 250
    filter_hz: int = 44
    mounting: tuple[str, str, str] = ("x", "-y", "-z")


class Mpu6050(Sensor[ImuSample]):
    """Samples in the body frame (forward-right-down): (0, 0, -9.81) m/s² level and at rest."""

    ROLE: ClassVar[str] = "imu"
    UNIT: ClassVar[str] = "m/s², rad/s"
    WIRING: ClassVar = Wiring(bus="i2c", addresses=R.ADDRESSES)
    STALE_ERROR: ClassVar[str] = f"frozen: the same {R.DATA_LENGTH} bytes"

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._stale_s = FROZEN_READS / row.rate_hz
        options = read_options(row.options, Options, who=row.name)
        if options.gyro_range_dps not in RANGES_DPS:
            raise BoardError(
                f"{row.name}: gyro_range_dps {options.gyro_range_dps} is none of "
                f"{', '.join(map(str, RANGES_DPS))}"
            )
        if options.filter_hz not in FILTERS_HZ:
            raise BoardError(
                f"{row.name}: filter_hz {options.filter_hz} is none of "
                f"{', '.join(map(str, FILTERS_HZ))}"
            )
        self._bus: I2CBus | None = None
        self._filter = FILTERS_HZ[options.filter_hz]
        self._range, lsb_per_dps = RANGES_DPS[options.gyro_range_dps]
        forward, right, down = mounting_rows(options.mounting, who=row.name)
        accel = G_MPS2 / ACCEL_LSB_PER_G
        gyro = math.radians(1.0) / lsb_per_dps
        self._accel = tuple(_scale(axis, accel) for axis in (forward, right, down))
        self._gyro = tuple(_scale(axis, gyro) for axis in (forward, right, down))
        self._raw = b""
        self._temperature_c: float | None = None

    def close(self) -> None:
        self._bus = None

    def _start(self) -> Steps:
        bus = self._bus = self._buses.i2c(self._row.bus)
        where = f"{self.name}: mpu6050 at {bus.name} address 0x{self._address:02X}"
        identity = bus.read(self._address, R.WHO_AM_I, 1)[0]
        if identity != R.CHIP_ID:
            raise DeviceError(
                f"{where}: WHO_AM_I (0x{R.WHO_AM_I:02X}) reads 0x{identity:02X}, "
                f"expected 0x{R.CHIP_ID:02X}"
            )
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.DEVICE_RESET]))
        yield R.RESET_S
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.CLKSEL_PLL_X_GYRO]))
        yield R.GYRO_START_UP_S
        settings = bytes([0, self._filter, self._range, R.AFS_2_G])  # SMPLRT_DIV and what follows
        bus.write(self._address, R.SMPLRT_DIV, settings)
        kept = bus.read(self._address, R.SMPLRT_DIV, len(settings))
        if kept != settings:
            raise DeviceError(
                f"{where}: registers from 0x{R.SMPLRT_DIV:02X} read {kept.hex(' ')} "
                f"after {settings.hex(' ')} was written"
            )
        self._temperature_c = None

    def _read(self, now_s: float) -> ImuSample | None:
        if self._bus is None:
            raise DeviceError(f"{self.name}: closed")
        raw = self._bus.read(self._address, R.ACCEL_XOUT_H, R.DATA_LENGTH)
        ax, ay, az, temperature, gx, gy, gz = _DATA.unpack(raw)
        if ax == ay == az == 0:
            # Not even free fall reads so: a power-cycled chip sleeps, and its registers are 0.
            raise self._lost("all accelerometer axes read 0: the chip is asleep")
        if raw == self._raw:
            return None
        self._raw = raw
        temperature_c = temperature / 340.0 + 36.53  # register map 4.18
        before_c, self._temperature_c = self._temperature_c, temperature_c
        if not -40.0 <= temperature_c <= 85.0:
            raise DeviceError(
                f"{self.name}: its temperature reads {temperature_c:.1f} °C, "
                "outside the chip's -40 to 85 °C"
            )
        if before_c is not None and abs(temperature_c - before_c) > MAX_TEMPERATURE_STEP_C:
            raise DeviceError(
                f"{self.name}: its temperature jumped from {before_c:.1f} to "
                f"{temperature_c:.1f} °C between two reads: the bytes are garbage"
            )
        self._alive(now_s)
        (fx, fy, fz), (rx, ry, rz), (dx, dy, dz) = self._accel
        (px, py, pz), (qx, qy, qz), (sx, sy, sz) = self._gyro
        return ImuSample(
            t_s=now_s,
            accel_body_mps2=(
                fx * ax + fy * ay + fz * az,
                rx * ax + ry * ay + rz * az,
                dx * ax + dy * ay + dz * az,
            ),
            gyro_body_radps=(
                px * gx + py * gy + pz * gz,
                qx * gx + qy * gy + qz * gz,
                sx * gx + sy * gy + sz * gz,
            ),
            temperature_c=temperature_c,
        )

    def _value(self, sample: ImuSample) -> tuple[float, ...]:
        return sample.accel_body_mps2 + sample.gyro_body_radps


def mounting_rows(mounting: tuple[str, str, str], *, who: str) -> tuple[Vec3, Vec3, Vec3]:
    """Return the body axes (forward, right, down) in chip axes.

    Raises BoardError where they are no right-handed set: a mirrored IMU flies upside down.
    """
    rows: list[Vec3] = []
    for text in mounting:
        axis = AXES.get(text.removeprefix("-").removeprefix("+"))
        if axis is None:
            raise BoardError(f"{who}: mounting {text!r} is none of x, y, z, -x, -y, -z")
        rows.append(_scale(axis, -1.0 if text.startswith("-") else 1.0))
    (a, b, c), (d, e, f), (g, h, i) = rows
    if a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) != 1.0:
        raise BoardError(
            f"{who}: mounting {', '.join(mounting)} is not right-handed: "
            "forward cross right must give down"
        )
    return rows[0], rows[1], rows[2]


def _scale(axis: tuple[float, float, float], by: float) -> Vec3:
    return (axis[0] * by, axis[1] * by, axis[2] * by)
