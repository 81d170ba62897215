"""Height and climb from barometer, rangers and vertical acceleration.

A Kalman filter with five states: height h above the resting place on the pad, climb v,
accelerometer bias b along up, the offset o between barometer and height, and the error s of the
rangers' scale.

F: h' = v, v' = a - b with the measured acceleration a as input, b' = o' = s' = 0.
Q: accel_up_sigma on v, accel_up_drift on b, baro_drift on o, per second.
H: a ranger sees (1 + s) h, less the height of what is under it; a barometer sees h + o.
Source: Bar-Shalom, "Estimation with Applications to Tracking and Navigation", chapter 5
(Joseph form not needed: scalar updates on a 5 x 5 covariance that is kept symmetric by storing
one half).

No source rewrites the height. A gate refuses an outlier; `Votes` finds the source that moves
otherwise than the others, and undoes what it did meanwhile; a tag's and a GPS's height only vote.
A source that lies at another level but moves with the ship is followed from there: the ranger sees
a table, the weather has changed.
"""

from collections import deque
from math import hypot, isfinite

from blimp.airframe import Estimation
from blimp.control.gate import Gate
from blimp.control.votes import TICK_S, WINDOW_TICKS, Source, Votes
from blimp.types import QuantityHealth, Vote
from blimp.vector import within

_REST_SIGMA_M = 0.03  # of height and climb of a ship that lies still
# No average takes it out: a ranger's offset, within 2 cm (datasheets of TF-Luna and VL53L1X).
_LEVEL_M = 0.012
# Nor what air does to a barometer that is 4 K warmer than it says, evenly: one sigma of that.
_WARM_AIR = 0.014 / 3.0**0.5
_SCALE = 0.02  # of a ranger: TF-Luna datasheet, table 1; sound, by 10 K
_PERSISTENT_S = 3.0  # a source refused for so long has moved, not erred
_STALE_S = 2.0  # without a source the height is not known
_NEAR_GROUND_S = 10.0  # longer near the ground, where a ranger is blind
_NEAR_GROUND_M = 0.4  # see above
_BLIND_ACCEL_MPS2 = 0.3  # what a ship may accelerate by unseen, per sqrt(s)
_FADE_S = 2.0  # in which an unseen climb is forgotten
_RESTING_S = 0.2  # since the gyro last saw a ship at rest
_REFUSED_S = 0.7  # sources that agree with each other and not with the filter are right
_LIFTED_M = 0.4  # by which a source must have changed to be believed that the ship was lifted
_STANDS_M = 0.1  # what the last measurement of a ship on the ground may be wrong by
_RESTING_M = 0.2  # what a ranger may show at rest
_CLIMB_MPS = 10.0  # of a ship whose airframe names no limit
_CLIMB_DOUBT_MPS = 0.25  # a source's own rate against the filter's
# How far each may differ from the others over the window of a vote.
_SOURCES = {
    "ranger": Source(tolerance=0.15, group="down"),
    "sonar": Source(tolerance=0.15, group="down"),
    "baro": Source(tolerance=0.25),
    "tag": Source(tolerance=0.35),
    "camera": Source(tolerance=0.35),
    "gps": Source(tolerance=1.6),
}
_MODEL_TOLERANCE_M = 0.35  # of thrust and weight as a witness, over the window of a vote
# A barometer alone, and a tag that moves otherwise, for so long: which of them is right?
_CONTRADICTS_M = 1.0  # ten times a tag's noise; a GPS, which wanders by metres, contradicts nobody
_CONTRADICTS_S = 1.0  # longer than an outlier
_WEATHER_MPS = 0.002  # twice what air pressure may: a metre in a quarter of an hour
_RANGE, _HEIGHT_AND_OFFSET, _CLIMB = range(3)  # what a measurement sees


class _Mark:
    """Where the filter was at one tick: to predict from there, and to go back there."""

    __slots__ = ("climb_mps", "fall_m", "height_m", "offset_m", "speed_mps", "t_s")

    def __init__(self, filter: "HeightFilter", t_s: float) -> None:
        self.t_s = t_s
        self.height_m, self.climb_mps = filter.height_m, filter.climb_mps
        self.offset_m = filter.offset_m
        self.speed_mps, self.fall_m = filter.reckoned


