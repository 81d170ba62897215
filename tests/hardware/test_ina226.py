"""Golden values: SBOS547A, table 1: 2 mΩ, shunt 1F40h, bus 2570h are 10 A and 11.98 V."""

from typing import Any

import pytest

from blimp.hardware.ina226 import Ina226, Ina260
from tests.hardware.doubles import WordChip, on_i2c, polled, well

CVRF = 0x0008


class Monitor(WordChip):
    """Its configuration register resets as the chip's does."""

    def __init__(self, *, die: int, reset: int, current_register: int, current: int) -> None:
        super().__init__({0: reset, 2: 0x2570, 6: CVRF, 0xFE: 0x5449, 0xFF: die})
        self.words[current_register] = current
        self.reset = reset

    def write(self, register: int, data: bytes) -> None:
        super().write(register, data)
        if register == 0 and data[0] & 0x80:
            self.words[0] = self.reset


def fitted(kind: type[Ina226] = Ina226, **options: Any) -> tuple[Ina226, Monitor]:
    if kind is Ina226:
        options = {"shunt_ohm": 0.002} | options
        chip = Monitor(die=0x2260, reset=0x4127, current_register=1, current=0x1F40)
    else:
        chip = Monitor(die=0x2270, reset=0x6127, current_register=1, current=0x1F40)
    return on_i2c(kind, chip, name="power", chip="ina226", address=0x41, options=options)[:2]


@pytest.mark.parametrize(
    ("kind", "config", "amperes"),
    [(Ina226, b"\x44\xdf", 10.0), (Ina260, b"\x64\xdf", 10.0)],  # 8000 × 1.25 mA are 10 A, too
)
def test_the_datasheets_example(kind: type[Ina226], config: bytes, amperes: float) -> None:
    power, chip = fitted(kind)
    polled(power, 3, every_s=0.1)
    assert well(power)
    assert power.sample is not None
    assert power.sample.voltage_v == pytest.approx(11.98)
    assert power.sample.current_a == pytest.approx(amperes)
    assert chip.writes == [(0, b"\x80\x00"), (0, config)]


@pytest.mark.parametrize(("word", "amperes"), [(0x7FFF, "40.96"), (0x8000, "-40.96")])
def test_a_current_at_the_end_of_its_register_is_unhealthy(word: int, amperes: str) -> None:
    power, chip = fitted()
    chip.words[1] = word
    polled(power, 3, every_s=0.1)
    assert not well(power)
    assert f"current is at {amperes} A" in power.error
    assert power.sample is not None
    assert power.sample.voltage_v == pytest.approx(11.98)
    assert power.sample.current_a == pytest.approx(float(amperes), abs=0.01)


@pytest.mark.parametrize(
    ("register", "word", "why"),
    [(2, 0x7FFF, "above the chip's 36 V"), (0, 0x4127, "the chip was reset")],
)
def test_what_cannot_be_makes_no_sample(register: int, word: int, why: str) -> None:
    power, chip = fitted()
    polled(power, 3, every_s=0.1)
    before = power.sample
    chip.words[register] = word
    power.poll(0.3)
    assert power.sample is before
    assert why in power.error


def test_no_new_conversion_is_unhealthy() -> None:
    power, chip = fitted()
    polled(power, 3, every_s=0.1)
    chip.words[6] = 0
    polled(power, 25, start_s=0.3, every_s=0.1)
    assert not well(power)
    assert "no new conversion" in power.error
