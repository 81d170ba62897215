"""The simulated PCA9685 against its data sheet, and the servos behind it."""

from typing import Any

import pytest

from blimp.sim.electrical import Pull
from tests.sim.bench import Bench, read

MODE1, MODE2, LED0, ALL_LED, PRE_SCALE = 0x00, 0x01, 0x06, 0xFA, 0xFE


def awake(bench: Bench, *, prescale: int = 121, **changes: Any) -> Any:
    """A chip at 50 Hz with auto-increment on."""
    chip = bench.fit("servos", **changes)
    chip.write(bytes((PRE_SCALE, prescale)))
    chip.write(bytes((MODE1, 0x21)))
    return chip


def counts_s(counts: int, prescale: int = 121) -> float:
    return counts * (prescale + 1) / 25e6


def test_power_on_values() -> None:
    chip = Bench().fit("servos")
    assert read(chip, MODE1) == b"\x11"
    assert read(chip, MODE2) == b"\x04"
    assert [read(chip, register)[0] for register in (2, 3, 4, 5)] == [0xE2, 0xE4, 0xE8, 0xE0]
    assert [read(chip, LED0 + i)[0] for i in range(4)] == [0, 0, 0, 0x10]
    assert read(chip, PRE_SCALE) == b"\x1e"
    assert chip.servo_angles() == {"tilt": None, "elevator": None, "rudder": None}


def test_the_prescaler_is_written_asleep_only_and_no_lower_than_3() -> None:
    chip = Bench().fit("servos")
    chip.write(bytes((PRE_SCALE, 0)))
    assert read(chip, PRE_SCALE) == b"\x03"
    chip.write(bytes((MODE1, 0x01)))
    chip.write(bytes((PRE_SCALE, 121)))
    assert read(chip, PRE_SCALE) == b"\x03"


def test_without_ai_the_pointer_stands_still() -> None:
    chip = Bench().fit("servos")
    chip.write(bytes((LED0, 1, 2, 3, 4)))
    assert read(chip, LED0) == b"\x04"
    assert read(chip, LED0 + 1) == b"\x00"


def test_with_ai_the_pointer_rolls_over_after_the_last_channel() -> None:
    chip = awake(Bench())
    chip.write(bytes((0x45, 0x10)))
    assert read(chip, 0x45, 3) == b"\x10\x21\x04"
    chip.write(bytes((PRE_SCALE,)))
    assert chip.read(2) == b"\x79\x21"


@pytest.mark.parametrize(
    ("counts", "angle"), [(102, -1.7453), (307, 0.0), (512, 1.7453), (600, None), (40, None)]
)
def test_pulses_become_angles(counts: int, angle: float | None) -> None:
    """0.5 to 2.5 ms over ±100 degrees, at 50 Hz; beyond it is no pulse for a servo."""
    chip = awake(Bench())
    chip.write(bytes((LED0, 0, 0, counts & 0xFF, counts >> 8)))
    assert chip.pulse_s(0) == pytest.approx(counts_s(counts))
    reported = chip.servo_angles()["tilt"]
    assert reported == (None if angle is None else pytest.approx(angle, abs=0.02))


def test_a_pulse_may_begin_anywhere_in_the_period() -> None:
    chip = awake(Bench())
    on, off = 4000, (4000 + 307) % 4096
    chip.write(bytes((LED0, on & 0xFF, on >> 8, off & 0xFF, off >> 8)))
    assert chip.pulse_s(0) == pytest.approx(counts_s(307))


def test_all_led_writes_every_channel_and_reads_zero() -> None:
    bench = Bench()
    chip = awake(bench)
    chip.write(bytes((LED0, 0, 0, 0x33, 0x01)))
    assert chip.servo_angles()["tilt"] is not None
    chip.write(bytes((ALL_LED + 3, 0x10)))
    assert read(chip, LED0 + 3) == b"\x10"
    assert read(chip, ALL_LED, 4) == b"\x00\x00\x00\x00"
    assert set(chip.servo_angles().values()) == {None}


def test_sleep_stops_pulses_until_the_restart() -> None:
    chip = awake(Bench())
    chip.write(bytes((LED0, 0, 0, 0x33, 0x01)))
    chip.write(bytes((MODE1, 0x31)))
    assert read(chip, MODE1) == b"\xb1"
    assert chip.pulse_s(0) is None
    chip.write(bytes((MODE1, 0x21)))
    assert read(chip, MODE1) == b"\xa1"
    assert chip.pulse_s(0) is None
    chip.write(bytes((MODE1, 0xA1)))
    assert read(chip, MODE1) == b"\x21"
    assert chip.pulse_s(0) == pytest.approx(counts_s(307))


def test_it_also_answers_all_call_and_resets_on_the_general_call() -> None:
    chip = awake(Bench())
    assert chip.answers(0x70)
    assert not chip.answers(0x71)
    chip.write(bytes((MODE1, 0x28)))  # SUBADR1 on, all-call off
    assert chip.answers(0x71)
    assert not chip.answers(0x70)
    chip.general_call(b"\x06")
    assert read(chip, MODE1) == b"\x11"


def test_output_enable_is_active_low() -> None:
    bench = Bench()
    chip = awake(bench, pins={"oe": 5})
    chip.write(bytes((LED0, 0, 0, 0x33, 0x01)))
    assert chip.servo_angles()["tilt"] is not None
    bench.pins.set_mode(5, output=True, pull=Pull.OFF)
    bench.pins.write(5, True, held_s=0.0)
    assert chip.servo_angles()["tilt"] is None
    bench.pins.write(5, False, held_s=0.0)
    assert chip.servo_angles()["tilt"] is not None


def test_faults_of_servos() -> None:
    bench = Bench()
    chip = awake(bench)
    chip.write(bytes((LED0, 0, 0, 0x33, 0x01)))
    faults = chip.faults
    angles = chip.servo_angles
    faults.set("stuck", {"value": 0.3, "channel": "rudder"}, now_s=0.0)
    assert angles() == {"tilt": pytest.approx(0.0, abs=0.02), "elevator": None, "rudder": 0.3}
    faults.set("clear", {}, now_s=0.0)
    faults.set("frozen", {}, now_s=0.0)
    held = dict(angles())
    chip.write(bytes((LED0, 0, 0, 0x66, 0x01)))
    assert angles() == held
    faults.set("clear", {}, now_s=0.0)
    assert angles() != held
    faults.set("no_answer", {}, now_s=0.0)
    assert set(angles().values()) == {None}
