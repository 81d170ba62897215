"""Wires before a flight: `python -m benchmarks.wires healthy|miswired --flights N --jobs N`.

healthy: nothing is wrong, and nothing may be named. miswired: one thing is wired otherwise (KINDS),
and must be named. Drawn are the ship (half of them known, half random), thrust (x 0.8 to 1.2, each
x 0.94 to 1.06), weight, wind to 0.3 m/s, and what holds it: a person or a string. Not sure, a
person does as the check says: on a string, twice more at the most.

Draw, lines, table and options are those of `benchmarks.campaign`. Simulated, in Lockstep. Exit
status: 1 if something was named wrongly.
"""

import sys
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec

from benchmarks import campaign
from benchmarks.campaign import (
    Draw,
    Flown,
    draw_plant,
    load_ship,
    plant_of,
    swapped,
    wind_limit_mps,
)
from blimp import airframe as airframes
from blimp.airframe import Airframe, Device, Thruster
from blimp.rotation import from_euler
from blimp.service.airframes.check import check as check_airframe
from blimp.ship.lockstep import Lockstep
from blimp.sim.grip import by_person, on_string
from blimp.wires.wrong import Wrong

KINDS = (Wrong.REVERSED, Wrong.SWAPPED, Wrong.PROPELLER, Wrong.OTHER_WAY, Wrong.MOUNTED)
MORE = (Wrong.DEAD, Wrong.WEAK)
FLAT = ("x", "-y", "-z")
HELD_M = 1.5
WIND_MPS = 0.3
TRIES = 3
CHECK_S = 200.0
TILT_RAD = 0.05  # as a person holds it, or a string


def choose_ships(names: str = "", drawn: int = 0, *, seed: int) -> list[str]:
    """Return the ships of `names` and `drawn` ones; by default all known and as many drawn."""
    if not names and not drawn:
        known = [name for name in airframes.names() if check_airframe(airframes.load(name)).ok]
        names, drawn = ",".join(known), len(known)
    return campaign.choose_ships(names, drawn, seed=seed)


def draw(
    number: int, *, seed: int, ships: Sequence[str], watch_s: float, kinds: tuple[Wrong, ...]
) -> Draw:
    chance = Random(f"wires:{seed}:{number}:{bool(kinds)}")
    wrong = chance.choice(kinds) if kinds else None
    fitting = [name for name in ships if _fits(load_ship(name), wrong)]
    return draw_plant(
        chance, chance.choice(fitting), wind_mps=WIND_MPS, thrust_scale=chance.uniform(0.8, 1.2),
        wrong=wrong, watch_s=watch_s,
    )  # fmt: skip


def _fits(ship: Airframe, wrong: Wrong | None) -> bool:
    tilts = any(thruster.tilted_by for thruster in ship.thruster)
    is_checked = len(ship.thruster) > 1 and any(map(_is_imu, ship.device))
    return is_checked and (tilts or wrong is not Wrong.OTHER_WAY)


def _scaled(thruster: Thruster, share: float, *, backward: bool = False) -> Thruster:
    ahead_n, back_n = share * thruster.max_thrust_n, share * thruster.reverse_thrust_n
    if not backward:
        return msgspec.structs.replace(thruster, max_thrust_n=ahead_n, reverse_thrust_n=back_n)
    return msgspec.structs.replace(
        thruster,
        axis=tuple(-x for x in thruster.axis),
        max_thrust_n=back_n or 0.6 * ahead_n,
        reverse_thrust_n=ahead_n if back_n else 0.0,
        dead_band=thruster.reverse_dead_band,
        reverse_dead_band=thruster.dead_band,
    )


def backward(plant: Airframe, motor: str, share: float = 1.0) -> Airframe:
    """Return the ship with this motor reversed, at a share of its thrust."""
    return _with_motor(plant, motor, share, backward=True)


def servo_reversed(plant: Airframe, name: str) -> Airframe:
    servos = (
        msgspec.structs.replace(s, min_pulse_s=s.max_pulse_s, max_pulse_s=s.min_pulse_s)
        if s.name == name
        else s
        for s in plant.servo
    )
    return msgspec.structs.replace(plant, servo=tuple(servos))


def mounted(plant: Airframe, *axes: str) -> Airframe:
    """Return the ship whose IMU has these chip axes forward, right and down."""
    devices = (
        msgspec.structs.replace(d, options={**d.options, "mounting": axes}) if _is_imu(d) else d
        for d in plant.device
    )
    return msgspec.structs.replace(plant, device=tuple(devices))


def bare(ship: Airframe) -> Airframe:
    """Return the ship without the sensors that the check does not read, for speed."""
    devices = tuple(d for d in ship.device if d.outputs or _is_imu(d))
    return msgspec.structs.replace(ship, device=devices)


def _is_imu(device: Device) -> bool:
    return device.name == "imu"


