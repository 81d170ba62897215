"""The simulated BMP388 against its data sheet."""

import pytest

from blimp.sim.chips.bmp388 import pressure, temperature
from tests.sim.bench import Bench, read

NORMAL, FORCED = 0x33, 0x13
DATA = bytes.fromhex("979F6D73D885")


def raw(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:3], "little"), int.from_bytes(data[3:], "little")


def test_the_fixed_point_form_gives_the_published_reading() -> None:
    raw_p, raw_t = raw(DATA)
    celsius = temperature(raw_t)
    assert celsius == pytest.approx(30.499314, abs=1e-6)
    assert pressure(raw_p, celsius) == pytest.approx(100876.0063, abs=1e-4)


@pytest.mark.parametrize(("chip", "identity"), [("bmp388", b"\x50"), ("bmp390", b"\x60")])
def test_it_powers_on_asleep(chip: str, identity: bytes) -> None:
    bench = Bench()
    baro = bench.fit("baro", chip=chip)
    bench.run(1.0)
    assert read(baro, 0x00) == identity
    assert raw(read(baro, 0x04, 6)) == (0x800000, 0x800000)
    assert read(baro, 0x10) == b"\x01"
    assert read(baro, 0x10) == b"\x00", "cleared by reading"


@pytest.mark.parametrize(("pascal", "celsius"), [(101325.0, 15.0), (95460.9, -5.0), (30000, 40)])
def test_raw_readings_compensate_to_the_truth(pascal: float, celsius: float) -> None:
    bench = Bench()
    bench.truth.pressure_pa, bench.truth.temperature_c = pascal, celsius
    chip = bench.fit("baro", chip="bmp388")
    for register, value in ((0x1C, 0x03), (0x1D, 0x02), (0x1F, 0x04), (0x1B, NORMAL)):
        chip.write(bytes((register, value)))
    bench.run(2.0)
    raw_p, raw_t = raw(read(chip, 0x04, 6))
    assert temperature(raw_t) == pytest.approx(celsius, abs=0.6)
    assert pressure(raw_p, temperature(raw_t)) == pytest.approx(pascal, abs=55.0)


def test_data_ready_is_cleared_by_reading_the_data() -> None:
    bench = Bench()
    chip = bench.fit("baro", chip="bmp388")
    for register, value in ((0x1D, 0x02), (0x1B, NORMAL)):
        chip.write(bytes((register, value)))
    bench.run(0.05)
    assert read(chip, 0x03)[0] & 0x60 == 0x60
    read(chip, 0x02, 8)
    assert read(chip, 0x03)[0] & 0x60 == 0
    bench.run(0.02)
    assert read(chip, 0x03)[0] & 0x60 == 0x60


def test_an_output_rate_without_time_for_the_samples_is_a_configuration_error() -> None:
    bench = Bench()
    chip = bench.fit("baro", chip="bmp388")
    for register, value in ((0x1C, 0x05), (0x1D, 0x00), (0x1B, NORMAL)):  # x32 at 200 Hz
        chip.write(bytes((register, value)))
    bench.run(1.0)
    assert read(chip, 0x02) == b"\x04"
    assert raw(read(chip, 0x04, 6)) == (0x800000, 0x800000)


def test_a_forced_conversion_ends_in_sleep() -> None:
    bench = Bench()
    chip = bench.fit("baro", chip="bmp388")
    chip.write(bytes((0x1B, FORCED)))
    bench.run(0.1)
    assert read(chip, 0x03)[0] & 0x20
    assert read(chip, 0x1B) == b"\x03"
