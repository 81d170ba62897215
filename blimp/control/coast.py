"""How the hull moves while the IMU is silent: by a model, for as long as that is good enough.

A hull whose weight hangs below its lift is a pendulum: roll and pitch swing on about level. Its yaw
rate follows the torque that is given, less the drag. Neither needs a sensor, but what the model
does not know adds up: `UNWATCHED_RADPS`, one sigma, carries an attitude for 2.3 s. The measured
error is less: 0.02 to 0.08 rad in yaw, 0.02 to 0.05 rad in tilt after 2 s, root mean square of
three ships, simulated; but a real thruster may give a multiple of what its model says.
"""

from blimp.airframe import Airframe
from blimp.control.swing import swing
from blimp.rotation import integrate, rotate_back
from blimp.types import Quaternion, Vec3

UNWATCHED_RADPS = 0.15  # how fast a ship may turn that nobody watches, one sigma
LOST_RAD = 0.35  # an attitude less sure than this is none: a heading is doubtful from there


class Coast:
    """Moves attitude and rates on. Call `step` for as long as no sample comes."""

    def __init__(self, *, airframe: Airframe) -> None:
        aero, ship_kg = airframe.aero, airframe.mass_kg
        self._stiff: list[float] = []  # 1/s^2, roll and pitch
        self._damp: list[float] = []  # 1/s
        for turn in (0, 1):
            mass_kg = ship_kg + aero.added_mass_kg[1 - turn]
            inertia, rate = swing(airframe, turn=turn, ship_kg=ship_kg, mass_kg=mass_kg)
            self._stiff.append(rate * rate)
            self._damp.append(aero.linear_drag[3 + turn] / inertia)

    def step(self, attitude: Quaternion, rates: Vec3, dt_s: float) -> tuple[Quaternion, Vec3]:
        """Return attitude and body rates `dt_s` later; the yaw rate is the caller's."""
        right_x, right_y, _ = rotate_back(attitude, (0.0, 0.0, 1.0))
        p, q, r = rates
        p += (-self._stiff[0] * right_y - self._damp[0] * p) * dt_s
        q += (self._stiff[1] * right_x - self._damp[1] * q) * dt_s
        rates = (p, q, r)
        return integrate(attitude, rates, dt_s), rates
