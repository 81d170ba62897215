"""Wires before a flight: `python -m benchmarks.wires healthy|miswired --ships N --jobs N`.

healthy: nothing is wrong, and nothing may be named. miswired: one thing is wired otherwise (KINDS),
and must be named. Drawn are the ship (a known airframe, or every other time a random one), thrust
(x 0.8 to 1.2, each x 0.94 to 1.06), weight, wind to 0.3 m/s, and what holds it: a person
or a string. Not sure, a person does as the check says: on a string, twice more at the most.

One JSON line a ship, then a table. The draw depends on --seed and the number alone. Simulated, in
Lockstep. Exit status: 1 if something was named wrongly.
"""

import argparse
import sys
from functools import partial
from multiprocessing import Pool
from random import Random
from typing import Any

import msgspec

from benchmarks.random_ship import random_ship
from blimp import airframe as airframes
from blimp.airframe import Airframe, Device, Thruster
from blimp.rotation import from_euler
from blimp.service.airframes.check import check as check_airframe
from blimp.ship.lockstep import Lockstep
from blimp.sim.grip import by_person, on_string
from blimp.wires.wrong import Wrong

KINDS = ("reversed", "swapped", "propeller", "other way", "mounted")
MORE = ("dead", "weak")
FLAT = ("x", "-y", "-z")
SHIPS = [name for name in airframes.names() if check_airframe(airframes.load(name)).ok]
HELD_M = 1.5
WIND_MPS = 0.3
TRIES = 3
CHECK_S = 200.0
TILT_RAD = 0.05  # as a person holds it, or a string


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """outcome: "right", "named", "not sure", or what was wrong with that."""

    number: int
    airframe: str
    kind: str
    true: tuple[str, ...]
    holds: tuple[str, ...]
    outcome: str
    said: str


def draw(number: int, *, seed: int, kinds: tuple[str, ...]) -> tuple[Airframe, Airframe, str, Any]:
    """Return the ship as its file has it and as it is, what is wrong with it, and the chance."""
    chance = Random(f"wires:{seed}:{number}:{bool(kinds)}")
    kind = chance.choice(kinds) if kinds else ""
    while True:
        ship = _ship(chance)
        if kind != "other way" or any(t.tilted_by for t in ship.thruster):
            break
    common = chance.uniform(0.8, 1.2)
    thrusters = tuple(_scaled(t, common * chance.uniform(0.94, 1.06)) for t in ship.thruster)
    heavy_kg = chance.uniform(-0.02, 0.02) * ship.mass_kg
    plant = msgspec.structs.replace(
        ship,
        thruster=thrusters,
        hull=msgspec.structs.replace(ship.hull, helium_purity=None),
        mass=msgspec.structs.replace(
            ship.mass, item=(), heaviness_kg=ship.mass.heaviness_kg + heavy_kg
        ),
    )
    return ship, plant, kind, chance


def _ship(chance: Random) -> Airframe:
    while True:
        if chance.random() < 0.5:
            ship = airframes.load(chance.choice(SHIPS))
        else:
            ship = random_ship(chance.randrange(1_000_000, 2_000_000))
        if len(ship.thruster) > 1 and any(map(_is_imu, ship.device)):
            return bare(ship)


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


def swapped(plant: Airframe, one: str, other: str) -> Airframe:
    """Return the ship with the plugs of two outputs exchanged."""
    to = {one: other, other: one}
    devices = (
        msgspec.structs.replace(d, outputs={c: to.get(n, n) for c, n in d.outputs.items()})
        for d in plant.device
    )
    return msgspec.structs.replace(plant, device=tuple(devices))


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


def miswire(plant: Airframe, kind: str, chance: Random) -> tuple[Airframe, tuple[str, ...]]:
    """Return the ship with one thing wired otherwise, and what should be said of it."""
    one, other = chance.sample(plant.thruster_names, 2)
    if kind == "reversed":
        return backward(plant, one), (kind, one)
    if kind == "propeller":
        return backward(plant, one, chance.uniform(0.45, 0.75)), (kind, one)
    if kind == "dead":
        return _with_motor(plant, one, 1e-6), (kind, one)
    if kind == "weak":
        return _with_motor(plant, one, chance.uniform(0.3, 0.6)), (kind, one)
    if kind == "swapped":
        return swapped(plant, one, other), (kind, *sorted((one, other)))
    if kind == "other way":
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


def check(number: int, *, seed: int, kinds: tuple[str, ...]) -> Tried:
    """Try the wires of one ship, as often as the check asks for it."""
    ship, plant, kind, chance = draw(number, seed=seed, kinds=kinds)
    true: tuple[str, ...] = ()
    if kind:
        plant, true = miswire(plant, kind, chance)
    hold, holds, outcome, said = chance.choice((by_person, on_string)), [], "not sure", ""
    for _ in range(TRIES):
        at = chance.randrange(1_000_000)
        wind_mps = chance.uniform(0.0, WIND_MPS)
        with Lockstep(
            ship, seed=at, wind_mps=wind_mps, plant=plant, bench=True, rate_hz=50.0
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
        holds.append(hold.__name__)
        said = found.reason
        if found.result.get("sure"):
            outcome = judge(true, found.result)
            break
        hold = on_string
    return Tried(
        number=number, airframe=ship.name, kind=kind, true=true, holds=tuple(holds),
        outcome=outcome, said=said,
    )  # fmt: skip


def judge(true: tuple[str, ...], result: dict[str, Any]) -> str:
    """Return what a sure finding is worth."""
    named = [(kind, *sorted(names)) for kind, names in result["wrong"]]
    if result["mounting"]:
        named = [(*named[0], *result["mounting"])]
    backward = {Wrong.REVERSED, Wrong.PROPELLER}
    if not true:
        return "accused" if named else "right"
    if named == [true]:
        return "named"
    if len(named) == 1 and named[0][1:] == true[1:] and {named[0][0], true[0]} <= backward:
        return "named"  # both sentences name the propeller, and the way it pushes
    return f"wrongly named {named}" if named else "missed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("healthy", "miswired", "more"))
    parser.add_argument("--ships", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    kinds = {"healthy": (), "miswired": KINDS, "more": MORE}[options.kind]
    one = partial(check, seed=options.seed, kinds=kinds)
    tried: list[Tried] = []
    with Pool(options.jobs) as pool:
        numbers = range(options.first, options.first + options.ships)
        for each in pool.imap_unordered(one, numbers):
            tried.append(each)
            print(msgspec.json.encode(each).decode(), flush=True)
    for kind in ("", *sorted({each.kind for each in tried} - {""})):
        some = [each for each in tried if not kind or each.kind == kind]
        counts: dict[str, int] = {}
        for each in some:
            label = each.outcome.partition(" [")[0]
            counts[label] = counts.get(label, 0) + 1
        first = sum(len(each.holds) == 1 and each.outcome != "not sure" for each in some)
        print(
            f"{kind or 'all':12}{len(some):5}  {counts}, {first} at the first try", file=sys.stderr
        )
    wrong = any(each.outcome not in ("right", "named", "not sure") for each in tried)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
