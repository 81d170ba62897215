"""A ship that nobody has tuned for: `random_ship(seed)` draws one that `airframe check` accepts.

Drawn within what builders buy: a foil balloon of 0.7 to 2 m or a spheroid of 0.9 to 6 m, foil of 30
to 60 g/m2, motors that lift 3 to 15 % of the displaced air and push with 1.5 to 6 % each, eight
layouts of thrusters, tilt servos and fins, and every kind of sensor. The rest follows as in
`blimp airframe new`.
"""

import math
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import msgspec

from blimp import airframe as airframes
from blimp.airframe import (
    Airframe,
    Battery,
    Device,
    Servo,
    Surface,
    Thruster,
)
from blimp.constants import AIR_DENSITY_KGM3
from blimp.errors import AirframeError
from blimp.service.airframes.check import check
from blimp.service.airframes.new import Plan, describe
from blimp.sim import hull
from blimp.sim.atmosphere import gas_density_kg_m3
from blimp.types import Vec3

TRIES = 200
OTHERS = 0.4  # of ships: two tilt servos, one for both motors, or a rudder
BRIDGES = (  # pins of one bridge each; none is another device's
    {"ain1": 6, "ain2": 13, "bin1": 19, "bin2": 26, "nsleep": 12},
    {"ain1": 16, "ain2": 20, "bin1": 7, "bin2": 8, "nsleep": 21},
    {"ain1": 17, "ain2": 27, "bin1": 5, "bin2": 25, "nsleep": 22},
)
IMUS: tuple[dict[str, Any], ...] = (
    {"chip": "mpu6050", "bus": "i2c-1", "address": 0x68},
    {"chip": "icm20948", "bus": "i2c-1", "address": 0x69},
    {"chip": "bno055", "bus": "serial", "port": "/dev/ttyAMA2", "baud": 115200},
)
BAROS = ({"chip": "bmp280"}, {"chip": "bmp388"}, {"chip": "bmp390"}, {"chip": "ms5611"})
HEIGHTS: tuple[dict[str, Any], ...] = (
    {"name": "ranger", "chip": "tfluna", "bus": "i2c-1", "address": 0x10, "rate_hz": 50.0},
    {"name": "ranger", "chip": "vl53l1x", "bus": "i2c-1", "address": 0x29, "rate_hz": 20.0},
    {
        "name": "sonar", "chip": "hcsr04", "bus": "gpio", "pins": {"trigger": 23, "echo": 24},
        "rate_hz": 10.0,
    },
)  # fmt: skip
PLACES: tuple[dict[str, Any], ...] = (
    {"name": "tag", "chip": "dwm1001", "port": "/dev/ttyAMA0", "rate_hz": 10.0},
    {"name": "tag", "chip": "mocap", "port": "/dev/ttyAMA0", "rate_hz": 40.0},
    {"name": "gps", "chip": "gps-nmea", "port": "/dev/ttyAMA1", "baud": 9600, "rate_hz": 5.0},
    {"name": "gps", "chip": "gps-ubx", "port": "/dev/ttyAMA1", "baud": 9600, "rate_hz": 5.0},
)
POWERS = (  # up to so many amperes
    (3.0, {"chip": "ina219", "address": 0x41}),
    (6.0, {"chip": "ina226", "address": 0x41, "options": {"shunt_ohm": 0.01}}),
    (14.0, {"chip": "ina260", "address": 0x44}),
)


@cache
def random_ship(seed: int) -> Airframe:
    """Return the ship of this seed, always the same one."""
    chance = Random(f"ship:{seed}")
    for _ in range(TRIES):
        try:
            ship = _draw(chance, f"ship-{seed}")
        except AirframeError:  # too heavy to float, or no hull
            continue
        if check(ship).ok:
            return ship
    raise AirframeError(f"no ship of seed {seed} can fly in {TRIES} tries")


def _draw(chance: Random, name: str) -> Airframe:
    plan = _plan(chance, name)
    ship = airframes.parse(describe(plan), where=name)
    thrusters, servos, fins = _layout(chance, ship)
    current_a = sum(t.max_current_a for t in thrusters)
    minutes = chance.uniform(10.0, 30.0)  # at half power
    battery = Battery(
        cells=1, capacity_ah=max(0.3, current_a * minutes / 120.0),
        resistance_ohm=min(0.1, 0.5 / current_a), idle_current_a=0.3, warn_v=3.5, empty_v=3.2,
    )  # fmt: skip
    drawn = msgspec.structs.replace(
        ship,
        thruster=thrusters,
        servo=servos,
        surface=fins,
        battery=battery,
        device=(*_sensors(chance, current_a), *_drivers(thrusters, servos)),
        gains=msgspec.structs.replace(ship.gains, swing_damping=chance.choice([0.0, 0.15])),
        limits=msgspec.structs.replace(
            ship.limits,
            max_altitude_m=10.0,
            max_distance_m=40.0,
            yaw_rate_radps=chance.uniform(0.2, 0.5),
        ),
    )
    return msgspec.convert(msgspec.to_builtins(drawn), Airframe)


