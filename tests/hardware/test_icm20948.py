"""Scales from DS-000189: 16384 LSB/g, 131 LSB/(°/s), 333.87 LSB/°C from 21 °C, 0.15 µT/LSB."""

import math
import struct

import pytest

from blimp.hardware.icm20948 import Icm20948
from tests.hardware.doubles import RegisterChip, on_i2c, polled, well

TEMPERATURE_25C = round(4.0 * 333.87)


def inertial(*values: int) -> bytes:
    """Accelerometer, gyro, temperature."""
    return struct.pack(">7h", *values)


def magnetic(x: int, y: int, z: int, *, ready: int = 1, st2: int = 0) -> bytes:
    return struct.pack("<B3hxB", ready, x, y, z, st2)


LEVEL = inertial(0, 0, 16384, 0, 0, 0, TEMPERATURE_25C)


class Banks(RegisterChip):
    """Four banks behind 0x7F; the auxiliary bus answers with what it is set to read."""

    def __init__(self) -> None:
        super().__init__()
        self.banks = [bytearray(0x80) for _ in range(4)]
        self.bank = 0
        self.compass = b"\x48\x09"
        self.field = magnetic(100, 200, -300)
        self.banks[0][0x00] = 0xEA
        self.put(LEVEL)

    def put(self, data: bytes) -> None:
        self.banks[0][0x2D : 0x2D + len(data)] = data

    def read(self, register: int, length: int) -> bytes:
        read = self.banks[3][0x04]
        self.banks[0][0x3B : 0x3B + 9] = self.field if read == 0x10 else self.compass + bytes(7)
        return bytes(self.banks[self.bank][register : register + length])

    def write(self, register: int, data: bytes) -> None:
        self.writes.append((self.bank << 8 | register, data))
        if register == 0x7F:
            self.bank = data[0] >> 4
        else:
            self.banks[self.bank][register : register + len(data)] = data


def fitted(**options: object) -> tuple[Icm20948, Banks]:
    row = {"name": "imu", "chip": "icm20948", "address": 0x69, "rate_hz": 100.0}
    return on_i2c(Icm20948, Banks(), **row, options=options)[:2]


def test_level_and_at_rest_reads_one_g_up_and_the_field() -> None:
    imu, _ = fitted()
    polled(imu, 30)
    assert well(imu)
    sample = imu.sample
    assert sample is not None
    assert sample.accel_body_mps2 == pytest.approx((0.0, 0.0, -9.80665), abs=1e-9)
    assert sample.gyro_body_radps == pytest.approx((0.0, 0.0, 0.0))
    assert sample.temperature_c == pytest.approx(25.0, abs=0.01)
    # The magnetometer's y and z point against the accelerometer's; then as the IMU is mounted.
    assert sample.magnetic_body_t == pytest.approx((15e-6, 30e-6, -45e-6))


def test_axes_are_turned_into_the_body_frame() -> None:
    imu, chip = fitted(mounting=["y", "x", "-z"], gyro_range_dps=500)
    now_s = polled(imu, 30)
    chip.put(inertial(100, 200, 16384, 655, 0, -655, TEMPERATURE_25C))
    imu.poll(now_s)
    assert imu.sample is not None
    assert imu.sample.accel_body_mps2[0] == pytest.approx(200 / 16384 * 9.80665)
    rates = [math.degrees(rate) for rate in imu.sample.gyro_body_radps]
    assert rates == pytest.approx([0.0, 10.0, 10.0])
    assert imu.sample.magnetic_body_t == pytest.approx((-30e-6, 15e-6, -45e-6))


def test_another_magnetometer_costs_the_field_and_no_more() -> None:
    imu, chip = fitted()
    chip.compass = b"\x00\x00"
    polled(imu, 30)
    assert well(imu)
    assert imu.sample is not None
    assert imu.sample.magnetic_body_t is None
    assert "magnetometer: its identity reads 00 00, expected 48 09" in imu.error


def test_a_field_beyond_the_range_is_no_field() -> None:
    imu, chip = fitted()
    now_s = polled(imu, 30)
    chip.field = magnetic(1, 2, 3, st2=0x08)
    chip.put(inertial(1, 0, 16384, 0, 0, 0, TEMPERATURE_25C))
    imu.poll(now_s)
    assert imu.sample is not None
    assert imu.sample.magnetic_body_t is None
    assert "beyond its range" in imu.error


def test_a_field_stays_until_the_next_half_a_second_at_most() -> None:
    imu, chip = fitted()
    now_s = polled(imu, 30)
    chip.field = magnetic(9, 9, 9, ready=0)
    for step in range(60):
        chip.put(inertial(step + 1, 0, 16384, 0, 0, 0, TEMPERATURE_25C))
        imu.poll(now_s + step * 0.01)
        assert imu.sample is not None
        if step < 45:
            assert imu.sample.magnetic_body_t == pytest.approx((15e-6, 30e-6, -45e-6))
    assert imu.sample is not None
    assert imu.sample.magnetic_body_t is None
    assert well(imu)
    assert "no measurement" in imu.error
