"""The simulated MPU-6050 against its register map."""

import math
import statistics
import struct
from typing import Any

import pytest

from blimp.errors import BoardError
from tests.sim.bench import Bench, read


def data(chip: Any) -> tuple[int, ...]:
    """Return accel x y z, temperature, gyro x y z as counts."""
    return struct.unpack(">7h", read(chip, 0x3B, 14))


def awake(bench: Bench, **changes: Any) -> Any:
    chip = bench.fit("imu", **changes)
    chip.write(b"\x6b\x01")
    bench.run(0.05)
    return chip


def test_it_powers_on_asleep() -> None:
    bench = Bench()
    chip = bench.fit("imu")
    assert read(chip, 0x75) == b"\x68"
    assert read(chip, 0x6B) == b"\x40"
    bench.run(1.0)
    assert data(chip) == (0,) * 7


def test_awake_it_feels_gravity_the_right_way_up() -> None:
    x, y, z, temperature, *_ = data(awake(Bench()))
    assert (x, y) == pytest.approx((0, 0), abs=500)
    assert z == pytest.approx(16384, abs=500)  # flat, chip z up: +1 g
    assert temperature / 340.0 + 36.53 == pytest.approx(15.0, abs=0.1)


@pytest.mark.parametrize(("bits", "scale"), [(0x00, 1), (0x08, 2), (0x10, 4), (0x18, 8)])
def test_ranges_divide_the_counts(bits: int, scale: int) -> None:
    bench = Bench()
    bench.truth.rates_body_radps = (math.radians(100.0), 0.0, 0.0)
    chip = bench.fit("imu")
    chip.write(b"\x6b\x01")
    chip.write(bytes((0x1B, bits, bits)))
    bench.run(0.1)
    *_, az, _, gx, _, _ = data(chip)
    assert az == pytest.approx(16384 / scale, abs=500)
    assert gx / (131.072 / scale) == pytest.approx(100.0, abs=3.5)


def test_mounting_turns_the_axes() -> None:
    bench = Bench()
    bench.truth.specific_force_body_mps2 = (0.0, 9.80665, 0.0)  # to the right
    x, y, z, *_ = data(awake(bench, options={"mounting": ["-y", "x", "z"]}))
    assert (x, y, z) == pytest.approx((16384, 0, 0), abs=500)


@pytest.mark.parametrize("mounting", [["x", "x", "z"], ["x", "y"], ["a", "y", "z"]])
def test_a_mounting_that_is_none_is_refused(mounting: list[str]) -> None:
    with pytest.raises(BoardError, match="imu: mounting"):
        Bench().fit("imu", options={"mounting": mounting})


def test_noise_is_the_data_sheets_and_bias_the_parts() -> None:
    bench = Bench()
    chip = bench.fit("imu")
    chip.write(b"\x6b\x01")
    chip.write(b"\x1a\x02")  # 94 Hz
    bench.run(0.1)
    gyro, accel = [], []
    for _ in range(500):
        bench.run(0.01)
        counts = data(chip)
        accel.append(counts[0] / 16384.0)
        gyro.append(counts[4] / 131.072)
    assert 0.04 < statistics.pstdev(gyro) < 0.06
    assert 0.003 < statistics.pstdev(accel) < 0.005
    assert abs(statistics.fmean(gyro)) < 3.0

    other = awake(Bench(seed=2))
    assert abs(data(other)[4] / 131.072 - statistics.fmean(gyro)) > 0.01


def test_samples_come_at_their_rate_and_flag_themselves() -> None:
    bench = Bench()
    chip = bench.fit("imu")
    chip.write(b"\x6b\x01")
    chip.write(b"\x19\x09\x03")  # 1 kHz / 10
    bench.run(0.1)
    first = data(chip)
    read(chip, 0x3A)
    bench.run(0.004)
    assert read(chip, 0x3A) == b"\x00"
    assert data(chip) == first
    bench.run(0.01)
    assert read(chip, 0x3A) == b"\x01"
    assert read(chip, 0x3A) == b"\x00"  # cleared by reading
    assert data(chip) != first


def test_reset_clears_itself_and_everything() -> None:
    chip = awake(Bench())
    chip.write(b"\x1b\x18")
    chip.write(b"\x6b\x80")
    assert read(chip, 0x6B) == b"\x40"
    assert read(chip, 0x1B) == b"\x00"
    assert data(chip) == (0,) * 7


def test_the_identity_cannot_be_written_and_reads_wrap_nowhere() -> None:
    chip = Bench().fit("imu")
    chip.write(b"\x75\x12")
    assert read(chip, 0x75) == b"\x68"
    assert len(read(chip, 0x70, 32)) == 32


def test_an_mpu_6500_comes_up_awake_at_its_widest_filter() -> None:
    bench = Bench()
    chip = bench.fit("imu", chip="mpu6500")
    assert read(chip, 0x75) == b"\x70"
    assert read(chip, 0x6B) == b"\x01"
    bench.run(0.1)
    x, y, z, temperature, *_ = data(chip)
    assert (x, y, z) == pytest.approx((0, 0, 16384), abs=500)
    assert temperature / 333.87 + 21.0 == pytest.approx(15.0, abs=0.1)


def test_an_mpu_6500_filters_its_accelerometer_by_its_own_register() -> None:
    def spread(setting: int) -> float:
        bench = Bench()
        chip = bench.fit("imu", chip="mpu9250")
        chip.write(bytes((0x1A, 0x03)))
        chip.write(bytes((0x1D, setting)))
        bench.run(0.1)
        z = []
        for _ in range(500):
            bench.run(0.002)
            z.append(data(chip)[2])
        return statistics.stdev(z)

    assert spread(0) / spread(3) == pytest.approx(math.sqrt(460 / 41), rel=0.2)
