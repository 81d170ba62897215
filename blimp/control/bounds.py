"""What a ship can do at the most: no estimate may claim more.

From thrust, drag, mass and balance of the airframe. Wind carries a ship as fast as it blows, so
speed over ground is bounded by twice the airspeed at full thrust: in more wind it cannot fly.
"""

from collections.abc import Iterable
from math import asin

import msgspec

from blimp.ability import drag_speed
from blimp.airframe import Airframe
from blimp.constants import AIR_DENSITY_KGM3, GRAVITY_MPS2

_MARGIN = 1.5  # times what follows from the file, whose drag and thrust may be wrong
LIGHT = 0.02  # of the displaced mass: a ship may lift so much more than it is believed to
FELT = 0.006  # the same: how well seconds of climbing, gusts and turns weigh a ship
_GUST_MPS = 0.5  # the drag of a gust accelerates a ship that stands still
_SWING_RAD = 0.2  # the IMU hangs below the hull and swings with it
_SURE_TILT_RAD = 0.1  # mounting, trim, and the acceleration of a turn


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    speed_mps: float
    climb_mps: float
    accel_mps2: float  # horizontal, of the IMU
    accel_up_mps2: float
    tilt_rad: float  # at rest under thrust, swing apart


def bounds(airframe: Airframe) -> Bounds:
    """Return what `airframe` can do at the most."""
    aero, mass_kg = airframe.aero, airframe.mass_kg
    reach = [0.0, 0.0, 0.0]
    lever_nm = 0.0
    for thruster in airframe.thruster:
        thrust_n = max(thruster.max_thrust_n, thruster.reverse_thrust_n)
        axis = thruster.ways
        for i in range(3):
            reach[i] += thrust_n * axis[i]
        lever_nm += thrust_n * max(axis[0], axis[1]) * abs(thruster.position_m[2])
    sideways_n = max(reach[0], reach[1])
    heavy_n = GRAVITY_MPS2 * abs(airframe.mass.heaviness_kg)
    hanging_m = max(0.01, airframe.mass.center_of_gravity_m[2])
    righting_nm = mass_kg * GRAVITY_MPS2 * hanging_m

    def drag_n(axis: int, speed_mps: float) -> float:
        return speed_mps * (aero.linear_drag[axis] + speed_mps * aero.quadratic_drag[axis])

    swing_mps2 = GRAVITY_MPS2 * _SWING_RAD * 0.5
    along = (sideways_n + drag_n(1, _GUST_MPS)) / (mass_kg + min(aero.added_mass_kg[:2]))
    up = (reach[2] + heavy_n + drag_n(2, _GUST_MPS)) / (mass_kg + aero.added_mass_kg[2])
    tilt = asin(min(1.0, lever_nm / righting_nm))
    return Bounds(
        speed_mps=2.0 * _terminal_mps(sideways_n, aero.linear_drag[0], aero.quadratic_drag[0]),
        climb_mps=_MARGIN
        * _terminal_mps(reach[2] + heavy_n, aero.linear_drag[2], aero.quadratic_drag[2]),
        accel_mps2=_MARGIN * along + swing_mps2,
        accel_up_mps2=_MARGIN * up + 0.5 * swing_mps2,
        tilt_rad=min(0.5, tilt + _SURE_TILT_RAD),
    )


def lifts(airframe: Airframe, names: Iterable[str]) -> bool:
    """Return whether one of these outputs pushes the ship up or down, or turns what does."""
    lifters = {t.name for t in airframe.thruster if t.ways[2]}
    lifters |= {t.tilted_by for t in airframe.thruster if t.ways[2]}
    return not lifters.isdisjoint(names)


def most_lift_n(airframe: Airframe, weight_n: float) -> float:
    """Return the most that a ship may lift that is believed to weigh this much, lift negative."""
    displaced_kg = AIR_DENSITY_KGM3 * airframe.hull.volume_m3
    return LIGHT * (GRAVITY_MPS2 * displaced_kg) - min(0.0, weight_n)


def _terminal_mps(force_n: float, linear: float, quadratic: float) -> float:
    """Return the airspeed whose drag is `force_n`, 10 m/s at the most."""
    if quadratic < 1e-6:
        linear = max(linear, 1e-3)
    return min(10.0, drag_speed(force_n, linear, quadratic))
