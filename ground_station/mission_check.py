"""Can this ship fly this mission? Asked before anything is sent, answered with the numbers."""

from collections.abc import Callable, Iterator
from math import dist, hypot
from typing import Any

import msgspec

from blimp.ability import RESERVE, Ability, PayloadServo
from blimp.actions import Payload
from blimp.airframe import Home
from blimp.errors import MissionError
from ground_station.legs import ActionLeg, Goto, Leg, Return, Takeoff, Velocity, legs_with_ends
from ground_station.mission_file import Mission, load_mission
from ground_station.track import Place

SAME_PAD_M = 3.0  # the error of a GPS
_SETTLE_S = 8.0  # to turn, and to come to rest at the end of a leg
_TOUCHDOWN_S = 10.0
_EPSILON = 1e-6


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a mission takes in still air; the charge with its reserve."""

    duration_s: float
    charge_ah: float


def fitted(
    file: str, mission: Mission, limits: dict[str, Any], *, say: Callable[[str], object]
) -> Mission:
    """Return the mission as a ship of these `limits` flies it, once it can: see `judge`.

    A map's places stay where they are: if the pad is not at the file's home they are seen from
    the pad. limits: the result of the command of that name.
    """
    known = {k: v for k, v in limits.items() if k in Ability.__struct_fields__}
    ship = msgspec.convert(known, Ability)
    if mission.origin_deg is not None and ship.pad_deg is not None:
        latitude_deg, longitude_deg = mission.origin_deg
        home = Home(latitude_deg=latitude_deg, longitude_deg=longitude_deg, altitude_msl_m=0.0)
        off_m = hypot(*home.local_m(*ship.pad_deg))
        if off_m > SAME_PAD_M:
            say(f"ground: the pad is {off_m:.1f} m from the home in {file}")
            mission = load_mission(file, origin_deg=ship.pad_deg)
    judge(mission, ship)
    return mission


def judge(mission: Mission, ship: Ability) -> Estimate:
    """Return what the mission takes. Raises MissionError for what this ship cannot fly."""
    seconds = charge_as = 0.0
    for number, leg, here, there in legs_with_ends(mission.legs):
        for problem in _problems(leg, there, ship):
            raise MissionError(f"mission {mission.name}, leg {number} ({leg.do}): {problem}")
        moving_s, speed_mps = _time_s(leg, here, there, ship)
        wait_s = leg.wait_s or 0.0
        share = min(1.0, speed_mps / ship.speed_mps) ** 3  # of the power that drag takes
        moving_a = ship.hover_a + share * max(0.0, ship.cruise_a - ship.hover_a)
        seconds += moving_s + wait_s
        charge_as += moving_s * moving_a + wait_s * ship.hover_a
    found = Estimate(duration_s=seconds, charge_ah=(1.0 + RESERVE) * charge_as / 3600.0)
    if ship.usable_ah is not None and found.charge_ah > ship.usable_ah:
        raise MissionError(
            f"mission {mission.name}: takes {found.charge_ah:.2f} Ah in {seconds / 60.0:.0f} min, "
            f"{100.0 * RESERVE:.0f} % of reserve included; {ship.name} has {ship.usable_ah:.2f} Ah "
            "until its battery is low"
        )
    return found


def _problems(leg: Leg, there: Place | None, ship: Ability) -> Iterator[str]:
    """Yield what is beyond this ship, each with the number and the limit."""
    if isinstance(leg, Takeoff | Goto | Velocity) and there is not None:
        if there[2] > ship.max_altitude_m + _EPSILON:
            yield f"is at {there[2]:g} m, the ship's limit is {ship.max_altitude_m:g} m"
        distance_m = hypot(there[0], there[1])
        if distance_m > ship.max_distance_m + _EPSILON:
            limit_m = ship.max_distance_m
            yield f"is {distance_m:.1f} m from the pad, the ship's limit is {limit_m:g} m"
    if isinstance(leg, Goto) and (leg.speed_mps or 0.0) > ship.speed_mps + _EPSILON:
        yield f"flies at {leg.speed_mps:g} m/s, the ship's limit is {ship.speed_mps:g} m/s"
    if isinstance(leg, Velocity):
        speed_mps = hypot(leg.north_mps, leg.east_mps)
        if speed_mps > ship.speed_mps + _EPSILON:
            yield f"flies at {speed_mps:.2f} m/s, the ship's limit is {ship.speed_mps:g} m/s"
        if not -ship.descent_mps - _EPSILON <= leg.up_mps <= ship.climb_mps + _EPSILON:
            yield (
                f"climbs at {leg.up_mps:g} m/s, the ship's limits are {-ship.descent_mps:g} to "
                f"{ship.climb_mps:g} m/s"
            )
    if isinstance(leg, ActionLeg) and isinstance(leg.form, Payload):
        yield from _payload_problems(leg.form, ship.payload)


def _payload_problems(leg: Payload, servos: tuple[PayloadServo, ...]) -> Iterator[str]:
    known = ", ".join(f"{servo.name} (channel {servo.channel})" for servo in servos) or "none"
    found = [s for s in servos if leg.name == s.name or leg.channel == s.channel]
    if not found:
        what = leg.name if leg.name is not None else f"channel {leg.channel}"
        yield f"no payload servo {what!r}; it has {known}"
        return
    servo = found[0]
    if leg.deg is not None and not servo.min_deg <= leg.deg <= servo.max_deg:
        yield f"{leg.deg:g} degrees, the limits are {servo.min_deg:.1f} to {servo.max_deg:.1f}"
    low_us, high_us = servo.min_pulse_us, servo.max_pulse_us
    if leg.pulse_us is not None and not low_us <= leg.pulse_us <= high_us:
        yield f"{leg.pulse_us:g} us, the limits are {low_us:g} to {high_us:g}"


def _time_s(
    leg: Leg, here: Place | None, there: Place | None, ship: Ability
) -> tuple[float, float]:
    """Return for how long a leg moves the ship, and at what speed over ground."""
    if isinstance(leg, Velocity):
        return leg.seconds, hypot(leg.north_mps, leg.east_mps)
    if here is None or there is None or here == there:
        return (_SETTLE_S if leg.wait_s is None else 0.0), 0.0
    level_m, height_m = dist(here[:2], there[:2]), there[2] - here[2]
    speed_mps = leg.speed_mps if isinstance(leg, Goto) and leg.speed_mps else ship.speed_mps
    climb_mps = ship.climb_mps if height_m > 0.0 else ship.descent_mps
    if level_m < _EPSILON:
        climb_mps = min(climb_mps, ship.column_mps)
    settle_s = _SETTLE_S if isinstance(leg, Takeoff | Goto | Return) else _TOUCHDOWN_S
    return max(level_m / speed_mps, abs(height_m) / climb_mps) + settle_s, speed_mps
