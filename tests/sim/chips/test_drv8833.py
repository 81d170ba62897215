"""The simulated DRV8833 against table 2 of its data sheet."""

from typing import Any

import pytest

from blimp.sim.electrical import Pull
from tests.sim.bench import Bench

AIN1, AIN2, BIN1, BIN2, NSLEEP = 6, 13, 19, 26, 12


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for pin in (AIN1, AIN2, BIN1, BIN2, NSLEEP):
        bench.pins.set_mode(pin, output=True, pull=Pull.OFF)
    return bench


@pytest.fixture
def chip(bench: Bench) -> Any:
    return bench.fit("motors_main")


@pytest.mark.parametrize(
    ("in1", "in2", "throttle"),
    [
        (0.6, 0.0, 0.6),  # forward, fast decay
        (0.0, 0.6, -0.6),  # reverse
        (1.0, 0.4, 0.6),  # forward, slow decay
        (0.0, 0.0, 0.0),  # coast
        (1.0, 1.0, 0.0),  # brake
    ],
)
def test_sign_and_magnitude(
    bench: Bench, chip: Any, in1: float, in2: float, throttle: float
) -> None:
    bench.pins.write(NSLEEP, True, held_s=0.0)
    bench.pins.pwm(AIN1, in1, frequency_hz=100.0)
    bench.pins.pwm(AIN2, in2, frequency_hz=100.0)
    assert chip.throttles() == {"left": pytest.approx(throttle), "right": 0.0}


def test_asleep_nothing_turns(bench: Bench, chip: Any) -> None:
    bench.pins.pwm(AIN1, 1.0, frequency_hz=100.0)
    assert chip.throttles()["left"] == 0.0
    bench.pins.write(NSLEEP, True, held_s=0.0)
    assert chip.throttles()["left"] == 1.0
    bench.pins.write(NSLEEP, False, held_s=0.0)
    assert chip.throttles()["left"] == 0.0


def test_pins_that_are_no_outputs_are_pulled_down(bench: Bench, chip: Any) -> None:
    bench.pins.write(NSLEEP, True, held_s=0.0)
    bench.pins.pwm(BIN1, 0.5, frequency_hz=100.0)
    assert chip.throttles()["right"] == 0.5
    bench.pins.set_mode(BIN1, output=False, pull=Pull.UP)
    assert chip.throttles()["right"] == 0.0


def test_faults(bench: Bench, chip: Any) -> None:
    bench.pins.write(NSLEEP, True, held_s=0.0)
    bench.pins.pwm(AIN1, 0.5, frequency_hz=100.0)
    chip.faults.set("stuck", {"value": 3.0}, now_s=0.0)
    assert chip.throttles() == {"left": 1.0, "right": 0.0}
    bench.pins.write(NSLEEP, False, held_s=0.0)
    assert chip.throttles() == {"left": 0.0, "right": 0.0}  # a stuck input, not a burnt bridge
    bench.pins.write(NSLEEP, True, held_s=0.0)
    chip.faults.set("clear", {}, now_s=0.0)
    chip.faults.set("frozen", {}, now_s=0.0)
    assert chip.throttles()["left"] == 0.5
    bench.pins.pwm(AIN1, 0.9, frequency_hz=100.0)
    assert chip.throttles()["left"] == 0.5
    chip.faults.set("clear", {}, now_s=0.0)
    assert chip.throttles()["left"] == 0.9
    chip.faults.set("no_answer", {}, now_s=0.0)
    assert chip.throttles()["left"] == 0.0
