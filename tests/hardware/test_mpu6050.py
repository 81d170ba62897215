"""Scales from PS-MPU-6000A-00: 16384 LSB/g at ±2 g, 131 LSB/(°/s) at ±250 °/s."""

import math
import struct

import pytest

from blimp.errors import BoardError
from blimp.hardware.mpu6050 import Mpu6050
from tests.hardware.doubles import Doubles, RegisterChip, on_i2c, polled, well

TEMPERATURE_25C = round((25.0 - 36.53) * 340)


def words(*values: int) -> bytes:
    return struct.pack(">7h", *values)


LEVEL = words(0, 0, 16384, TEMPERATURE_25C, 0, 0, 0)


def fitted(**options: object) -> tuple[Mpu6050, RegisterChip, Doubles]:
    chip = RegisterChip({0x75: b"\x68", 0x3B: LEVEL, 0x6B: b"\x40"})
    row = {"name": "imu", "chip": "mpu6050", "address": 0x68, "rate_hz": 100.0}
    return on_i2c(Mpu6050, chip, **row, options=options)


def test_level_and_at_rest_reads_one_g_up() -> None:
    imu, _, _ = fitted()
    polled(imu, 20)
    assert imu.sample is not None
    assert imu.sample.accel_body_mps2 == pytest.approx((0.0, 0.0, -9.80665), abs=1e-9)
    assert imu.sample.gyro_body_radps == pytest.approx((0.0, 0.0, 0.0))
    assert imu.sample.temperature_c == pytest.approx(25.0, abs=0.01)


def test_bias_and_scale_are_taken_out_in_the_body_frame() -> None:
    imu, _, _ = fitted(accel_bias_mps2=(0.1, -0.2, 0.3), accel_scale=(1.0, 1.1, 0.95))
    polled(imu, 20)
    assert imu.sample is not None
    wanted = (-0.1, 0.2 * 1.1, (-9.80665 - 0.3) * 0.95)
    assert imu.sample.accel_body_mps2 == pytest.approx(wanted, abs=1e-9)


def test_a_board_that_stands_at_an_angle_is_levelled() -> None:
    """Nose up by 0.1 rad against the ship: level, it feels g along its own tilted axes."""
    imu, chip, _ = fitted(level_rad=(0.0, 0.1), gyro_bias_radps=(math.radians(1.0), 0.0, 0.0))
    now_s = polled(imu, 20)
    up, ahead = round(16384 * math.cos(0.1)), round(16384 * math.sin(0.1))
    chip.set(0x3B, words(ahead, 0, up, TEMPERATURE_25C, 131 * 3, 0, 0))
    imu.poll(now_s)
    assert imu.sample is not None
    assert imu.sample.accel_body_mps2 == pytest.approx((0.0, 0.0, -9.80665), abs=1e-3)
    rates = [math.degrees(rate) for rate in imu.sample.gyro_body_radps]
    assert rates == pytest.approx([2.0 * math.cos(0.1), 0.0, -2.0 * math.sin(0.1)], abs=1e-6)


def test_axes_are_turned_into_the_body_frame() -> None:
    imu, chip, _ = fitted()
    now_s = polled(imu, 20)
    chip.set(0x3B, words(1638, 3277, 16384, TEMPERATURE_25C, 131, 262, 1310))
    imu.poll(now_s)
    assert imu.sample is not None
    ax, ay, az = imu.sample.accel_body_mps2
    assert (ax, ay, az) == pytest.approx((0.9804, -1.9615, -9.80665), abs=1e-3)
    degrees = [math.degrees(rate) for rate in imu.sample.gyro_body_radps]
    assert degrees == pytest.approx([1.0, -2.0, -10.0])


