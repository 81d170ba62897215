"""The simulated INA226 and INA260 against their data sheets."""

import pytest

from tests.sim.bench import Bench, read


def word(chip: object, register: int) -> int:
    return int.from_bytes(read(chip, register, 2), "big")


def test_the_example_of_table_1() -> None:
    bench = Bench()
    bench.truth.battery_v, bench.truth.battery_current_a = 11.98, 10.0
    chip = bench.fit("power", chip="ina226", options={"shunt_ohm": 0.002})
    chip.write(bytes((0x05, 0x0A, 0x00)))
    chip.write(bytes((0x00, 0x45, 0x27)))  # 16 samples
    bench.run(1.0)
    assert word(chip, 0x01) == pytest.approx(0x1F40, abs=5)
    assert word(chip, 0x02) == pytest.approx(0x2570, abs=2)
    assert word(chip, 0x04) == pytest.approx(0x2710, abs=7)
    assert word(chip, 0x03) == pytest.approx(0x12B8, abs=5)


@pytest.mark.parametrize(
    ("chip", "config", "die"), [("ina226", 0x4127, 0x2260), ("ina260", 0x6127, 0x2270)]
)
def test_what_it_powers_on_with(chip: str, config: int, die: int) -> None:
    made = Bench().fit("power", chip=chip, options={})
    assert word(made, 0x00) == config
    assert (word(made, 0xFE), word(made, 0xFF)) == (0x5449, die)
    made.write(bytes((0x00, 0x00, 0x01)))
    assert word(made, 0x00) == config & 0xF000 | 0x0001, "the fixed bits stay"
    made.write(bytes((0x00, 0x80, 0x00)))
    assert word(made, 0x00) == config


def test_conversion_ready_is_cleared_by_reading_it_and_by_a_new_configuration() -> None:
    bench = Bench()
    chip = bench.fit("power", chip="ina226", options={})
    assert not word(chip, 0x06) & 8
    bench.run(0.003)
    assert word(chip, 0x06) & 8
    assert not word(chip, 0x06) & 8
    bench.run(0.003)
    chip.write(bytes((0x00, 0x41, 0x27)))
    assert not word(chip, 0x06) & 8


def test_the_ina260_shows_amperes() -> None:
    bench = Bench()
    bench.truth.battery_v, bench.truth.battery_current_a = 11.98, 10.0
    chip = bench.fit("power", chip="ina260", options={})
    bench.run(1.0)
    assert word(chip, 0x01) == pytest.approx(8000, abs=5)
    assert word(chip, 0x03) == pytest.approx(11980, abs=10)
