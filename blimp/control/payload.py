"""Servos that steer nothing: they keep the angle that they were last sent to."""

import msgspec

from blimp.airframe import Airframe
from blimp.types import ActuatorCommand


class Payload:
    """Angles in radians by the servo's name; neutral until one is given."""

    def __init__(self, *, airframe: Airframe) -> None:
        self._index = {name: i for i, name in enumerate(airframe.servo_names)}
        self._angles: dict[int, float] = {}

    def turn(self, name: str, angle_rad: float) -> None:
        self._angles[self._index[name]] = angle_rad

    def clear(self) -> None:
        self._angles.clear()

    def onto(self, actuators: ActuatorCommand) -> ActuatorCommand:
        """Return the same command with the payload's angles in it."""
        if not self._angles:
            return actuators
        servos = tuple(self._angles.get(i, angle) for i, angle in enumerate(actuators.servos))
        return msgspec.structs.replace(actuators, servos=servos)