def _plan(chance: Random, name: str) -> Plan:
    """Draw hull, gas and motors; what hangs below it weighs most of what they carry."""
    foil = chance.random() < 0.5
    length_m = chance.uniform(0.7, 2.0) if foil else chance.uniform(0.9, 6.0)
    diameter_m = length_m / chance.uniform(1.2, 3.5)
    volume_m3 = 0.1523 * length_m**3 if foil else hull.volume_m3(length_m, diameter_m)
    skin_m2 = 2.0 * math.pi / 4.0 * length_m**2 if foil else math.pi * length_m * diameter_m
    purity = chance.uniform(0.9, 1.0)
    displaced_kg = AIR_DENSITY_KGM3 * volume_m3
    envelope_kg = chance.uniform(0.03, 0.06) * skin_m2
    carried_kg = displaced_kg - gas_density_kg_m3(purity) * volume_m3 - envelope_kg
    displaced_gf = 1e3 * displaced_kg
    return msgspec.convert(
        {
            "name": name,
            "shape": "foil" if foil else "spheroid",
            "length_m": length_m,
            "diameter_m": min(diameter_m, 10.0),
            "purity": purity,
            "envelope_g": 1e3 * envelope_kg,
            "gondola_g": 1e3 * carried_kg * chance.uniform(0.6, 0.98),
            "lift_gf": displaced_gf * math.exp(chance.uniform(math.log(0.03), math.log(0.15))),
            "forward_gf": displaced_gf * math.exp(chance.uniform(math.log(0.015), math.log(0.06))),
            "arm_m": max(0.02, 0.5 * min(diameter_m, length_m) * chance.uniform(0.2, 1.0)),
        },
        Plan,
    )


