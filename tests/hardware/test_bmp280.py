"""Golden values: BST-BMP280-DS001, the worked example of section 3.12 / 8.2."""

import struct

import msgspec
import pytest

from blimp.hardware.bmp280 import Bmp280, Calibration
from tests.hardware.doubles import Doubles, RegisterChip, on_i2c, poll_until, well

CALIBRATION = struct.pack(
    "<HhhHhhhhhhhh",
    *(27504, 26435, -1000),
    *(36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000),
)
ADC_T, ADC_P = 519888, 415148


def data(adc_p: int, adc_t: int) -> bytes:
    return (adc_p << 4).to_bytes(3, "big") + (adc_t << 4).to_bytes(3, "big")


def fitted() -> tuple[Bmp280, RegisterChip, Doubles]:
    chip = RegisterChip({0xD0: b"\x58", 0x88: CALIBRATION, 0xF7: data(ADC_P, ADC_T)})
    return on_i2c(Bmp280, chip, name="baro", chip="bmp280", address=0x76, rate_hz=25.0)


def test_compensation_gives_the_datasheet_example() -> None:
    calibration = Calibration.from_bytes(CALIBRATION)
    fine = calibration.fine_temperature(ADC_T)
    assert fine == pytest.approx(128422, abs=1.0)
    assert fine / 5120.0 == pytest.approx(25.08, abs=0.005)
    assert calibration.pressure_pa(ADC_P, fine) == pytest.approx(100653.27, abs=0.01)


def test_a_sample_comes_out_of_the_registers() -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 0.2)
    assert well(baro)
    assert baro.sample is not None
    assert baro.sample.pressure_pa == pytest.approx(100653.27, abs=0.01)
    assert baro.sample.temperature_c == pytest.approx(25.08, abs=0.005)
    # Reset, then filter 4 at 0.5 ms standby, then x1, x8, normal mode.
    assert chip.writes == [(0xE0, b"\xb6"), (0xF5, b"\x08"), (0xF4, b"\x33")]


def test_the_same_reading_is_no_new_sample_and_after_two_seconds_frozen() -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 1.0)
    assert baro.sample is not None
    first_s = baro.sample.t_s
    assert first_s < 0.2
    assert well(baro)
    poll_until(baro, 2.5, start_s=1.01)
    assert not well(baro)
    assert "frozen" in baro.error
    assert baro.sample.t_s == first_s
    chip.set(0xF7, data(ADC_P + 16, ADC_T))
    poll_until(baro, 4.0, start_s=2.51)
    assert well(baro)
    assert baro.sample.t_s > 2.5


@pytest.mark.parametrize("identity", [0x56, 0x57, 0x58, 0x60])
def test_samples_of_the_first_series_and_a_bme280_are_read_alike(identity: int) -> None:
    baro, chip, _ = fitted()
    chip.set(0xD0, bytes([identity]))
    poll_until(baro, 1.0)
    assert well(baro)
    assert baro.sample is not None
    assert baro.sample.pressure_pa == pytest.approx(100653.27, abs=0.5)


def test_coefficients_have_their_signs_and_their_order() -> None:
    values = (65535, -1, 2, 65534, -3, 4, -5, 6, -7, 8, -9, 10)
    calibration = Calibration.from_bytes(struct.pack("<HhhHhhhhhhhh", *values))
    assert msgspec.structs.astuple(calibration) == values


@pytest.mark.parametrize(("adc_p", "said"), [(355000, "outside the chip's"), (365000, "")])
def test_a_pressure_that_no_air_has_is_refused(adc_p: int, said: str) -> None:
    baro, chip, _ = fitted()
    chip.set(0xF7, data(adc_p, ADC_T))
    poll_until(baro, 0.2)
    assert said in baro.error
    assert (baro.sample is None) is bool(said)


def test_an_empty_calibration_is_refused() -> None:
    baro, chip, _ = fitted()
    chip.set(0x88, bytes(24))
    poll_until(baro, 1.0)
    assert "calibration is empty" in baro.error
    assert baro.sample is None


def test_a_chip_that_lost_power_is_started_again() -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 0.2)
    chip.set(0xF4, b"\0\0")
    chip.set(0xF7, data(0x80000, 0x80000))
    baro.poll(0.3)
    assert not well(baro)
    assert "asleep" in baro.error
    chip.set(0xF7, data(ADC_P + 16, ADC_T))
    poll_until(baro, 0.6, start_s=0.31)
    assert well(baro)
    assert chip.memory[0xF4] == 0x33


def test_impossible_and_jumping_readings_make_no_sample() -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 0.2)
    before = baro.sample
    for step, raw in enumerate([data(0, ADC_T), data(0xFFFFF, ADC_T), data(ADC_P, 0)]):
        chip.set(0xF7, raw)
        baro.poll(0.3 + step * 0.04)
    assert baro.sample is before
    assert baro.failures == 3
    chip.set(0xF7, data(ADC_P - 8000, ADC_T))  # about 1.7 kPa away, yet a pressure there is
    baro.poll(0.5)
    assert baro.sample is before


def test_a_calibration_that_is_still_being_copied_is_not_used() -> None:
    """The chip copies it after a reset, for longer than the data sheet's 2 ms."""
    baro, chip, _ = fitted()
    whole = chip.read(0x88, 24)
    chip.set(0x88, bytes(14) + whole[14:])
    chip.set(0xF3, b"\x01")
    poll_until(baro, 0.04)
    assert not well(baro)
    chip.set(0x88, whole)
    chip.set(0xF3, b"\x00")
    poll_until(baro, 0.5, start_s=0.05)
    assert baro.sample is not None
    assert baro.sample.pressure_pa == pytest.approx(100653.27, abs=0.5)


def test_a_calibration_that_changed_between_two_reads_is_refused() -> None:
    """Its status may say that the copy is done when the first registers are still 0."""
    baro, chip, _ = fitted()
    chip.cut_once(0x88, 8)
    poll_until(baro, 0.3)
    assert not well(baro)
    assert "calibration" in baro.error
    poll_until(baro, 1.5, start_s=0.31)
    assert well(baro)
    assert baro.sample is not None
    assert baro.sample.pressure_pa == pytest.approx(100653.27, abs=0.5)
