"""One ship as the page shows it: at one instant, and its shape."""

from collections.abc import Callable
from typing import Any

from blimp.ability import lacking, without
from blimp.airframe import Airframe
from blimp.types import VOTE_FRESH_S, Snapshot
from ground_station.report import status_object

EVENTS = 100  # the last happenings, for who opens the page later
POWER = "power"  # the sensor whose value is volts and amperes
PAST_S = 120.0  # of the plots
PAST_STEP_S = 0.5
# Of a state, what the plots show: panels/plots.js and lib/samples.js.
PLOTTED = (
    "t_s", "boot_id", "failsafe", "altitude_m", "target_ned_m", "velocity_ned_mps", "wind_ned_mps",
    "attitude_rad", "battery_v", "actuators", "servos", "votes", "step_ms",
)  # fmt: skip

# Called with a kind and its content, from any thread:
# "state", an object of `state_object`; "command", one of `Journeys`; "trouble", a text, "" for
# none; "caption", a text; "events" (see `event_object`), "trail", "commands" and "past", which is a
# list of `plotted`, all of them in place of the ones before; anything else reaches the panels as it
# is.
Hear = Callable[[str, Any], None]


def state_object(snapshot: Snapshot, age_s: float) -> dict[str, Any]:
    """Return the object of `ground --json status`, the age of each value, and what a picture needs.

    ages: seconds since the source of each value was last heard, for the field of that name.
    """
    power = snapshot.sensors.get(POWER)
    power_age_s = None if power is None or power.age_s is None else power.age_s + age_s
    health = snapshot.health
    return status_object(snapshot, age_s) | {
        "current_a": snapshot.current_a,
        "ages": {
            "mode": age_s,
            "armed": age_s,
            "altitude_m": age_s + health.height.age_s,
            "position_ned_m": age_s + health.position.age_s,
            "velocity_ned_mps": age_s + health.velocity.age_s,
            "attitude_rad": age_s + health.attitude.age_s,
            "battery_v": age_s if power_age_s is None else power_age_s,
            "actuators": age_s,
            "heaviness_kg": age_s,
            "wind_ned_mps": age_s + (snapshot.wind_age_s or 0.0),
            "loop": age_s,
        },
        "t_s": snapshot.t_s,
        "boot_id": snapshot.boot_id,
        "simulated": snapshot.simulated,
        "servos": snapshot.servos,
        "target_ned_m": snapshot.target_ned_m,
        "active_command": snapshot.active_command,
        "messages": snapshot.messages,
        "doubts": health.doubts,
        "votes": [
            {
                "of": of,
                "sensor": one.sensor,
                "off_m": one.innovation if one.age_s <= VOTE_FRESH_S else None,
                "agrees": one.agrees,
            }
            for of, quantity in (("height", health.height), ("position", health.position))
            for one in quantity.votes
        ],
        "link_age_s": snapshot.link_age_s,
        "deaf": snapshot.deaf,
        "pilot_age_s": snapshot.pilot_age_s,
        "heaviness_kg": snapshot.heaviness_kg,
        "wind_ned_mps": snapshot.wind_ned_mps,
        "step_ms": snapshot.loop.step_ms,
        "wakeup_error_ms": snapshot.loop.wakeup_error_ms,
        "cycles": snapshot.loop.cycles,
    }


def plotted(state: dict[str, Any]) -> dict[str, Any]:
    """Return what the plots show of a state: a tenth of it, to be kept for PAST_S."""
    return {name: state[name] for name in PLOTTED}


def airframe_object(airframe: Airframe) -> dict[str, Any]:
    """Return what the page needs of a ship: shape, limits (SI units), and which sensors it lacks.

    lacks: by what an action may need, as `x-needs` of the openapi has it, what does not measure it.
    """
    return {
        "name": airframe.name,
        "hull": airframe.hull,
        "thruster": airframe.thruster,
        "servo": airframe.servo,
        "surface": airframe.surface,
        "battery": airframe.battery,
        "limits": airframe.limits,
        "ground": airframe.ground,
        "lacks": {need: without(need) for need in lacking(airframe)},
    }