def _layout(
    chance: Random, ship: Airframe
) -> tuple[tuple[Thruster, ...], tuple[Servo, ...], tuple[Surface, ...]]:
    """Draw where the thrusters are: eight layouts that ships of this size are built in."""
    left, _, lift = ship.thruster
    low_m, arm_m = lift.position_m[2], -left.position_m[1]
    lag_s = chance.uniform(0.04, 0.3)
    reverse = chance.uniform(0.4, 1.0)
    widest_m = 0.4 * max(ship.hull.length_m, ship.hull.diameter_m)

    def motor(name: str, place: Vec3, axis: Vec3, thrust_n: float, tilt: str = "") -> Thruster:
        # Momentum theory with 50 % of losses, and up to twice of that: see `check`.
        propeller_m = min(widest_m, 0.05 + 0.1 * thrust_n)
        area_m2 = math.pi / 4.0 * propeller_m**2
        power_w = 2.0 * thrust_n**1.5 / math.sqrt(2.0 * AIR_DENSITY_KGM3 * area_m2)
        return Thruster(
            name=name, position_m=place, axis=axis, max_thrust_n=thrust_n,
            reverse_thrust_n=reverse * thrust_n, lag_s=lag_s, tilted_by=tilt,
            exponent=chance.uniform(1.5, 2.0), asymmetry=chance.uniform(-0.05, 0.05),
            max_current_a=chance.uniform(1.1, 2.0) * power_w / 3.7,
        )  # fmt: skip

    ahead, right, up = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0)
    stern_m = -0.45 * ship.hull.length_m
    push_n, lift_n = left.max_thrust_n, lift.max_thrust_n
    pair = [("left", (0.0, -arm_m, low_m), ahead), ("right", (0.0, arm_m, low_m), ahead)]
    middle = ("lift", (0.0, 0.0, low_m), up)
    servos: tuple[Servo, ...] = ()
    fins: tuple[Surface, ...] = ()
    layout = chance.choice(["pair", "cross", "nose", "tilt", "two lifts"])
    other = Random(f"layout:{ship.name}")  # so that the other ships stay what they were
    if other.random() < OTHERS:
        layout = other.choice(["bicopter", "one-servo bicopter", "rudder"])

    def servo(name: str, reach_rad: float) -> Servo:
        return Servo(
            name=name, min_rad=-reach_rad, max_rad=reach_rad, slew_radps=chance.uniform(2.0, 6.0),
            min_pulse_s=0.0005, max_pulse_s=0.0025,
        )  # fmt: skip

    if layout == "bicopter":
        servos = (servo("tilt-left", 1.7453), servo("tilt-right", 1.7453))
        each_n = max(lift_n, push_n)
        motors = [motor(name, place, axis, each_n, f"tilt-{name}") for name, place, axis in pair]
    elif layout == "one-servo bicopter":
        servos = (servo("tilt", 1.7453),)
        each_n = max(lift_n, push_n)
        motors = [motor(name, place, axis, each_n, "tilt") for name, place, axis in pair]
    elif layout == "rudder":
        servos = (servo("rudder", 0.6),)
        side_m2 = math.pi / 4.0 * ship.hull.length_m * ship.hull.diameter_m
        fins = (
            Surface(
                servo="rudder", position_m=(stern_m, 0.0, 0.0), axis=(0.0, -1.0, 0.0),
                force_per_rad=1.5 * chance.uniform(0.03, 0.1) * side_m2,
            ),
        )  # fmt: skip
        motors = [motor(name, place, axis, push_n) for name, place, axis in pair]
        motors += [motor(*middle, lift_n)]
    elif layout == "tilt":  # as the twin
        servos = (servo("tilt", 1.7453),)
        each_n = 0.5 * max(lift_n, push_n)
        motors = [motor(name, place, axis, each_n, "tilt") for name, place, axis in pair]
        motors += [
            motor("tail", (stern_m, 0.0, 0.5 * low_m), right, chance.uniform(0.5, 1) * each_n)
        ]
    elif layout == "cross":  # as GT-MAB
        motors = [motor(name, place, axis, push_n) for name, place, axis in pair]
        motors += [
            motor("front", (arm_m, 0.0, low_m), right, push_n),
            motor("rear", (-arm_m, 0.0, low_m), right, push_n),
            motor(*middle, lift_n),
        ]
    elif layout == "nose":  # as Blimp2b
        motors = [
            motor("front", (0.0, 0.0, low_m), ahead, 1.5 * push_n),
            motor("yaw", (stern_m, 0.0, 0.4 * low_m), (0.0, -1.0, 0.0), push_n),
            motor(*middle, lift_n),
        ]
    else:
        motors = [motor(name, place, axis, push_n) for name, place, axis in pair]
        if layout == "pair":
            motors += [motor(*middle, lift_n)]
        else:
            reach_m = 0.15 * ship.hull.length_m
            motors += [
                motor("lift-front", (reach_m, 0.0, low_m), up, 0.5 * lift_n),
                motor("lift-rear", (-reach_m, 0.0, low_m), up, 0.5 * lift_n),
            ]
    return tuple(motors), servos, fins


def _sensors(chance: Random, current_a: float) -> Sequence[Device]:
    """Draw one of each kind, and a second source of height and of place sometimes."""
    power = next((row for most_a, row in POWERS if current_a + 0.3 <= most_a), POWERS[-1][1])
    rows: list[dict[str, Any]] = [
        {"name": "power", "bus": "i2c-1", **power},
        {"name": "imu", "rate_hz": 100.0, **chance.choice(IMUS)},
        {
            "name": "baro", "bus": "i2c-1", "address": chance.choice([0x76, 0x77]),
            "rate_hz": chance.choice([10.0, 25.0, 50.0]), **chance.choice(BAROS),
        },
    ]  # fmt: skip
    heights = chance.sample(HEIGHTS, k=chance.choice([1, 1, 2]))
    rows += {row["name"]: row for row in heights}.values()
    places = chance.sample(PLACES, k=chance.choice([1, 1, 2]))
    rows += ({"bus": "serial", **row} for row in {row["name"]: row for row in places}.values())
    return [msgspec.convert(row, Device) for row in rows]


def _drivers(thrusters: Sequence[Thruster], servos: Sequence[Servo]) -> Sequence[Device]:
    names = [thruster.name for thruster in thrusters]
    pairs = [names[k : k + 2] for k in range(0, len(names), 2)]
    rows: list[dict[str, Any]] = [
        {
            "name": f"motors-{k + 1}", "chip": "drv8833", "bus": "gpio",
            "pins": {p: v for p, v in BRIDGES[k].items() if p[0] != "b" or len(pair) == 2},
            "outputs": dict(zip("ab", pair, strict=False)),
        }
        for k, pair in enumerate(pairs)
    ]  # fmt: skip
    if servos:
        outputs = {str(k): servo.name for k, servo in enumerate(servos)}
        rows += [
            {
                "name": "servos",
                "chip": "pca9685",
                "bus": "i2c-1",
                "address": 0x40,
                "outputs": outputs,
            }
        ]
    return [msgspec.convert(row, Device) for row in rows]
