"""The simulated ICM-20948 and its magnetometer against the data sheet."""

import struct
from typing import Any

import pytest

from blimp.rotation import from_euler
from tests.sim.bench import Bench, read


def bank(chip: Any, number: int) -> None:
    chip.write(bytes((0x7F, number << 4)))


def awake(bench: Bench) -> Any:
    chip = bench.fit("imu", chip="icm20948", address=0x69)
    chip.write(bytes((0x06, 0x01)))
    bench.run(0.1)
    return chip


def aux(chip: Any, bench: Bench, address: int, register: int, control: int, value: int = 0) -> None:
    bank(chip, 3)
    chip.write(bytes((0x06, value)))
    chip.write(bytes((0x03, address, register, control)))
    bank(chip, 0)
    for _ in range(3):
        bench.run(0.01)
        read(chip, 0x2D, 14)


def test_each_bank_has_its_own_registers() -> None:
    chip = Bench().fit("imu", chip="icm20948", address=0x69)
    assert read(chip, 0x00) == b"\xea"
    assert read(chip, 0x06) == b"\x41"
    bank(chip, 2)
    assert read(chip, 0x01) == b"\x01"
    chip.write(bytes((0x01, 0x1B)))
    bank(chip, 3)
    assert read(chip, 0x01) == b"\x00"
    bank(chip, 2)
    assert read(chip, 0x01) == b"\x1b"
    bank(chip, 0)
    chip.write(bytes((0x06, 0x80)))
    assert read(chip, 0x06) == b"\x41", "the reset clears itself, and ends in bank 0"


def test_asleep_it_measures_nothing() -> None:
    bench = Bench()
    chip = bench.fit("imu", chip="icm20948", address=0x69)
    bench.run(1.0)
    assert read(chip, 0x2D, 14) == bytes(14)


def test_gravity_temperature_and_ranges() -> None:
    bench = Bench()
    bench.truth.temperature_c = 31.0
    chip = awake(bench)
    *_, az, gx, gy, gz, celsius = struct.unpack(">7h", read(chip, 0x2D, 14))
    assert az == pytest.approx(16384, abs=300)
    assert max(map(abs, (gx, gy, gz))) < 131 * 3.5
    assert celsius == pytest.approx(3339, abs=1)
    bench.truth.rates_body_radps = (0.0, 0.0, -1.0)
    bank(chip, 2)
    chip.write(bytes((0x01, 0x03)))  # ±500 °/s
    bank(chip, 0)
    bench.run(0.01)
    assert struct.unpack(">h", read(chip, 0x37, 2))[0] == pytest.approx(65.5 * 57.3, abs=65.5 * 3)


def test_the_auxiliary_bus_reads_the_magnetometer() -> None:
    bench = Bench()
    bench.truth.attitude = from_euler(0.0, 0.0, 0.0)
    chip = awake(bench)
    aux(chip, bench, 0x8C, 0x00, 0x82)
    assert read(chip, 0x3B, 2) == b"\0\0", "the master is off"
    chip.write(bytes((0x03, 0x20)))
    aux(chip, bench, 0x8C, 0x00, 0x82)
    assert read(chip, 0x3B, 2) == b"\x48\x09"
    aux(chip, bench, 0x0C, 0x31, 0x81, 0x08)
    aux(chip, bench, 0x8C, 0x10, 0x89)
    ready, x, y, z, st2 = struct.unpack("<B3hxB", read(chip, 0x3B, 9))
    assert (ready, st2) == (1, 0)
    # Lying flat, chip z up: the field's 45 µT down are -z there, and +z of the magnetometer.
    assert x * 0.15 == pytest.approx(20.0, abs=12.0)
    assert z * 0.15 == pytest.approx(45.0, abs=12.0)
    assert y * 0.15 == pytest.approx(-3.5, abs=12.0)


def test_a_field_beyond_the_range_says_so() -> None:
    bench = Bench()
    chip = awake(bench)
    chip.write(bytes((0x03, 0x20)))
    aux(chip, bench, 0x0C, 0x31, 0x81, 0x08)
    chip.faults.set("stuck", {"channel": "magnetic_x", "value": 1.0}, now_s=bench.timeline.now_s)
    aux(chip, bench, 0x8C, 0x10, 0x89)
    assert read(chip, 0x3B, 9)[8] & 0x08


def test_slave_4_moves_one_byte_and_says_when() -> None:
    bench = Bench()
    chip = awake(bench)
    chip.write(bytes((0x03, 0x20)))
    bank(chip, 3)
    chip.write(bytes((0x13, 0x8C, 0x01, 0x80)))
    assert read(chip, 0x15) == b"\x00", "it clears itself"
    assert read(chip, 0x17) == b"\x09"
    bank(chip, 0)
    assert read(chip, 0x17) == b"\x40"
    assert read(chip, 0x17) == b"\x00", "cleared by reading"


def test_a_single_measurement_ends_in_power_down() -> None:
    bench = Bench()
    chip = awake(bench)
    chip.write(bytes((0x03, 0x20)))
    aux(chip, bench, 0x0C, 0x31, 0x81, 0x01)
    aux(chip, bench, 0x8C, 0x10, 0x81)
    assert read(chip, 0x3B) == b"\x01"
    aux(chip, bench, 0x8C, 0x31, 0x81)
    assert read(chip, 0x3B) == b"\x00"
