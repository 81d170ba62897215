from math import cos, nan, radians, sin
from random import Random

import pytest

from blimp.control.attitude import AttitudeFilter
from blimp.rotation import euler, from_euler, integrate, rotate_back
from blimp.types import ImuSample, Quaternion, Vec3
from tests.control.parts import GRAVITY_MPS2

DT_S = 0.01


def feel(q: Quaternion, rates: Vec3 = (0.0, 0.0, 0.0), *, t_s: float) -> ImuSample:
    return ImuSample(
        t_s=t_s,
        accel_body_mps2=rotate_back(q, (0.0, 0.0, -GRAVITY_MPS2)),
        gyro_body_radps=rates,
        temperature_c=25.0,
    )


def resting(bias: Vec3, *, seconds: float = 4.0, seed: int = 1) -> AttitudeFilter:
    """A filter that has lain on the pad with a noisy gyro."""
    noise = Random(seed)
    filter = AttitudeFilter()
    for k in range(round(seconds / DT_S)):
        rates = (
            bias[0] + noise.gauss(0.0, 0.001),
            bias[1] + noise.gauss(0.0, 0.001),
            bias[2] + noise.gauss(0.0, 0.001),
        )
        t_s = k * DT_S
        filter.update(feel((1.0, 0.0, 0.0, 0.0), rates, t_s=t_s), at_rest=True)
    return filter


def test_first_sample_gives_roll_and_pitch_at_once_and_yaw_zero() -> None:
    filter = AttitudeFilter()
    truth = from_euler(0.2, -0.1, 1.5)
    filter.update(feel(truth, t_s=0.0), at_rest=True)
    assert euler(filter.attitude) == pytest.approx((0.2, -0.1, 0.0), abs=1e-6)


def test_bias_is_measured_at_rest_and_yaw_stays_where_the_ship_was_laid_down() -> None:
    bias = (radians(2.0), radians(-3.0), radians(5.0))
    filter = resting(bias)
    assert filter.settled
    assert filter.bias_radps == pytest.approx(bias, abs=2e-4)
    assert euler(filter.attitude) == pytest.approx((0.0, 0.0, 0.0), abs=2e-3)


def test_yaw_drifts_less_than_three_degrees_in_three_minutes_of_flight() -> None:
    bias = (radians(1.0), radians(-1.0), radians(2.0))
    filter, noise = resting(bias), Random(7)
    for k in range(18_000):
        t_s = 10.0 + k * DT_S
        rates = (bias[0], bias[1], bias[2] + noise.gauss(0.0, 0.001))
        filter.update(feel((1.0, 0.0, 0.0, 0.0), rates, t_s=t_s), at_rest=False)
    assert abs(euler(filter.attitude)[2]) < radians(3.0)


def test_a_ship_that_is_moved_is_not_at_rest() -> None:
    filter, noise = AttitudeFilter(), Random(3)
    for k in range(600):
        t_s = k * DT_S
        rates = (noise.gauss(0.0, 0.2), 0.0, 0.0)
        filter.update(feel((1.0, 0.0, 0.0, 0.0), rates, t_s=t_s), at_rest=True)
    assert not filter.settled
    assert not filter.still


def test_wind_that_turns_the_ship_on_its_pad_is_not_taken_for_bias() -> None:
    """It turns unevenly; one that took it for bias would spin its heading all flight."""
    filter, noise = AttitudeFilter(), Random(4)
    for k in range(1500):
        t_s = k * DT_S
        rates = (0.0, 0.0, 0.04 + 0.02 * sin(0.8 * t_s) + noise.gauss(0.0, 0.001))
        filter.update(feel((1.0, 0.0, 0.0, 0.0), rates, t_s=t_s), at_rest=True)
    assert not filter.settled


def test_once_settled_a_slow_turn_by_hand_does_not_move_the_bias() -> None:
    filter, noise = resting((0.01, 0.0, -0.02)), Random(5)
    for k in range(1000):
        t_s = 10.0 + k * DT_S
        rates = (0.01, 0.0, -0.02 + 0.03 + noise.gauss(0.0, 0.001))
        filter.update(feel((1.0, 0.0, 0.0, 0.0), rates, t_s=t_s), at_rest=True)
    assert filter.bias_radps[2] == pytest.approx(-0.02, abs=5e-4)
    assert euler(filter.attitude)[2] == pytest.approx(0.3, abs=0.03)  # and the turn is followed


