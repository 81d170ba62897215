"""What a controller that knows everything could do after a failure: the oracle of the campaigns.

It knows the plant, what has failed and the wind; it needs no sensor, and a driver that can be put
to sleep stops what runs by itself. Its bounds are hopeful: place and height are not asked for at
once, no yaw is asked for, and the wind blows without gusts. So what it cannot do no controller can.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import hypot

import msgspec

from blimp.ability import brakes, drag_speed
from blimp.airframe import Airframe, Thruster
from blimp.ship.failures import Failure
from blimp.ship.lockstep import Lockstep
from blimp.sim.atmosphere import GRAVITY_MPS2
from blimp.sim.chips.bridge import Bridge
from blimp.sim.electronics import twin

_STEPS = 90  # of a servo's travel: two degrees of half a turn

Fixed = Mapping[str, float]  # thrusts, N, and angles, rad, that no command changes


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The most of each alone, N: down, up, and sideways whichever way.

    heavy_n: weight less buoyancy, below 0 of a light ship. wind_n: the mean wind's drag on a ship
    at rest, nose or side to it, whichever is less. grip_n: of the ground on it, pressed down.
    """

    down_n: float
    up_n: float
    aside_n: float
    heavy_n: float
    wind_n: float
    wind_mps: float
    grip_n: float
    height_m: float
    heave: tuple[float, float]  # linear and quadratic drag
    surge: tuple[float, float]

    def hopeless(self, *, far_m: float, hard_mps: float, seconds: float) -> str:
        """Return why nobody brings this ship down and keeps it there, "" if somebody might.

        far_m, hard_mps: the distance and the touchdown that are too much. seconds: it must stay.
        """
        sinks_n = self.down_n + self.heavy_n
        if sinks_n <= 0.0:
            return f"light by {-self.heavy_n:.3f} N, pushed down by {self.down_n:.3f} N at most"
        least_mps = drag_speed(self.heavy_n - self.up_n, *self.heave)
        if self.height_m > 0.0 and least_mps > hard_mps:
            return (
                f"heavy by {self.heavy_n:.3f} N, lifted by {self.up_n:.3f} N at most: it sinks "
                f"at {least_mps:.2f} m/s"
            )
        if self.aside_n >= self.wind_n:
            return ""
        drifts_mps = self.wind_mps - drag_speed(self.aside_n, *self.surge)
        falls_s = self.height_m / max(drag_speed(sinks_n, *self.heave), 1e-9)
        stands_n = self.aside_n + self.grip_n
        slides_mps = max(0.0, self.wind_mps - drag_speed(stands_n, *self.surge))
        off_m = drifts_mps * falls_s + slides_mps * max(0.0, seconds - falls_s)
        if off_m > far_m:
            return (
                f"pushed aside by {self.wind_n:.3f} N of wind, and pushes {self.aside_n:.3f} N at "
                f"most: {off_m:.0f} m off after {seconds:.0f} s"
            )
        return ""


def bounds(ship: Lockstep, failure: Failure, *, wind_mps: float) -> Bounds:
    """Return what could be done with this ship if that failed now; nothing is changed."""
    plant, physics = ship.world.airframe, ship.world.physics
    heavy_n = GRAVITY_MPS2 * (physics.heaviness_kg + failure.load * physics.displaced_kg)
    down_n = up_n = -float("inf")
    aside_n = 0.0
    for fixed in _fixed(ship, failure):
        for angles in _angles(plant, fixed):
            ways = [t.axis_at(angles.get(t.tilted_by, 0.0)) for t in plant.thruster]
            ranges = [_range_n(thruster, fixed) for thruster in plant.thruster]
            axes = tuple(zip(ways, ranges, strict=True))
            down_n = max(down_n, sum(max(low * z, high * z) for (_, _, z), (low, high) in axes))
            up_n = max(up_n, sum(max(-low * z, -high * z) for (_, _, z), (low, high) in axes))
            for thrusts in product(*ranges):
                x = sum(n * way[0] for n, way in zip(thrusts, ways, strict=True))
                y = sum(n * way[1] for n, way in zip(thrusts, ways, strict=True))
                aside_n = max(aside_n, hypot(x, y))
    ground = plant.ground
    pressed_n = max(0.0, down_n + heavy_n)
    return Bounds(
        down_n=down_n,
        up_n=up_n,
        aside_n=aside_n,
        heavy_n=heavy_n,
        wind_n=min(_drag_n(plant, axis, wind_mps) for axis in (0, 1)),
        wind_mps=wind_mps,
        grip_n=ground.friction * pressed_n + ground.grip_n,
        height_m=max(0.0, physics.height_above_ground_m),
        heave=brakes(plant, 2),
        surge=brakes(plant, 0),
    )


def _fixed(ship: Lockstep, failure: Failure) -> Iterator[Fixed]:
    """Yield what cannot be commanded: with every driver awake, and with each that can asleep."""
    frame, physics = ship.airframe, ship.world.physics
    rows = {row.name: row for row in frame.device}
    drivers = {name: row for row in frame.device for name in row.outputs.values()}
    now = dict(zip(frame.thruster_names, physics.thrusts_n, strict=True))
    now |= dict(zip(frame.servo_names, physics.servo_angles_rad, strict=True))
    full = {t.name: _full_n(t) for t in ship.world.airframe.thruster}
    fixed: dict[str, float] = {}
    for fault in failure.faults:
        for name, driver in drivers.items():
            if fault.kind == "stuck" and fault.output == name:
                value = float(fault.options["value"])
                fixed[name] = abs(value) * full[name][value > 0.0] if name in full else value
            elif (
                fault.kind == "bus_stuck" and rows[fault.device].bus == driver.bus
            ) or fault.device == driver.name:
                fixed[name] = now[name]
    bridges = {  # a pin puts them to sleep, whatever their faults
        drivers[name].name
        for name in fixed
        if name in full and issubclass(twin(drivers[name].chip), Bridge)
    }
    for asleep in product((False, True), repeat=len(bridges)):
        sleeping = {
            bridge for bridge, sleeps in zip(sorted(bridges), asleep, strict=True) if sleeps
        }
        yield fixed | {n: 0.0 for n in full if drivers[n].name in sleeping}


def _angles(plant: Airframe, fixed: Fixed) -> Iterator[Mapping[str, float]]:
    """Yield the angles of the servos that tilt a thruster, all through their travel."""
    tilting = {t.tilted_by for t in plant.thruster if t.tilted_by}
    servos = [servo for servo in plant.servo if servo.name in tilting]
    steps = max(8, _STEPS // max(1, len(servos)) ** 2)  # several servos: coarser, but all of them
    shares = [k / steps for k in range(steps + 1)]
    travel = [
        [fixed[s.name]]
        if s.name in fixed
        else [s.min_rad + share * (s.max_rad - s.min_rad) for share in shares]
        for s in servos
    ]
    for angles in product(*travel):
        yield {s.name: angle for s, angle in zip(servos, angles, strict=True)}


def _full_n(thruster: Thruster) -> tuple[float, float]:
    true = 1.0 + thruster.asymmetry
    return -true * thruster.reverse_thrust_n, true * thruster.max_thrust_n


def _range_n(thruster: Thruster, fixed: Fixed) -> tuple[float, float]:
    if thruster.name in fixed:
        return fixed[thruster.name], fixed[thruster.name]
    return _full_n(thruster)


def _drag_n(plant: Airframe, axis: int, speed: float) -> float:
    linear, quadratic = brakes(plant, axis)
    return speed * (linear + quadratic * speed)
