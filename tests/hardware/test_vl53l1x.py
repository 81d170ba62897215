"""Registers, settings and timing codes of ST's ultra lite driver (STSW-IMG009, UM2510)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.hardware.vl53l1x import Vl53L1X
from tests.hardware.doubles import WideChip, on_i2c, well


def result(status: int, stream: int, millimetres: int) -> bytes:
    """The 17 bytes from RANGE_STATUS; the range is at 0x96."""
    return struct.pack(">BBBHHHHHHH", status, 0, stream, 1, 2, 3, 4, 5, millimetres, 6)


def fitted(**options: object) -> tuple[Vl53L1X, WideChip]:
    chip = WideChip(
        {
            0x010F: b"\xea\xcc",
            0x00E5: b"\x03",
            0x00DE: b"\x02\xa3",
            0x0031: b"\x03",
            0x0089: result(9, 1, 1234),
        }
    )
    # The interrupt's level is the chip's, whatever is written there.
    chip.on_write = lambda register, data: chip.set(0x0031, b"\x03")
    return on_i2c(Vl53L1X, chip, name="ranger", chip="vl53l1x", address=0x29, options=options)[:2]


def start(ranger: Vl53L1X) -> float:
    """Poll up to the first measurement; return the time of the next poll."""
    for step in range(30):
        ranger.poll(step * 0.01)
        if ranger.sample is not None:
            break
    return (step + 1) * 0.01


def again(ranger: Vl53L1X, chip: WideChip, at_s: float, data: bytes) -> None:
    chip.set(0x0089, data)
    ranger.poll(at_s)


def test_a_range_comes_out_of_the_registers_and_is_cleared() -> None:
    ranger, chip = fitted()
    start(ranger)
    assert well(ranger)
    assert ranger.sample is not None
    assert ranger.sample.distance_m == pytest.approx(1.234)
    assert chip.writes[-1] == (0x0086, b"\x01")


NO_RANGE = {4: "too weak", 5: "phase", 6: "noise", 7: "wrap-around", 8: "nearer", 19: "wrap"}
FAULTS = {1: "laser", 2: "watchdog", 3: "ref", 13: "unk"}


@pytest.mark.parametrize(("status", "said"), [*NO_RANGE.items(), *FAULTS.items()])
def test_a_status_without_a_range_is_no_sample_and_a_fault_of_the_hardware_is_one(
    status: int, said: str
) -> None:
    ranger, chip = fitted()
    now_s = start(ranger)
    before = ranger.sample
    for step in range(5 if status in FAULTS else 10):
        again(ranger, chip, now_s + step * 0.04, result(status, 2 + step, 500))
    assert ranger.sample is before
    assert well(ranger) is (status in NO_RANGE)
    assert said in ranger.error


@pytest.mark.parametrize(
    ("first", "second", "good"),
    [
        *((1, 2, True), (1, 11, True), (255, 128, True), (250, 131, True)),
        *((1, 1, False), (5, 3, False), (1, 40, False), (255, 0, False), (200, 199, False)),
    ],
)
def test_the_stream_count_proves_a_measurement(first: int, second: int, good: bool) -> None:
    ranger, chip = fitted()
    chip.set(0x0089, result(9, first, 1000))
    now_s = start(ranger)
    failures = ranger.failures
    again(ranger, chip, now_s + 0.04, result(9, second, 1500))
    assert (ranger.failures == failures) == good
    if not good:
        assert f"from {first} to {second}" in ranger.error


def test_without_an_interrupt_it_is_stale() -> None:
    ranger, chip = fitted()
    now_s = start(ranger)
    chip.set(0x0031, b"\x02")
    for step in range(60):
        ranger.poll(now_s + step * 0.01)
        if not well(ranger):
            break
    assert "no new measurement" in ranger.error


@pytest.mark.parametrize("millimetres", [0, 39, 4001, 0xFFFF])
def test_a_range_outside_its_limits_is_remarked(millimetres: int) -> None:
    ranger, chip = fitted()
    now_s = start(ranger)
    before = ranger.sample
    again(ranger, chip, now_s, result(9, 2, millimetres))
    assert ranger.sample is before
    assert "outside 0.04 to 4 m" in ranger.error


@given(st.binary(min_size=17, max_size=17))
def test_no_bytes_make_a_range_outside_the_limits(data: bytes) -> None:
    ranger, chip = fitted()
    now_s = start(ranger)
    again(ranger, chip, now_s, data)
    assert ranger.sample is not None
    assert 0.04 <= ranger.sample.distance_m <= 4.0
