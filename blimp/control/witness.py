"""Whether the ground carries the ship: raw heights, no filter between them and no votes.

The estimate may be wrong, and what declared a touchdown would then let go of a ship in the
air. So a touchdown also asks the sensors themselves. They come in families that share no way to
fail: what looks down, air pressure, and the tag's anchors. Each gives odds: how much likelier its
height is of a ship on the ground than of one anywhere below 10 m. None may decide alone.
"""

from math import exp, inf, isfinite, log, pi, sqrt
from typing import NamedTuple

from msgspec import structs

from blimp.airframe import Airframe
from blimp.control.contact import Contact, Touch
from blimp.control.pressure import baro_height_m
from blimp.control.samples import role
from blimp.types import BaroSample, SensorReadings, VehicleState
from blimp.vector import within

_FRESH_S = 1.0  # an older sample counts for nothing
# A ranger that last saw the ground this near says nothing more below. On a ship that the ground
# carries it counts for as long as it stays blind: one that rises would be seen again.
_BLIND_S = 30.0
_BLIND_M = 0.4  # see above
# Of a family's height on the ground. Air pressure wanders by a metre in a quarter of an hour; a
# tag's height is its weakest axis; a ranger may look at a doorstep.
_SIGMA_M = {"range": 0.12, "baro": 0.7, "tag": 0.3}
_AIR_PER_M = 0.1  # density of the heights of a ship in the air
_MOST = 3.0  # of the logarithm of a family's odds: it lies once in twenty
_BELOW_SIGMAS = -2.0  # so far below the ground it lies, and says nothing
_SAYS = 1.5  # a family whose odds are over 4 to 1 says "down"
_TOUCHES = 0.8  # this probable, and by two families: the ground carries it
_DOUBT = 0.7  # less probable: a ship that is let go may be in the air
_PAD_S = 2.0  # the pad's pressure is smoothed over this


class _Seen(NamedTuple):
    height_m: float
    t_s: float


class Witnesses:
    """What each family last said about the height above the pad."""

    def __init__(self, *, airframe: Airframe) -> None:
        self._roles = {device.name: role(device) for device in airframe.device}
        self._rest_m = {
            role(device): float(device.options.get("rest_m", 0.0)) for device in airframe.device
        }
        self._pad_pa: float | None = None
        self._baro_t_s = -1.0
        self._baro_m: float | None = None
        self._range = _Seen(inf, -inf)
        self.heights_m: dict[str, float] = {}
        self.touch = self._seen = Touch()
        self._touched_s = -inf

    def update(
        self, readings: SensorReadings, state: VehicleState, now_s: float, *, at_rest: bool
    ) -> None:
        """Take what is new. at_rest: on the pad, and nothing drives the ship."""
        bad = {self._roles.get(name, name) for name in readings.unhealthy}
        found: dict[str, float] = {}
        self._look_down(readings, bad, found, now_s)
        baro, tag = readings.baro, readings.tag
        if baro is not None and "baro" not in bad and now_s - baro.t_s < _FRESH_S:
            self._press(baro, found, at_rest=at_rest and state.on_ground)
        if tag is not None and "tag" not in bad and now_s - tag.t_s < _FRESH_S:
            found["tag"] = -tag.position_ned_m[2]
        heights_m = {name: height for name, height in found.items() if isfinite(height)}
        if heights_m != self.heights_m:
            self.heights_m, self._seen = heights_m, _touch(heights_m)
        self.touch = self._seen
        if self._seen.contact is Contact.TOUCHING:
            self._touched_s = now_s
        elif self._seen.contact is Contact.UNKNOWN and abs(now_s - self._touched_s) < _FRESH_S:
            # One outlier of a tag is no take-off.
            self.touch = structs.replace(self._seen, contact=Contact.TOUCHING)

    def _look_down(
        self, readings: SensorReadings, bad: set[str], found: dict[str, float], now_s: float
    ) -> None:
        if now_s < self._range.t_s - _FRESH_S:
            self._range = _Seen(inf, -inf)  # the clock went back
        for name, sample in (("ranger", readings.ranger), ("sonar", readings.sonar)):
            if sample is None or name in bad or not isfinite(sample.distance_m):
                continue
            if sample.t_s >= self._range.t_s:
                self._range = _Seen(sample.distance_m - self._rest_m.get(name, 0.0), sample.t_s)
        age_s, touches = now_s - self._range.t_s, self.touch.contact is Contact.TOUCHING
        if age_s < _FRESH_S:
            found["range"] = self._range.height_m
        elif self._range.height_m < _BLIND_M and (age_s < _BLIND_S or touches):
            found["range"] = 0.0  # nearer yet: closer than 0.2 m a TF-Luna sees nothing

    def _press(self, baro: BaroSample, found: dict[str, float], *, at_rest: bool) -> None:
        if baro.t_s != self._baro_t_s:
            if at_rest and 3e4 < baro.pressure_pa < 1.2e5:
                if self._pad_pa is None:
                    self._pad_pa = baro.pressure_pa
                share = min(1.0, max(0.0, baro.t_s - self._baro_t_s) / _PAD_S)
                self._pad_pa += share * (baro.pressure_pa - self._pad_pa)
            self._baro_t_s = baro.t_s
            if self._pad_pa is not None:
                self._baro_m = baro_height_m(baro.pressure_pa, baro.temperature_c, self._pad_pa)
        if self._baro_m is not None:
            found["baro"] = self._baro_m

    def doubt(self) -> str:
        """Return why the ship may not be down, or "": those against it must be outnumbered."""
        return self.touch.evidence if self.touch.probability < _DOUBT else ""


def _touch(heights_m: dict[str, float]) -> Touch:
    """Return whether the ground carries the ship."""
    odds = {name: _log_odds(height, _SIGMA_M[name]) for name, height in heights_m.items()}
    probability = 1.0 / (1.0 + exp(-sum(odds.values())))
    contact = Contact.UNKNOWN
    if probability > _TOUCHES and sum(one > _SAYS for one in odds.values()) > 1:
        contact = Contact.TOUCHING
    elif probability < 1.0 - _TOUCHES:
        contact = Contact.AIRBORNE
    against = [name for name, one in odds.items() if one <= 0.0] or list(odds)
    evidence = ", ".join(f"{name} says {heights_m[name]:.1f} m" for name in against)
    return Touch(contact=contact, probability=probability, evidence=evidence)


def _log_odds(height_m: float, sigma_m: float) -> float:
    """Return the logarithm of its density on the ground over that in the air."""
    sigmas = height_m / sigma_m
    if sigmas < _BELOW_SIGMAS:
        return 0.0
    density = -0.5 * sigmas * sigmas - log(sigma_m * sqrt(2.0 * pi))
    return within(density - log(_AIR_PER_M), _MOST)
