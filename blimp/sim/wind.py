"""A steady wind with Dryden gusts on it.

Source: MIL-F-8785C, section 3.7.3.4 (low altitude model). Its formulas take feet; this
module takes metres and converts here and nowhere else. The airspeed, not the wind speed,
sets how fast the ship passes through the gusts; it has a floor, for a ship that drifts with
the wind still meets gusts as they change.

Shear is its logarithmic profile over height (3.7.3.2, category C), and a draught from a door its
discrete gust (3.7.3.3): half of one minus a cosine.
"""

from collections.abc import Callable
from math import cos, isfinite, pi
from random import Random
from typing import Any, NamedTuple

from blimp.sim.arithmetic import SCALARS, Arithmetic
from blimp.types import ZERO3, Vec3

FOOT_M = 0.3048
LOWEST_FT, HIGHEST_FT = 10.0, 1000.0  # where the low altitude model holds
AIRSPEED_FLOOR_MPS = 0.5
SHEAR_FT = 20.0  # height of the wind that is stated
ROUGHNESS_M = 0.15 * FOOT_M  # of an airfield: category C


class Gustiness(NamedTuple):
    """Scale lengths and standard deviations of the three gust components."""

    length_horizontal_m: float  # along and across the wind
    length_vertical_m: float
    sigma_horizontal_mps: float
    sigma_vertical_mps: float


class Draught(NamedTuple):
    """The air's velocity at its strongest, and when it begins and ends, on the wind's time."""

    velocity_ned_mps: Vec3
    begin_s: float
    seconds: float


