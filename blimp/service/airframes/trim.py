"""`blimp trim`: how much ballast a ship that was weighed in flight needs, and where."""

from math import atan2, degrees, hypot

import msgspec

from blimp.airframe import Airframe, Item
from blimp.errors import AirframeError
from blimp.service.airframes.figures import static_lift_n
from blimp.sim.atmosphere import GRAVITY_MPS2
from blimp.types import Vec3

ENOUGH_KG = 1e-4  # less is no use: the estimate is not better


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """What to change. ballast_g: above 0 to add, below 0 to take out, 0 if nothing is to do.

    position_m: from the centre of buoyancy, body frame. tilt_deg: off level afterwards.
    """

    heaviness_g: float
    target_g: float
    ballast_g: float
    position_m: Vec3
    tilt_deg: float


def trim(airframe: Airframe, *, heaviness_kg: float, target_kg: float | None = None) -> Trim:
    """Return the ballast that brings a weighed ship to its target, and levels it where it can.

    heaviness_kg: as flown, below 0 if it is light. target_kg: that of the airframe's file in the
    air at home by default, but never light: a ship must come down when all else fails. Raises
    AirframeError for a heaviness that no ship of this size has, and for taking out more than is in.
    """
    displaced_kg = airframe.mass_kg - airframe.mass.heaviness_kg
    for what, value_kg in (("heaviness", heaviness_kg), ("target", target_kg or 0.0)):
        if not abs(value_kg) < 0.5 * displaced_kg:
            raise AirframeError(
                f"trim: {what} {1e3 * value_kg:.1f} g is more than half of the air that "
                f"{airframe.name} displaces, {1e3 * displaced_kg:.0f} g"
            )
    if target_kg is None:
        target_kg = max(0.0, -static_lift_n(airframe) / GRAVITY_MPS2)
    missing_kg = target_kg - heaviness_kg
    stock = next((item for item in airframe.mass.item if item.name == "ballast"), None)
    if abs(missing_kg) < ENOUGH_KG:
        missing_kg = 0.0
    if stock is not None and missing_kg < -stock.mass_kg:
        raise AirframeError(
            f"trim: {-1e3 * missing_kg:.1f} g would have to come out, and its ballast is "
            f"{1e3 * stock.mass_kg:.1f} g: build it lighter, or fill in more gas"
        )
    position_m = _place(airframe, missing_kg, stock)
    return Trim(
        heaviness_g=1e3 * heaviness_kg,
        target_g=1e3 * target_kg,
        ballast_g=1e3 * missing_kg,
        position_m=position_m,
        tilt_deg=_tilt_deg(airframe, missing_kg, position_m),
    )


def as_text(found: Trim) -> str:
    """Return it for a person."""
    kind = "light" if found.heaviness_g < 0.0 else "heavy"
    head = f"{abs(found.heaviness_g):.1f} g {kind}"
    if found.ballast_g == 0.0:
        return f"{head}: nothing to change"
    x, y, z = found.position_m
    verb = "add" if found.ballast_g > 0.0 else "take out"
    ahead = f"{abs(x):.2f} m {'ahead of' if x >= 0.0 else 'astern of'}"
    beside = f", {abs(y):.2f} m to the {'right' if y > 0.0 else 'left'}" if abs(y) >= 0.005 else ""
    return (
        f"{head}: {verb} {abs(found.ballast_g):.1f} g of ballast at {ahead} the centre of "
        f"buoyancy{beside}, {z:.2f} m below it; then it is {found.target_g:.1f} g heavy and hangs "
        f"{found.tilt_deg:.1f} degrees off level"
    )


def _place(airframe: Airframe, ballast_kg: float, stock: Item | None) -> Vec3:
    """Return where ballast levels the ship, within the hull; what is taken out is at its stock."""
    x, y, _ = airframe.mass.center_of_gravity_m
    if stock is not None and ballast_kg < 0.0:
        return stock.position_m
    low_m = stock.position_m[2] if stock is not None else _lowest_m(airframe)
    if ballast_kg == 0.0:
        return (x, y, low_m)
    lever_kg = -airframe.mass_kg / ballast_kg
    ahead_m, beside_m = 0.5 * airframe.hull.length_m, 0.5 * airframe.hull.diameter_m
    return (
        max(-ahead_m, min(ahead_m, lever_kg * x)),
        max(-beside_m, min(beside_m, lever_kg * y)),
        low_m,
    )


def _lowest_m(airframe: Airframe) -> float:
    """Return the height of the gondola, where ballast makes the ship stiffer: its lowest motor."""
    lowest_m = max(thruster.position_m[2] for thruster in airframe.thruster)
    return max(lowest_m, airframe.mass.center_of_gravity_m[2])


def _tilt_deg(airframe: Airframe, ballast_kg: float, position_m: Vec3) -> float:
    x, y, z = (
        airframe.mass_kg * c + ballast_kg * p
        for c, p in zip(airframe.mass.center_of_gravity_m, position_m, strict=True)
    )
    return degrees(atan2(hypot(x, y), z))
