"""Golden values: a real part's calibration and reading, published in the tests of Elixir's bmp3xx.

The data sheet has no worked example.
"""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.hardware.bmp388 import Bmp388, Bmp390, Calibration
from tests.hardware.doubles import Doubles, RegisterChip, on_i2c, poll_until, well

CALIBRATION = bytes.fromhex("236B5849F65CFFCEF42300EA636E79F3F6AA4312C4")
DATA = bytes.fromhex("979F6D73D885")  # pressure, temperature
NEWS = b"\x00\x70"  # no error; command, pressure and temperature ready


def fitted(kind: type[Bmp388] = Bmp388) -> tuple[Bmp388, RegisterChip, Doubles]:
    chip = RegisterChip({0x00: b"\x50", 0x02: NEWS, 0x04: DATA, 0x31: CALIBRATION})
    return on_i2c(kind, chip, name="baro", chip="bmp388", address=0x76, rate_hz=25.0)


def test_compensation_gives_the_published_reading() -> None:
    calibration = Calibration.from_bytes(CALIBRATION)
    celsius = calibration.temperature_c(int.from_bytes(DATA[3:], "little"))
    assert celsius == pytest.approx(30.499314453874284, abs=1e-9)
    pascal = calibration.pressure_pa(int.from_bytes(DATA[:3], "little"), celsius)
    assert pascal == pytest.approx(100876.00634692199, abs=1e-6)


def test_a_sample_comes_out_of_the_registers() -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 0.2)
    assert well(baro)
    assert baro.sample is not None
    assert baro.sample.pressure_pa == pytest.approx(100876.006, abs=0.001)
    assert baro.sample.temperature_c == pytest.approx(30.499, abs=0.001)
    # Reset; x8 and x1 at 50 Hz, filter 3; then normal mode, last.
    assert chip.writes == [
        (0x7E, b"\xb6"), (0x1C, b"\x03"), (0x1D, b"\x02"), (0x1F, b"\x04"), (0x1B, b"\x33"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "found", "expected"), [(Bmp388, 0x60, "0x50"), (Bmp390, 0x50, "0x60")]
)
def test_each_takes_its_own_identity_only(kind: type[Bmp388], found: int, expected: str) -> None:
    baro, chip, _ = fitted(kind)
    chip.set(0x00, bytes([found]))
    poll_until(baro, 1.0)
    assert not well(baro)
    assert f"chip_id (0x00) reads 0x{found:02X}, expected {expected}" in baro.error
    assert f"it answers as {'BMP390' if found == 0x60 else 'BMP388'}" in baro.error
    assert chip.writes == []


@pytest.mark.parametrize("bad", [bytes(21), b"\xff" * 21])
def test_an_empty_calibration_is_refused(bad: bytes) -> None:
    baro, chip, _ = fitted()
    chip.set(0x31, bad)
    poll_until(baro, 1.0)
    assert "calibration is empty" in baro.error
    assert baro.sample is None


def test_coefficients_have_their_signs() -> None:
    values = (1, 2, -3, -4, -5, -6, -7, 8, 9, -10, -11, -12, -13, -14)
    calibration = Calibration.from_bytes(struct.pack("<HHbhhbbHHbbhbb", *values))
    signs = [value < 0.0 for value in msgspec.structs.astuple(calibration)]
    assert signs == [value < 0 for value in values]


@pytest.mark.parametrize(
    ("register", "data"),
    [
        (0x03, b"\x10"),  # not ready, whatever it holds
        (0x03, NEWS[1:]),  # ready, it says, with the same bytes
    ],
)
def test_no_news_is_no_sample_and_stale_after_two_seconds(register: int, data: bytes) -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 0.2)
    first = baro.sample
    chip.set(register, data)
    poll_until(baro, 2.6, start_s=0.21)
    assert baro.sample is first
    assert not well(baro)
    assert "no new measurement" in baro.error


@pytest.mark.parametrize(
    ("register", "data", "why"),
    [
        (0x02, b"\x01", "broken"),
        (0x02, b"\x04", "misconfigured"),
        (0x04, bytes.fromhex("000080000080"), "asleep"),
    ],
)
def test_a_chip_in_trouble_says_so_and_is_started_again(
    register: int, data: bytes, why: str
) -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 0.2)
    first, writes = baro.sample, len(chip.writes)
    chip.set(register, data)
    baro.poll(0.3)
    assert not well(baro)
    assert why in baro.error
    assert baro.sample is first
    poll_until(baro, 0.35, start_s=0.31)
    assert len(chip.writes) > writes


@given(st.binary(min_size=6, max_size=6))
def test_no_bytes_make_a_sample_outside_the_chips_range(data: bytes) -> None:
    baro, chip, _ = fitted()
    poll_until(baro, 0.2)
    chip.set(0x04, data)
    baro.poll(0.3)
    assert baro.sample is not None
    assert 30000.0 <= baro.sample.pressure_pa <= 125000.0
    assert abs(baro.sample.pressure_pa - 100876.0) <= 1000.1
    assert -40.0 <= baro.sample.temperature_c <= 85.0


def test_a_calibration_that_changed_between_two_reads_is_refused() -> None:
    baro, chip, _ = fitted()
    chip.cut_once(0x31, 5)
    poll_until(baro, 0.3)
    assert not well(baro)
    assert "calibration" in baro.error
    poll_until(baro, 1.5, start_s=0.31)
    assert well(baro)
