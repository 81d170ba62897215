"""Registers and burst of the PMW3901MB data sheet 1.3."""

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.airframe import Device as Row
from blimp.hardware.pmw3901 import Pmw3901
from tests.hardware.doubles import Doubles, Spi, polled, well


def burst(
    dx: int = 0, dy: int = 0, *, quality: int = 90, grey: int = 90, most: int = 180,
    least: int = 20, shutter: int = 0x0240,
) -> bytes:  # fmt: skip
    return struct.pack("<BBhhBBBB", 0x80, 0xBF, dx, dy, quality, grey, most, least) + struct.pack(
        ">H", shutter
    )


class Chip:
    def __init__(self, spi: Spi) -> None:
        self.spi = spi
        self.identity = {0x00: 0x49, 0x5F: 0xB6}
        self.burst = burst()
        spi.answer = self._answer

    def _answer(self, out: bytes, length: int) -> bytes:
        if out == b"\x16":
            return self.burst[:length]
        return bytes([self.identity.get(out[0], 0)] * length)


def fitted(**options: Any) -> tuple[Pmw3901, Chip]:
    buses = Doubles()
    chip = Chip(buses.spi("spi-0.0", mode=3, speed_hz=1))
    row = Row(name="flow", chip="pmw3901", bus="spi-0.0", rate_hz=50.0, options=options)
    return Pmw3901(row=row, buses=buses), chip


def started(**options: Any) -> tuple[Pmw3901, Chip, float]:
    flow, chip = fitted(**options)
    step = 0
    while not well(flow):
        assert step < 60, flow.error
        flow.poll(0.02 * step)
        step += 1
    return flow, chip, 0.02 * step


def test_counts_become_rates() -> None:
    flow, chip, now_s = started()
    assert flow.status(now_s).value is None, "the counts of the start have no time"
    chip.burst = burst(7, -14)
    flow.poll(now_s)
    sample = flow.sample
    assert sample is not None
    assert sample.span_s == pytest.approx(0.02)
    assert sample.flow_body_radps == pytest.approx((7 / 385 / 0.02, -14 / 385 / 0.02))
    assert sample.quality == 90


@pytest.mark.parametrize(
    ("mounting", "flow_radps"), [(["-y", "x"], (2.0, 1.0)), (["y", "-x"], (-2.0, -1.0))]
)
def test_a_mounting_of_its_own(mounting: list[str], flow_radps: tuple[float, float]) -> None:
    flow, chip, now_s = started(mounting=mounting, rad_per_count=0.002)
    chip.burst = burst(10, -20)
    flow.poll(now_s)
    assert flow.sample is not None
    assert flow.sample.flow_body_radps == pytest.approx(flow_radps)


def test_a_chip_that_is_gone_is_found_out_though_nothing_acknowledges() -> None:
    flow, chip, now_s = started()
    chip.spi.answer = lambda out, length: b"\xff" * length
    before = flow.sample
    polled(flow, 6, start_s=now_s, every_s=0.02)
    assert flow.sample is before
    assert not well(flow)


@pytest.mark.parametrize(
    ("data", "said", "healthy"),
    [
        (burst(5, 5, quality=24, shutter=0x1F00), "too dark", True),
        (burst(500, 0), "above the chip's 7.4 rad/s", True),
        (burst(5, 5, most=10, least=20), "above the greatest", True),
    ],
)
def test_what_means_nothing_makes_no_sample(data: bytes, said: str, healthy: bool) -> None:
    flow, chip, now_s = started()
    chip.burst = data
    flow.poll(now_s)
    assert flow.sample is None
    assert said in flow.error
    assert well(flow) == healthy


def test_counts_over_a_long_pause_are_dropped() -> None:
    flow, chip, now_s = started()
    chip.burst = burst(50, 50)
    flow.poll(now_s + 1.0)
    assert flow.sample is None
    chip.burst = burst(3, 3)
    flow.poll(now_s + 1.02)
    assert flow.sample is not None


def test_the_same_bytes_for_a_second_are_frozen() -> None:
    flow, _, now_s = started()
    for step in range(60):
        flow.poll(now_s + 0.02 * step)
        if not well(flow):
            break
    assert "frozen" in flow.error


@given(st.lists(st.binary(min_size=12, max_size=12), min_size=1, max_size=6))
def test_garbage_never_raises_and_every_sample_is_in_range(bursts: list[bytes]) -> None:
    flow, chip, now_s = started()
    for step, data in enumerate(bursts):
        chip.burst = data
        flow.poll(now_s + 0.02 * step)
    if flow.sample is not None:
        assert all(map(math.isfinite, flow.sample.flow_body_radps))
        assert max(map(abs, flow.sample.flow_body_radps)) <= 7.4
