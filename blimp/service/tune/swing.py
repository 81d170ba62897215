"""How fast the swing of a simulated ship decays, with the damping by thrust and without.

Flown in Lockstep: sensors, estimator, control and mixer are those that fly. The ship hovers, then
it is kicked, in pitch and in roll at once.
"""

from collections.abc import Callable
from math import degrees, e, hypot, sqrt
from pathlib import Path
from statistics import fmean

import msgspec

from blimp.airframe import Airframe
from blimp.errors import ConfigError, MissionError
from blimp.rotation import euler
from blimp.service.airframes.check import demand_airworthy
from blimp.ship.lockstep import Lockstep
from blimp.types import OutcomeState

HEIGHT_M = 2.0
HOVER_S = 10.0
KICK_RADPS = 0.4
WATCH_S = 20.0
_LOOK_S = 0.02
_REST_S = 10.0
_SIZE_INCHES, _DPI = (8.0, 4.0), 80


class Swing(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment. angles_deg: time, pitch and roll of the true ship, from the kick on.

    decay_s: when the swing was last above 1/e of its first. rest_deg: RMS of both in the last 10 s,
    which control and noise keep up. strayed_m: how far the ship got from its place.
    """

    damping: float
    decay_s: float
    rest_deg: float
    strayed_m: float
    angles_deg: tuple[tuple[float, float, float], ...]


def swing(
    airframe: Airframe,
    *,
    damping: float,
    seed: int = 1,
    progress: Callable[[float], object] = lambda _: None,
) -> Swing:
    """Hover in still air, kick the ship, and watch. Raises AirframeError or Refused if it cannot
    fly, MissionError if it does not take off.

    damping: in place of the airframe's `swing_damping`. progress: called with the share of the
    watch that is over, 0 to 1.
    """
    demand_airworthy(airframe)
    gains = msgspec.structs.replace(airframe.gains, swing_damping=damping)
    frame = msgspec.structs.replace(airframe, gains=gains)
    with Lockstep(frame, seed=seed) as ship:
        ship.command("arm")
        outcome = ship.complete("takeoff", within_s=60.0, altitude_m=HEIGHT_M)
        if outcome.state is not OutcomeState.DONE:
            raise MissionError(f"airframe {airframe.name}: not at {HEIGHT_M:g} m after 60 s")
        ship.command("hold")
        ship.step(HOVER_S)
        before = ship.truth
        place = before.position_ned_m
        ship.world.physics.place(
            position_ned_m=place,
            attitude=before.attitude,
            velocity_ned_mps=before.velocity_ned_mps,
            rates_body_radps=(KICK_RADPS, KICK_RADPS, 0.0),
        )
        rows, strayed_m = [], 0.0
        for k in range(round(WATCH_S / _LOOK_S)):
            ship.step(_LOOK_S)
            progress(_LOOK_S * (k + 1) / WATCH_S)
            truth = ship.truth
            roll, pitch, _ = euler(truth.attitude)
            rows.append((round(_LOOK_S * (k + 1), 2), degrees(pitch), degrees(roll)))
            north_m, east_m, _ = truth.position_ned_m
            strayed_m = max(strayed_m, hypot(north_m - place[0], east_m - place[1]))
    size = [hypot(pitch, roll) for _, pitch, roll in rows]
    rest = size[-round(_REST_S / _LOOK_S) :]
    return Swing(
        damping=damping,
        decay_s=_decay_s(size),
        rest_deg=round(sqrt(fmean(angle * angle for angle in rest)), 3),
        strayed_m=round(strayed_m, 3),
        angles_deg=tuple(rows),
    )


def _decay_s(size: list[float]) -> float:
    """Return when pitch and roll together were last above 1/e of their first swing."""
    first = max(size[: round(1.0 / _LOOK_S)])
    return round(_LOOK_S * max(k for k, angle in enumerate(size, 1) if angle > first / e), 2)


def draw(swings: list[Swing], path: Path, *, ship: str) -> None:
    """Write a PNG of them: needs the extra `plot`. Raises ConfigError if it cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    for column, angle in enumerate(("pitch", "roll"), start=1):
        axes = figure.add_subplot(1, 2, column)
        for one in swings:
            name = f"damped by {one.damping:g}" if one.damping else "not damped"
            times = [row[0] for row in one.angles_deg]
            axes.plot(times, [row[column] for row in one.angles_deg], label=name)
        axes.set(xlabel="s after the kick", ylabel=f"{angle}, degrees")
        axes.grid(visible=True)
        axes.legend()
    figure.suptitle(f"{ship} (simulated): swing")
    try:
        figure.savefig(path, dpi=_DPI)
    except (OSError, ValueError) as error:
        raise ConfigError(f"picture {path}: {error}") from error
