"""How the ship touches the world, from all that says so: one `Touch` a cycle.

A ship that is low, and neither rises nor sinks, is on the ground; one that a landing has brought
there is, whatever its height says. Beside the estimate stand the raw heights, no filter between
them and no votes: the estimate may be wrong, and would let go of a ship in the air. They come in
families that share no way to fail: what looks down, air pressure, and the tag's anchors. Each gives
odds: how much likelier its height is of a ship on the ground than of one anywhere below 10 m. None
may decide alone.
"""

from math import exp, inf, isfinite, log, pi, sqrt
from typing import NamedTuple

from msgspec import structs

from blimp.airframe import Airframe
from blimp.control.pressure import baro_height_m
from blimp.control.samples import role
from blimp.types import STANDS, BaroSample, Contact, SensorReadings, Touch
from blimp.vector import within

AIRBORNE_M = 0.35  # higher than feet give way
_GROUND_M = 0.15  # lower than this it stands on its feet
_GROUND_CLIMB_MPS = 0.15  # if it neither sinks nor rises by more
_GROUND_S = 0.5  # for so long
_AIRBORNE_S = 0.1  # longer than a spike
_OUTLIER_S = 0.3  # as long as three samples of a tag
_HANGS_MPS = 0.05  # a ship without power that rises and sinks no faster than the noise of a climb
_HANGS_S = 3.0  # for so long: somebody holds it
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
    """Call `update` once a cycle.

    down: low and slow for half a second; no more, as soon as it is clearly higher. But no height
    lifts a ship off its pad while two families of sensors say that the ground carries it.
    heights_m: what each family last said about the height above the pad.
    """

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
        self._raw = self.touch = Touch()
        self._carried_s = -inf
        self.down = True
        self._since_s: float | None = None
        self._moved_s = inf

    def declare(self, *, down: bool) -> None:
        """The ship has landed, or was found in the air."""
        self.down, self._since_s = down, None

    def update(
        self,
        readings: SensorReadings,
        *,
        now_s: float,
        height_m: float,
        climb_mps: float,
        known: bool,
        believed: Contact = Contact.AIRBORNE,
        driven: bool,
    ) -> Touch:
        """Take what is new, and return how the ship touches the world.

        height_m, climb_mps: as estimated. known: the height is. believed: what the mode that flies
        has found out. driven: something drives the ship, or did when it was let go.
        """
        self._listen(readings, now_s, at_rest=not driven and self.down)
        raw, carried = self._raw, self._raw.carried
        if carried:
            self._carried_s = now_s
        elif raw.contact is Contact.UNKNOWN and abs(now_s - self._carried_s) < _FRESH_S:
            carried = True  # one outlier of a tag is no take-off
        lies = carried and now_s - self._carried_s < _OUTLIER_S
        self._note_height(height_m, climb_mps, now_s, lies=lies)
        moves = driven or self.down or abs(climb_mps) > _HANGS_MPS
        self._moved_s = now_s if moves else min(self._moved_s, now_s)
        if believed in STANDS:
            contact = believed
        elif self.down:
            contact = Contact.TOUCHING if driven else Contact.RESTING
        elif carried or not known or believed is Contact.UNKNOWN:
            contact = Contact.UNKNOWN
        elif now_s - self._moved_s > _HANGS_S:
            contact = Contact.HELD
        else:
            contact = Contact.AIRBORNE
        last = self.touch
        is_old = raw.against is last.against and carried is last.carried
        if contact is not last.contact or not is_old:
            self.touch = structs.replace(raw, contact=contact, carried=carried)
        return self.touch

    def _note_height(self, height_m: float, climb_mps: float, now_s: float, *, lies: bool) -> None:
        if self.down:
            changing, needed_s = height_m > AIRBORNE_M and not lies, _AIRBORNE_S
        else:
            changing = height_m < _GROUND_M and abs(climb_mps) < _GROUND_CLIMB_MPS
            needed_s = _GROUND_S
        if not changing:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= needed_s:
            self.declare(down=not self.down)

    def _listen(self, readings: SensorReadings, now_s: float, *, at_rest: bool) -> None:
        """Take the raw heights. at_rest: on the pad, and nothing drives the ship."""
        bad = {self._roles.get(name, name) for name in readings.unhealthy}
        found: dict[str, float] = {}
        self._look_down(readings, bad, found, now_s)
        baro, tag = readings.baro, readings.tag
        if baro is not None and "baro" not in bad and now_s - baro.t_s < _FRESH_S:
            self._press(baro, found, at_rest=at_rest)
        if tag is not None and "tag" not in bad and now_s - tag.t_s < _FRESH_S:
            found["tag"] = -tag.position_ned_m[2]
        heights_m = {name: height for name, height in found.items() if isfinite(height)}
        if heights_m != self.heights_m:
            self.heights_m, self._raw = heights_m, _touch(heights_m)

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
        age_s, carried = now_s - self._range.t_s, self.touch.carried
        if age_s < _FRESH_S:
            found["range"] = self._range.height_m
        elif self._range.height_m < _BLIND_M and (age_s < _BLIND_S or carried):
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


def _touch(heights_m: dict[str, float]) -> Touch:
    """Return whether the ground carries the ship, by two families at the least."""
    odds = {name: _log_odds(height, _SIGMA_M[name]) for name, height in heights_m.items()}
    probability = 1.0 / (1.0 + exp(-sum(odds.values())))
    carried = probability > _TOUCHES and sum(one > _SAYS for one in odds.values()) > 1
    in_air = probability < 1.0 - _TOUCHES
    against: tuple[tuple[str, float], ...] = ()
    if probability < _DOUBT:  # those against it must be outnumbered
        names = [name for name, one in odds.items() if one <= 0.0] or odds
        against = tuple((name, heights_m[name]) for name in names)
    contact = Contact.AIRBORNE if in_air else Contact.UNKNOWN
    return Touch(contact=contact, carried=carried, probability=probability, against=against)


def _log_odds(height_m: float, sigma_m: float) -> float:
    """Return the logarithm of its density on the ground over that in the air."""
    sigmas = height_m / sigma_m
    if sigmas < _BELOW_SIGMAS:
        return 0.0
    density = -0.5 * sigmas * sigmas - log(sigma_m * sqrt(2.0 * pi))
    return within(density - log(_AIR_PER_M), _MOST)
