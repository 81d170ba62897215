"""Damping of the swing: thrust against the speed at which the thrusters swing.

Hull and gondola swing as a pendulum about the common centre of the ship and the air that it moves.
Thrust at the thrusters' depth below that centre does work on the swing only, and takes energy from
it whenever it is opposed to their speed: collocated rate feedback, of which no error in the model
makes a drive. Its gain gives the wished damping ratio. Source: Preumont, "Vibration Control of
Active Structures" (2018), chapter 7; for blimps, Q. Tao et al., "Swing-Reducing Flight Control
System for an Underactuated Indoor Miniature Autonomous Blimp" (2020).
"""

from math import sqrt

from blimp.airframe import Airframe
from blimp.constants import GRAVITY_MPS2
from blimp.vector import within

_SHARE = 0.5  # of an axis's force: the rest holds the ship's place
_LEVER = 0.1  # of the depth of the centre of gravity: thrust nearer to the centre moves no swing
_MEAN_S = 2.0  # a rate that lasts is no swing, but a bias


class SwingDamper:
    """One instance a ship; `update` once a cycle.

    mass_kg: along and across the hull, added mass included, as of `ship_kg` without it.
    force_limit_n: surge and sway, of which half is used at most.
    """

    def __init__(
        self,
        *,
        airframe: Airframe,
        ship_kg: float,
        mass_kg: tuple[float, float],
        force_limit_n: tuple[float, float],
    ) -> None:
        self._limit_n = (_SHARE * force_limit_n[0], _SHARE * force_limit_n[1])
        self._gains = tuple(  # N per rad/s: pitch with surge, roll with sway
            _gain(airframe, along=along, turn=1 - along, ship_kg=ship_kg, mass_kg=mass_kg[along])
            for along in (0, 1)
        )
        self.on = any(self._gains)
        self._means = (0.0, 0.0)

    def update(self, pitch_radps: float, roll_radps: float, dt_s: float) -> tuple[float, float]:
        """Return the force along and across the hull, in N. Rates are those of the body."""
        share = dt_s / _MEAN_S
        pitch, roll = self._means
        pitch += share * (pitch_radps - pitch)
        roll += share * (roll_radps - roll)
        self._means = (pitch, roll)
        return (
            within(-self._gains[0] * (pitch_radps - pitch), self._limit_n[0]),
            within(self._gains[1] * (roll_radps - roll), self._limit_n[1]),
        )


def _gain(airframe: Airframe, *, along: int, turn: int, ship_kg: float, mass_kg: float) -> float:
    """Return 2 z w J / l: damping ratio, frequency, inertia of the swing, lever of the thrust."""
    hang_m = airframe.mass.center_of_gravity_m[2]
    lever_m = _depth_m(airframe, along) - hang_m * ship_kg / mass_kg
    if hang_m <= 0.0 or abs(lever_m) < _LEVER * hang_m:
        return 0.0
    inertia, rate_radps = swing(airframe, turn=turn, ship_kg=ship_kg, mass_kg=mass_kg)
    return 2.0 * airframe.gains.swing_damping * rate_radps * inertia / lever_m


def swing(airframe: Airframe, *, turn: int, ship_kg: float, mass_kg: float) -> tuple[float, float]:
    """Return the swing's inertia, kg m^2, and frequency, rad/s; 0 of a hull that does not hang.

    turn: 0 is roll, 1 pitch. mass_kg: along the swing, added mass included.
    """
    hang_m = airframe.mass.center_of_gravity_m[2]
    inertia = airframe.mass.inertia_kg_m2[turn] + airframe.aero.added_inertia_kg_m2[turn]
    inertia += ship_kg * (mass_kg - ship_kg) / mass_kg * hang_m**2
    return inertia, sqrt(max(0.0, ship_kg * GRAVITY_MPS2 * hang_m / inertia))


def _depth_m(airframe: Airframe, along: int) -> float:
    """Return how far below the centre of buoyancy the thrust along one axis is; 0 if none is."""
    shares = [abs(t.axis[along]) * t.max_thrust_n for t in airframe.thruster]
    depths = [share * t.position_m[2] for share, t in zip(shares, airframe.thruster, strict=True)]
    return sum(depths) / sum(shares) if sum(shares) > 0.0 else 0.0
