from math import cos, inf, isfinite, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blimp.control.estimator import Estimator
from blimp.control.samples import Samples, role
from blimp.rotation import euler, from_euler
from blimp.types import (
    BaroSample,
    GpsSample,
    ImuSample,
    PositionSample,
    RangeSample,
    SensorReadings,
    VehicleState,
)
from tests.control.parts import GRAVITY_MPS2, BenchSensors, twin


class Still:
    """An estimator that watches a motionless ship."""

    def __init__(self, *, altitude_m: float = 0.0) -> None:
        self.sensors = BenchSensors()
        self.sensors.position_ned_m = (0.0, 0.0, -altitude_m)
        self.estimator = Estimator(airframe=twin())
        self.now_s = 0.0
        self.state = VehicleState(t_s=0.0)

    def lift(self, altitude_m: float) -> None:
        for k in range(1, round(altitude_m * 100) + 1):
            self.sensors.position_ned_m = (0.0, 0.0, -0.01 * k)
            self.run(0.01)

    def run(self, seconds: float, *, powered: bool = False) -> VehicleState:
        for _ in range(round(seconds * 100)):
            self.now_s += 0.01
            readings = self.sensors.read(self.now_s)
            self.state = self.estimator.update(readings, now_s=self.now_s, powered=powered)
        return self.state


def test_roles_of_the_twins_devices() -> None:
    roles = {device.name: role(device) for device in twin().device}
    assert roles["imu"] == "imu"
    assert roles["servos"] == ""
    renamed = msgspec.structs.replace(twin().device[2], name="gyro")
    assert role(renamed) == "imu"  # by its chip


def test_on_the_pad_everything_becomes_valid_and_zero() -> None:
    ship = Still()
    assert not ship.run(0.01).height_valid
    state = ship.run(4.0)
    assert state.attitude_valid
    assert state.height_valid
    assert state.position_valid
    assert state.on_ground
    assert ship.estimator.gyro_settled
    assert state.position_ned_m == pytest.approx((0.0, 0.0, 0.0), abs=0.05)
    assert state.velocity_ned_mps == pytest.approx((0.0, 0.0, 0.0), abs=0.05)


def test_switched_on_in_the_air_it_believes_the_ranger_not_the_pad() -> None:
    """A flight process that was restarted in flight."""
    ship = Still(altitude_m=3.0)
    state = ship.run(4.0)
    assert state.altitude_m == pytest.approx(3.0, abs=0.1)
    assert not state.on_ground
    assert not ship.estimator.gyro_settled  # it may be turning with the wind
    assert not state.position_valid  # the place is known, but not where the nose points


def test_lifted_off_the_ground_and_put_back() -> None:
    ship = Still()
    ship.run(4.0)
    ship.lift(2.0)
    assert not ship.state.on_ground
    for k in range(400):
        ship.sensors.position_ned_m = (0.0, 0.0, -2.0 + 0.005 * k)
        ship.run(0.01)
    assert ship.run(4.0).on_ground


def test_declared_landed_is_on_the_ground_at_height_zero() -> None:
    ship = Still(altitude_m=1.2)
    ship.run(4.0)
    ship.sensors.cut = {"ranger", "baro"}
    ship.estimator.declare_landed()
    state = ship.run(0.02)
    assert state.on_ground
    assert state.altitude_m == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(
    ("cut", "field", "within_s"),
    [("imu", "attitude_valid", 2.4), ("tag", "position_valid", 2.6)],
)
def test_a_silent_sensor_makes_its_part_invalid(cut: str, field: str, within_s: float) -> None:
    ship = Still()
    ship.run(4.0)
    ship.lift(2.0)
    assert getattr(ship.state, field)
    ship.sensors.cut = {cut}
    ship.run(within_s)
    assert not getattr(ship.state, field)
    ship.sensors.cut = set()
    ship.run(2.0)
    assert getattr(ship.state, field)


def test_height_needs_one_of_two() -> None:
    ship = Still(altitude_m=2.0)
    ship.run(4.0)
    ship.sensors.cut = {"ranger"}
    assert ship.run(3.0).height_valid
    ship.sensors.cut = {"baro"}
    assert ship.run(3.0).height_valid
    ship.sensors.cut = {"baro", "ranger"}
    assert not ship.run(3.0).height_valid


