import struct

import pytest

from blimp.hardware.tfluna import TfLuna
from tests.hardware.doubles import Doubles, RegisterChip, on_i2c, well


def data(distance_cm: int, amplitude: int, tick: int, centi_c: int = 2500) -> bytes:
    return struct.pack("<HHhHH", distance_cm, amplitude, centi_c, tick, 0)


def fitted() -> tuple[TfLuna, RegisterChip, Doubles]:
    chip = RegisterChip({0x3C: b"LUNA", 0x00: data(234, 800, 1)})
    made = on_i2c(TfLuna, chip, name="ranger", chip="tfluna", address=0x10, rate_hz=50.0)
    made[0].poll(0.0)
    return made


def test_distance_in_metres() -> None:
    ranger, chip, _ = fitted()
    ranger.poll(0.1)
    ranger.poll(0.12)
    assert ranger.sample is not None
    assert ranger.sample.distance_m == pytest.approx(2.34)
    assert ranger.sample.t_s == 0.12
    assert chip.writes == [(0x23, b"\x00"), (0x25, b"\x01")]


@pytest.mark.parametrize(
    ("distance_cm", "amplitude", "remark"),
    [
        (0, 20, "signal 20 is below 100"),
        (500, 99, "signal 99"),
        (300, 65535, "saturated"),
        (5, 900, "0.05 m is outside"),
        (801, 900, "8.01 m is outside"),
    ],
)
def test_an_echo_that_cannot_be_trusted_makes_no_sample_yet_the_device_is_well(
    distance_cm: int, amplitude: int, remark: str
) -> None:
    ranger, chip, _ = fitted()
    ranger.poll(0.1)
    ranger.poll(0.12)
    before = ranger.sample
    chip.set(0, data(distance_cm, amplitude, 2))
    ranger.poll(0.14)
    assert ranger.sample is before
    assert well(ranger)
    assert remark in ranger.error


def test_garbage_is_found_by_its_temperature() -> None:
    ranger, chip, _ = fitted()
    ranger.poll(0.1)
    ranger.poll(0.12)
    before = ranger.sample
    chip.set(0, data(300, 900, 2, centi_c=-2500))
    ranger.poll(0.14)
    assert ranger.sample is before
    assert "its temperature jumped" in ranger.error


def test_a_tick_that_stands_still_is_frozen() -> None:
    ranger, chip, _ = fitted()
    for step in range(40):
        chip.set(0, data(200 + step, 800, 7))
        ranger.poll(0.1 + step * 0.02)
    assert not well(ranger)
    assert "same tick" in ranger.error
