"""The simulated BMP280 against its data sheet."""

import statistics
import struct

import pytest

from blimp.sim.chips.bmp280 import fine_temperature, pressure
from tests.sim.bench import Bench, read

NORMAL_X1_X16 = 1 << 5 | 5 << 2 | 3
FORCED_X1_X1 = 1 << 5 | 1 << 2 | 1


def raw(data: bytes) -> tuple[int, int]:
    """Return raw pressure and raw temperature of a burst of six bytes."""
    p, t = data[:3], data[3:]
    return p[0] << 12 | p[1] << 4 | p[2] >> 4, t[0] << 12 | t[1] << 4 | t[2] >> 4


def test_the_worked_example_of_section_3_12() -> None:
    t_fine = fine_temperature(519888)
    assert t_fine == pytest.approx(128422, abs=1)
    assert t_fine / 5120.0 == pytest.approx(25.08, abs=0.005)
    assert pressure(415148, t_fine) == pytest.approx(100653.27, abs=0.05)


def test_it_powers_on_asleep_with_the_examples_calibration() -> None:
    chip = Bench().fit("baro")
    assert read(chip, 0xD0) == b"\x58"
    assert read(chip, 0xF4, 2) == b"\x00\x00"
    assert raw(read(chip, 0xF7, 6)) == (0x80000, 0x80000)
    assert struct.unpack("<Hhh", read(chip, 0x88, 6)) == (27504, 26435, -1000)
    assert struct.unpack("<Hhhhhhhhh", read(chip, 0x8E, 18)) == (
        36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000,
    )  # fmt: skip


def test_asleep_it_measures_nothing() -> None:
    bench = Bench()
    chip = bench.fit("baro")
    bench.run(10.0)
    assert raw(read(chip, 0xF7, 6)) == (0x80000, 0x80000)


@pytest.mark.parametrize(("pascal", "celsius"), [(101325.0, 15.0), (95460.9, -5.0), (30000, 40)])
def test_raw_readings_compensate_to_the_truth(pascal: float, celsius: float) -> None:
    bench = Bench()
    bench.truth.pressure_pa, bench.truth.temperature_c = pascal, celsius
    chip = bench.fit("baro")
    chip.write(bytes((0xF4, NORMAL_X1_X16)))
    values = []
    for _ in range(60):
        bench.run(0.05)
        raw_p, raw_t = raw(read(chip, 0xF7, 6))
        t_fine = fine_temperature(raw_t)
        assert t_fine / 5120.0 == pytest.approx(celsius, abs=0.6)  # ±0.5 °C part
        values.append(pressure(raw_p, t_fine))
    assert statistics.fmean(values) == pytest.approx(pascal, abs=110.0)  # ±1 hPa part
    assert 0.8 < statistics.pstdev(values) < 2.0  # 1.3 Pa rms at x16, table 6


def test_the_filter_quietens_it() -> None:
    def spread(config: int) -> float:
        bench = Bench()
        chip = bench.fit("baro")
        chip.write(bytes((0xF5, config)))
        chip.write(bytes((0xF4, NORMAL_X1_X16)))
        bench.run(3.0)
        values = []
        for _ in range(100):
            bench.run(0.05)
            raw_p, raw_t = raw(read(chip, 0xF7, 6))
            values.append(pressure(raw_p, fine_temperature(raw_t)))
        return statistics.pstdev(values)

    assert spread(4 << 2) < 0.5 * spread(0)


def test_a_forced_conversion_takes_its_time_and_ends_in_sleep() -> None:
    bench = Bench()
    bench.run(0.01)
    chip = bench.fit("baro")
    bench.run(0.01)
    chip.write(bytes((0xF4, FORCED_X1_X1)))
    assert read(chip, 0xF3) == b"\x08"
    bench.run(0.004)
    assert raw(read(chip, 0xF7, 6)) == (0x80000, 0x80000)
    bench.run(0.003)
    first = raw(read(chip, 0xF7, 6))
    assert first != (0x80000, 0x80000)
    assert read(chip, 0xF3) == b"\x00"
    assert read(chip, 0xF4)[0] & 3 == 0
    bench.run(1.0)
    assert raw(read(chip, 0xF7, 6)) == first


def test_skipped_pressure_reads_80000() -> None:
    bench = Bench()
    chip = bench.fit("baro")
    chip.write(bytes((0xF4, 1 << 5 | 3)))
    bench.run(0.1)
    raw_p, raw_t = raw(read(chip, 0xF7, 6))
    assert raw_p == 0x80000
    assert raw_t != 0x80000


def test_reset_takes_its_word_only_and_reads_zero() -> None:
    bench = Bench()
    chip = bench.fit("baro")
    chip.write(bytes((0xF4, NORMAL_X1_X16)))
    chip.write(b"\xe0\x11")
    assert read(chip, 0xF4) == bytes((NORMAL_X1_X16,))
    chip.write(b"\xe0\xb6")
    assert read(chip, 0xF4) == b"\x00"
    assert read(chip, 0xE0) == b"\x00"
    assert read(chip, 0xF3)[0] & 1  # calibration is being copied
    bench.run(0.003)
    assert read(chip, 0xF3) == b"\x00"


def test_config_is_lost_in_normal_mode_and_writes_are_pairs() -> None:
    chip = Bench().fit("baro")
    chip.write(bytes((0xF5, 0x10, 0xF4, NORMAL_X1_X16)))
    assert read(chip, 0xF4, 2) == bytes((NORMAL_X1_X16, 0x10))
    chip.write(b"\xf5\x00")
    assert read(chip, 0xF5) == b"\x10"


def test_readings_hold_between_conversions() -> None:
    bench = Bench()
    chip = bench.fit("baro")
    chip.write(bytes((0xF4, NORMAL_X1_X16)))
    bench.run(0.1)
    first = read(chip, 0xF7, 6)
    assert read(chip, 0xF7, 6) == first
    bench.run(0.05)
    assert read(chip, 0xF7, 6) != first
