"""What a simulated chip may know of the world: the quantity it would measure, no more."""

from random import Random
from typing import Protocol

from blimp.types import Quaternion, Vec3


class Truth(Protocol):
    """The world at this instant. Read only; SI units, frames in the names."""

    @property
    def attitude(self) -> Quaternion: ...

    @property
    def rates_body_radps(self) -> Vec3: ...

    @property
    def specific_force_body_mps2(self) -> Vec3:
        """What an accelerometer feels: (0, 0, -9.81) when level and at rest."""
        ...

    @property
    def position_ned_m(self) -> Vec3: ...

    @property
    def velocity_ned_mps(self) -> Vec3: ...

    @property
    def pressure_pa(self) -> float: ...

    @property
    def temperature_c(self) -> float: ...

    @property
    def battery_v(self) -> float: ...

    @property
    def battery_current_a(self) -> float: ...


def stream(seed: int, *names: str) -> Random:
    """Return the random numbers that belong to one part of the world, and to no other.

    A device added to an airframe draws from its own stream, so the others' noise stays.
    """
    return Random("/".join((str(seed), *names)))
