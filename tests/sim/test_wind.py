from math import hypot, log, sqrt
from statistics import fmean, pstdev

import pytest

from blimp.sim.wind import AIRSPEED_FLOOR_MPS, Wind, gustiness

FOOT_M = 0.3048
MEAN_MPS = 4.0


def along_across(wind: Wind) -> tuple[float, float]:
    """Gusts along and across the mean wind."""
    mean, now = wind.mean_ned_mps, wind.velocity_ned_mps
    n, e = mean[0] / MEAN_MPS, mean[1] / MEAN_MPS
    return now[0] * n + now[1] * e - MEAN_MPS, now[1] * n - now[0] * e


@pytest.mark.parametrize(
    ("height_ft", "length_ft", "sigma_ratio"),
    [
        (10.0, 75.6, 1.963),
        (20.0, 143.6, 1.929),
        (100.0, 505.2, 1.716),
        (500.0, 944.7, 1.236),
        (1000.0, 1000.0, 1.0),
    ],
)
def test_mil_f_8785c(height_ft: float, length_ft: float, sigma_ratio: float) -> None:
    gusts = gustiness(height_ft * FOOT_M, 10.0)
    assert gusts.length_horizontal_m == pytest.approx(length_ft * FOOT_M, rel=1e-3)
    assert gusts.length_vertical_m == pytest.approx(height_ft * FOOT_M)
    assert gusts.sigma_vertical_mps == pytest.approx(1.0)
    assert gusts.sigma_horizontal_mps == pytest.approx(sigma_ratio, abs=1.1e-3)


def test_the_nearest_bound_holds_outside_the_models_heights() -> None:
    assert gustiness(-1.0, 3.0) == gustiness(10.0 * FOOT_M, 3.0)
    assert gustiness(2000.0, 3.0) == gustiness(1000.0 * FOOT_M, 3.0)


def test_a_long_run_has_the_standards_statistics() -> None:
    height_m, airspeed_mps, dt_s = 30.48, 10.0, 0.05
    wind = Wind(seed=5, mean_mps=MEAN_MPS)
    gusts = gustiness(height_m, MEAN_MPS)
    u, v, w = [], [], []
    for _ in range(150_000):  # 75 km of air: about 500 scale lengths
        wind.step(dt_s, height_m=height_m, airspeed_mps=airspeed_mps)
        along, across = along_across(wind)
        u.append(along)
        v.append(across)
        w.append(wind.velocity_ned_mps[2])
    assert pstdev(u) == pytest.approx(gusts.sigma_horizontal_mps, rel=0.06)
    assert pstdev(v) == pytest.approx(gusts.sigma_horizontal_mps, rel=0.06)
    assert pstdev(w) == pytest.approx(gusts.sigma_vertical_mps, rel=0.06)
    assert fmean(u) == pytest.approx(0.0, abs=4.0 * gusts.sigma_horizontal_mps / sqrt(900.0))
    # The correlation falls to 1/e after the time constant: L/V along, half of it else.
    for series, length_m in (
        (u, gusts.length_horizontal_m),
        (v, 0.5 * gusts.length_horizontal_m),
        (w, 0.5 * gusts.length_vertical_m),
    ):
        lag = round(0.3 * length_m / airspeed_mps / dt_s)
        mean = fmean(series)
        power = fmean((x - mean) ** 2 for x in series)
        later = fmean((a - mean) * (b - mean) for a, b in zip(series, series[lag:], strict=False))
        found_s = -lag * dt_s / log(later / power)
        assert found_s == pytest.approx(length_m / airspeed_mps, rel=0.12)


def test_one_step_is_the_usual_recursion() -> None:
    """sigma^2 (1 - keep^2) is 2 T / tau along and 4 T / tau across, for short steps."""
    height_m, dt_s = 3.048, 0.001
    gusts = gustiness(height_m, MEAN_MPS)
    along_jumps, across_jumps, down_jumps = [], [], []
    wind = Wind(seed=2, mean_mps=MEAN_MPS)
    before = (*along_across(wind), wind.velocity_ned_mps[2])
    for _ in range(20_000):
        wind.step(dt_s, height_m=height_m, airspeed_mps=2.0)
        after = (*along_across(wind), wind.velocity_ned_mps[2])
        along_jumps.append(after[0] - before[0])
        across_jumps.append(after[1] - before[1])
        down_jumps.append(after[2] - before[2])
        before = after
    tau_s = gusts.length_horizontal_m / 2.0
    sigma = gusts.sigma_horizontal_mps
    assert pstdev(along_jumps) == pytest.approx(sigma * sqrt(2.0 * dt_s / tau_s), rel=0.02)
    assert pstdev(across_jumps) == pytest.approx(sigma * sqrt(4.0 * dt_s / tau_s), rel=0.02)
    tau_s = gusts.length_vertical_m / 2.0
    sigma = gusts.sigma_vertical_mps
    assert pstdev(down_jumps) == pytest.approx(sigma * sqrt(4.0 * dt_s / tau_s), rel=0.02)


def test_a_hovering_ship_meets_gusts_too() -> None:
    still, slow = Wind(seed=3, mean_mps=MEAN_MPS), Wind(seed=3, mean_mps=MEAN_MPS)
    for _ in range(50):
        still.step(0.1, height_m=10.0, airspeed_mps=0.0)
        slow.step(0.1, height_m=10.0, airspeed_mps=AIRSPEED_FLOOR_MPS)
    assert still.velocity_ned_mps == slow.velocity_ned_mps
    assert still.velocity_ned_mps != Wind(seed=3, mean_mps=MEAN_MPS).velocity_ned_mps


