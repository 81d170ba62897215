"""`blimp airframe new`: describes a ship from what its builder can measure.

A balloon, what hangs below it, and motors, servos and fins in a layout. Everything else follows:
ballast, balance and inertia from the mass budget, added mass by Lamb, drag scaled from the
published ships. The file says where each number comes from.
"""

import re
from collections.abc import Sequence
from math import pi
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from blimp import airframe as airframes
from blimp.airframe import Name
from blimp.chips import CHIPS
from blimp.constants import AIR_DENSITY_KGM3 as AIR
from blimp.errors import AirframeError, BlimpError
from blimp.service.airframes.check import Report, check
from blimp.service.airframes.layouts import LAYOUTS, drivers, outputs
from blimp.service.airframes.template import TEMPLATE
from blimp.service.computer.initialise import Ask, Question
from blimp.service.files import write_whole
from blimp.sim import hull
from blimp.sim.atmosphere import GRAVITY_MPS2, gas_density_kg_m3

GRAM_OF_FORCE_N = 1e-3 * GRAVITY_MPS2
LINEAR_MPS = 0.0331  # GT-MAB's 0.0125 N per m/s over air density and its side area
HEAVE_LINEAR_MPS = 0.0841  # its 0.0480 over its top area
ROTATION_LINEAR = 0.00098 / 0.77**4  # its rotation, by area times length squared
FRONT_COEFFICIENT = 0.07 / (0.5 * AIR * pi / 4.0 * 0.52**2)  # Blimp2b's
SIDE_COEFFICIENT = 0.22 / (0.5 * AIR * pi / 4.0 * 1.09 * 0.52)
HEAVY_SHARE = 0.004  # of the displaced air: it comes down when all fails
REVERSE_SHARE = 0.6  # of the thrust of a propeller made for one direction
HOLD_SHARE = 0.1  # of the lift thrust: what the feet hold
GONDOLA_M = (0.16, 0.06, 0.04)


# The chips that the template has a place for, by the bus of that place.
CHOICES = {
    "imu": [name for name, chip in CHIPS.items() if chip.role == "imu" and chip.addresses],
    "baro": [name for name, chip in CHIPS.items() if chip.role == "baro" and chip.addresses],
    "position": [name for name, chip in CHIPS.items() if chip.role in ("tag", "gps") and chip.baud],
}


def _one_of(names: Sequence[str]) -> Meta:
    return Meta(pattern=rf"^({'|'.join(names)})\Z")


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a builder knows of the ship; masses and thrusts as a kitchen scale shows them.

    shape: "foil" is a round foil balloon, `length_m` its diameter when flat; "spheroid" is a
    hull of `length_m` and `diameter_m`.
    """

    name: Name
    layout: Annotated[str, _one_of(tuple(LAYOUTS))] = "twin"
    shape: Literal["foil", "spheroid"] = "foil"
    length_m: Annotated[float, Meta(ge=0.3, le=20.0)] = 0.9
    diameter_m: Annotated[float, Meta(ge=0.2, le=10.0)] = 0.5
    purity: Annotated[float, Meta(ge=0.8, le=1.0)] = 0.97
    envelope_g: Annotated[float, Meta(ge=1.0, le=1e5)] = 38.0
    gondola_g: Annotated[float, Meta(ge=1.0, le=1e5)] = 70.0
    forward_gf: Annotated[float, Meta(ge=0.1, le=1e4)] = 6.0
    lift_gf: Annotated[float, Meta(ge=0.1, le=1e4)] = 10.0
    motor_a: Annotated[float, Meta(ge=0.01, le=100.0)] = 0.8
    arm_m: Annotated[float, Meta(ge=0.01, le=5.0)] = 0.15
    imu: Annotated[str, _one_of(CHOICES["imu"])] = "mpu6050"
    baro: Annotated[str, _one_of(CHOICES["baro"])] = "bmp280"
    position: Annotated[str, _one_of(CHOICES["position"])] = "dwm1001"


UNITS = {"m": "m", "g": "g", "gf": "gf", "a": "A"}  # by the ending of a field
QUESTIONS: dict[str, str] = {
    "layout": "Layout, one of\n"
    + "".join(f"  {name:10} {row.text}\n" for name, row in LAYOUTS.items())
    + "Layout",
    "shape": "Balloon: foil (round) or spheroid",
    "length_m": "Length in m; of a foil balloon its diameter when flat",
    "diameter_m": "Diameter in m (not used for foil)",
    "purity": "Purity of the helium, 0.8 to 1",
    "envelope_g": "Mass of the empty balloon with its valve, g",
    "gondola_g": "Mass of all that hangs below it, battery and motors too, g",
    "forward_gf": "Thrust of one forward motor on the scale, g",
    "lift_gf": "Thrust of the lift motor on the scale, g",
    "motor_a": "Current of a motor at full power, A",
    "arm_m": "Each forward motor from the middle line, m",
    "imu": f"IMU: {', '.join(CHOICES['imu'])}",
    "baro": f"Barometer: {', '.join(CHOICES['baro'])}",
    "position": f"Position: {', '.join(CHOICES['position'])}",
}


def asked(name: str, given: dict[str, Any], *, ask: Ask | None) -> Plan:
    """Return the plan of what was given, with a person's answers for the rest if there is one.

    Raises AirframeError naming what cannot be.
    """
    answers = {key: value for key, value in given.items() if value is not None}
    for key, text in QUESTIONS.items():
        if ask is None or key in answers:
            continue
        if key == "lift_gf" and not any(m.lifts for m in LAYOUTS[answers["layout"]].motors):
            continue
        default = next(f.default for f in msgspec.structs.fields(Plan) if f.name == key)
        answers[key] = ask(
            Question(text, str(default), lambda answer, key=key: _plan(name, {key: answer}))  # type: ignore[misc]
        )
    return _plan(name, answers)


def _plan(name: str, answers: dict[str, Any]) -> Plan:
    try:
        return msgspec.convert({"name": name, **answers}, Plan, strict=False)
    except msgspec.ValidationError as error:
        raise AirframeError(f"airframe new: {_in_words(str(error), answers)}") from error


def _in_words(message: str, answers: dict[str, Any]) -> str:
    """Return msgspec's message with the option and all that it may be."""
    match = re.search(r"\$\.(\w+)", message)
    if match is None or match[1] not in answers:
        return message
    field = match[1]
    option = "--" + field.removesuffix("_m").replace("_", "-")
    choices = get_args(get_type_hints(Plan, include_extras=True)[field])
    named = CHOICES | {"layout": [*LAYOUTS], "shape": [*choices]}
    if field in named:
        limits = " or ".join(named[field])
    else:
        unit = UNITS.get(field.rpartition("_")[2], "")
        limits = f"{choices[1].ge:g} to {choices[1].le:g} {unit}".rstrip()
    return f"{option} must be {limits}, not {str(answers[field])[:40]}"