@pytest.mark.parametrize("held_s", [4.0, 0.0], ids=["held", "never held"])
def test_a_swing_on_its_feet_is_not_taken_for_bias(held_s: float) -> None:
    """A ship is let go while it hangs off level: the fastest part of a swing looks quiet."""
    bias = (0.01, -0.02, 0.0)
    filter, noise = resting(bias, seconds=held_s), Random(8)
    for k in range(600):
        t_s = 10.0 + k * DT_S
        decay = radians(1.4) * 0.8 ** (k * DT_S)
        roll, pitch = decay * sin(2.2 * t_s), 0.5 * decay * sin(1.7 * t_s)
        rates = (
            bias[0] + 2.2 * decay * cos(2.2 * t_s) + noise.gauss(0.0, 0.001),
            bias[1] + 0.5 * 1.7 * decay * cos(1.7 * t_s) + noise.gauss(0.0, 0.001),
            noise.gauss(0.0, 0.001),
        )
        filter.update(feel(from_euler(roll, pitch, 0.0), rates, t_s=t_s), at_rest=True)
    assert filter.bias_radps == pytest.approx(bias, abs=8e-4)


def test_warming_up_at_rest_is_followed() -> None:
    filter, noise = resting((0.0, 0.0, 0.0)), Random(6)
    for k in range(12_000):
        t_s = 10.0 + k * DT_S
        drift = 0.002 * k / 12_000
        rates = (0.0, 0.0, drift + noise.gauss(0.0, 0.001))
        filter.update(feel((1.0, 0.0, 0.0, 0.0), rates, t_s=t_s), at_rest=True)
    assert filter.bias_radps[2] == pytest.approx(0.002, abs=3e-4)


def test_turning_is_followed_exactly() -> None:
    filter = resting((0.0, 0.0, 0.0))
    truth: Quaternion = (1.0, 0.0, 0.0, 0.0)
    rates = (0.0, 0.0, 0.3)
    for k in range(500):
        truth = integrate(truth, rates, DT_S)
        t_s = 10.0 + k * DT_S
        filter.update(feel(truth, rates, t_s=t_s), at_rest=False)
    assert euler(filter.attitude)[2] == pytest.approx(1.5, abs=0.03)


def test_a_large_tilt_error_is_set_right_in_flight_by_the_plumb_line() -> None:
    filter = resting((0.0, 0.0, 0.0))
    filter.attitude = from_euler(0.2, -0.2, 0.0)
    tilted = from_euler(0.05, 0.05, 0.0)
    for k in range(6000):
        t_s = 10.0 + k * DT_S
        filter.update(feel(tilted, t_s=t_s), at_rest=False)
    assert euler(filter.attitude)[:2] == pytest.approx((0.05, 0.05), abs=0.04)


def test_it_is_levelled_by_turns_about_north_and_east_wherever_its_nose_points() -> None:
    filter = resting((0.0, 0.0, 0.0))
    filter.attitude = from_euler(0.0, 0.0, radians(90.0))  # nose east
    filter.right(0.02 + 0.01j, 0.003 + 0.001j, 0.2 - 0.1j)
    assert euler(filter.attitude) == pytest.approx((0.01, -0.02, radians(90.0)), abs=3e-4)
    assert filter.bias_radps[:2] == pytest.approx((0.001, -0.003), abs=3e-4)
    assert filter.accel_bias_mps2 == pytest.approx((-0.1, -0.2), abs=3e-3)
    filter.turn(0.0, 9.0)
    assert filter.bias_radps[2] == pytest.approx(0.4), "no chip has more"


G_UP = (0.0, 0.0, -GRAVITY_MPS2)


@pytest.mark.parametrize(
    ("bad", "accel_mps2"),
    [
        (nan, G_UP),
        (float("inf"), G_UP),
        (1e9, G_UP),
        (0.0, (0.1, 0.1, 0.1)),
        (0.0, (0.0, 0.0, 250)),
    ],
)
def test_an_unbelievable_sample_is_left_out_and_ages_the_filter(
    bad: float, accel_mps2: Vec3
) -> None:
    filter = resting((0.0, 0.0, 0.0))
    before = filter.attitude
    for k in range(300):
        t_s = 4.0 + k * DT_S
        sample = ImuSample(
            t_s=t_s,
            accel_body_mps2=accel_mps2,
            gyro_body_radps=(bad, 0.0, 0.0),
            temperature_c=25.0,
        )
        assert filter.update(sample, at_rest=False) == 0.0
    assert filter.attitude == before
    assert not filter.valid(t_s)


def test_the_same_sample_twice_moves_nothing() -> None:
    filter = resting((0.0, 0.0, 0.0))
    sample = feel((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0), t_s=5.0)
    assert filter.update(sample, at_rest=False) > 0.0
    before = filter.attitude
    assert filter.update(sample, at_rest=False) == 0.0
    assert filter.attitude == before
