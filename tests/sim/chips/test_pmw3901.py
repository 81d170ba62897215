"""The simulated PMW3901 against its data sheet."""

import struct
from typing import Any

import pytest

from tests.sim.bench import Bench


def fitted(height_m: float = 2.0, **options: object) -> tuple[Bench, Any]:
    bench = Bench()
    bench.truth.position_ned_m = (0.0, 0.0, -height_m)
    return bench, bench.fit("ranger", chip="pmw3901", bus="spi-0.0", options=options)


def read(chip: Any, register: int, length: int = 1) -> bytes:
    data: bytes = chip.exchange(bytes([register]) + bytes(length))
    return data[1:]


def counts(chip: Any) -> tuple[int, int]:
    _, _, dx, dy = struct.unpack_from("<BBhh", read(chip, 0x16, 12))
    return dx, dy


def test_identities_are_in_bank_0() -> None:
    _, chip = fitted()
    assert (read(chip, 0x00), read(chip, 0x5F)) == (b"\x49", b"\xb6")
    chip.exchange(b"\xff\x07")
    assert read(chip, 0x00) == b"\x00"
    chip.exchange(b"\xc1\x0d")
    assert read(chip, 0x41) == b"\x0d"
    chip.exchange(b"\xff\x00")
    chip.exchange(b"\xba\x5a")
    chip.exchange(b"\xff\x07")
    assert read(chip, 0x41) == b"\x00", "the reset cleared it"


@pytest.mark.parametrize(
    ("velocity", "rates", "expected"),
    [
        ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (192.5, 0.0)),
        ((0.0, -0.5, 0.0), (0.0, 0.0, 0.0), (0.0, -96.25)),
        ((0.0, 0.0, 0.0), (0.2, 0.1, 0.0), (38.5, -77.0)),
    ],
)
def test_motion_over_height_and_the_ships_turning(
    velocity: Any, rates: Any, expected: tuple[float, float]
) -> None:
    bench, chip = fitted()
    bench.truth.velocity_ned_mps, bench.truth.rates_body_radps = velocity, rates
    counts(chip)
    total = [0, 0]
    for _ in range(100):
        bench.run(0.01)
        dx, dy = counts(chip)
        total[0] += dx
        total[1] += dy
    assert total == pytest.approx(expected, abs=12.0)


def test_a_mounting_of_its_own() -> None:
    bench, chip = fitted(mounting=["-y", "x"])
    bench.truth.velocity_ned_mps = (1.0, 0.0, 0.0)
    counts(chip)
    bench.run(1.0)
    dx, dy = counts(chip)
    assert dy == pytest.approx(-192, abs=4)
    assert dx == pytest.approx(0, abs=4)


@pytest.mark.parametrize("height_m", [0.0, 20.0])
def test_without_a_picture_the_quality_says_so(height_m: float) -> None:
    bench, chip = fitted(height_m)
    bench.run(0.1)
    data = read(chip, 0x16, 12)
    assert data[6] < 0x19
    assert data[10] == 0x1F
