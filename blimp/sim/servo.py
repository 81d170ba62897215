"""One servo: it turns towards its target no faster than it can, and no further."""

from blimp.airframe import Servo


class ServoArm:
    """A servo's output shaft; it starts at its neutral angle."""

    def __init__(self, *, servo: Servo) -> None:
        self._servo = servo
        self._angle_rad = servo.neutral_rad

    @property
    def angle_rad(self) -> float:
        return self._angle_rad

    def step(self, dt_s: float, target_rad: float) -> float:
        """Advance by `dt_s` and return the angle. A target past the end stops at it."""
        servo = self._servo
        target_rad = min(max(target_rad, servo.min_rad), servo.max_rad)
        reach_rad = servo.slew_radps * dt_s
        change_rad = min(max(target_rad - self._angle_rad, -reach_rad), reach_rad)
        self._angle_rad += change_rad
        return self._angle_rad
