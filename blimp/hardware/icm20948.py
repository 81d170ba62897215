"""ICM-20948: three-axis accelerometer, gyro and magnetometer on I2C.

Source: DS-000189 revision 1.3: 3.1 and 3.2 (sensitivities), 5 (auxiliary bus), 7 to 10 (the
four banks), 12 and 13 (the AK09916 magnetometer inside, whose y and z point the other way).
"""

from struct import Struct
from typing import ClassVar

from blimp.airframe import Device as Row
from blimp.hardware.bus import Buses
from blimp.hardware.device import Steps, Wiring
from blimp.hardware.inertial import InertialSensor
from blimp.hardware.registers.inertial import AK09916
from blimp.hardware.registers.inertial import ICM20948 as R
from blimp.types import ImuSample, Vec3

MAGNETIC_LSB_T = 0.15e-6
MAGNETIC_STALE_S = 0.5
DIVIDER = 4  # 225 Hz

_DATA = Struct(">7h")
_MAGNETIC = Struct("<B3hxB")  # ST1, the field, a byte without meaning, ST2
_AUX_S = 0.02  # several of the auxiliary bus's turns


def _filtered(setting: int) -> int:
    return setting << R.DLPF_SHIFT | R.FCHOICE


class Icm20948(InertialSensor):
    """Without an answer from its magnetometer the rest is good, and `error` says so."""

    UNIT: ClassVar[str] = "m/s², rad/s, µT"
    WIRING: ClassVar = Wiring(bus="i2c")
    RANGES_DPS: ClassVar = {250: (0 << R.FS_SHIFT, 131.0), 500: (1 << R.FS_SHIFT, 65.5)}
    FILTERS_HZ: ClassVar = {197: 0, 120: 2, 51: 3, 24: 4}  # of the gyro, table 16
    FILTER_HZ: ClassVar[int] = 51

    def __init__(self, *, row: Row, buses: Buses) -> None:
        super().__init__(row=row, buses=buses)
        self._magnetic = self._mounting.turn(MAGNETIC_LSB_T)
        self._field: Vec3 | None = None
        self._field_s = 0.0
        self._field_error = ""

    def _start(self) -> Steps:
        bus = self._open()
        self._bank(0)  # a killed process may have left another: without it no identity
        self._identify("WHO_AM_I", R.WHO_AM_I, R.CHIP_ID)
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.DEVICE_RESET]))
        yield R.RESET_S
        bus.write(self._address, R.PWR_MGMT_1, bytes([R.CLKSEL_AUTO]))
        yield R.GYRO_START_UP_S
        self._bank(2)
        self._set(R.GYRO_SMPLRT_DIV, bytes([DIVIDER, _filtered(self._filter) | self._range]))
        self._set(R.ACCEL_SMPLRT_DIV_1, bytes([0, DIVIDER]))
        self._set(R.ACCEL_CONFIG, bytes([_filtered(self._filter)]))
        self._bank(0)
        self._temperature.forget()
        yield 0.0
        yield from self._start_magnetometer()

    def _start_magnetometer(self) -> Steps:
        """Let the chip's own bus read the magnetometer, beside each sample of its own."""
        bus = self._bus
        bus.write(self._address, R.USER_CTRL, bytes([R.I2C_MST_EN]))
        self._bank(3)
        bus.write(self._address, R.I2C_MST_CTRL, bytes([R.MST_P_NSR | R.MST_345_KHZ]))
        self._aux_read(AK09916.WIA1, len(AK09916.IDENTITY))
        yield _AUX_S
        found = bus.read(self._address, R.EXT_SLV_SENS_DATA_00, len(AK09916.IDENTITY))
        self._field = None
        self._field_error = ""
        if found != AK09916.IDENTITY:
            self._field_error = (
                f"magnetometer: its identity reads {found.hex(' ')}, "
                f"expected {AK09916.IDENTITY.hex(' ')}"
            )
            return
        for register, value in (
            (AK09916.CNTL3, AK09916.SRST),
            (AK09916.CNTL2, AK09916.CONTINUOUS_100_HZ),
        ):
            self._aux_write(register, value)
            yield _AUX_S
        self._aux_read(AK09916.ST1, AK09916.DATA_LENGTH)
        yield _AUX_S

    def _read(self, now_s: float) -> ImuSample | None:
        length = R.DATA_LENGTH + AK09916.DATA_LENGTH
        raw = self._bus.read(self._address, R.ACCEL_XOUT_H, length)
        ax, ay, az, gx, gy, gz, temperature = _DATA.unpack_from(raw)
        if not self._is_news(raw[: R.DATA_LENGTH], (ax, ay, az)):
            return None
        remark = self._read_field(raw[R.DATA_LENGTH :], now_s)
        return self._sample(
            now_s,
            accel=(ax, ay, az),
            gyro=(gx, gy, gz),
            temperature_c=temperature / 333.87 + 21.0,  # 3.4, table 3
            magnetic_body_t=self._field,
            remark=remark,
        )

    def _read_field(self, raw: bytes, now_s: float) -> str:
        """Take the newest field; it stays until the next, half a second at most."""
        if self._field_error:
            return self._field_error
        status, x, y, z, overflow = _MAGNETIC.unpack(raw)
        if overflow & AK09916.ST2_HOFL:
            self._field = None
            return "magnetometer: the field is beyond its range"
        if status & AK09916.ST1_DRDY and (x, y, z) != (0, 0, 0):
            self._field = self._correction.field(self._magnetic(x, -y, -z))
            self._field_s = now_s
        elif now_s - self._field_s > MAGNETIC_STALE_S:
            self._field = None
        return "" if self._field is not None else "magnetometer: no measurement"

    def _bank(self, number: int) -> None:
        self._bus.write(self._address, R.REG_BANK_SEL, bytes([number << R.BANK_SHIFT]))

    def _aux_read(self, register: int, length: int) -> None:
        self._aux(AK09916.ADDRESS | R.SLV_READ, register, length)

    def _aux_write(self, register: int, value: int) -> None:
        self._bank(3)
        self._bus.write(self._address, R.I2C_SLV0_DO, bytes([value]))
        self._aux(AK09916.ADDRESS, register, 1)

    def _aux(self, address: int, register: int, length: int) -> None:
        self._bank(3)
        order = bytes([address, register, R.SLV_EN | length])
        self._bus.write(self._address, R.I2C_SLV0_ADDR, order)
        self._bank(0)
