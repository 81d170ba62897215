"""Golden values: MS5611-01BA03, figure 2, and the PROM of AN520."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.hardware.ms5611 import Calibration, Calibration5607, Ms5607, Ms5611, crc4
from tests.hardware.doubles import CommandChip, on_i2c, well

COEFFICIENTS = (40127, 36924, 23317, 23282, 33464, 28312)
D1, D2 = 9085466, 8569150
CONVERT_D1, CONVERT_D2 = 0x48, 0x58


def prom(*coefficients: int) -> tuple[int, ...]:
    words = (0x0042, *coefficients, 0x1230)
    return (*words[:-1], words[-1] | crc4(words))


class Chip(CommandChip):
    """Answers with D1 or D2, whichever was ordered."""

    def __init__(self, words: tuple[int, ...]) -> None:
        super().__init__({0xA0 + 2 * i: word.to_bytes(2, "big") for i, word in enumerate(words)})
        self.adc = {CONVERT_D1: D1, CONVERT_D2: D2}

    def read(self, register: int, length: int) -> bytes:
        if register == 0:
            return self.adc.get(self.commands[-1], 0).to_bytes(3, "big")
        return super().read(register, length)


def fitted(
    words: tuple[int, ...] = prom(*COEFFICIENTS), kind: type[Ms5611] = Ms5611
) -> tuple[Ms5611, Chip]:
    chip = kind.__name__.lower()
    return on_i2c(kind, Chip(words), name="baro", chip=chip, address=0x77, rate_hz=50.0)[:2]


def poll_until(baro: Ms5611, end_s: float, start_s: float = 0.0) -> None:
    for step in range(round((end_s - start_s) * 50) + 1):
        baro.poll(start_s + step * 0.02)


def test_the_crc_of_an520() -> None:
    words = (0x3132, 0x3334, 0x3536, 0x3738, 0x3940, 0x4142, 0x4344, 0x4500)
    assert crc4(words) == 0xB
    assert crc4((*words[:-1], 0x450B)) == 0xB, "its own place counts as 0"


def test_compensation_gives_the_data_sheets_example() -> None:
    c1, c2, c3, c4, c5, c6 = COEFFICIENTS
    calibration = Calibration(c1=c1, c2=c2, c3=c3, c4=c4, c5=c5, c6=c6)
    pascal, celsius = calibration.compensated(D1, D2)
    assert pascal == pytest.approx(100009.0, abs=0.5)
    assert celsius == pytest.approx(20.07, abs=0.01)


@pytest.mark.parametrize(
    ("d2", "pascal", "celsius"),
    [(7974201, 95791.2713, -1.6352), (7381618, 90748.6897, -26.5407)],
)
def test_in_the_cold_figure_3_corrects_it(d2: int, pascal: float, celsius: float) -> None:
    """Expected values: figure 3 in exact fractions, below 20 °C and below -15 °C."""
    c1, c2, c3, c4, c5, c6 = COEFFICIENTS
    calibration = Calibration(c1=c1, c2=c2, c3=c3, c4=c4, c5=c5, c6=c6)
    assert calibration.compensated(D1, d2) == pytest.approx((pascal, celsius), abs=1e-3)


def test_a_sample_comes_out_of_the_chip() -> None:
    baro, chip = fitted()
    poll_until(baro, 0.4)
    assert well(baro)
    assert baro.sample is not None
    assert baro.sample.pressure_pa == pytest.approx(100009.0, abs=0.5)
    assert baro.sample.temperature_c == pytest.approx(20.07, abs=0.01)
    assert chip.commands[:4] == [0x1E, CONVERT_D2, CONVERT_D1, CONVERT_D1]


def test_temperature_is_measured_again_and_again() -> None:
    baro, chip = fitted()
    poll_until(baro, 1.0)
    ordered = chip.commands[1:]
    assert ordered[:10] == [CONVERT_D2, *[CONVERT_D1] * 8, CONVERT_D2]


@pytest.mark.parametrize("word", range(8))
def test_one_wrong_bit_in_the_prom_is_refused(word: int) -> None:
    words = list(prom(*COEFFICIENTS))
    words[word] ^= 0x0400 if word < 7 else 0x0001
    baro, _ = fitted(tuple(words))
    poll_until(baro, 1.0)
    assert not well(baro)
    assert baro.sample is None
    assert "baro: ms5611 at i2c-1 address 0x77: PROM" in baro.error
    assert "expected" in baro.error


def test_an_empty_prom_is_refused_though_its_crc_is_right() -> None:
    baro, _ = fitted((0,) * 8)
    poll_until(baro, 1.0)
    assert "no coefficient 0" in baro.error


def test_a_conversion_that_was_not_done_is_no_sample() -> None:
    baro, chip = fitted()
    poll_until(baro, 0.4)
    before = baro.sample
    chip.adc = {CONVERT_D1: 0, CONVERT_D2: 0}
    poll_until(baro, 1.0, start_s=0.42)
    assert baro.sample is before
    assert not well(baro)
    assert "was reset" in baro.error
    chip.adc = {CONVERT_D1: D1 + 99, CONVERT_D2: D2}
    poll_until(baro, 2.2, start_s=1.02)
    assert well(baro)


def test_the_same_conversion_for_two_seconds_is_frozen() -> None:
    baro, _ = fitted()
    poll_until(baro, 5.0)
    assert not well(baro)
    assert "frozen" in baro.error


def test_a_poll_before_the_conversion_has_ended_reads_nothing() -> None:
    baro, chip = fitted()
    poll_until(baro, 0.4)
    commands = len(chip.commands)
    baro.poll(0.405)
    assert len(chip.commands) == commands


@given(st.integers(1, (1 << 24) - 1), st.integers(1, (1 << 24) - 1))
def test_no_conversion_makes_a_sample_outside_the_chips_range(d1: int, d2: int) -> None:
    baro, chip = fitted()
    chip.adc = {CONVERT_D1: d1, CONVERT_D2: d2}
    poll_until(baro, 0.4)
    if baro.sample is not None:
        assert 1000.0 <= baro.sample.pressure_pa <= 120000.0
        assert -40.0 <= baro.sample.temperature_c <= 85.0


# The example of the MS5607-02BA03's data sheet, figure 2.
COEFFICIENTS_5607 = (46372, 43981, 29059, 27842, 31553, 28165)
D1_5607, D2_5607 = 6465444, 8077636


def test_the_ms5607_has_formulas_of_its_own() -> None:
    c1, c2, c3, c4, c5, c6 = COEFFICIENTS_5607
    calibration = Calibration5607(c1=c1, c2=c2, c3=c3, c4=c4, c5=c5, c6=c6)
    pascal, celsius = calibration.compensated(D1_5607, D2_5607)
    assert pascal == pytest.approx(110002.0, abs=1.0)
    assert celsius == pytest.approx(20.0, abs=0.01)
    for d2, cold in ((7481892, (104900.0920, -1.6523)), (6886216, (99149.4807, -26.6092))):
        assert calibration.compensated(D1_5607, d2) == pytest.approx(cold, abs=1e-3)
    baro, chip = fitted(prom(*COEFFICIENTS_5607), Ms5607)
    chip.adc = {CONVERT_D1: D1_5607, CONVERT_D2: D2_5607}
    poll_until(baro, 0.4)
    assert baro.sample is not None
    assert baro.sample.pressure_pa == pytest.approx(110002.0, abs=1.0)


def test_an_ms5607_sold_as_an_ms5611_is_named() -> None:
    """Its PROM has a good CRC, too, and read by the MS5611's formulas it shows half the air."""
    baro, chip = fitted(prom(*COEFFICIENTS_5607))
    chip.adc = {CONVERT_D1: 6269192, CONVERT_D2: D2_5607}  # 101325 Pa
    poll_until(baro, 1.0)
    assert not well(baro)
    assert baro.sample is None
    assert "an MS5607" in baro.error


def test_an_ms5611_in_the_place_of_an_ms5607_is_refused() -> None:
    baro, _ = fitted(kind=Ms5607)
    poll_until(baro, 1.0)
    assert not well(baro)
    assert baro.sample is None
