"""`blimp tune auto`: a short flight that shows what the ship is, and the gains that suit it.

A hovering ship is sent along one axis at a time, there and back, inside a small box: with surge,
sway, heave and yaw. It is a trajectory of AUTO, sent a few seconds ahead: if this program ends, the
ship holds. It is watched ten times a second, and holds once it leaves the box, a failsafe
acts or its time is over; who takes the ship over keeps it. `blimp/service/tune/identify.py` then
makes the plant of what was recorded. Nothing of the ship is changed.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import cos, degrees, hypot, pi, radians, sin, sqrt
from pathlib import Path
from secrets import token_hex

import msgspec

from blimp.airframe import Airframe
from blimp.errors import BlimpError, LogError
from blimp.recording.recording import open_recording
from blimp.service.bench.ship import BenchShip
from blimp.service.tune.identify import Identified, Parameter, identify, thrusts
from blimp.types import OutcomeState, Snapshot
from ground_station.trajectory import ReferenceCurve, chunks

STEP_M = 0.6  # along an axis, from where it hovers
CLIMB_M = 0.4
TURN_RAD = radians(60.0)
BOX_M = 1.2  # to each side of that place, and as far up and down
LOWEST_M = 0.8  # it never goes below, nor above the limits of the airframe
SHARE = 0.7  # of the airframe's limits of speed and acceleration
PAUSE_S = 1.0
MAX_S = 300.0
_AHEAD_S = 4.0  # of the path are with the ship: it holds at their end
_LOOK_S = 0.1
_POINT_S = 0.1


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A gain with which the ship would answer as its file says, and one standard deviation."""

    name: str
    file: float
    proposed: float
    sigma: float


def excite(ship: BenchShip, airframe: Airframe, *, steers: bool) -> float:
    """Fly the legs around the present place; return how many seconds they took.

    steers: it has no side force, so no leg goes sideways. Raises BlimpError if the ship does not
    hover, or if the flight was broken off; then the ship holds, or flies as its new pilot says.
    """
    start = ship.snapshot()
    curve = path(start, airframe, steers=steers)
    parts = chunks(f"tune-{token_hex(4)}", curve.points())
    began_s = start.t_s
    try:
        for part in parts:
            _watch(ship, start, began_s, until_s=part["points"][0][0] - _AHEAD_S)
            outcome = ship.command("trajectory", **part)
            if outcome.state is OutcomeState.REFUSED:
                raise BlimpError(f"the ship refused: {outcome.reason}")
        _watch(ship, start, began_s, until_s=curve.duration_s)
    except BaseException:
        with suppress(BlimpError):  # a flight process that is gone flies nothing
            now = ship.snapshot()
            if now.mode == "AUTO" or now.failsafe:  # else somebody has taken the ship over
                ship.command("hold")  # what it flies after the failsafe, too
        raise
    ship.command("hold")
    return ship.snapshot().t_s - began_s


def path(start: Snapshot, airframe: Airframe, *, steers: bool) -> ReferenceCurve:
    """Return the legs from where it hovers. Raises BlimpError if it does not, or has no room."""
    if not start.armed or start.failsafe or start.mode not in ("HOLD", "LOITER"):
        said = start.failsafe or ("armed" if start.armed else "disarmed")
        raise BlimpError(f"the ship is in {start.mode}, {said}: let it hover in HOLD first")
    limits = airframe.limits
    room_m = min(start.altitude_m - LOWEST_M, limits.max_altitude_m - start.altitude_m)
    if room_m < CLIMB_M:
        raise BlimpError(
            f"the ship hovers at {start.altitude_m:.1f} m: tuning takes {CLIMB_M:g} m up and down "
            f"of it, within {LOWEST_M:g} to {limits.max_altitude_m:g} m"
        )
    north_m, east_m, down_m = start.position_ned_m
    yaw_rad = start.attitude_rad.yaw
    ahead, aside = (cos(yaw_rad), sin(yaw_rad)), (-sin(yaw_rad), cos(yaw_rad))
    legs = [(STEP_M * ahead[0], STEP_M * ahead[1], 0.0, 0.0)]
    if not steers:
        legs.append((STEP_M * aside[0], STEP_M * aside[1], 0.0, 0.0))
    legs += [(0.0, 0.0, -CLIMB_M, 0.0), (0.0, 0.0, 0.0, TURN_RAD)]
    here = (north_m, east_m, down_m, yaw_rad)
    rows: list[tuple[float, ...]] = [(0.0, *here)]
    for leg in legs:
        for share, to in ((0.0, 1.0), (1.0, -1.0), (-1.0, 0.0)):
            rows += _move(rows[-1][0], here, leg, share, to, airframe)
    return ReferenceCurve(rows)


