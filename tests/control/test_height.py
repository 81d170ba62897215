from math import exp, isnan
from random import Random

import pytest

from blimp.control.height import HeightFilter
from blimp.control.pressure import baro_height_m

DT_S = 0.01


class Climb:
    """A ship that goes up and down while a filter watches through noisy instruments."""

    def __init__(self, *, seed: int = 1) -> None:
        self.filter = HeightFilter()
        self.noise = Random(seed)
        self.t_s = 0.0
        self.height_m = 0.0
        self.climb_mps = 0.0
        self.baro_offset_m = 0.0
        self.baro_alive = True
        self.ranger_alive = True
        self.accel_bias_mps2 = 0.0
        self.floor_m = 0.0

    def fly(self, seconds: float, *, accel_mps2: float = 0.0) -> None:
        gauss = self.noise.gauss
        for _ in range(round(seconds / DT_S)):
            self.t_s += DT_S
            self.climb_mps += accel_mps2 * DT_S
            self.height_m += self.climb_mps * DT_S
            self.filter.predict(accel_mps2 + self.accel_bias_mps2 + gauss(0.0, 0.04), DT_S)
            step = round(self.t_s / DT_S)
            if self.baro_alive and step % 4 == 0:
                self.filter.update_baro(
                    self.height_m + self.baro_offset_m + gauss(0.0, 0.12), self.t_s
                )
            slant_m = self.height_m - self.floor_m
            if self.ranger_alive and step % 2 == 0 and 0.2 < slant_m < 8.0:
                self.filter.update_ranger(slant_m + gauss(0.0, 0.02), self.t_s)
            self.filter.vote(self.t_s)


def test_height_and_climb_converge() -> None:
    ship = Climb()
    ship.fly(2.0)
    ship.fly(1.0, accel_mps2=0.3)
    ship.fly(8.0)
    assert ship.filter.height_m == pytest.approx(ship.height_m, abs=0.05)
    assert ship.filter.climb_mps == pytest.approx(ship.climb_mps, abs=0.05)


def test_accelerometer_bias_is_learnt() -> None:
    ship = Climb()
    ship.height_m, ship.filter.height_m = 2.0, 2.0
    ship.accel_bias_mps2 = 0.1
    ship.fly(40.0)
    assert ship.filter.bias_mps2 == pytest.approx(0.1, abs=0.03)
    assert ship.filter.climb_mps == pytest.approx(0.0, abs=0.05)


def test_a_drifting_barometer_does_not_move_the_height_while_the_ranger_sees() -> None:
    ship = Climb()
    ship.height_m, ship.filter.height_m = 3.0, 3.0
    ship.fly(5.0)
    for _ in range(60):
        ship.baro_offset_m += 0.02
        ship.fly(1.0)
    assert ship.filter.height_m == pytest.approx(3.0, abs=0.05)
    assert ship.filter.offset_m == pytest.approx(1.2, abs=0.2)


def test_the_barometer_carries_on_where_the_ranger_ends() -> None:
    ship = Climb()
    ship.baro_offset_m = 0.7
    ship.height_m, ship.filter.height_m = 3.0, 3.0
    ship.fly(20.0)
    ship.ranger_alive = False
    ship.fly(10.0)
    assert ship.filter.valid(ship.t_s)
    assert ship.filter.height_m == pytest.approx(3.0, abs=0.3)


@pytest.mark.parametrize("jump_m", [3.0, -2.0, 40.0])
def test_one_wild_ranger_value_is_refused(jump_m: float) -> None:
    ship = Climb()
    ship.height_m, ship.filter.height_m = 3.0, 3.0
    ship.fly(5.0)
    before = ship.filter.height_m
    ship.filter.update_ranger(3.0 + jump_m, ship.t_s)
    assert ship.filter.height_m == before


