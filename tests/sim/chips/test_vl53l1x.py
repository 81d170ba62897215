"""The simulated VL53L1X against its data sheet and ST's driver."""

from typing import Any

import pytest

from blimp.hardware.vl53l1x import CONFIGURATION
from tests.sim.bench import Bench


def get(chip: Any, register: int, length: int = 1) -> bytes:
    chip.write(register.to_bytes(2, "big"))
    data: bytes = chip.read(length)
    return data


def put(chip: Any, register: int, data: bytes) -> None:
    chip.write(register.to_bytes(2, "big") + data)


def ranging(height_m: float) -> tuple[Bench, Any]:
    bench = Bench()
    bench.truth.position_ned_m = (0.0, 0.0, -height_m)
    chip = bench.fit("ranger", chip="vl53l1x", address=0x29)
    bench.run(0.01)
    put(chip, 0x002D, CONFIGURATION)
    put(chip, 0x005E, b"\x00\x60")  # 33 ms
    put(chip, 0x006C, (25000).to_bytes(4, "big"))  # 34.5 ms at 675 periods
    put(chip, 0x0087, b"\x40")
    return bench, chip


def test_identity_boot_and_reset() -> None:
    bench = Bench()
    chip = bench.fit("ranger", chip="vl53l1x", address=0x29)
    assert get(chip, 0x010F, 2) == b"\xea\xcc"
    bench.run(0.01)
    assert get(chip, 0x00E5) == b"\x03"
    put(chip, 0x002D, b"\x07")
    put(chip, 0x0000, b"\x00")
    bench.run(0.01)
    assert get(chip, 0x00E5) == b"\x00", "held in reset"
    put(chip, 0x0000, b"\x01")
    bench.run(0.01)
    assert get(chip, 0x00E5) == b"\x03"
    assert get(chip, 0x002D) == b"\x00", "its settings are gone"


def test_a_measurement_takes_its_time_and_waits_to_be_cleared() -> None:
    bench, chip = ranging(1.5)
    bench.run(0.030)
    assert not get(chip, 0x0031)[0] & 1
    bench.run(0.005)
    assert get(chip, 0x0031)[0] & 1
    first = get(chip, 0x0089, 17)
    bench.run(0.2)
    assert get(chip, 0x0089, 17) == first
    put(chip, 0x0086, b"\x01")
    assert not get(chip, 0x0031)[0] & 1
    bench.run(0.04)
    second = get(chip, 0x0089, 17)
    assert second[2] == first[2] + 1
    assert int.from_bytes(second[13:15], "big") == pytest.approx(1500, abs=40)


def test_the_interrupts_level_follows_its_polarity() -> None:
    bench, chip = ranging(1.5)
    put(chip, 0x0030, b"\x11")
    assert get(chip, 0x0031)[0] & 1
    bench.run(0.04)
    assert not get(chip, 0x0031)[0] & 1


def test_beyond_its_range_the_status_says_so() -> None:
    bench, chip = ranging(6.0)
    bench.run(0.04)
    data = get(chip, 0x0089, 17)
    assert data[0] & 0x1F == 7
    assert int.from_bytes(data[13:15], "big") < 4200


def test_without_settings_or_stopped_it_measures_nothing() -> None:
    bench = Bench()
    chip = bench.fit("ranger", chip="vl53l1x", address=0x29)
    bench.run(0.01)
    put(chip, 0x0087, b"\x40")
    bench.run(1.0)
    assert not get(chip, 0x0031)[0] & 1
    bench, chip = ranging(1.0)
    put(chip, 0x0087, b"\x00")
    bench.run(1.0)
    assert not get(chip, 0x0031)[0] & 1
