"""Where a ship's motors, servos and fins are: the layouts that `blimp airframe new` knows.

A row is one way in which ships are built. Places are in shares of what the builder measures, so
that one table serves ships of all sizes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from blimp.airframe import Finite3
from blimp.constants import AIR_DENSITY_KGM3

AHEAD, ASIDE, UP = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0)
STERN = -0.45  # of the length, where a tail's motor or fin is
FIN_SHARE = 0.08  # of the hull's side: area of a fin
FIN_SLOPE = 2.4  # per radian: lift of a low fin
BRIDGES = (  # pins of one drv8833 each
    "ain1 = 6, ain2 = 13, bin1 = 19, bin2 = 26, nsleep = 12",
    "ain1 = 17, ain2 = 27, bin1 = 5, bin2 = 25, nsleep = 22",
)


class MotorRow(NamedTuple):
    """One propeller: its place ahead in lengths, aside in arms, and which thrust it has."""

    name: str
    ahead: float
    aside: float
    axis: Finite3
    lifts: bool = False  # with the lift motor's thrust, else with a forward motor's
    tilted_by: str = ""


class Layout(NamedTuple):
    """fins: servo, place ahead in lengths, direction of the force at a positive angle."""

    text: str
    motors: tuple[MotorRow, ...]
    tilts: tuple[str, ...] = ()
    fins: tuple[tuple[str, float, Finite3], ...] = ()


def _pair(*, ahead: float = 0.0, servos: tuple[str, str] = ("", "")) -> tuple[MotorRow, MotorRow]:
    left, right = servos
    return (
        MotorRow("left", ahead, -1.0, AHEAD, tilted_by=left),
        MotorRow("right", ahead, 1.0, AHEAD, tilted_by=right),
    )


_LIFT = MotorRow("lift", 0.0, 0.0, UP, lifts=True)
LAYOUTS = {
    "twin": Layout("two forward motors and one that lifts", (*_pair(), _LIFT)),
    "quad": Layout(
        "two forward motors and two that lift",
        (
            *_pair(),
            MotorRow("lift-front", 0.15, 0.0, UP, lifts=True),
            MotorRow("lift-rear", -0.15, 0.0, UP, lifts=True),
        ),
    ),
    "bicopter": Layout(
        "two motors, each on a servo of its own",
        _pair(servos=("tilt-left", "tilt-right")),
        tilts=("tilt-left", "tilt-right"),
    ),
    "bicopter-1": Layout(
        "two motors on one servo", _pair(servos=("tilt", "tilt")), tilts=("tilt",)
    ),
    "vectored": Layout(
        "two motors on one servo and a tail that pushes aside",
        (*_pair(servos=("tilt", "tilt")), MotorRow("tail", STERN, 0.0, ASIDE)),
        tilts=("tilt",),
    ),
    "finned": Layout(
        "two motors astern, one that lifts, and a rudder",
        (*_pair(ahead=-0.3), _LIFT),
        fins=(("rudder", STERN, (0.0, -1.0, 0.0)),),
    ),
}


def outputs(
    layout: Layout,
    *,
    arm_m: float,
    length_m: float,
    side_m2: float,
    below_m: float,
    forward_n: float,
    lift_n: float,
    reverse: float,
    motor_a: float,
) -> str:
    """Return the tables of thrusters, servos and surfaces. reverse: share of the thrust."""
    return "\n".join(
        (
            *_motors(layout, arm_m, length_m, below_m, forward_n, lift_n, reverse, motor_a),
            *_servos(layout),
            *_fins(layout, length_m, side_m2),
        )
    )


def _motors(
    layout: Layout,
    arm_m: float,
    length_m: float,
    below_m: float,
    forward_n: float,
    lift_n: float,
    reverse: float,
    motor_a: float,
) -> Iterator[str]:
    for motor in layout.motors:
        thrust_n = lift_n if motor.lifts else forward_n
        tilt = f'tilted_by = "{motor.tilted_by}"\n' if motor.tilted_by else ""
        place = (motor.ahead * length_m, motor.aside * arm_m, below_m)
        yield (
            f'[[thruster]]\nname = "{motor.name}"\nposition_m = {_row(place)}\n'
            f"axis = {_row(motor.axis)}\nmax_thrust_n = {thrust_n:.5f}\n"
            f"reverse_thrust_n = {reverse * thrust_n:.5f}\nlag_s = 0.08\n"
            f"max_current_a = {motor_a:g}\n{tilt}"
        )


def _servos(layout: Layout) -> Iterator[str]:
    for name in layout.tilts:
        yield (
            f'[[servo]]\nname = "{name}" # assumed: 100 degrees both ways, 0.26 s for 60 degrees\n'
            "min_rad = -1.745\nmax_rad = 1.745\nslew_radps = 4.0\n"
        )
    for name, _, _ in layout.fins:
        yield (
            f'[[servo]]\nname = "{name}" # assumed\nmin_rad = -0.6\nmax_rad = 0.6\n'
            "slew_radps = 4.0\n"
        )


def _fins(layout: Layout, length_m: float, side_m2: float) -> Iterator[str]:
    area_m2 = FIN_SHARE * side_m2
    force = 0.5 * AIR_DENSITY_KGM3 * FIN_SLOPE * area_m2
    for name, ahead, axis in layout.fins:
        yield (
            f"[[surface]] # assumed: {area_m2:.3f} m2, {100.0 * FIN_SHARE:g} % of the hull's side\n"
            f'servo = "{name}"\nposition_m = {_row((ahead * length_m, 0.0, 0.0))}\n'
            f"axis = {_row(axis)}\nforce_per_rad = {force:.5f}\n"
        )


def drivers(layout: Layout) -> str:
    """Return the tables of the devices that drive all of it."""
    names = [motor.name for motor in layout.motors]
    rows = []
    for k, pins in zip(range(0, len(names), 2), BRIDGES, strict=False):
        pair = names[k : k + 2]
        used = pins if len(pair) == 2 else ", ".join(p for p in pins.split(", ") if p[0] != "b")
        outputs = ", ".join(f'{end} = "{name}"' for end, name in zip("ab", pair, strict=False))
        rows.append(
            f'[[device]]\nname = "{"motor_z" if k else "motors"}"\nchip = "drv8833"\nbus = "gpio"\n'
            f"pins = {{ {used} }}\noutputs = {{ {outputs} }}\n"
        )
    servos = (*layout.tilts, *(name for name, _, _ in layout.fins))
    if servos:
        outputs = ", ".join(f'"{k}" = "{name}"' for k, name in enumerate(servos))
        rows.append(
            '[[device]]\nname = "servos"\nchip = "pca9685"\nbus = "i2c-1"\naddress = 0x40\n'
            f"outputs = {{ {outputs} }}\n"
        )
    return "\n".join(rows)


def _row(values: Finite3) -> str:
    return "[" + ", ".join(f"{value:.4f}" for value in values) + "]"
