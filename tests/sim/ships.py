"""Variations of the airframes that experiments need, and the experiments' bookkeeping."""

import msgspec

from blimp import airframe
from blimp.airframe import Airframe
from blimp.rotation import rotate
from blimp.sim.atmosphere import (
    GAS_CONSTANT_JPKGK,
    GRAVITY_MPS2,
    LAPSE_KPM,
    PRESSURE_EXPONENT,
    isa,
)
from blimp.sim.physics import Physics

STEP_S = 0.005
ZERO6 = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def twin() -> Airframe:
    return airframe.load("twin")


def gtmab() -> Airframe:
    return airframe.load("gtmab")


def balanced(ship: Airframe, *, height_m: float) -> Airframe:
    """The same mass and hull in air that just carries it at `height_m` above sea level."""
    volume_m3 = ship.mass_kg / isa(height_m).density_kg_m3
    return msgspec.structs.replace(
        ship,
        hull=msgspec.structs.replace(ship.hull, volume_m3=volume_m3),
        mass=msgspec.structs.replace(
            ship.mass, heaviness_kg=ship.mass_kg - 1.2250 * volume_m3, item=()
        ),
    )


def weighing(ship: Airframe, heaviness_kg: float) -> Airframe:
    return msgspec.structs.replace(
        ship, mass=msgspec.structs.replace(ship.mass, heaviness_kg=heaviness_kg)
    )


def dragless(ship: Airframe) -> Airframe:
    aero = msgspec.structs.replace(
        ship.aero, linear_drag=ZERO6, quadratic_drag=ZERO6, fin_lift_per_rad=0.0
    )
    return msgspec.structs.replace(ship, aero=aero, surface=())


def fly(
    physics: Physics,
    seconds: float,
    *,
    throttles: tuple[float, ...] | None = None,
    servos: tuple[float, ...] | None = None,
) -> None:
    """Step with constant inputs; zero where none are given."""
    throttles = throttles or (0.0,) * len(physics.thrusts_n)
    servos = servos or (0.0,) * len(physics.servo_angles_rad)
    for _ in range(round(seconds / STEP_S)):
        physics.step(STEP_S, throttles, servos)


def energy_j(physics: Physics, ship: Airframe) -> float:
    """Kinetic energy with that of the moved air, and potential energy of weight and lift."""
    state = physics.state
    height_m = -state.position_ned_m[2]
    hanging_m = rotate(state.attitude, ship.mass.center_of_gravity_m)[2]
    # The integral of the ISA's density over height, in closed form.
    column = isa(ship.home.altitude_msl_m + height_m).pressure_pa / (
        GAS_CONSTANT_JPKGK * LAPSE_KPM * PRESSURE_EXPONENT
    )
    return (
        physics.kinetic_energy_j
        + ship.mass_kg * GRAVITY_MPS2 * (height_m - hanging_m)
        + ship.hull.volume_m3 * GRAVITY_MPS2 * column
    )
