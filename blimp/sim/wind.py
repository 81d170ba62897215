"""A steady wind with Dryden gusts on it.

Source: MIL-F-8785C, section 3.7.3.4 (low altitude model). Its formulas take feet; this
module takes metres and converts here and nowhere else. The airspeed, not the wind speed,
sets how fast the ship passes through the gusts; it has a floor, for a ship that drifts with
the wind still meets gusts as they change.
"""

from math import cos, exp, isfinite, pi, sin, sqrt
from random import Random
from typing import NamedTuple

from blimp.types import ZERO3, Vec3

FOOT_M = 0.3048
LOWEST_FT, HIGHEST_FT = 10.0, 1000.0  # where the low altitude model holds
AIRSPEED_FLOOR_MPS = 0.5


class Gustiness(NamedTuple):
    """Scale lengths and standard deviations of the three gust components."""

    length_horizontal_m: float  # along and across the wind
    length_vertical_m: float
    sigma_horizontal_mps: float
    sigma_vertical_mps: float


def gustiness(height_m: float, wind_mps: float) -> Gustiness:
    """Return the gusts at `height_m` above ground where the mean wind is `wind_mps`.

    `wind_mps` stands for the standard's wind at 20 feet. Outside 10 to 1000 ft the values
    of the nearer bound hold.
    """
    height_ft = min(max(height_m / FOOT_M, LOWEST_FT), HIGHEST_FT)
    shape = 0.177 + 0.000823 * height_ft
    sigma_vertical_mps = 0.1 * wind_mps
    return Gustiness(
        length_horizontal_m=height_ft / shape**1.2 * FOOT_M,
        length_vertical_m=height_ft * FOOT_M,
        sigma_horizontal_mps=sigma_vertical_mps / shape**0.4,
        sigma_vertical_mps=sigma_vertical_mps,
    )


class Wind:
    """The air's velocity at the ship. No wind has no gusts either.

    seed: sets the direction the wind blows to and every gust; equal seeds, equal wind.
    mean_mps: steady, horizontal. Raises ValueError when it is negative or not finite.
    span_m: the ship's length. A hull feels the mean of a gust along itself; a first-order
    lag of a third of the span removes the same variance to first order in span over length.
    0 gives the plain Dryden process.
    """

    def __init__(self, *, seed: int, mean_mps: float, span_m: float = 0.0) -> None:
        if not (isfinite(mean_mps) and mean_mps >= 0.0):
            raise ValueError(f"wind_mps is {mean_mps!r}, must be finite and not negative")
        self._mean_mps = self._gusty_mps = mean_mps
        self._lag_m = span_m / 3.0
        self._random = Random(f"wind:{seed}")
        heading = self._random.uniform(-pi, pi)
        self._north, self._east = cos(heading), sin(heading)
        start = gustiness(0.0, mean_mps)
        gauss = self._random.gauss
        self._along = start.sigma_horizontal_mps * gauss(0.0, 1.0)
        self._across = start.sigma_horizontal_mps * gauss(0.0, 1.0)
        self._down = start.sigma_vertical_mps * gauss(0.0, 1.0)
        self._felt = (self._along, self._across, self._down)
        self._velocity = self._to_ned(self._felt)
        self._acceleration: Vec3 = ZERO3

    def begin_gusts(self, sigma_mps: float) -> None:
        """Let horizontal gusts of this standard deviation, near the ground, begin at once.

        They come beside the mean wind, and need none: the draughts of a hall.
        """
        if not (isfinite(sigma_mps) and sigma_mps >= 0.0):
            raise ValueError(f"gusts of {sigma_mps!r} m/s: must be finite and not negative")
        self._gusty_mps = self._mean_mps + sigma_mps / gustiness(0.0, 1.0).sigma_horizontal_mps

    @property
    def mean_ned_mps(self) -> Vec3:
        return (self._mean_mps * self._north, self._mean_mps * self._east, 0.0)

    @property
    def velocity_ned_mps(self) -> Vec3:
        """The air's velocity as the hull feels it."""
        return self._velocity

    @property
    def acceleration_ned_mps2(self) -> Vec3:
        """The mean rate of change of the velocity over the last step."""
        return self._acceleration

    def step(self, dt_s: float, *, height_m: float, airspeed_mps: float) -> None:
        """Advance by `dt_s` for a ship at `height_m` that flies at `airspeed_mps`.

        Time constants are length / airspeed along the wind and half of that across it and
        vertically, so that steps much shorter give the usual (1 - T/tau) and
        sigma sqrt(2 T/tau), (1 - 2 T/tau) and sigma sqrt(4 T/tau); the exponential keeps
        longer steps stable.
        """
        if self._gusty_mps == 0.0:
            return
        speed = max(airspeed_mps, AIRSPEED_FLOOR_MPS)
        lengths = gustiness(height_m, self._gusty_mps)
        gauss = self._random.gauss
        path_m = speed * dt_s
        keep = exp(-path_m / lengths.length_horizontal_m)
        sigma = lengths.sigma_horizontal_mps
        self._along = keep * self._along + sigma * sqrt(1.0 - keep * keep) * gauss(0.0, 1.0)
        keep *= keep
        self._across = keep * self._across + sigma * sqrt(1.0 - keep * keep) * gauss(0.0, 1.0)
        keep = exp(-2.0 * path_m / lengths.length_vertical_m)
        sigma = lengths.sigma_vertical_mps
        self._down = keep * self._down + sigma * sqrt(1.0 - keep * keep) * gauss(0.0, 1.0)

        share = 1.0 - exp(-path_m / self._lag_m) if self._lag_m > 0.0 else 1.0
        along, across, down = self._felt
        self._felt = (
            along + share * (self._along - along),
            across + share * (self._across - across),
            down + share * (self._down - down),
        )
        before = self._velocity
        after = self._velocity = self._to_ned(self._felt)
        self._acceleration = (
            (after[0] - before[0]) / dt_s,
            (after[1] - before[1]) / dt_s,
            (after[2] - before[2]) / dt_s,
        )

    def _to_ned(self, gust: Vec3) -> Vec3:
        along = self._mean_mps + gust[0]
        return (
            along * self._north - gust[1] * self._east,
            along * self._east + gust[1] * self._north,
            gust[2],
        )
