from math import cos, hypot, inf, isfinite, nan, radians, sin
from random import Random

import msgspec
import pytest

from blimp.airframe import Estimation
from blimp.control.horizontal import HorizontalFilter
from blimp.types import GpsSample, PositionSample
from tests.control.parts import twin

HOME = twin().home
EARTH_M = 6_371_000.0
DT_S = 0.01


def tag(north_m: float, east_m: float, t_s: float, *, accuracy_m: float = 0.08) -> PositionSample:
    return PositionSample(t_s=t_s, position_ned_m=(north_m, east_m, -3.0), accuracy_m=accuracy_m)


def gps(north_m: float, east_m: float, t_s: float) -> GpsSample:
    return GpsSample(
        t_s=t_s,
        latitude_deg=HOME.latitude_deg + north_m / (radians(1.0) * EARTH_M),
        longitude_deg=HOME.longitude_deg
        + east_m / (radians(1.0) * EARTH_M * cos(radians(HOME.latitude_deg))),
        altitude_msl_m=0.0,
        velocity_ned_mps=None,
        accuracy_m=1.5,
        satellites=9,
    )


class Flight:
    """A circle of 3 m at 0.6 m/s, a tag at 10 Hz and a GPS at 5 Hz that lies by 4 m."""

    def __init__(self, *, bias_mps2: float = 0.1) -> None:
        self.filter = HorizontalFilter(home=HOME)
        self.noise = Random(5)
        self.bias_mps2 = bias_mps2
        self.t_s = 0.0
        self.tag_alive = self.gps_alive = True

    @property
    def truth(self) -> tuple[float, float]:
        angle = 0.2 * self.t_s
        return 3.0 * sin(angle), 3.0 - 3.0 * cos(angle)

    @property
    def error_m(self) -> float:
        n, e = self.truth
        return hypot(self.filter.position_m[0] - n, self.filter.position_m[1] - e)

    def fly(self, seconds: float) -> None:
        gauss = self.noise.gauss
        for _ in range(round(seconds / DT_S)):
            self.t_s += DT_S
            angle = 0.2 * self.t_s
            self.filter.predict(
                -0.12 * sin(angle) + self.bias_mps2 + gauss(0.0, 0.04),
                0.12 * cos(angle) + gauss(0.0, 0.04),
                DT_S,
            )
            n, e = self.truth
            step = round(self.t_s / DT_S)
            if self.tag_alive and step % 10 == 0:
                self.filter.update_tag(
                    tag(n + gauss(0.0, 0.08), e + gauss(0.0, 0.08), self.t_s), self.t_s
                )
            if self.gps_alive and step % 20 == 0:
                self.filter.update_gps(
                    gps(n + 4.0 + gauss(0.0, 0.1), e - 2.0 + gauss(0.0, 0.1), self.t_s),
                    self.t_s,
                    on_pad=False,
                )


def test_position_and_velocity_converge_in_spite_of_an_accelerometer_bias() -> None:
    flight = Flight()
    flight.fly(30.0)
    worst = 0.0
    for _ in range(100):
        flight.fly(0.1)
        worst = max(worst, flight.error_m)
    assert worst < 0.15
    north_mps, east_mps = flight.filter.velocity_mps
    angle = 0.2 * flight.t_s
    assert north_mps == pytest.approx(0.6 * cos(angle), abs=0.1)
    assert east_mps == pytest.approx(0.6 * sin(angle), abs=0.1)


def test_while_there_is_a_tag_gps_does_not_pull() -> None:
    flight = Flight()
    flight.fly(20.0)
    assert flight.error_m < 0.2


def test_a_lost_tag_is_followed_by_gps_without_a_jump() -> None:
    flight = Flight()
    flight.fly(20.0)
    flight.tag_alive = False
    worst = 0.0
    for _ in range(200):
        flight.fly(0.1)
        worst = max(worst, flight.error_m)
    assert flight.filter.valid(flight.t_s)
    assert worst < 0.9  # GPS itself is 4.5 m away


def test_with_neither_the_age_grows_and_the_position_is_not_valid() -> None:
    flight = Flight()
    flight.fly(10.0)
    flight.tag_alive = flight.gps_alive = False
    flight.fly(2.4)
    assert flight.filter.valid(flight.t_s)
    flight.fly(0.5)
    assert not flight.filter.valid(flight.t_s)
    assert flight.filter.age_s(flight.t_s) == pytest.approx(2.9, abs=0.11)