def test_no_wind_is_still() -> None:
    wind = Wind(seed=1, mean_mps=0.0)
    for _ in range(100):
        wind.step(0.1, height_m=10.0, airspeed_mps=1.0)
    assert wind.velocity_ned_mps == (0.0, 0.0, 0.0)
    assert wind.acceleration_ned_mps2 == (0.0, 0.0, 0.0)


def test_the_seed_sets_direction_and_gusts() -> None:
    def run(seed: int) -> list[tuple[float, float, float]]:
        wind = Wind(seed=seed, mean_mps=1.0, span_m=3.0)
        trace = []
        for _ in range(20):
            wind.step(0.005, height_m=5.0, airspeed_mps=1.0)
            trace.append(wind.velocity_ned_mps)
        return trace

    assert run(1) == run(1)
    assert run(1) != run(2)
    means = [Wind(seed=seed, mean_mps=1.0).mean_ned_mps for seed in range(40)]
    assert all(hypot(*mean) == pytest.approx(1.0) for mean in means)
    quadrants = {(mean[0] > 0.0, mean[1] > 0.0) for mean in means}
    assert len(quadrants) == 4


def test_a_long_hull_feels_less_of_a_gust() -> None:
    height_m, airspeed_mps, span_m = 3.048, 2.0, 3.0
    point = Wind(seed=4, mean_mps=MEAN_MPS)
    hull = Wind(seed=4, mean_mps=MEAN_MPS, span_m=span_m)
    w_point, w_hull = [], []
    for _ in range(60_000):
        point.step(0.02, height_m=height_m, airspeed_mps=airspeed_mps)
        hull.step(0.02, height_m=height_m, airspeed_mps=airspeed_mps)
        w_point.append(point.velocity_ned_mps[2])
        w_hull.append(hull.velocity_ned_mps[2])
    # First-order process through a first-order lag: variance falls by L' / (L' + span / 3),
    # with L' = L_w / 2 the vertical gusts' correlation length.
    length_m = 0.5 * gustiness(height_m, MEAN_MPS).length_vertical_m
    expected = sqrt(length_m / (length_m + span_m / 3.0))
    assert pstdev(w_hull) / pstdev(w_point) == pytest.approx(expected, rel=0.03)


def test_acceleration_is_the_change_of_velocity() -> None:
    wind = Wind(seed=6, mean_mps=2.0, span_m=3.0)
    before = wind.velocity_ned_mps
    wind.step(0.01, height_m=4.0, airspeed_mps=1.0)
    expected = [(b - a) / 0.01 for a, b in zip(before, wind.velocity_ned_mps, strict=True)]
    assert list(wind.acceleration_ned_mps2) == pytest.approx(expected)


@pytest.mark.parametrize("speed", [-0.1, float("nan"), float("inf")])
def test_impossible_wind_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="wind_mps"):
        Wind(seed=1, mean_mps=speed)


def test_shear_follows_the_logarithm_of_height() -> None:
    """MIL-F-8785C, 3.7.3.2, category C: as stated at 20 ft; none of it below 10."""
    for height_ft, share in ((20.0, 1.0), (100.0, log(100 / 0.15) / log(20 / 0.15)), (2.0, None)):
        wind = Wind(seed=1, mean_mps=MEAN_MPS)
        sheared = Wind(seed=1, mean_mps=MEAN_MPS)
        sheared.begin_shear()
        for air in (wind, sheared):
            air.step(0.01, height_m=height_ft * FOOT_M, airspeed_mps=1.0)
        more = hypot(*sheared.velocity_ned_mps[:2]) - hypot(*wind.velocity_ned_mps[:2])
        expected = log(10 / 0.15) / log(20 / 0.15) if share is None else share
        assert more == pytest.approx(MEAN_MPS * (expected - 1.0), abs=0.15)
    for bad in (0.0, 2.0, float("nan")):
        with pytest.raises(ValueError, match="roughness"):
            wind.begin_shear(bad)


def test_a_door_moves_air_for_its_time_and_leaves_none() -> None:
    """Half of one minus a cosine: MIL-F-8785C, 3.7.3.3."""
    wind = Wind(seed=1, mean_mps=0.0)
    wind.begin_draught((0.4, -0.2, 0.1), seconds=4.0)
    speeds, rates = [], []
    for _ in range(500):
        wind.step(0.01, height_m=2.0, airspeed_mps=0.0)
        speeds.append(wind.velocity_ned_mps[0])
        rates.append(wind.acceleration_ned_mps2[0])
    assert speeds[199] == pytest.approx(0.4)
    assert wind.velocity_ned_mps == (0.0, 0.0, 0.0)
    assert wind.acceleration_ned_mps2 == (0.0, 0.0, 0.0)
    assert sum(rates) == pytest.approx(0.0, abs=1e-9)
    assert fmean(speeds[:400]) == pytest.approx(0.2, abs=1e-3)
    for bad in ((float("nan"), 0.0, 0.0), (0.0, 0.0, float("inf"))):
        with pytest.raises(ValueError, match="draught"):
            wind.begin_draught(bad, seconds=1.0)
    with pytest.raises(ValueError, match=r"for 0\.0 s"):
        wind.begin_draught((1.0, 0.0, 0.0), seconds=0.0)