def test_a_table_under_the_ship_is_not_the_ground_and_the_ranger_is_followed_from_there() -> None:
    """The ranger alone says that the ship has sunk; once it moves along, it is used as it lies."""
    ship = Climb()
    ship.height_m, ship.filter.height_m = 3.0, 3.0
    ship.fly(10.0)
    ship.floor_m = 0.9
    ship.fly(8.0)
    assert ship.filter.height_m == pytest.approx(3.0, abs=0.2)
    ship.fly(2.0, accel_mps2=0.15)
    ship.fly(4.0)
    ship.fly(2.0, accel_mps2=-0.15)
    ship.fly(8.0)
    assert ship.filter.height_m == pytest.approx(ship.height_m, abs=0.3)
    assert ship.filter.ground_m == pytest.approx(0.9, abs=0.3)
    assert ship.filter.outvoted == frozenset()


def test_a_gust_on_the_barometer_is_not_read_as_height() -> None:
    ship = Climb()
    ship.height_m, ship.filter.height_m = 3.0, 3.0
    ship.ranger_alive = False
    ship.fly(10.0)
    ship.baro_offset_m = 8.0  # a metre of water column on the static port
    ship.fly(1.0)
    assert ship.filter.height_m == pytest.approx(3.0, abs=0.3)


def test_without_instruments_it_says_so_after_two_seconds() -> None:
    ship = Climb()
    assert not ship.filter.valid(0.0)
    ship.height_m, ship.filter.height_m = 3.0, 3.0
    ship.fly(1.0)
    assert ship.filter.valid(ship.t_s)
    ship.baro_alive = ship.ranger_alive = False
    ship.fly(1.9)
    assert ship.filter.valid(ship.t_s)
    ship.fly(0.3)
    assert not ship.filter.valid(ship.t_s)


def test_landing_makes_this_height_zero_and_keeps_the_barometer_in_step() -> None:
    ship = Climb()
    ship.fly(5.0)
    offset_m, ground_m = ship.filter.offset_m, ship.filter.ground_m
    ship.filter.height_m = 0.6  # the barometer has drifted
    ship.filter.land()
    assert ship.filter.height_m == 0.0
    assert ship.filter.offset_m == pytest.approx(offset_m + 0.6)
    assert ship.filter.ground_m == pytest.approx(ground_m - 0.6)


def test_no_estimate_climbs_faster_than_the_ship_can() -> None:
    for sign in (1.0, -1.0):
        filter = HeightFilter(climb_limit_mps=1.2)
        filter.predict(sign * 30.0, 0.1)
        filter.vote(0.1)
        assert filter.climb_mps == sign * 1.2


def test_a_ranger_that_sees_a_ship_at_rest_in_the_air_is_not_believed() -> None:
    for height_m, outvoted in ((0.1, set()), (0.5, {"ranger"})):
        filter = HeightFilter()
        filter.update_rest(1.0)
        filter.update_ranger(0.0, 1.0)
        filter.update_ranger(height_m, 1.1)
        assert filter.outvoted == outvoted


def test_covariance_stays_positive_over_an_hour() -> None:
    ship = Climb()
    for minute in range(60):
        ship.ranger_alive = minute % 2 == 0
        for _ in range(600):
            ship.filter.predict(0.01, 0.1)
            ship.t_s += 0.1
            ship.filter.update_baro(0.0, ship.t_s)
            ship.filter.update_rest(ship.t_s)
    assert 0.0 < ship.filter.sigma_m < 1.0


def test_baro_height_follows_the_standard_atmosphere() -> None:
    """ISO 2533: 100129.5 Pa at 100 m."""
    assert baro_height_m(100129.5, 15.0 - 0.325, 101325.0) == pytest.approx(100.0, abs=0.05)
    assert baro_height_m(101325.0, 15.0, 101325.0) == 0.0
    warm_board = baro_height_m(101325.0 * exp(-1e-4), 60.0, 101325.0)
    assert warm_board == pytest.approx(8434.5e-4, rel=0.01)  # 60 °C is the board's, not the air's


@pytest.mark.parametrize("pressure", [0.0, -1.0, float("nan"), float("inf"), 2e5])
def test_an_impossible_pressure_is_not_a_height(pressure: float) -> None:
    assert isnan(baro_height_m(pressure, 15.0, 101325.0))