def test_an_unhealthy_device_is_not_listened_to() -> None:
    """Frozen at a value it goes on answering; its health says what its samples do not."""
    ship = Still(altitude_m=2.0)
    ship.run(4.0)
    ship.sensors.unhealthy = ("imu", "tag", "baro", "ranger")
    state = ship.run(3.0)
    assert (state.attitude_valid, state.position_valid, state.height_valid) == (False,) * 3


@pytest.mark.parametrize("name", ["tag", "baro"])
def test_a_sick_sensor_moves_nothing_beside_others_that_are_well(name: str) -> None:
    ship = Still()
    ship.run(4.0)
    ship.sensors.cut = {"ranger"}
    ship.sensors.unhealthy = (name,)
    ship.sensors.position_ned_m = (1.0, 0.0, -0.15)
    state = ship.run(2.0, powered=True)
    moved = (state.position_ned_m[0] > 0.5, state.altitude_m > 0.03)
    assert moved == {"tag": (False, True), "baro": (True, False)}[name]


def test_a_range_is_within_its_limits_and_along_a_beam_that_meets_the_ground() -> None:
    ship = Still()
    ship.run(1.0)
    estimator = ship.estimator

    def height_m(distance_m: float) -> float | None:
        sample = RangeSample(t_s=1.0, distance_m=distance_m)
        return estimator._ranged_m("ranger", sample, 1.0)

    assert (height_m(0.14), height_m(8.1)) == (None, None)
    assert height_m(2.0) == pytest.approx(2.0)
    estimator._attitude.attitude = from_euler(0.0, 0.4, 0.0)
    assert height_m(2.0) == pytest.approx(2.0 * cos(0.4))
    estimator._attitude.attitude = from_euler(0.6, 0.0, 0.0)
    assert height_m(2.0) is None


def test_what_the_accelerometer_feels_upwards_is_a_climb() -> None:
    ship = Still()
    ship.run(4.0)
    ship.sensors.cut = {"baro", "ranger", "tag"}
    ship.sensors.accel = (0.0, 0.0, -GRAVITY_MPS2 - 0.3)
    assert ship.run(1.0, powered=True).velocity_ned_mps[2] == pytest.approx(-0.3, abs=0.1)


def test_a_pressure_that_cannot_be_is_not_the_pads() -> None:
    estimator = Estimator(airframe=twin())
    for pressure_pa in (2e4, 1.3e5, nan, inf):
        estimator._gather_reference(pressure_pa)
    assert estimator._reference == []


def test_the_tag_sits_on_the_hull_and_the_imu_swings_below_it() -> None:
    """Tilted, the tag still gives the hull's place; the filter's own point is the IMU's."""
    ship = Still(altitude_m=2.0)
    roll = 0.2
    ship.sensors.accel = (0.0, 9.80665 * -0.198669, 9.80665 * -0.980067)
    state = ship.run(8.0)
    assert euler(state.attitude)[0] == pytest.approx(roll, abs=0.03)
    assert state.position_ned_m[:2] == pytest.approx((0.0, 0.0), abs=0.05)


_NUMBER = st.floats(allow_nan=True, allow_infinity=True)


@given(values=st.lists(_NUMBER, min_size=12, max_size=12), name=st.integers(0, 6))
def test_no_sample_however_wild_makes_the_state_not_finite(values: list[float], name: int) -> None:
    ship = Still(altitude_m=1.0)
    ship.run(0.5)
    a, b, c, d, e, f, g, *_ = values
    t_s = ship.now_s + 0.01
    wild: list[dict[str, Any]] = [
        {
            "imu": ImuSample(
                t_s=t_s,
                accel_body_mps2=(a, b, c),
                gyro_body_radps=(d, e, f),
                temperature_c=g,
            )
        },
        {"baro": BaroSample(t_s=t_s, pressure_pa=a, temperature_c=b)},
        {"ranger": RangeSample(t_s=t_s, distance_m=a)},
        {"tag": PositionSample(t_s=t_s, position_ned_m=(a, b, c), accuracy_m=d)},
        {"sonar": RangeSample(t_s=t_s, distance_m=a)},
        {
            "gps": GpsSample(
                t_s=t_s,
                latitude_deg=a,
                longitude_deg=b,
                altitude_msl_m=c,
                velocity_ned_mps=(d, e, f),
                accuracy_m=g,
                satellites=9,
            )
        },
        {
            "imu": ImuSample(
                t_s=a,
                accel_body_mps2=(0.0, 0.0, -9.8),
                gyro_body_radps=(0.0, 0.0, 0.0),
                temperature_c=20.0,
            )
        },
    ]
    state = ship.estimator.update(SensorReadings(t_s=t_s, **wild[name]), now_s=t_s, powered=True)
    state = ship.run(0.1, powered=True)
    assert all(isfinite(x) for x in state.attitude + state.rates_body_radps)
    assert all(isfinite(x) for x in state.position_ned_m + state.velocity_ned_mps)


