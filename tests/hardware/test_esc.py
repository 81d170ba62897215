"""Hobby ESCs: 1 to 2 ms, standstill first."""

import math

import msgspec
import pytest

from blimp.airframe import Device as Row
from blimp.errors import BoardError, HardwareError
from blimp.hardware.esc import EscOptions, EscPwm
from tests.hardware.doubles import Doubles, polled, well
from tests.hardware.ships import with_devices


def fitted(*, reverse: bool = True, **options: object) -> tuple[EscPwm, Doubles]:
    buses = Doubles()
    row = Row(
        name="motors",
        chip="esc-pwm",
        bus="pwm-0",
        pins={"pwm0": 18, "pwm1": 19},
        outputs={"1": "right", "0": "left"},
        options={"reversible": reverse, "arm_s": 1.0} | options,
    )
    ship = with_devices(row)
    if not reverse:
        thrusters = tuple(msgspec.structs.replace(t, reverse_thrust_n=0.0) for t in ship.thruster)
        ship = msgspec.structs.replace(ship, thruster=thrusters)
    return EscPwm(row=row, buses=buses, airframe=ship), buses


def started(*, reverse: bool = True) -> tuple[EscPwm, Doubles]:
    motors, buses = fitted(reverse=reverse)
    polled(motors, 120)
    assert well(motors)
    return motors, buses


def widths(buses: Doubles) -> dict[int, float]:
    return {channel: output.width_s for channel, output in buses.pulse_outputs.items()}


@pytest.mark.parametrize(
    ("reversible", "throttle", "pulse_s"),
    [
        (False, 0.0, 0.001), (False, 0.25, 0.00125), (False, 1.0, 0.002), (False, -0.5, 0.001),
        (True, 0.0, 0.0015), (True, 0.5, 0.00175), (True, 1.0, 0.002), (True, -1.0, 0.001),
    ],
)  # fmt: skip
def test_throttles_as_pulses(reversible: bool, throttle: float, pulse_s: float) -> None:
    assert EscOptions(reversible=reversible).pulse_s(throttle) == pytest.approx(pulse_s)


def test_it_is_ready_after_standstill_for_its_time() -> None:
    motors, buses = fitted()
    motors.enable(0.0)
    for step in range(100):
        motors.poll(0.01 * step)
        motors.write([1.0, 1.0], 0.01 * step)
    assert not well(motors)
    assert motors.error == "starting"
    assert widths(buses) == {0: 0.0015, 1: 0.0015}
    assert EscOptions().arm_s == 2.0
    assert motors.start_s == 2.0, "a second as of any device, and that of the option"
    motors.poll(1.0)
    motors.poll(1.01)
    assert well(motors)
    motors.write([1.0, -0.5], 1.02)
    assert widths(buses) == pytest.approx({0: 0.002, 1: 0.00125})


def test_nothing_but_standstill_before_it_is_enabled() -> None:
    motors, buses = started()
    motors.write([1.0, 1.0], 1.2)
    assert widths(buses) == {0: 0.0015, 1: 0.0015}


def test_safe_is_standstill_at_once_and_until_it_is_enabled_again() -> None:
    motors, buses = started(reverse=False)
    motors.enable(1.2)
    motors.write([1.0, 1.0], 1.2)
    motors.safe()
    assert widths(buses) == {0: 0.001, 1: 0.001}
    motors.write([1.0, 1.0], 1.3)
    assert widths(buses) == {0: 0.001, 1: 0.001}
    motors.enable(1.4)
    motors.write([1.0, 1.0], 1.4)
    assert widths(buses) == {0: 0.002, 1: 0.002}


def test_safe_works_on_one_never_started_and_does_the_rest_when_one_fails() -> None:
    motors, buses = fitted()
    motors.safe()
    assert widths(buses) == {0: 0.0015, 1: 0.0015}
    buses.dead_channels.add(0)
    with pytest.raises(HardwareError, match=r"motors may not be safe.*channel 0"):
        motors.safe()
    buses.widths.clear()
    with pytest.raises(HardwareError):
        motors.safe()
    assert buses.widths == [(1, 0.0015)]


@pytest.mark.parametrize("throttle", [1.01, -1.01, math.nan, math.inf])
def test_a_throttle_out_of_range_is_refused_and_changes_nothing(throttle: float) -> None:
    motors, buses = started()
    motors.enable(1.2)
    motors.write([0.5, 0.5], 1.2)
    before = widths(buses)
    with pytest.raises(ValueError, match="motors: throttle"):
        motors.write([0.2, throttle], 1.3)
    assert widths(buses) == before


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"min_pulse_s": 0.0002}, "0.0005 <= min_pulse_s 0.0002"),
        ({"max_pulse_s": 0.001}, "max_pulse_s 0.001"),
        ({"max_pulse_s": math.nan}, "max_pulse_s nan"),
        ({"frequency_hz": 490.0}, "frequency_hz 490 is outside 1 to 450"),
        ({"max_pulse_s": 0.00119}, "max_pulse_s 0.00119 is less than 0.0002 above"),
        ({"arm_s": 60.0}, "arm_s 60.0"),
        ({"reversible": False}, "'left' has reverse_thrust_n 0.55"),
        ({"pulse": 1}, "pulse"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], named: str) -> None:
    with pytest.raises(BoardError, match=f"motors.*{named}"):
        fitted(**options)  # type: ignore[arg-type]