def gustiness(height_m: float, wind_mps: float, arithmetic: Arithmetic = SCALARS) -> Gustiness:
    """Return the gusts at `height_m` above ground where the mean wind is `wind_mps`.

    `wind_mps` stands for the standard's wind at 20 feet. Outside 10 to 1000 ft the values
    of the nearer bound hold.
    """
    height_ft = arithmetic.clamp(height_m / FOOT_M, LOWEST_FT, HIGHEST_FT)
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

    def __init__(
        self,
        *,
        seed: int,
        mean_mps: float,
        span_m: float = 0.0,
        arithmetic: Arithmetic = SCALARS,
        source: Any = None,
    ) -> None:
        """source: `uniform(low, high)` and `gauss(mean, sigma)` of `random.Random`, its default."""
        if not (isfinite(mean_mps) and mean_mps >= 0.0):
            raise ValueError(f"wind_mps is {mean_mps!r}, must be finite and not negative")
        self._arithmetic = arithmetic
        self._mean_mps = self._gusty_mps = mean_mps
        self._lag_m = span_m / 3.0
        self._smooths = arithmetic is not SCALARS or span_m > 0.0
        random = source or Random(f"wind:{seed}")
        heading = random.uniform(-pi, pi)
        self._north, self._east = arithmetic.cos(heading), arithmetic.sin(heading)
        start = gustiness(0.0, mean_mps)
        gauss: Callable[[float, float], float] = random.gauss
        self._gauss = gauss
        self._along = start.sigma_horizontal_mps * gauss(0.0, 1.0)
        self._across = start.sigma_horizontal_mps * gauss(0.0, 1.0)
        self._down = start.sigma_vertical_mps * gauss(0.0, 1.0)
        self._t_s = 0.0
        self._still = mean_mps == 0.0  # until something moves the air
        self._roughness_m = 0.0
        self._profile = 1.0  # of the mean wind at the ship, over that at 20 feet
        self._draughts: list[Draught] = []
        self._lowest: Gustiness | None = None
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
        self._lowest = None
        self._still = self._still and sigma_mps == 0.0

    def begin_shear(self, roughness_m: float = ROUGHNESS_M) -> None:
        """Let the mean wind grow with height from now on; it is as stated at 20 feet (6.1 m)."""
        if not 1e-6 <= roughness_m <= 1.0:
            raise ValueError(f"a roughness of {roughness_m!r} m: must be from 1e-6 to 1")
        self._roughness_m = roughness_m

    def begin_draught(self, velocity_ned_mps: Vec3, *, seconds: float) -> None:
        """Let a door open: air flows for so long, at its middle with this velocity."""
        if not (all(map(isfinite, velocity_ned_mps)) and 0.0 < seconds < 1e6):
            raise ValueError(
                f"a draught of {velocity_ned_mps!r} m/s for {seconds!r} s: must be finite, and "
                "last from above 0 to 1e6 s"
            )
        self._draughts.append(Draught(velocity_ned_mps, self._t_s, seconds))
        self._still = False

    @property
    def mean_ned_mps(self) -> Vec3:
        """As stated: at 20 feet where there is shear."""
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
        self._t_s += dt_s
        if self._still:
            return
        if self._roughness_m:
            lowest_m = LOWEST_FT * FOOT_M
            height = self._arithmetic.clamp(height_m, lowest_m, HIGHEST_FT * FOOT_M)
            log = self._arithmetic.log
            at_20_ft = log(SHEAR_FT * FOOT_M / self._roughness_m)
            self._profile = log(height / self._roughness_m) / at_20_ft
        if self._gusty_mps > 0.0:
            self._gust(dt_s, height_m, airspeed_mps)
        self._draughts = [d for d in self._draughts if self._t_s < d.begin_s + d.seconds]
        before = self._velocity
        after = self._velocity = self._to_ned(self._felt)
        self._acceleration = (
            (after[0] - before[0]) / dt_s,
            (after[1] - before[1]) / dt_s,
            (after[2] - before[2]) / dt_s,
        )

    def _gust(self, dt_s: float, height_m: float, airspeed_mps: float) -> None:
        """Advance the Dryden process, and what the hull averages of it."""
        exp, sqrt, gauss = self._arithmetic.exp, self._arithmetic.sqrt, self._gauss
        speed = self._arithmetic.clamp(airspeed_mps, AIRSPEED_FLOOR_MPS, 1e6)
        lengths = self._gustiness(height_m)
        path_m = speed * dt_s
        keep = exp(-path_m / lengths.length_horizontal_m)
        sigma = lengths.sigma_horizontal_mps
        self._along = keep * self._along + sigma * sqrt(1.0 - keep * keep) * gauss(0.0, 1.0)
        keep *= keep
        self._across = keep * self._across + sigma * sqrt(1.0 - keep * keep) * gauss(0.0, 1.0)
        keep = exp(-2.0 * path_m / lengths.length_vertical_m)
        sigma = lengths.sigma_vertical_mps
        self._down = keep * self._down + sigma * sqrt(1.0 - keep * keep) * gauss(0.0, 1.0)

        share = 1.0 - exp(-path_m / self._lag_m) if self._smooths else 1.0
        along, across, down = self._felt
        self._felt = (
            along + share * (self._along - along),
            across + share * (self._across - across),
            down + share * (self._down - down),
        )

    def _gustiness(self, height_m: float) -> Gustiness:
        """Return the gusts there; below the lowest height of the model they are all the same."""
        if self._arithmetic is not SCALARS or height_m > LOWEST_FT * FOOT_M:
            return gustiness(height_m, self._gusty_mps, self._arithmetic)
        if self._lowest is None:
            self._lowest = gustiness(0.0, self._gusty_mps)
        return self._lowest

    def _to_ned(self, gust: Vec3) -> Vec3:
        along = self._mean_mps * self._profile + gust[0]
        north = along * self._north - gust[1] * self._east
        east = along * self._east + gust[1] * self._north
        down = gust[2]
        for (n, e, d), begin_s, seconds in self._draughts:
            share = 0.5 - 0.5 * cos(2.0 * pi * (self._t_s - begin_s) / seconds)
            north, east, down = north + share * n, east + share * e, down + share * d
        return (north, east, down)