def _with_motor(plant: Airframe, name: str, share: float, *, backward: bool = False) -> Airframe:
    thrusters = (
        _scaled(t, share, backward=backward) if t.name == name else t for t in plant.thruster
    )
    return msgspec.structs.replace(plant, thruster=tuple(thrusters))


def miswire(plant: Airframe, kind: Wrong, chance: Random) -> tuple[Airframe, tuple[str, ...]]:
    """Return the ship with one thing wired otherwise, and what should be said of it."""
    one, other = chance.sample(plant.thruster_names, 2)
    if kind is Wrong.REVERSED:
        return backward(plant, one), (kind, one)
    if kind is Wrong.PROPELLER:
        return backward(plant, one, chance.uniform(0.45, 0.75)), (kind, one)
    if kind is Wrong.DEAD:
        return _with_motor(plant, one, 1e-6), (kind, one)
    if kind is Wrong.WEAK:
        return _with_motor(plant, one, chance.uniform(0.3, 0.6)), (kind, one)
    if kind is Wrong.SWAPPED:
        return swapped(plant, one, other), (kind, *sorted((one, other)))
    if kind is Wrong.OTHER_WAY:
        name = chance.choice(sorted({t.tilted_by for t in plant.thruster} - {""}))
        return servo_reversed(plant, name), (kind, name)
    imu = next(d for d in plant.device if _is_imu(d))
    file = tuple(imu.options.get("mounting", FLAT))
    while True:
        axes = [("-" if chance.random() < 0.5 else "") + axis for axis in chance.sample("xyz", 3)]
        if tuple(axes) != file and _is_rotation(axes):
            return mounted(plant, *axes), (kind, imu.name, *axes)


def _is_rotation(axes: list[str]) -> bool:
    order = [axis.lstrip("-") for axis in axes]
    even = "".join(order) in {"xyz", "yzx", "zxy"}
    return even is (sum(axis.startswith("-") for axis in axes) % 2 == 0)


def fly(draw: Draw) -> Flown:
    """Try the wires of one ship, as often as the check asks for it."""
    ship, chance = bare(load_ship(draw.airframe)), Random(draw.seed)
    plant = plant_of(ship, draw)
    each = tuple(_scaled(t, chance.uniform(0.94, 1.06)) for t in plant.thruster)
    plant = msgspec.structs.replace(plant, thruster=each)
    true: tuple[str, ...] = ()
    if draw.wrong is not None:
        plant, true = miswire(plant, draw.wrong, chance)
    hold, outcome, tries, hours = chance.choice((by_person, on_string)), "not sure", 0, 0.0
    while outcome == "not sure" and tries < TRIES:
        at, tries = chance.randrange(1_000_000), tries + 1
        with Lockstep(
            ship, seed=at, wind_mps=draw.wind_mps, plant=plant, bench=True, rate_hz=50.0
        ) as lockstep:
            physics = lockstep.world.physics
            tilt = (chance.gauss(0.0, TILT_RAD), chance.gauss(0.0, TILT_RAD))
            physics.place(
                position_ned_m=(0.0, 0.0, -HELD_M),
                attitude=from_euler(*tilt, 0.0) if hold is by_person else from_euler(0.0, 0.0, 0.0),
            )
            physics.grip = hold(plant, physics.state, seed=at)
            lockstep.step(2.0)
            found = lockstep.complete("wires", within_s=CHECK_S, check=False)
            hours += lockstep.now_s / 3600.0
        if found.result.get("sure"):
            outcome = judge(true, found.result)
        hold = on_string
    return Flown(
        draw=draw,
        bad=(outcome, f"{draw.wrong or 'healthy'} {outcome}", *["first try"][: tries == 1]),
        outcome=f"{' '.join(true)}: {outcome}, try {tries}",
        hours=round(hours, 5),
        said=(found.reason,),
        wind_limit_mps=round(wind_limit_mps(plant), 3),
    )


def judge(true: tuple[str, ...], result: dict[str, Any]) -> str:
    """Return what a sure finding is worth."""
    named = [(kind, *sorted(names)) for kind, names in result["wrong"]]
    if result["mounting"]:
        named = [(*named[0], *result["mounting"])]
    backward = {Wrong.REVERSED, Wrong.PROPELLER}
    if not true:
        return "accused" if named else "right"
    if named == [true]:
        return "right"
    if len(named) == 1 and named[0][1:] == true[1:] and {named[0][0], true[0]} <= backward:
        return "right"  # both sentences name the propeller, and the way it pushes
    return "wrong" if named else "missed"


def main(arguments: Sequence[str] | None = None) -> int:
    some = {"healthy": (), "miswired": KINDS, "more": MORE}
    kinds = {name: (partial(draw, kinds=wrongs), fly) for name, wrongs in some.items()}
    return campaign.main(
        arguments, module="benchmarks.wires", doc=__doc__ or "", kinds=kinds, choose=choose_ships
    )


if __name__ == "__main__":
    sys.exit(main())