def test_on_the_ground_a_height_that_nothing_measures_stays_and_is_corrected_at_once() -> None:
    """A light ship is pressed onto the ground, its ranger blind there: it drifted to 8 m."""
    filter = HeightFilter()
    for k in range(200):
        filter.predict(0.0, 0.01)
        filter.update_ranger(0.3, 0.01 * k)
    now_s = 2.0
    for _ in range(6000):  # a bias of 0.05 m/s² left, for a minute
        now_s += 0.01
        filter.predict(0.05, 0.01)
        filter.stand(now_s)
    assert abs(filter.height_m) <= 0.1
    assert not filter.valid(now_s)
    for _ in range(100):  # it has come off
        now_s += 0.01
        filter.predict(0.0, 0.01)
        filter.update_ranger(0.8, now_s)
        filter.stand(now_s)
    assert filter.height_m == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(("source", "height_m"), [("ranger", 2.0), ("tag", 2.2), ("camera", 2.2)])
def test_only_a_ranger_has_the_error_of_a_rangers_scale(source: str, height_m: float) -> None:
    filter = HeightFilter()
    filter.begin_at(2.0)
    filter.update_witness(2.2, "tag")
    filter.update_ranger(2.2, 0.0, source=source)  # the first one is believed as it is
    filter.height_m, filter.scale = 2.0, 0.1
    filter._p[14] = 1e-9  # known for certain
    for step in range(1, 500):
        filter.update_ranger(2.2, 0.02 * step, source=source)
    assert filter.height_m == pytest.approx(height_m, abs=0.02)


def test_a_rangers_scale_is_found_beside_a_barometer() -> None:
    """On the pad both show 0; 4 m higher they do not agree, and the ranger is 2 % off."""
    filter, t_s = HeightFilter(), 0.0
    for _ in range(4000):
        t_s += 0.02
        up = max(0.0, min(4.0, 0.2 * (t_s - 10.0)))
        filter.predict(0.0, 0.02)
        filter.climb_mps = 0.2 if 10.0 < t_s < 30.0 else 0.0
        if t_s < 10.0:
            filter.update_rest(t_s)
        filter.update_baro(up, t_s)
        filter.update_ranger(1.02 * up, t_s)
    assert filter.scale == pytest.approx(0.02, abs=0.008)
    assert abs(filter.height_m - 4.0) < 0.04
    assert filter.sigma_m < 0.06


@pytest.mark.parametrize(
    ("baro_mps", "witness", "moves_mps", "known"),
    [
        (0.0, "tag", 0.0, True),
        (0.002, "tag", 0.0, True),  # the weather
        (-0.17, "tag", 0.0, False),
        (0.0, "tag", 0.17, False),  # or it is the tag that lies
        (-0.17, "tag", -0.17, True),  # it climbs, and does not know why
        (-0.17, "gps", 0.0, True),  # a GPS wanders by metres: it is no reason to come down blind
    ],
)
def test_a_barometer_alone_that_a_tag_contradicts_is_no_height(
    baro_mps: float, witness: str, moves_mps: float, known: bool
) -> None:
    """Its ranger dead, a light ship followed a barometer that sank up to 14 m, and was let go."""
    ship = Climb()
    ship.fly(5.0, accel_mps2=0.1)
    ship.fly(5.0, accel_mps2=-0.1)
    ship.ranger_alive = False
    lost = 0
    for k in range(3000):
        ship.baro_offset_m = baro_mps * 0.01 * k
        seen_m = ship.height_m + moves_mps * 0.01 * k
        ship.filter.update_witness(seen_m + ship.noise.gauss(0.0, 0.1), witness)
        ship.fly(0.01)
        lost += not ship.filter.valid(ship.t_s)
    assert (lost == 0) is known
    assert ship.filter.valid(ship.t_s) is known
    ship.ranger_alive = True
    ship.fly(3.0)
    assert ship.filter.valid(ship.t_s), "the ranger decides"


def test_a_barometer_is_alone_beside_a_ranger_that_is_outvoted() -> None:
    ship = Climb()
    ship.fly(5.0, accel_mps2=0.1)
    ship.fly(5.0, accel_mps2=-0.1)
    ship.ranger_alive = False
    for k in range(3000):
        ship.baro_offset_m = -0.17 * 0.01 * k
        ship.filter.update_witness(ship.height_m, "tag")
        ship.filter.update_ranger(0.22, ship.t_s)
        ship.fly(0.01)
    assert "ranger" in ship.filter.outvoted
    assert not ship.filter.valid(ship.t_s)
