"""Many ships in one batch fly as each would alone."""

from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from blimp import airframe
from blimp.airframe import Airframe
from blimp.sim.batch import Batch, Floats
from blimp.sim.physics import Physics
from tests.sim.ships import gtmab, twin, weighing

DT_S = 0.005


class Column:
    """One ship's share of the random numbers of all, made in the same order."""

    def __init__(self, ship: int, ships: int) -> None:
        self._random, self._ship, self._ships = Random(7), ship, ships

    def _row(self) -> list[float]:
        return [self._random.gauss(0.0, 1.0) for _ in range(self._ships)]

    def uniform(self, low: float, high: float) -> Any:
        return self._taken([low + (high - low) * abs(x) / 5.0 for x in self._row()])

    def gauss(self, mean: float, sigma: float) -> Any:
        return self._taken([mean + sigma * x for x in self._row()])

    def _taken(self, row: list[float]) -> Any:
        return row[self._ship]


class AllColumns(Column):
    def _taken(self, row: list[float]) -> Any:
        return np.array(row)


def together(
    ships: list[Airframe], seconds: float, *, wind_mps: float, down_m: float
) -> tuple[Batch, list[Physics]]:
    """Fly them in a batch and one by one, with inputs that differ, change and pass zero."""
    count = len(ships)
    batch = Batch(airframes=ships, seed=1, wind_mps=wind_mps, source=AllColumns(0, count))
    alone = [
        Physics(airframe=ship, seed=1, wind_mps=wind_mps, source=Column(i, count))
        for i, ship in enumerate(ships)
    ]
    if down_m:
        spread = np.linspace(-0.4, 0.4, count)
        batch.put(
            position_ned_m=[np.zeros(count), np.zeros(count), down_m - 2.0 * abs(spread)],
            velocity_ned_mps=[0.5 + spread, spread, 0.1 * spread],
            rates_body_radps=[spread, 0.3 * spread, 0.5 * spread],
        )
        for physics, x in zip(alone, spread, strict=True):
            physics.place(
                position_ned_m=(0.0, 0.0, down_m - 2.0 * abs(x)),
                velocity_ned_mps=(0.5 + x, x, 0.1 * x),
                rates_body_radps=(x, 0.3 * x, 0.5 * x),
            )
    phase = np.linspace(0.0, 2.0, count)
    for step in range(round(seconds / DT_S)):
        t_s = step * DT_S
        throttles = [np.sin(3.0 * t_s + phase + i) for i in range(len(ships[0].thruster))]
        targets = [0.8 * np.cos(2.0 * t_s + phase + i) for i in range(len(ships[0].servo))]
        batch.step(DT_S, throttles, targets)
        for i, physics in enumerate(alone):
            physics.step(DT_S, [float(x[i]) for x in throttles], [float(x[i]) for x in targets])
    return batch, alone


def difference(batch: Batch, alone: list[Physics]) -> float:
    """Return the largest difference of any state of any ship."""
    states = [physics.state for physics in alone]
    columns: list[tuple[Floats, list[tuple[float, ...]]]] = [
        (batch.positions_ned_m, [s.position_ned_m for s in states]),
        (batch.attitudes, [s.attitude for s in states]),
        (batch.velocities_ned_mps, [s.velocity_ned_mps for s in states]),
        (batch.rates_body_radps, [s.rates_body_radps for s in states]),
    ]
    return max(float(np.abs(found - np.array(true).T).max()) for found, true in columns)


def uneven(ship: Airframe) -> Airframe:
    """Everything that has a branch: dead bands, play, a hull that is slack, leaks and is warm."""
    replace = msgspec.structs.replace
    return replace(
        ship,
        thruster=tuple(
            replace(t, dead_band=0.05, reverse_dead_band=0.1, lag_s=0.0 if i else t.lag_s)
            for i, t in enumerate(ship.thruster)
        ),
        servo=tuple(replace(s, backlash_rad=0.05) for s in ship.servo),
        battery=replace(ship.battery, polarisation_ohm=0.5, polarisation_s=2.0),
        hull=replace(ship.hull, taut_m3=1.02 * ship.hull.volume_m3, leak_m3_per_day=500.0),
    )


@pytest.mark.parametrize(
    "ships",
    [
        [twin()] * 5,
        [weighing(twin(), 0.002 * i) for i in range(4)],
        [uneven(gtmab()), uneven(weighing(gtmab(), 0.003))],
        [airframe.load("rgblimp")] * 3,
    ],
    ids=["alike", "differing masses", "uneven", "polar and gondola"],
)
@pytest.mark.long
def test_a_batch_agrees_with_each_ship_alone(ships: list[Airframe]) -> None:
    batch, alone = together(ships, 4.0, wind_mps=0.4, down_m=-12.0)
    assert difference(batch, alone) < 1e-9
    assert np.ptp(batch.positions_ned_m[0]) > 0.1


def test_it_agrees_on_the_pad_and_through_touchdown() -> None:
    standing = together([twin(), weighing(twin(), 0.01)], 1.0, wind_mps=0.3, down_m=0.0)
    assert difference(*standing) < 1e-9
    heavy = [weighing(twin(), 0.2), weighing(twin(), 0.3), twin()]
    batch, alone = together(heavy, 5.0, wind_mps=0.0, down_m=-0.5)
    assert difference(batch, alone) < 1e-9
    assert alone[1].touchdown_speed_mps > 0.05


def test_what_cannot_be_stepped_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one ship"):
        Batch(airframes=[], seed=1)
    with pytest.raises(ValueError, match="of one kind"):
        Batch(airframes=[twin(), gtmab()], seed=1)
    batch = Batch(airframes=[twin()] * 2, seed=1)
    before = batch.positions_ned_m
    with pytest.raises(ValueError, match="'right' needs 2 finite numbers"):
        batch.step(DT_S, (0.0, [0.1, float("nan")], 0.0), (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="'tilt' needs 2 finite numbers"):
        batch.step(DT_S, (0.0, 0.0, 0.0), ([0.1, 0.2, 0.3], 0.0, 0.0))
    with pytest.raises(ValueError, match="got 2 and 3 rows"):
        batch.step(DT_S, (0.0, 0.0), (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="dt_s is"):
        batch.push(0.011, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="3 finite rows"):
        batch.put(position_ned_m=((0.0,), (0.0,), (float("inf"),)))
    assert np.array_equal(batch.positions_ned_m, before)
