"""Golden values: SBOS448G section 8.5.2, 2 mΩ and 1 mA a bit."""

import pytest

from blimp.errors import BoardError
from blimp.hardware.ina219 import Ina219, calibration_word
from tests.hardware.doubles import Doubles, WordChip, on_i2c, polled, well


def fitted(**options: object) -> tuple[Ina219, WordChip, Doubles]:
    chip = WordChip({0: 0x399F, 1: 0x07D0, 2: 0x5D98 | 2, 3: 0x1766, 4: 0x2710, 5: 0})

    def reset(register: int, data: bytes) -> None:
        if register == 0 and data == b"\x80\x00":
            chip.words.update({0: 0x399F, 5: 0})

    chip.on_write = reset
    options = options or {"shunt_ohm": 0.002, "current_lsb_a": 0.001}
    return on_i2c(Ina219, chip, name="power", chip="ina219", address=0x41, options=options)


def test_calibration_of_the_datasheet() -> None:
    assert calibration_word(shunt_ohm=0.002, current_lsb_a=0.001) == 0x5000
    assert calibration_word(shunt_ohm=0.1, current_lsb_a=0.0001) == 4096


@pytest.mark.parametrize(("shunt", "lsb"), [(0.0, 0.001), (-0.1, 0.001), (1e-6, 1e-6), (10.0, 1.0)])
def test_calibration_outside_the_register_is_refused(shunt: float, lsb: float) -> None:
    with pytest.raises(BoardError, match="power: shunt_ohm"):
        fitted(shunt_ohm=shunt, current_lsb_a=lsb)


def test_voltage_and_current_of_the_datasheet() -> None:
    power, chip, _ = fitted()
    polled(power, 3, every_s=0.1)
    assert power.sample is not None
    assert power.sample.voltage_v == pytest.approx(11.98, abs=0.005)
    assert power.sample.current_a == pytest.approx(10.0)
    assert chip.words[5] == 0x5000
    assert chip.words[0] == 0x2E67  # 32 V, ±80 mV for 66 mV, 16 samples twice, continuous


def test_each_reading_needs_a_conversion_of_its_own() -> None:
    """Reading the power clears the chip's flag "conversion ready"."""
    power, chip, _ = fitted()
    read = chip.read

    def clear(register: int, length: int) -> bytes:
        chip.words[2] &= ~2 if register == 3 else 0xFFFF
        return read(register, length)

    chip.read = clear  # type: ignore[method-assign]
    polled(power, 40, every_s=0.1)
    assert power.sample is not None
    assert power.sample.t_s < 1.0
    assert not well(power)
    assert "no new conversion" in power.error


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("options", "shunt", "current", "overflow", "amperes"),
    [
        ({}, 0x1F40, 5, 1, 32.767),  # beyond the register, which holds the lowest bits
        ({"shunt_ohm": 0.05, "current_lsb_a": 0.0002}, 32000, 32000, 0, 6.4),  # 320 mV
    ],
)
def test_a_current_at_the_end_of_its_range_is_unhealthy_and_keeps_the_voltage(
    options: dict[str, float], shunt: int, current: int, overflow: int, amperes: float, sign: int
) -> None:
    power, chip, _ = fitted(**options)
    chip.words.update({1: sign * shunt & 0xFFFF, 2: 0x5D9A | overflow, 4: sign * current & 0xFFFF})
    for step in range(30):
        power.poll(step * 0.1)
        assert power.sample is None or not well(power)
    assert power.sample is not None
    assert power.sample.voltage_v == pytest.approx(11.98, abs=0.005)
    assert power.sample.current_a == pytest.approx(sign * amperes)
    assert power.sample.t_s == pytest.approx(2.9)  # it is not started again
    assert f"current is at {sign * amperes:.2f} A" in power.error
    assert "check the wires of the shunt, shunt_ohm and current_lsb_a" in power.error


def test_a_motors_start_beyond_the_range_is_no_fault() -> None:
    power, chip, _ = fitted(shunt_ohm=0.05, current_lsb_a=0.0002)
    chip.words[4] = 3000
    polled(power, 10, every_s=0.1)
    chip.words[4] = 32000
    for step in range(10, 18):
        power.poll(step * 0.1)
        assert well(power)
    assert "current is at" in power.error


def test_no_new_conversion_is_unhealthy() -> None:
    power, chip, _ = fitted()
    polled(power, 3, every_s=0.1)
    chip.words[2] &= ~2
    polled(power, 25, start_s=0.3, every_s=0.1)
    assert not well(power)
    assert "no new conversion" in power.error


def test_a_chip_that_was_reset_is_set_up_again() -> None:
    power, chip, _ = fitted()
    polled(power, 3, every_s=0.1)
    chip.words.update({0: 0x399F, 4: 0, 5: 0})
    before = power.sample
    power.poll(0.3)
    assert not well(power)
    assert power.sample is before
    power.poll(0.4)
    power.poll(0.5)
    assert chip.words[5] == 0x5000
    power.poll(0.6)
    assert well(power)
