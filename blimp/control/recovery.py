"""Whether a ship whose flight process died is in the air, and comes down under power.

A light ship that restarts disarmed flies away. So its new flight process may land it, and only
that, if the old one left a record of a flight a moment ago and two sensors see the ship in the
air. docs/decisions/0030-resume-after-a-crash.md weighs it.
"""

from math import inf, isfinite

from blimp.airframe import Airframe
from blimp.constants import AIR_DENSITY_KGM3
from blimp.control.pressure import baro_height_m
from blimp.control.samples import role
from blimp.control.weight import a_weight, level_sigma_kg
from blimp.types import FlightRecord, RangeSample, SensorReadings

RESTART_S = 5.0  # a later start is an ordinary one: a person may hold the ship by then
DECIDE_S = 3.0  # how long the sensors may take to start and to agree
AGREE_S = 0.3  # for which the sensors must say the same
_HIGH_M = 0.5  # two heights above it: the ship flies
_LOW_M = 0.35  # what the estimator calls airborne
_FRESH_S = 0.5  # an older sample counts for nothing
_ACCURATE_M = 0.3  # a tag that is less sure of itself does not count


def died_in_air(record: FlightRecord, *, age_s: float) -> bool:
    """Whether the process of `record`, `age_s` old when its successor started, left a ship there.

    Flying, or unpowered after a kill: in both cases its successor looks for it.
    """
    # The kernel counts a start in hundredths of a second.
    return (record.armed or record.killed) and record.airborne and -1.0 <= age_s <= RESTART_S


def may_recover(record: FlightRecord, *, age_s: float, airframe: Airframe) -> bool:
    """Whether that ship may be landed under power if it is found in the air."""
    displaced_kg, mean_kg = AIR_DENSITY_KGM3 * airframe.hull.volume_m3, record.heaviness_kg
    weight = a_weight(mean_kg, sigma_kg=level_sigma_kg(mean_kg, displaced_kg=displaced_kg))
    allowed = {"never": False, "light": not weight.may_let_go, "always": True}
    return (
        record.armed
        and not record.killed
        and died_in_air(record, age_s=age_s)
        and allowed[airframe.resume_after_crash]
    )


def adrift(why: str, *, heaviness_kg: float) -> str:
    """Return what every face says of a ship that is in the air without power.

    why: "killed", or what else took the power. heaviness_kg: as flight has weighed it, 0 if none
    has: what it does now.
    """
    goes = "sinks" if heaviness_kg > 0.0 else "rises" if heaviness_kg < 0.0 else "drifts"
    return f"{why} in the air: no motor turns, it {goes}; arm flies it again"


class Recovery:
    """Looks for the ship in the air, for a few seconds from the first cycle.

    may_land: under power. height_m: as the sensors agreed, once `judge` has said True. is_blind:
    too few sensors have a height.
    """

    def __init__(self, record: FlightRecord, *, airframe: Airframe, may_land: bool = True) -> None:
        self._record = record
        self.may_land = may_land
        self._rest_m = {
            role(device): float(device.options.get("rest_m", 0.0)) for device in airframe.device
        }
        self._roles = {device.name: role(device) for device in airframe.device}
        self._began_s = inf
        self._agree_s = inf
        self.height_m = record.height_m
        self.is_blind = True

    def judge(self, readings: SensorReadings, now_s: float) -> bool | None:
        """Return whether the ship is in the air; None while that is not known.

        Two sensors must see it above half a metre, and none near the ground, for 0.3 s.
        """
        self._began_s = min(self._began_s, now_s)
        heights_m = sorted(self._heights_m(readings, now_s).values())
        self.is_blind = len(heights_m) < 2
        if len(heights_m) >= 2 and heights_m[-2] > _HIGH_M and heights_m[0] > _LOW_M:
            self._agree_s = min(self._agree_s, now_s)
            if now_s - self._agree_s >= AGREE_S:
                self.height_m = heights_m[0]
                return True
        else:
            self._agree_s = inf
        return False if now_s - self._began_s > DECIDE_S else None

    def _heights_m(self, readings: SensorReadings, now_s: float) -> dict[str, float]:
        """Return the height by each sensor that has one now."""
        bad = {self._roles.get(name, name) for name in readings.unhealthy}
        heights: dict[str, float] = {}
        ranges: dict[str, RangeSample | None] = {"ranger": readings.ranger, "sonar": readings.sonar}
        for name, sample in ranges.items():
            if sample is not None and now_s - sample.t_s < _FRESH_S:
                heights[name] = sample.distance_m - self._rest_m.get(name, 0.0)
        baro, tag, before_pa = readings.baro, readings.tag, self._record.pressure_pa
        if baro is not None and before_pa and now_s - baro.t_s < _FRESH_S:
            # How far it has come since the record: the pad's pressure is lost.
            climbed_m = baro_height_m(baro.pressure_pa, baro.temperature_c, before_pa)
            heights["baro"] = self._record.height_m + climbed_m
        if tag is not None and tag.accuracy_m < _ACCURATE_M and now_s - tag.t_s < _FRESH_S:
            heights["tag"] = -tag.position_ned_m[2]
        return {k: v for k, v in heights.items() if k not in bad and isfinite(v)}
