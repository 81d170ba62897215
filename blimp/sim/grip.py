"""What holds a ship that does not stand: a person, or the string of its mooring.

A spring with a damper from a point of the ship to a place that sways, and for a person another one
that turns it back. Both are given as the frequency that this ship swings with in them.
"""

from math import pi, sin
from random import Random

from blimp.airframe import Airframe
from blimp.rotation import euler, rotate, rotate_back, wrap_pi
from blimp.types import Quaternion, Vec3, VehicleState

WAVES = 4  # of each axis, between the slowest and the fastest sway
SLOWEST_HZ, FASTEST_HZ = 0.1, 1.2  # postural sway; a tremor of 10 Hz does not pass such a spring


class Grip:
    """Holds the ship where it is when this is made.

    at_m: the held point, from the hull's centre. swing_hz, turn_hz: of ship and spring; turn_hz 0
    for a string, which turns freely. sway_m, sway_rad: root mean square of each axis of the place.
    """

    def __init__(
        self,
        *,
        airframe: Airframe,
        start: VehicleState,
        seed: int,
        at_m: Vec3,
        swing_hz: float,
        turn_hz: float = 0.0,
        damping: float = 0.3,
        sway_m: float = 0.0,
        sway_rad: float = 0.0,
    ) -> None:
        aero, mass = airframe.aero, airframe.mass
        swing, turn = 2.0 * pi * swing_hz, 2.0 * pi * turn_hz
        moved_kg = airframe.mass_kg + max(aero.added_mass_kg)
        moved = zip(mass.inertia_kg_m2, aero.added_inertia_kg_m2, strict=True)
        turned_kg_m2 = min(own + added for own, added in moved)
        self._spring = (moved_kg * swing * swing, 2.0 * damping * moved_kg * swing)
        self._turning = (turned_kg_m2 * turn * turn, 2.0 * damping * turned_kg_m2 * turn)
        self._at_m = at_m
        north, east, down = start.position_ned_m
        x, y, z = rotate(start.attitude, at_m)
        self._place_m = (north + x, east + y, down + z)
        self._angles_rad = euler(start.attitude)
        random = Random(f"grip:{seed}")
        self._waves = [
            [
                (
                    rms * (2.0 / WAVES) ** 0.5,
                    2.0 * pi * random.uniform(SLOWEST_HZ, FASTEST_HZ),
                    random.uniform(0.0, 2.0 * pi),
                )
                for _ in range(WAVES)
            ]
            for rms in (sway_m, sway_m, sway_m, sway_rad, sway_rad, sway_rad)
        ]

    def wrench(
        self,
        t_s: float,
        position_ned_m: Vec3,
        attitude: Quaternion,
        velocity_ned_mps: Vec3,
        rates_radps: Vec3,
    ) -> tuple[Vec3, Vec3]:
        """Return force and torque about the hull's centre in body axes."""
        sway = [sum(a * sin(w * t_s + p) for a, w, p in waves) for waves in self._waves]
        (x, y, z), (p, q, r) = self._at_m, rates_radps
        stiffness, damping = self._spring
        out = rotate(attitude, self._at_m)
        moving = rotate(attitude, (q * z - r * y, r * x - p * z, p * y - q * x))
        north, east, down = (
            -stiffness * (here + arm - place - off) - damping * (speed + turning)
            for here, arm, place, off, speed, turning in zip(
                position_ned_m, out, self._place_m, sway, velocity_ned_mps, moving, strict=False
            )
        )
        fx, fy, fz = rotate_back(attitude, (north, east, down))
        turn, resist = self._turning
        asked = [angle + off for angle, off in zip(self._angles_rad, sway[3:], strict=True)]
        # At small angles those of Euler are those along the body.
        nx, ny, nz = (
            -turn * wrap_pi(angle - wish) - resist * rate
            for angle, wish, rate in zip(euler(attitude), asked, rates_radps, strict=True)
        )
        return (fx, fy, fz), (nx + y * fz - z * fy, ny + z * fx - x * fz, nz + x * fy - y * fx)


def by_person(airframe: Airframe, start: VehicleState, *, seed: int) -> Grip:
    """Return a person who holds the ship loosely at its centre of gravity.

    Chosen: it swings so with 0.2 to 0.6 Hz; the person sways by 2 to 8 mm, up to 0.6 degrees.
    """
    random = Random(f"person:{seed}")
    return Grip(
        airframe=airframe, start=start, seed=seed, at_m=airframe.mass.center_of_gravity_m,
        swing_hz=random.uniform(0.2, 0.6), turn_hz=random.uniform(0.2, 0.6),
        damping=random.uniform(0.3, 0.8), sway_m=random.uniform(0.002, 0.008),
        sway_rad=random.uniform(0.002, 0.01),
    )  # fmt: skip


def on_string(airframe: Airframe, start: VehicleState, *, seed: int) -> Grip:
    """Return a string from the gondola, which lets the ship turn. Chosen: 0.1 to 0.25 Hz."""
    random = Random(f"string:{seed}")
    x, y, z = airframe.mass.center_of_gravity_m
    reach_m = 0.1 * airframe.hull.length_m
    at_m = (x + random.uniform(-reach_m, reach_m), y, z + random.uniform(0.0, reach_m))
    return Grip(
        airframe=airframe, start=start, seed=seed, at_m=at_m, damping=0.1,
        swing_hz=random.uniform(0.1, 0.25), sway_m=0.001,
    )  # fmt: skip
