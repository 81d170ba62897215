"""Control surfaces: they turn a ship that moves, by the square of its speed through the air."""

from blimp.airframe import Airframe
from blimp.linear import NOTHING, Column, less
from blimp.vector import cross, minus

_SIDEWAYS = 0.7  # of a fin's axis: less is an elevator
_LIMIT = 0.6  # of its travel
_MIN_Q = 0.09  # (m/s)^2: below 0.3 m/s a rudder is a flag
_MZ = 5  # of a wrench


class Fins:
    """Surfaces that push sideways well off the centre turn the ship; the rest stay neutral."""

    def __init__(self, *, airframe: Airframe) -> None:
        self._columns: dict[int, Column] = {}  # by servo, of a radian at 1 m/s
        for surface in airframe.surface:
            arm = minus(surface.position_m, airframe.mass.center_of_gravity_m)
            x, y, z = (-surface.force_per_rad * part for part in surface.axis)
            against = (x, y, z, *cross(arm, (x, y, z)))
            if abs(surface.axis[1]) > _SIDEWAYS and abs(against[_MZ]) > 1e-6:
                servo = airframe.servo_names.index(surface.servo)
                self._columns[servo] = less(self._columns.get(servo, NOTHING), against)
        self._gain = sum(column[_MZ] ** 2 for column in self._columns.values())
        rows = [airframe.servo[k] for k in self._columns]
        self._ranges = [
            (_LIMIT * (row.min_rad - row.neutral_rad), _LIMIT * (row.max_rad - row.neutral_rad))
            for row in rows
        ]

    def steer(self, torque_nm: float, forward_mps: float) -> tuple[dict[int, float], Column]:
        """Return angles off neutral, by servo, for a turn as far as they reach, and their wrench.

        forward_mps: speed through the air. None at a speed at which a fin is a flag.
        """
        made, pressure = NOTHING, forward_mps * forward_mps
        angles: dict[int, float] = {}
        if not self._columns or forward_mps <= 0.0 or pressure < _MIN_Q:
            return angles, made
        for (servo, column), (low, high) in zip(self._columns.items(), self._ranges, strict=True):
            wanted = torque_nm * column[_MZ] / (self._gain * pressure)
            angle = angles[servo] = max(low, min(high, wanted))
            made = less(made, [-angle * pressure * part for part in column])
        return angles, made