def test_a_mounting_of_its_own() -> None:
    imu, chip, _ = fitted(mounting=["y", "x", "-z"], gyro_range_dps=500)
    now_s = polled(imu, 20)
    chip.set(0x3B, words(100, 200, 16384, TEMPERATURE_25C, 655, 0, 0))
    imu.poll(now_s)
    assert imu.sample is not None
    assert imu.sample.accel_body_mps2[0] == pytest.approx(200 / 16384 * 9.80665)
    assert imu.sample.accel_body_mps2[1] == pytest.approx(100 / 16384 * 9.80665)
    assert math.degrees(imu.sample.gyro_body_radps[1]) == pytest.approx(10.0)
    assert chip.memory[0x1B] == 0x08


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"accel_scale": (1.0, 2.0, 1.0)}, "accel_scale .* is outside 0.8 to 1.25"),
        ({"accel_bias_mps2": (0.0, math.nan, 0.0)}, "accel_bias_mps2"),
        ({"gyro_bias_radps": (0.0, 0.36, 0.0)}, "gyro_bias_radps .* is outside -0.35 to 0.35"),
        ({"level_rad": (0.0, 0.3)}, "level_rad .* is outside -0.262 to 0.262"),
        ({"magnetic_bias_t": (1e-3, 0.0, 0.0)}, "magnetic_bias_t .* is outside -0.0002 to 0.0002"),
        ({"magnetic_matrix": [[2, 0, 0], [0, 1, 0], [0, 0, 1]]}, "its diagonal .* 0.6 to 1.6"),
        ({"magnetic_matrix": [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]}, "beside its .* -0.4 to 0.4"),
        (
            {"magnetic_matrix": [[0.6, -0.4, -0.4], [-0.4, 0.6, -0.4], [-0.4, -0.4, 0.6]]},
            "its determinant .* 0.5 to 2",
        ),
        ({"mounting": ["x", "y", "-z"]}, "right-handed"),
        ({"mounting": ["x", "x", "z"]}, "right-handed"),
        ({"mounting": ["x", "y", "up"]}, "'up'"),
        ({"gyro_range_dps": 300}, "300"),
        ({"filter_hz": 1000}, "1000"),
        ({"filter": 44}, "filter"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(BoardError, match=f"imu.*{named}"):
        fitted(**options)


def test_the_same_bytes_for_25_reads_is_frozen_and_no_sample() -> None:
    imu, chip, _ = fitted()
    now_s = polled(imu, 20)
    assert imu.sample is not None
    first = imu.sample
    polled(imu, 40, start_s=now_s)
    assert imu.sample is first
    assert not well(imu)
    assert "frozen" in imu.error
    polled(imu, 60, start_s=now_s + 0.4)  # it is started again, and shows the same bytes
    assert not well(imu)
    chip.set(0x3B, words(1, 0, 16384, TEMPERATURE_25C, 0, 0, 0))
    polled(imu, 60, start_s=now_s + 1.0)
    assert imu.sample is not first


def test_a_sleeping_chip_gives_no_sample_and_is_woken() -> None:
    imu, chip, _ = fitted()
    now_s = polled(imu, 20)
    first = imu.sample
    chip.set(0x3B, bytes(14))
    chip.set(0x6B, b"\x40")

    def wake(register: int, data: bytes) -> None:
        if (register, data) == (0x6B, b"\x01"):
            chip.set(0x3B, words(5, 5, 16384, TEMPERATURE_25C, 0, 0, 0))

    chip.on_write = wake
    imu.poll(now_s)
    assert imu.sample is first
    assert not well(imu)
    assert "asleep" in imu.error
    polled(imu, 20, start_s=now_s + 0.01)
    assert well(imu)
    assert imu.sample is not first
    assert chip.memory[0x1A] == 0x03


def test_garbage_is_found_by_its_temperature() -> None:
    imu, chip, _ = fitted()
    now_s = polled(imu, 20)
    first = imu.sample
    for step, raw in enumerate((30000, -20000, 3000, -6000, 0)):
        chip.set(0x3B, words(1, 2, 3, raw, 5, 6, 7))
        imu.poll(now_s + step * 0.01)
    assert imu.sample is first
    assert not well(imu)


def fitted_as(identity: int, temperature: int, **options: object) -> tuple[Mpu6050, RegisterChip]:
    imu, chip, _ = fitted(**options)
    chip.set(0x75, bytes([identity]))
    chip.set(0x3B, words(0, 0, 16384, temperature, 0, 0, 0))
    return imu, chip


@pytest.mark.parametrize(
    ("identity", "temperature"),
    # RM-MPU-6500A-00: 333.87 counts a degree, 0 at 21 °C; DS-000143 (ICM-20689): 326.8, at 25 °C
    [(0x70, 1335), (0x71, 1335), (0x73, 1335), (0x74, 1335), (0x98, 0)],
)
def test_those_with_the_registers_of_the_mpu_6500(identity: int, temperature: int) -> None:
    imu, chip = fitted_as(identity, temperature, filter_hz=94)
    polled(imu, 20)
    assert well(imu)
    assert imu.sample is not None
    assert imu.sample.temperature_c == pytest.approx(25.0, abs=0.01)
    assert imu.sample.accel_body_mps2 == pytest.approx((0.0, 0.0, -9.80665), abs=1e-9)
    assert (0x19, b"\x00\x02\x00\x00\x02") in chip.writes, "the accelerometer has its own filter"


def test_one_that_wakes_by_itself_after_a_power_cut_is_set_again() -> None:
    """At ±500 °/s its rates would count twice: an MPU-6500 comes back awake, at ±250 °/s."""
    imu, chip = fitted_as(0x70, 1335, gyro_range_dps=500)
    now_s = polled(imu, 20)
    chip.set(0x19, bytes(5))
    chip.set(0x6B, b"\x01")
    for step in range(60):
        chip.set(0x3B, words(step % 3, 0, 16384, 1335, 0, 0, 0))
        imu.poll(now_s + step * 0.01)
        if "was reset" in imu.error:
            break
    assert step <= 10, "a tenth of a second"
    assert not well(imu)
    for step in range(60, 90):
        chip.set(0x3B, words(step % 3, 0, 16384, 1335, 0, 0, 0))
        imu.poll(now_s + step * 0.01)
    assert well(imu)
    assert chip.memory[0x1B] == 0x08


@pytest.mark.parametrize(
    ("axes", "named"),
    [
        ((32767, 0, 16384, 0, 0, 0), "acceleration"), ((0, -32768, 16384, 0, 0, 0), "acceleration"),
        ((0, 0, 16384, 0, 0, 32767), "rate"), ((0, 0, 16384, -32768, 0, 0), "rate"),
    ],
)  # fmt: skip
def test_the_end_of_its_range_is_no_measurement(axes: tuple[int, ...], named: str) -> None:
    """An axis that is broken so must not be believed; one knock is no loss."""
    imu, chip, _ = fitted()
    now_s = polled(imu, 20)
    before = imu.sample
    accel, gyro = axes[:3], axes[3:]
    for step in range(4):
        chip.set(0x3B, words(*accel, TEMPERATURE_25C + step, *gyro))
        imu.poll(now_s + 0.01 * step)
    assert well(imu)
    assert imu.sample is before
    chip.set(0x3B, words(*accel, TEMPERATURE_25C + 4, *gyro))
    imu.poll(now_s + 0.05)
    assert not well(imu)
    assert named in imu.error
    assert "at the end of its range" in imu.error