def _move(
    t_s: float,
    here: tuple[float, ...],
    leg: tuple[float, ...],
    start: float,
    end: float,
    airframe: Airframe,
) -> Iterator[tuple[float, ...]]:
    """Yield the rows from one share of a leg to another, by a cosine, and of the pause behind."""
    limits = airframe.limits
    speeds = (limits.speed_mps, min(limits.climb_mps, limits.descent_mps), limits.yaw_rate_radps)
    far = abs(end - start)
    sizes = (far * hypot(leg[0], leg[1]), far * abs(leg[2]), far * abs(leg[3]))
    seconds = max(
        0.5 * pi * size / (SHARE * speed) for size, speed in zip(sizes, speeds, strict=True)
    )
    length_m = hypot(sizes[0], sizes[1])
    seconds = max(seconds, sqrt(0.5 * pi**2 * length_m / (SHARE * limits.acceleration_mps2)))
    count = max(1, round(seconds / _POINT_S))
    for k in range(1, count + 1):
        share = start + (end - start) * 0.5 * (1.0 - cos(pi * k / count))
        yield (t_s + seconds * k / count, *(a + share * b for a, b in zip(here, leg, strict=True)))
    yield (t_s + seconds + PAUSE_S, *(a + end * b for a, b in zip(here, leg, strict=True)))


def _watch(ship: BenchShip, start: Snapshot, began_s: float, *, until_s: float) -> None:
    """Let the ship fly until so long after the beginning. Raises BlimpError if it must not."""
    while True:
        now = ship.snapshot()
        flown_s = now.t_s - began_s
        reason = _wrong(now, start, flown_s)
        if reason:
            raise BlimpError(f"tuning broken off after {flown_s:.0f} s: {reason}")
        if flown_s >= until_s:
            return
        ship.step(_LOOK_S)


def _wrong(now: Snapshot, start: Snapshot, flown_s: float) -> str:
    offs = [a - b for a, b in zip(now.position_ned_m, start.position_ned_m, strict=True)]
    if not now.armed:
        return "the ship is disarmed"
    if now.boot_id != start.boot_id:
        return "another flight process runs"
    if now.failsafe:
        return now.failsafe
    if now.mode not in ("AUTO", start.mode):
        return f"the ship was taken over: it is in {now.mode}"
    if hypot(offs[0], offs[1]) > BOX_M or abs(offs[2]) > BOX_M:
        return (
            f"the ship left its box: {hypot(offs[0], offs[1]):.1f} m aside and {-offs[2]:+.1f} m "
            f"up, the limit is {BOX_M:g} m"
        )
    return f"{MAX_S:g} s are over" if flown_s > MAX_S else ""


# --- what it says of the ship --------------------------------------------------------------------


def newest_log(directory: Path, boot_id: str) -> Path:
    """Return the log that this flight process is recorded in. Raises LogError."""
    for path in sorted(directory.glob("*.mcap"), reverse=True):
        with suppress(LogError), open_recording(path, alone=True) as log:
            if log.session.boot_id == boot_id:
                return path
    raise LogError(
        f"log directory {directory}: no log of this flight; is `blimp log record` running?"
    )


def proposals(found: Identified, airframe: Airframe) -> tuple[Proposal, ...]:
    """Return the gains with which the ship accelerates as its file's gains ask.

    They multiply the file's mass, and the ship gives thrust x of what it is asked for: gains go
    with mass over thrust. None of an axis whose thrust the flight has not shown.
    """
    known = {one.name: one for one in found.parameters}
    gains, added = airframe.gains, airframe.aero.added_mass_kg
    axes = thrusts(airframe)
    ship_kg = airframe.mass_kg
    rows = (
        ("velocity_p", gains.velocity_p, "added_mass_surge", ship_kg, added[0], "x"),
        ("climb_p", gains.climb_p, "added_mass_heave", ship_kg, added[2], "z"),
        ("yaw_rate_p", gains.yaw_rate_p, "inertia_yaw", 0.0, 1.0, "y"),
    )
    found_gains = []
    for name, gain, mass, own, moved, axis in rows:
        thrust = known[f"thrust_{axis if axis in axes else 'x'}"]
        if mass in known and thrust.excited:
            found_gains.append(_proposal(name, gain, known[mass], thrust, own, moved))
    return tuple(found_gains)


def _proposal(
    name: str, gain: float, one: Parameter, thrust: Parameter, own: float, moved: float
) -> Proposal:
    mass = (own + moved * one.found) / (own + moved)
    of_mass = one.sigma * moved / (own + moved) / mass
    proposed = gain * mass / thrust.found
    sigma = proposed * hypot(of_mass, thrust.sigma / thrust.found)
    return Proposal(name=name, file=gain, proposed=round(proposed, 3), sigma=round(sigma, 3))


def tune(
    ship: BenchShip,
    airframe: Airframe,
    *,
    log: Callable[[str], Path],
    steers: bool,
    say: Callable[[str], object],
) -> Identified:
    """Fly, then say what the flight has shown. log: where the flight process is recorded."""
    start = ship.snapshot()
    seconds = path(start, airframe, steers=steers).duration_s
    say(
        f"{start.vehicle}: {seconds:.0f} s within {BOX_M:g} m of here; {STEP_M:g} m along, "
        f"{CLIMB_M:g} m up and down, {degrees(TURN_RAD):.0f} degrees to each side"
    )
    if all(device.chip != "mocap" for device in airframe.device):
        say(
            "warning: without motion capture a flight as short as this shows little beside the "
            "tag's noise; compare two flights before you write it into the file"
        )
    excite(ship, airframe, steers=steers)
    say("flown, and holding; now the estimate, which takes a minute or more")
    return identify([log(start.boot_id)], airframe=airframe, since_s=start.t_s)