def write(plan: Plan, path: Path) -> Report:
    """Write the airframe of a plan. Returns its check, whose warnings a builder should read.

    Raises AirframeError if it cannot fly, and BlimpError if the file is there: nothing is written.
    """
    if path.suffix != ".toml":
        raise BlimpError(f"{path}: an airframe's file ends in .toml")
    if path.exists():
        raise BlimpError(f"{path} exists already: remove it, or give another name")
    text = describe(plan)
    report = check(airframes.parse(text, where=str(path)))
    if not report.ok:
        raise AirframeError(f"airframe new: this ship cannot fly: {'; '.join(report.errors)}")
    write_whole(path, text)
    return report


def describe(plan: Plan) -> str:
    """Return the commented file of a ship. Raises AirframeError if it is too heavy to float."""
    foil = plan.shape == "foil"
    if not foil and plan.length_m < plan.diameter_m:
        raise AirframeError(
            f"airframe new: length_m {plan.length_m:g} is below diameter_m {plan.diameter_m:g}"
        )
    # A round foil balloon of flat diameter D: Paulsen, What is the shape of a Mylar balloon?,
    # American Mathematical Monthly 101 (1994).
    length_m = 0.7627 * plan.length_m if foil else plan.length_m
    wide_m = length_m if foil else plan.diameter_m
    high_m = 0.4569 * plan.length_m if foil else plan.diameter_m
    volume_m3 = 0.1523 * plan.length_m**3 if foil else hull.volume_m3(length_m, wide_m)
    displaced_kg = AIR * volume_m3
    gas_kg = gas_density_kg_m3(plan.purity) * volume_m3
    heaviness_kg = HEAVY_SHARE * displaced_kg
    mass_kg = displaced_kg + heaviness_kg
    envelope_kg, gondola_kg = 1e-3 * plan.envelope_g, 1e-3 * plan.gondola_g
    ballast_kg = mass_kg - gas_kg - envelope_kg - gondola_kg
    if ballast_kg < 0.0:
        raise AirframeError(
            f"airframe new: {-1e3 * ballast_kg:.0f} g too heavy: {volume_m3:.3g} m3 of this gas "
            f"carry {1e3 * (displaced_kg - gas_kg):.0f} g, envelope and gondola weigh "
            f"{1e3 * (envelope_kg + gondola_kg):.0f} g"
        )
    below_m = 0.5 * high_m + 0.06  # the gondola's middle, below a frame
    shell = hull.shell_inertia_kg_m2(envelope_kg, high_m if foil else length_m, wide_m)
    solid = hull.solid_inertia_kg_m2(gas_kg, high_m if foil else length_m, wide_m)
    if foil:  # its short axis is the vertical one
        shell, solid = shell[::-1], solid[::-1]
    x, y, z = GONDOLA_M
    box = tuple(gondola_kg / 12.0 * s for s in (y * y + z * z, x * x + z * z, x * x + y * y))
    center_m = (gondola_kg * below_m + ballast_kg * (below_m + 0.02)) / mass_kg
    inertia = [
        shell[k] + solid[k] + box[k]
        + (k < 2) * (
            (envelope_kg + gas_kg) * center_m**2
            + gondola_kg * (below_m - center_m) ** 2
            + ballast_kg * (below_m + 0.02 - center_m) ** 2
        )
        for k in range(3)
    ]  # fmt: skip
    axial, lateral, turning = _added(displaced_kg, length_m, wide_m, high_m, foil=foil)
    front_m2 = pi / 4.0 * wide_m * high_m
    side_m2, top_m2 = pi / 4.0 * length_m * high_m, pi / 4.0 * length_m * wide_m
    side_c = FRONT_COEFFICIENT if foil else SIDE_COEFFICIENT
    rotation = ROTATION_LINEAR * length_m**4
    layout = LAYOUTS[plan.layout]
    forward_n = plan.forward_gf * GRAM_OF_FORCE_N
    lift_n = sum(plan.lift_gf * GRAM_OF_FORCE_N for motor in layout.motors if motor.lifts)
    lift_n += sum(forward_n for motor in layout.motors if motor.tilted_by)
    top = 0.5 * AIR * SIDE_COEFFICIENT * top_m2
    front = 0.5 * AIR * FRONT_COEFFICIENT * front_m2
    return TEMPLATE.format(
        plan=plan, shape=f"{plan.length_m:g} m {plan.shape}", length=length_m, wide=wide_m,
        high=high_m, volume=volume_m3, heaviness=heaviness_kg, center=center_m, inertia=inertia,
        envelope=envelope_kg, shell=shell, gas=gas_kg, solid=solid, gondola=gondola_kg, box=box,
        below=below_m, ballast=ballast_kg, under=below_m + 0.02, axial=axial, lateral=lateral[0],
        heave=lateral[1], roll=turning[0], pitch=turning[1], yaw=turning[2],
        linear=(
            AIR * LINEAR_MPS * front_m2, AIR * LINEAR_MPS * side_m2,
            AIR * HEAVE_LINEAR_MPS * top_m2, rotation,
        ),
        quadratic=(front, 0.5 * AIR * side_c * side_m2, top),
        feet=below_m + 0.06, foot=0.2 * wide_m, hold=HOLD_SHARE * lift_n,
        layout=layout, drivers=drivers(layout),
        outputs=outputs(
            layout, arm_m=plan.arm_m, length_m=length_m, side_m2=side_m2, below_m=below_m,
            forward_n=forward_n, lift_n=plan.lift_gf * GRAM_OF_FORCE_N, reverse=REVERSE_SHARE,
            motor_a=plan.motor_a,
        ),
        speed=min(0.7, 0.4 * (2.0 * forward_n / front) ** 0.5),
        climb=min(0.4, 0.4 * (REVERSE_SHARE * lift_n / top) ** 0.5),
        acceleration=0.5 * 2.0 * forward_n / (mass_kg + axial),
        imu=CHIPS[plan.imu], baro=CHIPS[plan.baro], position=CHIPS[plan.position],
    )  # fmt: skip


def _added(
    displaced_kg: float, length_m: float, wide_m: float, high_m: float, *, foil: bool
) -> tuple[float, tuple[float, float], tuple[float, float, float]]:
    """Return added mass in surge, in sway and heave, and added inertia, by Lamb."""
    if foil:
        factors = hull.oblate_added_mass_factors(high_m / wide_m)
        turning = factors.rotation * displaced_kg / 5.0 * (wide_m**2 + high_m**2) / 4.0
        level = factors.lateral * displaced_kg
        return level, (level, factors.axial * displaced_kg), (turning, turning, 0.0)
    factors = hull.added_mass_factors(length_m / wide_m)
    turning = factors.rotation * displaced_kg / 5.0 * (length_m**2 + wide_m**2) / 4.0
    across = factors.lateral * displaced_kg
    return factors.axial * displaced_kg, (across, across), (0.0, turning, turning)
