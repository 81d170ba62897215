"""One servo: it turns towards its target no faster than it can, and no further.

Its play (backlash) lies between the shaft and what it moves: what is moved stays where it is
until the shaft has crossed the play, and follows half of it behind.
"""

from blimp.airframe import Servo
from blimp.sim.arithmetic import SCALARS, Arithmetic


class ServoArm:
    """What a servo moves; it starts at its neutral angle, in the middle of its play."""

    def __init__(self, *, servo: Servo, arithmetic: Arithmetic = SCALARS) -> None:
        self._servo = servo
        self._clamp = arithmetic.clamp
        self._single = arithmetic is SCALARS
        self._shaft_rad = self._angle_rad = servo.neutral_rad

    @property
    def angle_rad(self) -> float:
        return self._angle_rad

    def step(self, dt_s: float, target_rad: float) -> float:
        """Advance by `dt_s` and return the angle. A target past the end stops at it."""
        if self._single and target_rad == self._shaft_rad:
            return self._angle_rad
        servo, clamp = self._servo, self._clamp
        reach_rad = servo.slew_radps * dt_s
        target_rad = clamp(target_rad, servo.min_rad, servo.max_rad)
        shaft_rad = self._shaft_rad
        shaft_rad = self._shaft_rad = shaft_rad + clamp(
            target_rad - shaft_rad, -reach_rad, reach_rad
        )
        play_rad = 0.5 * servo.backlash_rad
        self._angle_rad = clamp(self._angle_rad, shaft_rad - play_rad, shaft_rad + play_rad)
        return self._angle_rad
