from math import cos, nan, radians, sin
from random import Random

import pytest

from blimp.control.attitude import AttitudeFilter
from blimp.control.heading import HeadingFilter
from blimp.control.horizontal import HorizontalFilter
from blimp.control.yaw_rate import YawRateCheck
from blimp.rotation import euler, from_euler, integrate, rotate, rotate_back
from blimp.types import PositionSample, Vec3
from tests.control.parts import twin

DT_S = 0.1
FIELD_NED_T = (20e-6, -3e-6, 45e-6)


class Pushed:
    """A ship whose nose points east, pushed about, with a gyro that drifts."""

    def __init__(
        self,
        *,
        believed_rad: float,
        bias_radps: float = 0.0,
        sigma_rad: float = 0.5,
    ) -> None:
        ship = twin()
        self.heading = HeadingFilter(airframe=ship)
        self.heading.rest(0.005, sigma_rad)
        self.heading.watches = True
        self.attitude = AttitudeFilter()
        self.attitude.attitude = from_euler(0.0, 0.0, believed_rad)
        self.horizontal = HorizontalFilter(home=ship.home, heading=self.heading)
        self.horizontal.rest(3e-4)
        self.yaw_rad = radians(90.0)
        self.bias_radps = bias_radps
        self._p, self._v = [0.0, 0.0], [0.0, 0.0]
        self._random = Random(3)
        self._t_s = 0.0

    @property
    def error_rad(self) -> float:
        return abs(euler(self.attitude.attitude)[2] - self.yaw_rad)

    def fly(self, seconds: float, *, accel_mps2: float) -> None:
        """Accelerate to and fro along the nose, and across it, as much as drag lets a ship."""
        gauss = self._random.gauss
        for _ in range(round(seconds / DT_S)):
            self._t_s += DT_S
            phase = self._t_s / 7.0
            ax = accel_mps2 * (1 if sin(phase) > 0 else -1)
            ay = 0.5 * accel_mps2 * cos(0.7 * phase)
            c, s = cos(self.yaw_rad), sin(self.yaw_rad)
            u = [c * self._v[0] + s * self._v[1], c * self._v[1] - s * self._v[0]]
            ax, ay = ax - 0.1 * u[0], ay - 0.1 * u[1]
            for i, a in enumerate((c * ax - s * ay, s * ax + c * ay)):
                self._p[i] += self._v[i] * DT_S
                self._v[i] += a * DT_S
            drift = self.bias_radps - self.attitude.bias_radps[2]
            attitude = integrate(self.attitude.attitude, (0.0, 0.0, drift), DT_S)
            self.attitude.attitude = attitude
            felt = (ax + gauss(0.0, 0.02), ay + gauss(0.0, 0.02), 0.0)
            north, east, _ = rotate(attitude, felt)
            self.horizontal.predict(north, east, DT_S, turn_rad=drift * DT_S)
            seen = (self._p[0] + gauss(0.0, 0.08), self._p[1] + gauss(0.0, 0.08), 0.0)
            tag = PositionSample(t_s=self._t_s, position_ned_m=seen, accuracy_m=0.1, latency_s=0.0)
            self.horizontal.update_tag(tag, self._t_s)
            turned, bias = self.heading.take()
            self.attitude.turn(turned, bias)
            self.horizontal.turn(turned)


def test_a_wrong_heading_is_found_by_where_the_ship_goes_when_it_accelerates() -> None:
    ship = Pushed(believed_rad=radians(60.0))
    ship.fly(60.0, accel_mps2=0.08)
    assert ship.error_rad < radians(6.0)
    assert ship.heading.sigma_rad < radians(7.0)  # its gyro's bias is not known well
    assert ship.heading.health(60.0, "").doubt == ""


def test_to_lie_still_on_the_ground_shows_no_heading() -> None:
    ship = Pushed(believed_rad=radians(60.0), sigma_rad=0.7)
    ship.fly(2.0, accel_mps2=0.0)
    before_rad = ship.heading.sigma_rad
    ship.heading.rest(3e-4)
    assert ship.heading.sigma_rad >= before_rad > 0.5


def test_a_drifting_gyro_is_followed_and_its_bias_learnt() -> None:
    ship = Pushed(believed_rad=radians(90.0), bias_radps=radians(0.3), sigma_rad=0.05)
    ship.fly(180.0, accel_mps2=0.04)
    assert ship.error_rad < radians(6.0)
    assert ship.attitude.bias_radps[2] == pytest.approx(radians(0.3), abs=radians(0.12))


