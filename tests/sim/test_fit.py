"""Parameters from flights: those of the plant are found, and what no flight shows stays unknown."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.published import fitted, judged
from blimp import airframe
from blimp.airframe import Airframe
from blimp.rotation import euler, rotate_back
from blimp.sim.batch import Batch
from blimp.sim.fit import Fitted, Knob, Windows, fit, turned
from blimp.sim.flight_log import FlightLog
from blimp.sim.physics import Physics
from blimp.sim.replay import euler_of, inputs
from tests.sim.ships import gtmab

RATE_HZ = 50.0
LIFT = ("thruster.4.max_thrust_n", "thruster.4.reverse_thrust_n")
KNOBS = (
    Knob("lift", LIFT, 0.7),
    Knob("drag_heave", ("aero.linear_drag.2",), 0.7),
    Knob("lag", ("thruster.4.lag_s",), 1.0),
    Knob("heaviness", ("mass.heaviness_kg",), 0.005, shift=True, unit="kg"),
    Knob("drag_sway", ("aero.linear_drag.1",), 0.7),
)
TRUE = (np.log(0.6) / 0.7, np.log(1.8) / 0.7, np.log(5.0) / 1.0, 0.002 / 0.005, 0.0)
LIMITS = (0.03, 0.03, 0.15, 0.0005)  # N along x, y and z, N m about z
SIGMA = (*[0.01] * 3, *[np.inf] * 9)


def flown(ship: Airframe, *, seed: int, blur_mps: float = 0.0) -> FlightLog:
    """Return 60 s of steps of its lift motor alone; blur_mps: noise of the logged velocity."""
    chance, physics = Random(seed), Physics(airframe=ship, seed=1)
    physics.place(position_ned_m=(0.0, 0.0, -20.0))
    rows, asked, throttle = [], [], 0.0
    for sample in range(round(60.0 * RATE_HZ)):
        if sample % 75 == 0:
            throttle = chance.uniform(-0.5, 0.5)
        state = physics.state
        velocity = rotate_back(state.attitude, state.velocity_ned_mps)
        blurred = [x + chance.gauss(0.0, blur_mps) for x in velocity]
        position = [x + chance.gauss(0.0, 0.002) for x in state.position_ned_m]
        rows.append([*position, *euler(state.attitude), *blurred, *state.rates_body_radps])
        asked.append(throttle)
        for _ in range(2):
            physics.step(0.5 / RATE_HZ, (0.0, 0.0, 0.0, 0.0, throttle), ())
    values = np.array(rows).T
    still = np.zeros(len(asked))
    return FlightLog(
        path=Path("simulated"),
        t_s=np.arange(len(asked)) / RATE_HZ,
        position_ned_m=values[0:3],
        euler_rad=values[3:6],
        velocity_body_mps=values[6:9],
        rates_body_radps=values[9:12],
        accelerations=np.zeros((6, len(asked))),
        thrusts_n={},
        wrench=None,
        moving_m=None,
        throttles={
            "left": still, "right": still, "front": still, "rear": still, "lift": np.array(asked)
        },
    )  # fmt: skip


@pytest.mark.parametrize(("free", "blur_mps"), [(False, 0.0), (True, 0.05)])
def test_the_plant_is_found_and_what_was_not_excited_stays_unknown(
    free: bool, blur_mps: float
) -> None:
    plant = turned(gtmab(), KNOBS, TRUE)
    log = flown(plant, seed=20, blur_mps=blur_mps)
    starts_s = np.arange(1.0, 55.0, 3.0)
    windows = Windows([(log, starts_s)], window_s=3.0, sample_s=0.3, sigma=SIGMA, free=free)
    ship, found = fit(gtmab(), windows, KNOBS)
    spread = np.sqrt(np.diag(found.covariance))
    for knob, value, sigma, true in zip(KNOBS, found.values, spread, TRUE, strict=True):
        assert abs(value - true) < 3.0 * sigma + 0.02, (knob.name, value, sigma, true)
    assert max(spread[[0, 1, 3]]) < 0.3
    assert spread[2] < 0.7
    assert 0.8 < spread[4] < 1.1, "it never went sideways"
    assert found.rms_after < 0.2 * found.rms_before
    assert ship.thruster[4].max_thrust_n == pytest.approx(0.12, rel=0.25 if free else 0.05)


def test_a_start_that_is_believed_though_it_is_wrong_misleads() -> None:
    """Why `free` is: the same log, its starting velocities 5 cm/s off."""
    log = flown(turned(gtmab(), KNOBS, TRUE), seed=20, blur_mps=0.05)
    cuts = [(log, np.arange(1.0, 55.0, 3.0))]

    def spread(*, free: bool) -> Fitted:
        windows = Windows(cuts, window_s=3.0, sample_s=0.3, sigma=SIGMA, free=free)
        return fit(gtmab(), windows, KNOBS[:2])[1]

    assert spread(free=True).covariance[0][0] < 0.5 * spread(free=False).covariance[0][0]


def commanded(plant: Airframe, seed: int) -> FlightLog:
    """Return a log of GT-MAB's kind: 24 s of forces that a controller commands."""
    chance = Random(seed)
    t_s = np.arange(0.0, 24.0, 0.025)
    steps = [[chance.uniform(-size, size) for size in LIMITS] for _ in range(24)]
    wrench = np.array([steps[int(t)] for t in t_s]).T
    still = np.zeros((3, t_s.size))
    log = FlightLog(
        path=Path("simulated"), t_s=t_s, position_ned_m=still, euler_rad=still,
        velocity_body_mps=still, rates_body_radps=still, accelerations=np.zeros((6, t_s.size)),
        thrusts_n={}, wrench=wrench, moving_m=None,
    )  # fmt: skip
    batch = Batch(airframes=[plant], seed=0, ground=False)
    batch.put(position_ned_m=((0.0,), (0.0,), (-5.0,)))
    rows = []
    for thrusts in inputs(log, plant)[0].T:
        rows.append((batch.positions_ned_m, batch.attitudes, batch.velocities_ned_mps,
                     batch.rates_body_radps))  # fmt: skip
        for _ in range(5):
            batch.push(0.005, list(thrusts), [])
    position, attitude, velocity, rates = (
        np.concatenate(one, axis=1) for one in zip(*rows, strict=True)
    )
    body = [
        rotate_back(tuple(a), tuple(v))
        for a, v in zip(attitude.T.tolist(), velocity.T.tolist(), strict=True)
    ]
    return replace(
        log, position_ned_m=position, euler_rad=euler_of(attitude),
        velocity_body_mps=np.array(body).T, rates_body_radps=rates,
    )  # fmt: skip


@pytest.mark.long
def test_two_controllers_flights_tell_of_the_thirds() -> None:
    """The published flights have no licence, so a ship as they show it flies in their place.

    `python -m benchmarks.published DIR` does the same with them: docs/physics.md.
    """
    plant = airframe.load("gtmab-fit")
    logs = [commanded(plant, seed) for seed in (71, 72, 73)]
    published = judged(gtmab(), logs[2:])["ratio"]
    found, _ = fitted(gtmab(), logs[:2])
    ratio = judged(found, logs[2:])["ratio"]
    assert max(published) > 1.0, published
    assert max(ratio) < 0.2, ratio
    assert found.thruster[4].lag_s > 0.2 > gtmab().thruster[4].lag_s
    assert max(judged(plant, logs)["ratio"]) < 0.02
