"""The wind, from how the ship moves otherwise than its thrusters tell.

A model ship is given the same thrust and the drag of the air as estimated, and is drawn
towards the real one. The pull it takes is the force that the estimate does not explain; it
moves the estimate, about as fast as `_SETTLE_S`. Exact where it matters: with the nose in
the air stream no side force is left, whatever the drag coefficients really are. Source:
the disturbance observer of Chen et al., "Disturbance-Observer-Based Control and Related
Methods: An Overview" (2016), section II.
"""

from collections import deque
from math import hypot

from blimp.airframe import Aero

_SETTLE_S = 6.0  # time constant of the estimate
_PULL_PER_S = 0.8  # of the model's velocity to the measured one
_FLOOR_MPS = 0.15  # drag is so flat below this airspeed that its slope tells nothing
_KEPT_S = 6  # until a broken output is found out, it looks like wind
_TURNING_RADPS = 0.25  # turning makes side forces of its own: no update from here on

Pair = tuple[float, float]


class WindObserver:
    """Horizontal wind over ground, north and east, in m/s.

    mass_kg: along and across the hull, added mass included.
    """

    def __init__(self, *, aero: Aero, mass_kg: Pair, limit_mps: float) -> None:
        # Mass, linear and quadratic drag along and across the hull.
        self._axes = tuple(zip(mass_kg, aero.linear_drag[:2], aero.quadratic_drag[:2], strict=True))
        # A round hull makes no side force of its own by turning.
        along, across = mass_kg
        self._uneven = min(1.0, 3.0 * abs(across - along) / max(along, across))
        self._limit_mps = limit_mps
        self._model_mps: Pair | None = None  # north, east
        self.north_mps = 0.0
        self.east_mps = 0.0
        self._learnt_s = 0.0
        self._kept: deque[Pair] = deque(maxlen=_KEPT_S)  # one a second
        self._kept_s = 0.0

    @property
    def north_east_mps(self) -> Pair:
        """The wind over ground."""
        return (self.north_mps, self.east_mps)

    @property
    def settled(self) -> bool:
        """Whether it has learnt for long enough to be shown to a person."""
        return self._learnt_s >= _SETTLE_S

    def reset(self) -> None:
        self.north_mps = self.east_mps = self._learnt_s = 0.0
        self._model_mps = None
        self._kept.clear()

    def go_back(self) -> None:
        """Forget the last seconds: the thrusts were not those that it was given."""
        self.north_mps, self.east_mps = self._kept[0] if self._kept else (0.0, 0.0)
        self._model_mps = None

    def drag(self, axis: int, airspeed_mps: float) -> float:
        """Return the force that keeps this airspeed up along one body axis, in N."""
        _, linear, quadratic = self._axes[axis]
        return airspeed_mps * (linear + quadratic * abs(airspeed_mps))

    def update(
        self,
        *,
        force_n: Pair,
        velocity_mps: Pair,
        heading: Pair,
        yaw_rate_radps: float,
        dt_s: float,
    ) -> None:
        """Learn from one cycle.

        force_n: of the thrusters, along and across the heading. velocity_mps: over ground,
        likewise. heading: its cosine and sine.
        """
        wind = turned(self.north_east_mps, heading)
        if self._model_mps is None:
            self._model_mps = turned_back(velocity_mps, heading)
        model = turned(self._model_mps, heading)
        turning = self._uneven * abs(yaw_rate_radps) / _TURNING_RADPS
        share = max(0.0, 1.0 - turning) * dt_s / _SETTLE_S
        moved, learnt = [0.0, 0.0], [0.0, 0.0]
        for axis in (0, 1):
            mass_kg, linear, quadratic = self._axes[axis]
            airspeed = velocity_mps[axis] - wind[axis]
            size = abs(airspeed)
            pull_mps2 = _PULL_PER_S * (velocity_mps[axis] - model[axis])
            drag_n = airspeed * (linear + quadratic * size)
            explained_mps2 = (force_n[axis] - drag_n) / mass_kg
            moved[axis] = model[axis] + (explained_mps2 + pull_mps2) * dt_s
            slope = linear + 2.0 * quadratic * (size if size > _FLOOR_MPS else _FLOOR_MPS)
            unexplained_n = mass_kg * pull_mps2
            learnt[axis] = wind[axis] + share * unexplained_n / max(slope, 1e-6)
        self._model_mps = turned_back((moved[0], moved[1]), heading)
        north, east = turned_back((learnt[0], learnt[1]), heading)
        shrink = self._limit_mps / max(self._limit_mps, hypot(north, east))
        self.north_mps, self.east_mps = north * shrink, east * shrink
        self._learnt_s += dt_s
        self._kept_s += dt_s
        if self._kept_s >= 1.0:
            self._kept_s = 0.0
            self._kept.append(self.north_east_mps)


def turned(vector: Pair, heading: Pair) -> Pair:
    """Turn a north-east vector into along and across the heading (its cosine and sine)."""
    (north, east), (c, s) = vector, heading
    return (c * north + s * east, c * east - s * north)


def turned_back(vector: Pair, heading: Pair) -> Pair:
    """Turn along and across the heading into north and east."""
    (x, y), (c, s) = vector, heading
    return (c * x - s * y, s * x + c * y)
