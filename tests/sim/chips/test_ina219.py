"""The simulated INA219 against SBOS448G."""

from typing import Any

import pytest

from tests.sim.bench import Bench, read

TENTH_OHM = {"shunt_ohm": 0.1}


def word(chip: Any, register: int) -> int:
    return int.from_bytes(read(chip, register, 2), "big")


def signed(value: int) -> int:
    return value - ((value & 0x8000) << 1)


def test_power_on_values() -> None:
    chip = Bench().fit("power", options=TENTH_OHM)
    assert word(chip, 0) == 0x399F
    assert [word(chip, register) for register in (3, 4, 5)] == [0, 0, 0]


def test_it_measures_without_calibration_but_has_no_current() -> None:
    bench = Bench()
    chip = bench.fit("power", options=TENTH_OHM)
    bench.run(0.1)
    bus = word(chip, 2)
    assert (bus >> 3) * 0.004 == pytest.approx(8.0, abs=0.02)
    assert bus & 2  # conversion ready
    assert signed(word(chip, 1)) * 10e-6 == pytest.approx(0.1, abs=2e-4)  # 1 A in 0.1 ohm
    assert word(chip, 4) == 0


def test_the_data_sheets_example() -> None:
    """2 mΩ and 1 mA a bit: shunt 07D0h, bus 5D98h give 10.0 A, 11.98 V, 119.8 W."""
    bench = Bench()
    bench.truth.battery_v, bench.truth.battery_current_a = 11.981, 10.0
    chip = bench.fit("power", options={"shunt_ohm": 0.002})
    chip.write(b"\x05\x50\x00")
    bench.run(0.1)
    current = word(chip, 4)
    assert abs(current - 10000) <= 5 * 5 * 10  # offset and noise of the shunt input
    bus = word(chip, 2) >> 3
    assert bus * 0.004 == pytest.approx(11.98, abs=0.01)
    shunt = signed(word(chip, 1))
    assert current == shunt * 0x5000 // 4096
    assert word(chip, 3) == current * bus // 5000


def test_the_pointer_stays_and_never_increments() -> None:
    bench = Bench()
    chip = bench.fit("power", options=TENTH_OHM)
    bench.run(0.1)
    chip.write(b"\x00")
    assert chip.read(2) == b"\x39\x9f"
    assert chip.read(2) == b"\x39\x9f"
    assert chip.read(4) == b"\x39\x9f\xff\xff"


def test_a_discharge_the_other_way_is_negative() -> None:
    bench = Bench()
    bench.truth.battery_current_a = -0.5
    chip = bench.fit("power", options=TENTH_OHM)
    chip.write(b"\x05\x10\x00")
    bench.run(0.1)
    assert signed(word(chip, 1)) * 10e-6 == pytest.approx(-0.05, abs=2e-4)
    assert signed(word(chip, 4)) == pytest.approx(-5000, abs=20)


@pytest.mark.parametrize(("gain", "full_v"), [(0, 0.04), (1, 0.08), (2, 0.16), (3, 0.32)])
def test_the_gain_limits_the_shunt(gain: int, full_v: float) -> None:
    bench = Bench()
    bench.truth.battery_current_a = 30.0
    chip = bench.fit("power", options=TENTH_OHM)
    config = 0x2007 | gain << 11 | 3 << 7 | 3 << 3
    chip.write(bytes((0, config >> 8, config & 0xFF)))
    bench.run(0.1)
    assert signed(word(chip, 1)) * 10e-6 == pytest.approx(full_v)


def test_reset_clears_itself_and_calibration_drops_bit_0() -> None:
    chip = Bench().fit("power", options=TENTH_OHM)
    chip.write(b"\x05\x10\x01")
    assert word(chip, 5) == 0x1000
    chip.write(b"\x00\x80\x00")
    assert word(chip, 0) == 0x399F
    assert word(chip, 5) == 0


def test_ready_is_cleared_by_reading_power() -> None:
    bench = Bench()
    chip = bench.fit("power", options=TENTH_OHM)
    bench.run(0.1)
    assert word(chip, 2) & 2
    word(chip, 3)
    assert not word(chip, 2) & 2
    bench.run(0.01)
    assert word(chip, 2) & 2


def test_power_down_holds_and_triggered_converts_once() -> None:
    bench = Bench()
    chip = bench.fit("power", options=TENTH_OHM)
    bench.run(0.1)
    chip.write(b"\x00\x39\x98")  # power-down
    held = word(chip, 2) >> 3
    bench.truth.battery_v = 6.0
    bench.run(1.0)
    assert word(chip, 2) >> 3 == held
    chip.write(b"\x00\x39\x9b")  # shunt and bus, triggered
    bench.run(0.01)
    assert (word(chip, 2) >> 3) * 0.004 == pytest.approx(6.0, abs=0.02)
    bench.truth.battery_v = 7.0
    bench.run(1.0)
    assert (word(chip, 2) >> 3) * 0.004 == pytest.approx(6.0, abs=0.02)
