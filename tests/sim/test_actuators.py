"""Propellers and servos."""

from math import exp

import msgspec
import pytest

from blimp.airframe import Servo, Thruster
from blimp.sim.servo import ServoArm
from blimp.sim.thruster import Propeller

MOTOR = Thruster(
    name="motor",
    position_m=(0.0, 0.0, 0.0),
    axis=(1.0, 0.0, 0.0),
    max_thrust_n=0.6,
    reverse_thrust_n=0.4,
    exponent=2.0,
    lag_s=0.1,
    asymmetry=0.05,
    max_current_a=1.2,
)
SERVO = Servo(name="servo", min_rad=-0.6, max_rad=0.8, slew_radps=2.0, neutral_rad=0.1)


def settled(throttle: float, supply: float = 1.0) -> Propeller:
    propeller = Propeller(thruster=MOTOR)
    for _ in range(400):
        propeller.step(0.005, throttle, supply)
    return propeller


def test_full_thrust_forward_and_reverse_with_asymmetry() -> None:
    assert settled(1.0).thrust_n == pytest.approx(0.6 * 1.05)
    assert settled(-1.0).thrust_n == pytest.approx(-0.4 * 1.05)


def test_thrust_follows_the_exponent() -> None:
    assert settled(0.5).thrust_n == pytest.approx(0.25 * 0.6 * 1.05)


def test_a_motor_stands_within_its_dead_band_and_is_whole_at_full_throttle() -> None:
    sticky = Propeller(
        thruster=msgspec.structs.replace(MOTOR, dead_band=0.2, reverse_dead_band=0.1)
    )

    def thrust(throttle: float) -> float:
        for _ in range(400):
            sticky.step(0.005, throttle, 1.0)
        return sticky.thrust_n

    assert thrust(0.2) == pytest.approx(0.0, abs=1e-9)
    assert thrust(-0.1) == pytest.approx(0.0, abs=1e-9)
    assert thrust(0.6) == pytest.approx(0.25 * 0.6 * 1.05)
    assert thrust(-0.55) == pytest.approx(-0.25 * 0.4 * 1.05)
    assert thrust(1.0) == pytest.approx(0.6 * 1.05)


def test_throttle_saturates() -> None:
    assert settled(7.0).thrust_n == settled(1.0).thrust_n
    assert settled(-7.0).thrust_n == settled(-1.0).thrust_n


def test_a_lower_supply_gives_less_thrust() -> None:
    assert settled(1.0, supply=0.8).thrust_n == pytest.approx(0.64 * 0.6 * 1.05)


def test_rotor_speed_lags_by_its_time_constant() -> None:
    propeller = Propeller(thruster=MOTOR)
    for _ in range(20):  # 0.1 s
        propeller.step(0.005, 1.0, 1.0)
    assert propeller.thrust_n == pytest.approx(0.6 * 1.05 * (1.0 - exp(-1.0)) ** 2)


def test_the_lag_does_not_depend_on_the_step() -> None:
    coarse, fine = Propeller(thruster=MOTOR), Propeller(thruster=MOTOR)
    for _ in range(10):
        coarse.step(0.02, 1.0, 1.0)
    for _ in range(200):
        fine.step(0.001, 1.0, 1.0)
    assert coarse.thrust_n == pytest.approx(fine.thrust_n)


def test_current_is_full_at_full_throttle_and_nothing_at_rest() -> None:
    assert settled(1.0).current_a == pytest.approx(1.2)
    assert settled(-1.0).current_a == pytest.approx(1.2)
    assert settled(0.5).current_a == pytest.approx(1.2 / 8.0)
    assert Propeller(thruster=MOTOR).current_a == 0.0


def test_a_servo_starts_neutral_and_turns_no_faster_than_it_can() -> None:
    arm = ServoArm(servo=SERVO)
    assert arm.angle_rad == 0.1
    assert arm.step(0.1, 0.8) == pytest.approx(0.3)
    assert arm.step(0.1, -0.6) == pytest.approx(0.1)
    for _ in range(10):
        arm.step(0.1, 0.5)
    assert arm.angle_rad == 0.5


@pytest.mark.parametrize(("target", "end"), [(5.0, 0.8), (-5.0, -0.6)])
def test_a_servo_stops_at_its_ends(target: float, end: float) -> None:
    arm = ServoArm(servo=SERVO)
    for _ in range(20):
        arm.step(0.1, target)
    assert arm.angle_rad == end
