"""The simulated TF-Luna against its register table."""

import statistics
import struct
from typing import Any

import pytest

from blimp.rotation import from_euler
from tests.sim.bench import Bench, read


def measured(bench: Bench, chip: Any) -> tuple[float, int, int]:
    """Return distance in m, amplitude and tick of the next frame."""
    bench.run(0.011)
    distance, amplitude, _, tick, _ = struct.unpack("<HHhHH", read(chip, 0, 10))
    return distance / 100.0, amplitude, tick


def at(height_m: float) -> tuple[Bench, Any]:
    bench = Bench()
    bench.truth.position_ned_m = (0.0, 0.0, -height_m)
    return bench, bench.fit("ranger")


def test_signature_version_and_defaults() -> None:
    chip = Bench().fit("ranger")
    assert read(chip, 0x3C, 4) == b"LUNA"
    assert read(chip, 0x22) == b"\x10"
    assert read(chip, 0x25) == b"\x01"
    assert read(chip, 0x26, 2) == b"\x64\x00"
    assert len(read(chip, 0x10, 14).decode("ascii")) == 14


@pytest.mark.parametrize("height_m", [0.3, 1.0, 3.0, 7.5])
def test_it_measures_the_height(height_m: float) -> None:
    bench, chip = at(height_m)
    frames = [measured(bench, chip) for _ in range(50)]
    assert statistics.fmean(frame[0] for frame in frames) == pytest.approx(height_m, abs=0.03)
    assert statistics.pstdev(frame[0] for frame in frames) < 0.03
    assert all(100 <= frame[1] < 65535 for frame in frames)
    assert frames[-1][2] > frames[0][2]


def test_out_of_range_has_no_signal() -> None:
    bench, chip = at(9.0)
    distance, amplitude, _ = measured(bench, chip)
    assert distance == 0.0
    assert amplitude < 100


def test_a_leaning_ship_measures_the_slant() -> None:
    bench, chip = at(2.0)
    bench.truth.attitude = from_euler(0.0, 0.5, 1.0)
    mean = statistics.fmean(measured(bench, chip)[0] for _ in range(20))
    assert mean == pytest.approx(2.0 / 0.8776, abs=0.04)


def test_rest_m_is_what_it_reads_on_the_pad() -> None:
    bench = Bench()
    chip = bench.fit("ranger", options={"rest_m": 0.4})
    assert measured(bench, chip)[0] == pytest.approx(0.4, abs=0.06)


def test_disabled_and_triggered_modes() -> None:
    bench, chip = at(2.0)
    chip.write(b"\x25\x00")
    assert measured(bench, chip)[0] == 0.0
    chip.write(b"\x25\x01")
    chip.write(b"\x23\x01")
    assert measured(bench, chip)[0] == 0.0
    chip.write(b"\x24\x01")
    assert measured(bench, chip)[0] == pytest.approx(2.0, abs=0.06)
    bench.truth.position_ned_m = (0.0, 0.0, -4.0)
    assert measured(bench, chip)[0] == pytest.approx(2.0, abs=0.06)


def test_reboot_restores_the_registers() -> None:
    chip = Bench().fit("ranger")
    chip.write(b"\x26\x0a\x00")
    assert read(chip, 0x26, 2) == b"\x0a\x00"
    chip.write(b"\x3c\x00")  # the signature cannot be written
    assert read(chip, 0x3C, 4) == b"LUNA"
    chip.write(b"\x21\x02")
    assert read(chip, 0x26, 2) == b"\x64\x00"
