"""The simulated MS5611 against its data sheet."""

from typing import Any

import pytest

from blimp.sim.chips import ms5607, ms5611
from blimp.sim.chips.ms5611 import crc4, pressure, temperature
from tests.sim.bench import Bench, read

D1, D2 = 0x48, 0x58


def converted(bench: Bench, chip: Any, command: int) -> int:
    chip.write(bytes((command,)))
    bench.run(0.01)
    return int.from_bytes(read(chip, 0x00, 3), "big")


def test_the_example_and_the_crc() -> None:
    assert temperature(8569150) == pytest.approx(20.07, abs=0.01)
    assert pressure(9085466, 8569150) == pytest.approx(100009.0, abs=0.5)
    words = (0x3132, 0x3334, 0x3536, 0x3738, 0x3940, 0x4142, 0x4344, 0x4500)
    assert crc4(words) == 0xB  # AN520


def test_the_prom_can_be_read_once_it_is_reloaded() -> None:
    bench = Bench()
    chip = bench.fit("baro", chip="ms5611")
    chip.write(b"\x1e")
    assert read(chip, 0xA2, 2) == b"\0\0"
    bench.run(0.003)
    words = tuple(int.from_bytes(read(chip, 0xA0 + 2 * i, 2), "big") for i in range(8))
    assert words[1:7] == (40127, 36924, 23317, 23282, 33464, 28312)
    assert crc4(words) == words[7] & 0xF


@pytest.mark.parametrize(("pascal", "celsius"), [(101325.0, 25.0), (95000.0, -5.0), (30000, -30)])
@pytest.mark.parametrize(
    ("name", "part", "within_pa"), [("ms5611", ms5611, 160.0), ("ms5607", ms5607, 210.0)]
)
def test_raw_readings_compensate_to_the_truth(
    name: str, part: Any, within_pa: float, pascal: float, celsius: float
) -> None:
    bench = Bench()
    bench.truth.pressure_pa, bench.truth.temperature_c = pascal, celsius
    chip = bench.fit("baro", chip=name)
    d2, d1 = converted(bench, chip, D2), converted(bench, chip, D1)
    assert part.temperature(d2) == pytest.approx(celsius, abs=0.9)
    assert part.pressure(d1, d2) == pytest.approx(pascal, abs=within_pa)


def test_a_result_is_there_when_it_is_done_and_once() -> None:
    bench = Bench()
    chip = bench.fit("baro", chip="ms5611")
    assert read(chip, 0x00, 3) == bytes(3), "nothing was ordered"
    chip.write(bytes((D1,)))
    bench.run(0.005)
    assert read(chip, 0x00, 3) == bytes(3), "read too soon, the conversion is lost"
    assert converted(bench, chip, D1) > 0
    assert read(chip, 0x00, 3) == bytes(3)


def test_the_example_of_the_ms5607() -> None:
    assert ms5607.temperature(8077636) == pytest.approx(20.0, abs=0.01)
    assert ms5607.pressure(6465444, 8077636) == pytest.approx(110002.0, abs=1.0)