def test_before_the_first_fix_there_is_no_position() -> None:
    filter = HorizontalFilter(home=HOME)
    assert not filter.valid(0.0)
    assert filter.age_s(0.0) == float("inf")


def test_one_outlier_is_refused() -> None:
    flight = Flight()
    flight.fly(10.0)
    before = list(flight.filter.position_m)
    n, e = flight.truth
    flight.filter.update_tag(tag(n + 5.0, e, flight.t_s + 1e-3), flight.t_s)
    assert flight.filter.position_m == before


def test_a_source_that_insists_is_believed_when_the_ship_can_have_got_there() -> None:
    """The ship was carried off, or the anchors were moved: 24 m take 4.7 s at 5 m/s."""
    flight = Flight()
    flight.gps_alive = False
    flight.fly(10.0)
    flight.tag_alive = False
    believed_s = None
    for k in range(80):
        t_s = flight.t_s + 0.1 * (k + 1)
        for _ in range(10):
            flight.filter.predict(0.0, 0.0, DT_S)
        flight.filter.update_tag(tag(20.0, 20.0, t_s), t_s)
        if flight.filter.position_m[0] > 15.0:
            believed_s = 0.1 * (k + 1)
            break
    assert believed_s is not None
    assert 3.0 < believed_s < 6.0


def test_a_long_lost_position_comes_back_at_once() -> None:
    flight = Flight()
    flight.fly(10.0)
    flight.tag_alive = flight.gps_alive = False
    flight.fly(20.0)
    flight.filter.update_tag(tag(9.0, 9.0, flight.t_s), flight.t_s)
    assert flight.filter.position_m == [9.0, 9.0]


@pytest.mark.parametrize("bad", [nan, float("inf")])
def test_a_position_that_is_not_finite_is_left_out(bad: float) -> None:
    flight = Flight()
    flight.fly(5.0)
    before = list(flight.filter.position_m)
    flight.filter.update_tag(tag(bad, 0.0, flight.t_s + 1e-3), flight.t_s)
    flight.filter.update_tag(tag(0.0, 0.0, flight.t_s + 2e-3, accuracy_m=bad), flight.t_s)
    flight.filter.update_gps(gps(bad, 0.0, flight.t_s + 1e-3), flight.t_s, on_pad=False)
    assert flight.filter.position_m == before


def test_latitude_zero_is_a_place_like_any_other() -> None:
    """An old accident: a fix on the equator was taken for no fix."""
    equator = msgspec.structs.replace(HOME, latitude_deg=0.0, longitude_deg=0.0)
    filter = HorizontalFilter(home=equator)
    fix = GpsSample(
        t_s=1.0,
        latitude_deg=0.0,
        longitude_deg=0.0,
        altitude_msl_m=0.0,
        velocity_ned_mps=None,
        accuracy_m=1.5,
        satellites=9,
    )
    filter.update_gps(fix, 1.0, on_pad=False)
    assert filter.valid(1.0)
    assert filter.position_m == [0.0, 0.0]


def test_the_date_line_is_no_way_round_the_earth() -> None:
    filter = HorizontalFilter(
        home=msgspec.structs.replace(HOME, latitude_deg=0.0, longitude_deg=179.99999)
    )
    fix = msgspec.structs.replace(gps(0.0, 0.0, 1.0), latitude_deg=0.0, longitude_deg=-179.99999)
    filter.update_gps(fix, 1.0, on_pad=False)
    assert filter.position_m == pytest.approx([0.0, 2.22], abs=0.01)


def test_on_the_pad_gps_alone_is_shifted_to_the_pad() -> None:
    filter = HorizontalFilter(home=HOME)
    for k in range(100):
        filter.predict(0.0, 0.0, 0.2)
        filter.update_gps(gps(4.0, -2.0, 0.2 * k), 0.2 * k, on_pad=True)
    assert filter.position_m == pytest.approx([0.0, 0.0], abs=0.05)
    for k in range(100, 250):
        filter.predict(0.0, 0.0, 0.2)
        filter.update_gps(gps(7.0, -2.0, 0.2 * k), 0.2 * k, on_pad=False)
    assert filter.position_m == pytest.approx([3.0, 0.0], abs=0.1)