class HeightFilter:
    """Height above the pad, up-positive. Call `predict` every cycle, then the updates, then `vote`.

    climb_limit_mps: what the ship can do at the most.
    """

    def __init__(
        self, *, noise: Estimation | None = None, climb_limit_mps: float = _CLIMB_MPS
    ) -> None:
        self._noise = noise = noise or Estimation()
        self._climb_limit_mps = climb_limit_mps
        self._q = (
            noise.accel_up_sigma_mps2**2,
            noise.accel_up_drift_mps2**2,
            noise.baro_drift_m**2,
        )
        self.height_m = 0.0
        self.climb_mps = 0.0
        self.bias_mps2 = 0.0
        self.offset_m = 0.0
        self.ground_m = 0.0  # of what the rangers look at, above the pad
        self.reckoned = (0.0, 0.0)  # speed and way by the accelerometer alone, from anywhere
        self.scale = 0.0  # of what the rangers show, less 1
        # Upper half of the covariance, row by row: hh hv hb ho hs vv vb vo vs bb bo bs oo os ss.
        self._p = _begun(height_m=0.5, climb_mps=0.2, offset_m=5.0)
        self._accepted_s: float | None = None
        self._rested_s: float | None = None
        self._rest_began_s = 0.0
        self._felt_s = -1e9
        self.lifted_s = -1e9  # when sources agreed that a ship at rest has left the ground
        self._moved_s = 0.0
        self._gates = {
            name: Gate(noise.height_gate_m, noise.gate_sigmas)
            for name in ("baro", "ranger", "sonar", "tag", "camera")
        }
        self._said: dict[str, float] = {}
        self._votes: Votes[float] = Votes(_SOURCES, zero=0.0, model_tolerance=_MODEL_TOLERANCE_M)
        self._marks: deque[_Mark] = deque(maxlen=WINDOW_TICKS + 1)
        self._doubt = ""
        self._beside_m: float | None = None  # the tag's height less the barometer's, as known
        self._contradicted_s = 0.0  # for so long

    # --- what it knows ----------------------------------------------------------------------

    def valid(self, now_s: float) -> bool:
        """Whether a measurement was accepted within the last 2 s.

        Close to the ground 10 s: there a ranger is blind by design. Not while a tag contradicts a
        barometer that is alone: following it, a light ship would rise for ever.
        """
        if self._accepted_s is None or self._contradicted_s > _CONTRADICTS_S:
            return False
        patience_s = _NEAR_GROUND_S if self.height_m < _NEAR_GROUND_M else _STALE_S
        return now_s - self._accepted_s <= patience_s

    @property
    def sigma_m(self) -> float:
        return hypot(self._p[0] ** 0.5, _LEVEL_M, _WARM_AIR * self.height_m)

    @property
    def outvoted(self) -> frozenset[str]:
        """The sources that have moved otherwise than the others."""
        return frozenset(self._votes.outvoted)

    def health(self, now_s: float) -> tuple[QuantityHealth, QuantityHealth]:
        """Return that of the height and that of the climb."""
        age_s = 1e6 if self._accepted_s is None else max(0.0, now_s - self._accepted_s)
        votes = []
        for name, gate in self._gates.items():
            if gate.seen_s is not None:
                level_m = self.offset_m if name == "baro" else -self.ground_m
                votes.append(
                    Vote(
                        sensor=name,
                        value=self._said[name] - level_m,
                        innovation=gate.innovation,
                        age_s=now_s - gate.seen_s,
                        agrees=gate.agrees and name not in self._votes.outvoted,
                    )
                )
        rates = self._rates()
        return (
            QuantityHealth(sigma=self.sigma_m, age_s=age_s, doubt=self._doubt, votes=tuple(votes)),
            QuantityHealth(
                sigma=float(self._p[5] ** 0.5), age_s=age_s, doubt=self._doubt, votes=rates
            ),
        )

    def _rates(self) -> tuple[Vote, ...]:
        """Return how fast each source moved over the window, beside the filter."""
        if not self._marks:
            return ()
        span_s = max(1e-3, self._marks[-1].t_s - self._marks[0].t_s)
        mean_mps = (self._marks[-1].height_m - self._marks[0].height_m) / span_s
        return tuple(
            Vote(
                sensor=name,
                value=change / span_s,
                innovation=change / span_s - mean_mps,
                age_s=0.0,
                agrees=name not in self._votes.outvoted
                and abs(change / span_s - mean_mps) < _CLIMB_DOUBT_MPS,
            )
            for name, change in self._votes.changes.items()
        )

    # --- time ---------------------------------------------------------------------------------

    def predict(self, accel_up_mps2: float, dt_s: float) -> None:
        """Move on by `dt_s` under the measured upward acceleration, gravity taken out."""
        a = accel_up_mps2 - self.bias_mps2
        self.height_m += (self.climb_mps + 0.5 * a * dt_s) * dt_s
        self.climb_mps += a * dt_s
        speed_mps, way_m = self.reckoned
        self.reckoned = (speed_mps + a * dt_s, way_m + (speed_mps + 0.5 * a * dt_s) * dt_s)
        q_accel, q_bias, q_offset = self._q
        hh, hv, hb, ho, hs, vv, vb, vo, vs, bb, bo, bs, oo, os, ss = self._p
        self._p = [
            max(1e-9, hh + dt_s * (2.0 * hv + dt_s * vv) + 1e-8 * dt_s),
            hv + dt_s * (vv - hb - dt_s * vb),
            hb + dt_s * vb,
            ho + dt_s * vo,
            hs + dt_s * vs,
            max(1e-9, vv + dt_s * (dt_s * bb - 2.0 * vb) + q_accel * dt_s),
            vb - dt_s * bb,
            vo - dt_s * bo,
            vs - dt_s * bs,
            bb + q_bias * dt_s,
            bo,
            bs,
            oo + q_offset * dt_s,
            os,
            ss,
        ]

    def drift(self, dt_s: float, now_s: float) -> None:
        """Move on by `dt_s` without an accelerometer."""
        self.predict(self.bias_mps2, dt_s)
        self._p[5] += _BLIND_ACCEL_MPS2**2 * dt_s
        self._felt_s = now_s

    def coast(self, dt_s: float) -> None:
        """Nothing measures height any more: let the climb fade instead of running away."""
        self.climb_mps *= max(0.0, 1.0 - dt_s / _FADE_S)

    def stand(self, now_s: float) -> None:
        """The ship lies on the ground, under power: there it stays while nothing measures height.

        Its level on the pad is kept, and so is the uncertainty: what is seen next is believed.
        """
        if not any(gate.speaks(now_s) for gate in self._gates.values()):
            self.climb_mps = 0.0
            self.height_m = max(0.0, min(_STANDS_M, self.height_m))

    # --- measurements -------------------------------------------------------------------------

    def update_baro(self, baro_height_m: float, now_s: float) -> None:
        """Take a barometric height above the reference pressure."""
        self._votes.note("baro", baro_height_m)
        self._said["baro"] = baro_height_m
        gate = self._gates["baro"]
        innovation = baro_height_m - self.height_m - self.offset_m
        variance = self._p[0] + 2.0 * self._p[3] + self._p[12] + self._noise.baro_sigma_m**2
        if "baro" in self._votes.outvoted:
            gate.refuse(innovation, now_s)
            if not self.valid(now_s):  # better than none
                self._votes.outvoted.discard("baro")
                self.offset_m += innovation
        elif gate.accepts(innovation, variance, now_s):
            self._correct(innovation, variance, _HEIGHT_AND_OFFSET)
            self._accepted_s = now_s
        elif gate.refused_s(now_s) >= _PERSISTENT_S:
            self.offset_m += innovation  # the level of the pressure has changed, not the height
            gate.forgive()

    def update_ranger(self, height_m: float, now_s: float, *, source: str = "ranger") -> None:
        """Take a ranger's height above the ground, tilt and mounting taken out.

        The first one is believed as it is, unless the ship has been seen at rest or the tag says
        otherwise: it may have been switched on in the air.
        """
        self._votes.note(source, height_m)
        self._said[source] = height_m
        gate = self._gates[source]
        if gate.seen_s is None and self._unknown(height_m):
            self._jump(height_m)
            gate.accepts(0.0, 1.0, now_s)
            self._accepted_s = now_s
            return
        ranges = source in ("ranger", "sonar")
        seen_m = self.height_m - self.ground_m if ranges else 0.0
        innovation = height_m + self.ground_m - self.height_m - self.scale * seen_m
        if self._resting(now_s) and abs(height_m) > _RESTING_M:
            self._votes.exclude(source)
        if source in self._votes.outvoted:
            gate.refuse(innovation, now_s)
            return
        p = self._p
        variance = p[0] + seen_m * (2.0 * p[4] + seen_m * p[14]) + self._noise.ranger_sigma_m**2
        if gate.accepts(innovation, variance, now_s):
            self._correct(innovation, variance, _RANGE, seen_m)
            self._accepted_s = now_s
        elif gate.refused_s(now_s) >= _PERSISTENT_S and self._moves_along(source):
            self.ground_m = self.height_m - height_m  # it sees something else than the pad's level
            gate.forgive()

    def update_witness(self, height_m: float, source: str) -> None:
        """Take a height that only votes: "tag" or "gps"."""
        if isfinite(height_m):
            self._said[source] = height_m
            self._votes.note(source, height_m)

    def update_rest(self, now_s: float, *, counts: bool = False) -> None:
        """The ship lies on its pad: height 0, climb 0. counts: it is a measurement of the height,
        as for a ship whose only sensor is blind so near the ground.
        """
        if counts:
            self._accepted_s = now_s
        if not self._resting(now_s):
            self._rest_began_s = now_s
        self._rested_s = now_s
        self.ground_m = 0.0
        self._correct(-self.height_m, self._p[0] + _REST_SIGMA_M**2, _RANGE)
        self._correct(-self.climb_mps, self._p[5] + _REST_SIGMA_M**2, _CLIMB)

    def begin_at(self, height_m: float) -> None:
        """Start in the air: at `height_m`, give or take a metre, and as the barometer says."""
        self.height_m = height_m
        self._p = _begun(height_m=1.0, climb_mps=0.5, offset_m=0.2)

    def land(self) -> None:
        """The ship has touched down: this height is 0 from now on."""
        self.offset_m += self.height_m
        self.ground_m -= self.height_m
        for mark in self._marks:
            mark.offset_m += self.height_m
            mark.height_m -= self.height_m
        self._jump(0.0)

    # --- the vote -----------------------------------------------------------------------------

    def vote(self, now_s: float) -> None:
        """Compare the sources, four times a second; undo what an outvoted one has done."""
        self.climb_mps = max(-self._climb_limit_mps, min(self._climb_limit_mps, self.climb_mps))
        if not self._votes.due(now_s):
            return
        self._marks.append(_Mark(self, now_s))
        out = self._votes.tick(self._predicted())
        self._doubt = self._votes.doubt
        self._compare_with_tag(now_s)
        refused = self._refused(now_s)
        rests = self._resting(now_s) and self._rest_began_s < self._marks[0].t_s
        lifted = rests and self._votes.agreed and self._lifted()
        if lifted:
            self.lifted_s = now_s
        if out or lifted or (refused and self._votes.agreed):
            self._undo()

    def _compare_with_tag(self, now_s: float) -> None:
        """Note for how long the tag has contradicted a barometer that nothing else confirms."""
        speaking = [n for n, gate in self._gates.items() if self._trusted(n) and gate.speaks(now_s)]
        if "tag" not in self._votes.changes or speaking != ["baro"]:
            self._beside_m, self._contradicted_s = None, 0.0
            return
        beside_m = self._said["tag"] - self.height_m
        if self._beside_m is None:
            self._beside_m = beside_m
        off_m = beside_m - self._beside_m
        self._beside_m += within(off_m, _WEATHER_MPS * TICK_S)
        contradicts = abs(off_m) > _CONTRADICTS_M
        self._contradicted_s = self._contradicted_s + TICK_S if contradicts else 0.0

    def _resting(self, now_s: float) -> bool:
        return self._rested_s is not None and now_s - self._rested_s < _RESTING_S

    def _refused(self, now_s: float) -> bool:
        """Whether every source that speaks is refused, and has been for a while."""
        speaking = [g for g in self._gates.values() if g.speaks(now_s)]
        return bool(speaking) and all(g.refused_s(now_s) > _REFUSED_S for g in speaking)

    def _lifted(self) -> bool:
        """Whether every trusted source has moved, of a ship that feels at rest: it floats."""
        changes = self._votes.changes
        return all(
            abs(change) > _LIFTED_M
            for name, change in changes.items()
            if self._trusted(name) and _SOURCES[name].tolerance < _LIFTED_M
        )

    def _predicted(self) -> float | None:
        """Return the change over the window by the accelerometer alone."""
        if len(self._marks) <= WINDOW_TICKS:
            return None
        old, new = self._marks[0], self._marks[-1]
        span_s = new.t_s - old.t_s
        if new.t_s - self._felt_s < span_s:  # it was not believed all the time
            return None
        return (old.climb_mps - old.speed_mps) * span_s + new.fall_m - old.fall_m

    def _undo(self) -> None:
        """Go back to before a source began to lie, and come here again without it."""
        old, new = self._marks[0], self._marks[-1]
        trusted = [name for name in self._votes.changes if self._trusted(name)]
        span_s = new.t_s - old.t_s
        if not trusted or span_s <= 0.0:
            return
        way_m = self._votes.changes[min(trusted, key=lambda name: _SOURCES[name].tolerance)]
        limit_m = self._climb_limit_mps * span_s
        self.height_m = old.height_m + max(-limit_m, min(limit_m, way_m))
        climb_mps = old.climb_mps + new.speed_mps - old.speed_mps
        self.climb_mps = climb_mps if new.t_s - self._felt_s > span_s else way_m / span_s
        self.offset_m = old.offset_m
        self._p[0] = max(self._p[0], 0.04)
        self._p[5] = max(self._p[5], 0.04)
        for mark in self._marks:  # nobody is to go back to what was wrong
            mark.height_m = old.height_m + way_m * (mark.t_s - old.t_s) / span_s
            mark.offset_m = old.offset_m

    def _trusted(self, name: str) -> bool:
        return name not in self._votes.outvoted

    def _moves_along(self, source: str) -> bool:
        """Whether this source has moved with the ship in the last seconds."""
        change = self._votes.changes.get(source)
        if change is None or len(self._marks) <= WINDOW_TICKS:
            return False
        ship_m = self._marks[-1].height_m - self._marks[0].height_m
        tolerance = _SOURCES[source].tolerance
        return abs(change) > 2.0 * tolerance and abs(change - ship_m) < 2.0 * tolerance

    def _unknown(self, height_m: float) -> bool:
        """Whether the ship has not been seen anywhere else than at this height."""
        if self._rested_s is not None or any(
            g.seen_s for n, g in self._gates.items() if n != "baro"
        ):
            return False
        tag_m = self._said.get("tag")
        return tag_m is None or abs(tag_m - height_m) < 1.0

    # --- arithmetic -----------------------------------------------------------------------------

    def _jump(self, height_m: float) -> None:
        self.height_m = height_m
        self._p[0] = max(self._p[0], 0.25)

    def _correct(
        self, innovation: float, variance: float, measured: int, seen_m: float = 0.0
    ) -> None:
        """seen_m: the height that the error of a ranger's scale is multiplied by."""
        hh, hv, hb, ho, hs, vv, vb, vo, vs, bb, bo, bs, oo, os, ss = self._p
        if measured == _RANGE:
            x = seen_m
            ch, cv, cb, co, cs = hh + x * hs, hv + x * vs, hb + x * bs, ho + x * os, hs + x * ss
        elif measured == _HEIGHT_AND_OFFSET:
            ch, cv, cb, co, cs = hh + ho, hv + vo, hb + bo, ho + oo, hs + os
        else:
            ch, cv, cb, co, cs = hv, vv, vb, vo, vs
        kh, kv, kb, ko = ch / variance, cv / variance, cb / variance, co / variance
        ks = cs / variance
        self.height_m += kh * innovation
        self.climb_mps += kv * innovation
        self.bias_mps2 += kb * innovation
        self.offset_m += ko * innovation
        self.scale += ks * innovation
        self._p = [
            max(1e-9, hh - kh * ch),
            hv - kh * cv,
            hb - kh * cb,
            ho - kh * co,
            hs - kh * cs,
            max(1e-9, vv - kv * cv),
            vb - kv * cb,
            vo - kv * co,
            vs - kv * cs,
            max(1e-9, bb - kb * cb),
            bo - kb * co,
            bs - kb * cs,
            max(1e-9, oo - ko * co),
            os - ko * cs,
            max(1e-9, ss - ks * cs),
        ]


def _begun(*, height_m: float, climb_mps: float, offset_m: float) -> list[float]:
    """Return a covariance of these standard deviations, that of the barometer's offset last."""
    hh, vv, oo = height_m**2, climb_mps**2, offset_m**2
    return [hh, 0.0, 0.0, 0.0, 0.0, vv, 0.0, 0.0, 0.0, 0.04, 0.0, 0.0, oo, 0.0, _SCALE**2]