def test_nan_is_not_a_range() -> None:
    ship = Still(altitude_m=2.0)
    ship.run(4.0)
    readings = SensorReadings(
        t_s=ship.now_s + 0.01, ranger=RangeSample(t_s=ship.now_s + 0.01, distance_m=nan)
    )
    state = ship.estimator.update(readings, now_s=ship.now_s + 0.01, powered=False)
    assert state.altitude_m == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(
    "bad",
    [{"latency_s": nan}, {"latency_s": inf}, {"yaw_rad": nan}, {"position_ned_m": (0.0, 0.0, nan)}],
)
def test_nothing_bad_in_a_pose_reaches_the_state(bad: dict[str, Any]) -> None:
    ship = Still()
    ship.run(4.0)
    good = PositionSample(
        t_s=0.0, position_ned_m=(0.0, 0.0, 0.0), accuracy_m=0.005, latency_s=0.03, yaw_rad=0.1
    )
    for k in range(200):
        fields = bad if k % 2 else {}
        pose = msgspec.structs.replace(good, t_s=ship.now_s + 0.01, **fields)
        ship.now_s += 0.01
        readings = msgspec.structs.replace(ship.sensors.read(ship.now_s), tag=pose)
        state = ship.estimator.update(readings, now_s=ship.now_s, powered=True)
    assert isfinite(sum(state.position_ned_m + state.velocity_ned_mps + state.attitude))
    assert 0.005 < euler(state.attitude)[2] < 0.1  # the good half turns it


def test_a_clock_that_goes_back_costs_nothing() -> None:
    ship = Still()
    ship.run(4.0)
    ship.lift(2.0)
    ship.run(4.0)
    ship.now_s -= 3.5
    state = ship.run(1.0)
    assert (state.attitude_valid, state.height_valid, state.position_valid) == (True,) * 3
    assert state.altitude_m == pytest.approx(2.0, abs=0.15)
    state = ship.run(6.0)
    assert state.altitude_m == pytest.approx(2.0, abs=0.1)
    assert state.health.doubts == ()


def test_a_sensor_at_ten_times_its_rate_counts_twice_at_the_most() -> None:
    samples = Samples(airframe=twin())
    used = 0
    for k in range(100):
        t_s = 0.01 * k
        tag = PositionSample(t_s=t_s, position_ned_m=(0.0, 0.0, 0.0), accuracy_m=0.08)
        used += samples.is_new("tag", tag, t_s)
    assert used <= 26


@pytest.mark.parametrize("t_s", [nan, float("inf"), -1e9, 1e9])
def test_a_sample_of_no_time_is_no_sample_and_the_next_one_is(t_s: float) -> None:
    samples = Samples(airframe=twin())
    wild = PositionSample(t_s=t_s, position_ned_m=(9.0, 9.0, 0.0), accuracy_m=0.08)
    assert not samples.is_new("tag", wild, 5.0)
    good = PositionSample(t_s=5.1, position_ned_m=(0.0, 0.0, 0.0), accuracy_m=0.08)
    assert samples.is_new("tag", good, 5.1)


def test_every_quantity_has_its_health() -> None:
    ship = Still()
    ship.run(4.0)
    ship.lift(2.0)
    health = ship.run(4.0).health
    assert health.doubts == ()
    assert set(health.height.witnesses) == {"baro", "ranger"}
    assert health.position.witnesses == ("tag",)
    assert 0.0 < health.height.sigma < 0.3
    assert 0.0 < health.heading.sigma < 0.1
    ship.sensors.cut = {"baro"}
    health = ship.run(3.0).health
    assert health.height.witnesses == ("ranger",)
    assert health.height.age_s < 0.5