@pytest.mark.parametrize("latency_s", [nan, inf, -0.1, 0.6])
def test_a_pose_of_no_believable_age_is_left_out(latency_s: float) -> None:
    flight = HorizontalFilter(home=twin().home)
    good = PositionSample(t_s=0.0, position_ned_m=(1.0, 2.0, 0.0), accuracy_m=0.005, latency_s=0.03)
    flight.update_tag(good, 0.0)
    bad = PositionSample(
        t_s=0.1, position_ned_m=(1.1, 2.0, 0.0), accuracy_m=0.005, latency_s=latency_s
    )
    flight.update_tag(bad, 0.1)
    assert flight.position_m == [1.0, 2.0]
    assert isfinite(sum(flight.velocity_mps))


def test_a_tilt_that_the_position_shows_goes_to_the_attitude_and_moves_nothing() -> None:
    filter, t_s = HorizontalFilter(home=HOME), 0.0
    turned, turning = 0j, 0j
    for step in range(6000):  # the attitude is nose up by so much, and its gyro's bias is known
        t_s += DT_S
        if step < 500:
            filter.rest(1e-4)
        left = 0.02j - turned
        filter.predict(9.81 * left.imag, -9.81 * left.real, DT_S)
        if step % 10 == 0:
            filter.update_tag(tag(0.0, 0.0, t_s), t_s)
        turn, bias = filter.take_tilt()
        turned, turning = turned + turn, turning + bias
    # A bias of the accelerometer would look the same: the rest is believed to be that.
    shown = complex(turned.real, turned.imag + filter.bias_mps2.real / 9.81)
    assert abs(shown - 0.02j) < 1e-3
    assert abs(turning) < 1e-3
    assert hypot(*filter.velocity_mps) < 0.01
    assert filter.tilt_sigma_rad > abs(0.02j - turned)


@pytest.mark.parametrize("believed", [True, False])
def test_only_a_believed_accelerometer_levels_the_attitude(believed: bool) -> None:
    filter, t_s, turned = HorizontalFilter(home=HOME), 0.0, 0j
    filter.rest(1e-4)
    for step in range(1000):
        t_s += DT_S
        if believed:
            filter.predict(0.2, 0.0, DT_S)
        else:
            filter.drift(DT_S, t_s)
        if step % 10 == 0:  # it is carried off, which an accelerometer that is off cannot show
            filter.update_tag(tag(0.1 * t_s, 0.0, t_s), t_s)
        turned += filter.take_tilt()[0]
    assert (abs(turned) > 1e-3) is believed


def test_an_accelerometer_bias_is_followed_as_the_ship_turns() -> None:
    filter, t_s, yaw = HorizontalFilter(home=HOME), 0.0, 0.0
    worst = 0.0
    for step in range(6000):
        t_s += DT_S
        turn = 0.3 * DT_S if step > 1000 else 0.0
        yaw += turn
        # Levelled by its accelerometer at the start, it is tilted by what it feels there.
        filter.predict(0.3 * (cos(yaw) - 1.0), 0.3 * sin(yaw), DT_S, turn_rad=turn)
        if step % 10 == 0:
            filter.update_tag(tag(0.0, 0.0, t_s), t_s)
        if step > 4000:
            worst = max(worst, hypot(*filter.position_m))
    assert worst < 0.02


def test_surprises_open_a_filter_that_trusts_its_accelerometer_too_much() -> None:
    noise = Estimation(accel_sigma_mps2=0.004, accel_drift_mps2=0.001)
    filter, chance, t_s = HorizontalFilter(home=HOME, noise=noise), Random(3), 0.0
    worst_mps = 0.0
    for step in range(5000):
        t_s += DT_S
        filter.predict(0.1 if 3000 < step < 3600 else 0.0, 0.0, DT_S)
        if step % 10 == 0:
            filter.update_tag(tag(chance.gauss(0.0, 0.1), chance.gauss(0.0, 0.1), t_s), t_s)
        if step > 3600:
            worst_mps = max(worst_mps, hypot(*filter.velocity_mps))
    assert worst_mps < 0.2