def test_a_ship_that_nothing_pushes_becomes_unsure_of_its_heading_and_says_so() -> None:
    ship = Pushed(believed_rad=radians(90.0), sigma_rad=0.03)
    ship.heading.rest(3e-4)  # measured at rest
    ship.fly(60.0, accel_mps2=0.0)
    early = ship.heading.sigma_rad
    ship.fly(120.0, accel_mps2=0.0)
    assert ship.heading.sigma_rad > early
    assert ship.error_rad < radians(8.0)
    ship.heading.drift(1.0)
    assert "may be off by" in ship.heading.health(180.0, "").doubt


def test_a_magnetometer_brings_a_heading_back_and_iron_does_not_take_it_away() -> None:
    heading, attitude = HeadingFilter(airframe=twin()), AttitudeFilter()

    def field(yaw_rad: float) -> Vec3:
        return rotate_back(from_euler(0.0, 0.0, yaw_rad), FIELD_NED_T)

    heading.magnet(field(0.0), 1.0, at_rest=True, attitude=attitude)
    attitude.attitude = from_euler(0.0, 0.0, 0.4)  # the ship has not turned: the gyro has drifted
    heading.drift(0.4)
    for k in range(600):
        heading.magnet(field(0.0), 2.0 + 0.2 * k, at_rest=False, attitude=attitude)
    assert abs(euler(attitude.attitude)[2]) < 0.1
    before = euler(attitude.attitude)[2]
    iron = (60e-6, 5e-6, 45e-6)
    for k in range(100):
        heading.magnet(iron, 130.0 + 0.2 * k, at_rest=False, attitude=attitude)
    assert euler(attitude.attitude)[2] == before
    votes = {v.sensor: v.agrees for v in heading.health(150.0, "").votes}
    assert votes["magnetometer"] is False


def test_a_yaw_gyro_that_stands_still_under_torque_is_found_out_until_it_moves_again() -> None:
    check = YawRateCheck(airframe=twin())
    for bad in ((nan, 0.0, 0.01), (0.0, nan, 0.01), (0.0, 0.0, nan)):
        check.update(*bad, raw_radps=bad[0])  # blinded it for good
    for _ in range(600):
        check.update(0.0, 0.4, 0.01, raw_radps=0.02)
    assert "gyro z" in check.doubt
    for _ in range(2000):
        check.update(0.0, 0.0, 0.01, raw_radps=0.02)
    assert check.doubt  # a stuck one agrees with a ship that stands still
    rate = 0.0
    for k in range(3000):
        torque_nm = 0.15 if (k // 600) % 2 else -0.15
        drag_nm = rate * (0.0537 + 0.667 * abs(rate))
        rate += (torque_nm - drag_nm) / 1.37 * 0.01
        check.update(rate, torque_nm, 0.01, raw_radps=rate)
    assert check.doubt == ""


def test_a_yaw_gyro_that_is_alive_is_not_blamed_for_a_motor_that_does_nothing() -> None:
    """Before, it was after 2 s: the heading was lost, and the ship flew 75 m."""
    check = YawRateCheck(airframe=twin())
    noise = Random(1)
    for _ in range(3000):
        rate = noise.gauss(0.0, 0.002)
        check.update(rate, 0.4, 0.01, raw_radps=rate)
    assert check.doubt == ""
    for _ in range(1500):  # but for turning when nothing turns the ship
        rate = noise.gauss(0.9, 0.002)
        check.update(rate, 0.0, 0.01, raw_radps=rate)
    assert "gyro z" in check.doubt


def test_a_heading_that_something_else_shows_owes_the_gyro_less() -> None:
    """Else its variance sinks below 0, whose root ends the flight loop."""
    heading = HeadingFilter(airframe=twin())
    heading.rest(0.005, 0.5)
    heading.watches = True
    for _ in range(600):  # a minute in which the gyro's bias turns it
        heading.grow(DT_S, accel_mps2=0j, turn_rad=0.0)
    heading.seen(0.002)
    for _ in range(600):
        heading.grow(DT_S, accel_mps2=0j, turn_rad=0.0)
        heading.see((1, 0, 0, 0, 0), (0.1, 0, 0, 0, 0), 0.01 + 0j, 0.1, 0.0)
    assert isinstance(heading.sigma_rad, float)
    assert 0.002 < heading.sigma_rad < 0.5
