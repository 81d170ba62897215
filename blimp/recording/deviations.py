"""How far a flight was from where it should be, and its estimate from the truth.

Values are of each cycle, or at the times of the truth; NaN where there is nothing to compare.
"""

from __future__ import annotations

from blimp.distribution import needing
from blimp.recording.flight_data import AXES, FlightData, Values

with needing("plot", "pictures need"):
    import numpy as np

_TURN_DEG = 360.0


def at_truth(flight: FlightData, name: str) -> Values:
    """Return estimate minus truth, at the times of the truth."""
    return flight.cycles.at(name, flight.truth.t_s) - flight.truth[name]


def flown(flight: FlightData, values: Values) -> Values:
    """Leave out the cycles in which nothing is controlled."""
    found: Values = np.where(flight.is_flown, values, np.nan)
    return found


def place_error(flight: FlightData) -> Values:
    """Return the horizontal distance from the setpoint, m, of each cycle; NaN without one."""
    c = flight.cycles
    found: Values = np.hypot(c["set_north"] - c["north"], c["set_east"] - c["east"])
    return found


def speed_error(flight: FlightData) -> Values:
    """Return the distance from the wanted velocity, m/s, along the axes that want no place."""
    c = flight.cycles
    square, is_known = np.zeros(len(c.t_s)), np.zeros(len(c.t_s), dtype=bool)
    for axis in AXES:  # one at a time: a flight of hours is long
        apart = c[f"set_v_{axis}"] - c[f"v_{axis}"]
        is_wanted = np.isnan(c[f"set_{axis}"]) & ~np.isnan(apart)
        square[is_wanted] += apart[is_wanted] ** 2
        is_known |= is_wanted
    found: Values = np.where(is_known, np.sqrt(square), np.nan)
    return found


def place_estimate_error(flight: FlightData) -> Values:
    """Return the horizontal distance of estimate and truth, m, at the times of the truth."""
    found: Values = np.hypot(at_truth(flight, "north"), at_truth(flight, "east"))
    return found


def height_estimate_error(flight: FlightData) -> Values:
    """Return estimated minus true height, m, at the times of the truth."""
    found: Values = -at_truth(flight, "down")
    return found


def unwrapped_deg(yaw_rad: Values) -> Values:
    """Return headings, degrees, that go on beyond 360 and below 0: no step at north."""
    found: Values = np.degrees(np.unwrap(yaw_rad))
    turns = int(found[0] // _TURN_DEG)
    return found - _TURN_DEG * turns


def beside_deg(yaw_rad: Values, heading_deg: Values) -> Values:
    """Return headings, degrees, each within half a turn of another one."""
    half = _TURN_DEG / 2
    found: Values = heading_deg + (np.degrees(yaw_rad) - heading_deg + half) % _TURN_DEG - half
    return found
