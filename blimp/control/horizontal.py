"""Horizontal position and velocity from position tag or GPS, with acceleration between.

One error-state Kalman filter with five states an axis: position p, velocity v, tilt b,
accelerometer bias c and gyro bias d (a tilt error of half a degree is 0.09 m/s^2, more than the
ship ever accelerates). The tilt stays where it is while the ship turns, and the biases turn with
it. Levelled by its accelerometer, the ship starts with one the opposite of the other. What is found
of tilt and gyro bias goes to the attitude (`take_tilt`): in flight nothing else levels it.

F: p' = v, v' = a - b - c with the measured acceleration a as input, b' = d, c' = i w c and
d' = i w d with the turn rate w.
Q: accel_sigma on v, accel_drift on b, a tenth of it on c, gyro_drift on d, per second.
Covariance: `blimp/control/motion.py`.
H: tag and GPS see p as it was their latency ago; a GPS's Doppler sees v; the plumb line sees that
a ship accelerates little in the long run.
Source: Bar-Shalom, "Estimation with Applications to Tracking and Navigation", chapter 6.

The tag is used while it is there, then GPS, shifted by the offset tracked until then. `Votes`
compares how far each has moved with the other and with the accelerometer: a tag that drifts beside
a good GPS is left, and what it did to the estimate is undone.
"""

from cmath import rect
from collections import deque
from math import hypot, inf, isfinite

from blimp.airframe import Estimation, Home
from blimp.constants import GRAVITY_MPS2
from blimp.control.gate import Gate
from blimp.control.heading import HeadingFilter
from blimp.control.motion import Column, MotionCovariance
from blimp.control.votes import WINDOW_TICKS, Source, Votes
from blimp.types import ZERO3, GpsSample, PositionSample, QuantityHealth, Vec3, Vote

RECKONED_S = 8.0  # so long the accelerometer alone gives a velocity good for braking
MAX_LATENCY_S = 0.5  # of a sample that says its own
_BLIND_ACCEL_MPS2 = 0.2  # what a ship may accelerate by unseen, per sqrt(s)
_LEVEL_MPS2 = 0.1  # tilt and bias together, levelled on the pad
_BIAS_MPS2 = 0.28  # MPU-6050 datasheet, 6.2: within 0.49, evenly
_SHOCK_MPS2 = 0.06  # what a knock adds to velocity, per sqrt(s)
_SHOCK_DRIFT_MPS2 = 0.02  # and to the accelerometer's bias
_GYRO_RADPS = 0.1  # before rest has shown it
_GROW_S = 0.1  # step in which the covariance grows
# A ship that flies accelerates by 0.1 m/s^2 for 2 s, now and then: so much is one sample in ten a
# second worth.
_PLUMB_MPS2 = 0.1 * (2.0 * 2.0 / _GROW_S) ** 0.5
_STILL_MPS2 = 0.02  # of one that lies still: noise and grass
_SURPRISE_SHARE = 0.05  # of each position
_SURPRISING = 8.0  # at most: one reflection is no reason to doubt the accelerometer
_OPENING = 3  # innovations twice as large as they should be: noise 64 times as large
_PERSISTENT_S = 1.5  # a source refused for so long has moved, not erred
_STALE_S = 2.5  # without a source the position is not known
_TAG_LOST_S = 1.0  # then GPS may take over
_SIGMA_RANGE_M = (0.005, 20.0)  # that a sample may claim of itself
_MOUNTED_M = 0.005  # where a tag sits on the hull is measured with a ruler
_SPEED_MPS = 5.0  # of a ship whose airframe names no limit
_GPS_SPEED_GATE_MPS = 3.0  # a Doppler farther off is refused
_TICK_S = 0.5  # a window of 6 s: GPS wanders
# A fix wanders by a metre in the window, the Doppler does not: it is the better witness.
_SOURCES = {
    "tag": Source(tolerance=0.35),
    "camera": Source(tolerance=0.35),
    "gps": Source(tolerance=0.5),
    "gps-fix": Source(tolerance=1.6, group="gps"),
}
_INDOORS = ("tag", "camera")  # before GPS
_DOPPLER_GAP_S = 1.0  # across a longer gap its way is not added up
_POSITION: Column = (1.0, 0.0, 0.0, 0.0, 0.0)  # what a measurement sees of the states
_VELOCITY: Column = (0.0, 1.0, 0.0, 0.0, 0.0)  # see above
_ACCELERATION: Column = (0.0, 0.0, -1.0, -1.0, 0.0)  # see above: tilt and bias are its errors
_MODEL_TOLERANCE_M = 0.8  # of thrust and wind as a witness, over the window of a vote


class _Mark:
    """Where the filter was at one tick."""

    __slots__ = ("gps_offset", "position_m", "speed_mps", "t_s", "velocity_mps", "way_m")

    def __init__(self, filter: "HorizontalFilter", t_s: float) -> None:
        self.t_s = t_s
        self.position_m = complex(*filter.position_m)
        self.velocity_mps = complex(*filter.velocity_mps)
        self.gps_offset = filter.gps_offset
        self.speed_mps, self.way_m = filter.reckoned


class HorizontalFilter:
    """North and east of the pad. Call `predict` every cycle, then the updates, then `vote`.

    speed_limit_mps: over ground, what the ship can do at the most. heading: is shown what it
    innovates by.
    """

    def __init__(
        self,
        *,
        home: Home,
        noise: Estimation | None = None,
        speed_limit_mps: float = _SPEED_MPS,
        heading: HeadingFilter | None = None,
    ) -> None:
        self._noise = noise = noise or Estimation()
        self._speed_limit_mps = speed_limit_mps
        self._heading = heading
        self._home = home
        self._q = (
            noise.accel_sigma_mps2**2,
            noise.accel_drift_mps2**2,
            (GRAVITY_MPS2 * noise.gyro_drift_radps) ** 2,
        )
        self.position_m = [0.0, 0.0]
        self.velocity_mps = [0.0, 0.0]
        self.bias_mps2 = self._tilt = self._tilting = 0j  # north + i east
        self._p = MotionCovariance(
            position_m=2.0,
            velocity_mps=0.2,
            level_mps2=_LEVEL_MPS2,
            bias_mps2=_BIAS_MPS2,
            gyro_mps3=GRAVITY_MPS2 * _GYRO_RADPS,
        )
        self._gained = 0j  # velocity by the accelerometer since the plumb line was looked at
        self._counted = 0j  # of it, what the covariance holds
        self._blind = False  # since then it was not believed for a while
        self._ahead = (0.0, 0.0)  # seconds and angle that the covariance does not hold yet
        self._surprise = 1.0  # mean square of the innovations in their deviations
        self._accepted_s: float | None = None
        self._seen_m = (0.0, 0.0)
        self.gps_offset: tuple[float, float] | None = None
        self.reckoned = (0j, 0j)  # velocity and way by the accelerometer alone
        self._felt_s = -1e9
        self._doppler_s = -1e9
        self._doppler_m = 0j
        self._gates = {
            name: Gate(noise.position_gate_m, noise.gate_sigmas)
            for name in ("tag", "camera", "gps")
        }
        self._wander_m = 0.0  # no average takes it out: of the source in use
        self._votes: Votes[complex] = Votes(
            _SOURCES, zero=0j, model_tolerance=_MODEL_TOLERANCE_M, tick_s=_TICK_S
        )
        self._marks: deque[_Mark] = deque(maxlen=WINDOW_TICKS + 1)
        self._doubt = ""

    # --- what it knows ----------------------------------------------------------------------

    def age_s(self, now_s: float) -> float:
        """Return seconds since a position was accepted; infinite before the first."""
        return float("inf") if self._accepted_s is None else max(0.0, now_s - self._accepted_s)

    def valid(self, now_s: float) -> bool:
        return self.age_s(now_s) <= _STALE_S

    @property
    def pad_deg(self) -> tuple[float, float] | None:
        """Latitude and longitude of the pad as GPS saw it, None before it did."""
        return None if self.gps_offset is None else self._home.global_deg(*self.gps_offset)

    @property
    def tilt_sigma_rad(self) -> float:
        """Standard deviation of the attitude's roll, and of its pitch."""
        return float(self._p.bb**0.5) / GRAVITY_MPS2

    @property
    def outvoted(self) -> frozenset[str]:
        """The sources that have moved otherwise than the others."""
        return frozenset(self._votes.outvoted)

    def health(self, now_s: float) -> tuple[QuantityHealth, QuantityHealth]:
        """Return that of the position and that of the velocity."""
        age_s = min(1e6, self.age_s(now_s))
        votes = tuple(
            Vote(
                sensor=name,
                value=gate.innovation,
                innovation=gate.innovation,
                age_s=now_s - gate.seen_s,
                agrees=gate.agrees and name not in self._votes.outvoted,
            )
            for name, gate in self._gates.items()
            if gate.seen_s is not None
        )
        pp, vv = self._p.pp, self._p.vv
        sigma_m = hypot(pp**0.5, self._wander_m)
        return (
            QuantityHealth(sigma=sigma_m, age_s=age_s, doubt=self._doubt, votes=votes),
            QuantityHealth(sigma=vv**0.5, age_s=age_s, doubt=self._doubt, votes=votes),
        )

    # --- time ---------------------------------------------------------------------------------

    def predict(
        self,
        accel_north_mps2: float,
        accel_east_mps2: float,
        dt_s: float,
        *,
        turn_rad: float = 0.0,
        on_feet: bool = False,
        still: bool = False,
    ) -> None:
        """Move on by `dt_s`.

        turn_rad: how far the ship has turned, and the accelerometer's bias with it.
        on_feet: a ship that stands and rocks feels shocks that no sampling shows. still: it does
        not even rock.
        """
        self.bias_mps2 *= rect(1.0, turn_rad)
        wrong = self.bias_mps2 + self._tilt
        position, velocity = self.position_m, self.velocity_mps
        an, ae = accel_north_mps2 - wrong.real, accel_east_mps2 - wrong.imag
        position[0] += (velocity[0] + 0.5 * an * dt_s) * dt_s
        position[1] += (velocity[1] + 0.5 * ae * dt_s) * dt_s
        velocity[0] += an * dt_s
        velocity[1] += ae * dt_s
        speed, way = self.reckoned
        gained = complex(an, ae) * dt_s
        self.reckoned = (speed + gained, way + (speed + 0.5 * gained) * dt_s)
        self._gained += gained
        if on_feet:
            self._p.vv += _SHOCK_MPS2**2 * dt_s
            self._p.bb += _SHOCK_DRIFT_MPS2**2 * dt_s
        ahead_s, turned_rad = self._ahead
        self._ahead = (ahead_s + dt_s, turned_rad + turn_rad)
        if ahead_s + dt_s >= _GROW_S:
            self._grow()
            self._plumb(ahead_s + dt_s, _STILL_MPS2 if still else _PLUMB_MPS2)

    def _plumb(self, dt_s: float, sigma_mps2: float) -> None:
        """A ship accelerates little in the long run, and one that lies still not at all."""
        felt, self._gained, self._counted = self._gained / dt_s, 0j, 0j
        blind, self._blind = self._blind, False
        if blind:
            return
        column = self._p.of_acceleration
        variance = -(column[2] + column[3]).real + sigma_mps2 * sigma_mps2
        self._correct(-felt, column, variance, _ACCELERATION)

    def _grow(self) -> None:
        """Bring the covariance up to now; it needs no hundred steps a second."""
        dt_s, turn_rad = self._ahead
        if dt_s > 0.0:
            noise, drift, gyro = self._q
            noise *= max(1.0, self._surprise) ** _OPENING
            self._p.grow(dt_s, turn_rad=turn_rad, noise=noise, drift=drift, gyro=gyro)
            self._tilt += dt_s * self._tilting
            self._tilting *= rect(1.0, turn_rad)
            self._ahead = (0.0, 0.0)
            if self._heading is not None:
                accel = (self._gained - self._counted) / dt_s
                self._heading.grow(dt_s, accel_mps2=accel, turn_rad=turn_rad)
            self._counted = self._gained

    def drift(self, dt_s: float, now_s: float) -> None:
        """Move on by `dt_s` without an accelerometer."""
        wrong = self.bias_mps2 + self._tilt
        self.predict(wrong.real, wrong.imag, dt_s)
        self._p.uncouple()
        if self._heading is not None:
            self._heading.forget()
        self._blind = True
        self._p.vv += _BLIND_ACCEL_MPS2**2 * dt_s
        self._felt_s = now_s

    def coast(self, now_s: float, dt_s: float) -> None:
        """No source is left: in time let the velocity fade instead of running away."""
        if self.age_s(now_s) > RECKONED_S:
            keep = max(0.0, 1.0 - dt_s / 2.0)
            self.velocity_mps = [v * keep for v in self.velocity_mps]

    def tilted(self, sigma_rad: float) -> None:
        """Down is known again, but for this: what is left is learnt again."""
        self._grow()
        self._p.bb = max(self._p.bb, (GRAVITY_MPS2 * sigma_rad) ** 2)

    def turn(self, angle_rad: float) -> None:
        """The heading was wrong by this: what the ship feels, it feels in another direction."""
        self.bias_mps2 *= rect(1.0, angle_rad)
        self._tilt *= rect(1.0, angle_rad)

    def rest(self, gyro_sigma_radps: float) -> None:
        """The ship lies still: its gyro's bias has been measured."""
        self._p.rest(GRAVITY_MPS2 * gyro_sigma_radps)

    def take_tilt(self) -> tuple[complex, complex]:
        """Return what the attitude is to be turned by, and its bias to change by, in radians and
        rad/s about north + i east; from now on the attitude has it."""
        tilt, tilting = self._tilt, self._tilting
        self._tilt = self._tilting = 0j
        return 1j * tilt / GRAVITY_MPS2, -1j * tilting / GRAVITY_MPS2

    # --- measurements -------------------------------------------------------------------------

    def update_tag(
        self,
        sample: PositionSample,
        now_s: float,
        *,
        arm_ned_m: Vec3 = ZERO3,
        source: str = "tag",
    ) -> bool:
        """Take a tag's or a camera's position of the hull; `arm_ned_m` leads from there to the IMU.

        Return whether it was used.
        """
        north_m, east_m, _ = sample.position_ned_m
        latency_s = self._noise.tag_latency_s if sample.latency_s is None else sample.latency_s
        if not isfinite(north_m + east_m + sample.accuracy_m + latency_s):
            return False
        if not 0.0 <= latency_s <= MAX_LATENCY_S:
            return False
        self._votes.note(source, complex(north_m, east_m))
        if not self._take(
            source,
            north_m + arm_ned_m[0],
            east_m + arm_ned_m[1],
            sample.accuracy_m,
            now_s,
            latency_s=latency_s,
        ):
            return False
        self._wander_m = max(_MOUNTED_M, sample.bias_m)
        return True

    def update_gps(
        self, sample: GpsSample, now_s: float, *, on_pad: bool, arm_ned_m: Vec3 = ZERO3
    ) -> bool:
        """Take a GPS fix, shifted by the offset tracked while something better was there.

        on_pad: the ship rests on its pad, which is the origin whatever GPS says of it.
        Return whether it was used for the position.
        """
        if not isfinite(sample.latitude_deg + sample.longitude_deg + sample.accuracy_m):
            return False
        north_m, east_m = self._home.local_m(sample.latitude_deg, sample.longitude_deg)
        self._vote_of_gps(complex(north_m, east_m), sample, now_s)
        north_m, east_m = north_m + arm_ned_m[0], east_m + arm_ned_m[1]
        seen = [s for name in _INDOORS if (s := self._gates[name].last_s) is not None]
        tagged = bool(seen) and now_s - max(seen) <= _TAG_LOST_S
        if tagged or (on_pad and not seen):
            reference = self.position_m if tagged else arm_ned_m
            self._track_offset(north_m - reference[0], east_m - reference[1])
            if tagged:
                gate, (n, e) = self._gates["gps"], self.gps_offset or (0.0, 0.0)
                gate.seen_s, gate.agrees = now_s, "gps" not in self._votes.outvoted
                gate.innovation = hypot(
                    north_m - n - self.position_m[0], east_m - e - self.position_m[1]
                )
                return False
        shift = self.gps_offset or (0.0, 0.0)
        accuracy_m = max(self._noise.gps_floor_m, self._noise.gps_share * sample.accuracy_m)
        if not self._take(
            "gps",
            north_m - shift[0],
            east_m - shift[1],
            accuracy_m,
            now_s,
            latency_s=self._noise.gps_latency_s,
        ):
            return False
        self._wander_m = sample.accuracy_m * (1.0 - self._noise.gps_share**2) ** 0.5
        velocity = sample.velocity_ned_mps
        if velocity is not None and isfinite(velocity[0] + velocity[1]):
            self._take_velocity(velocity[0], velocity[1])
        return True

    def _vote_of_gps(self, fix_m: complex, sample: GpsSample, now_s: float) -> None:
        """How far it has gone by its Doppler; without one, its fix."""
        velocity = sample.velocity_ned_mps
        if velocity is None or not isfinite(velocity[0] + velocity[1]):
            self._votes.note("gps-fix", fix_m)
            return
        if 0.0 < now_s - self._doppler_s < _DOPPLER_GAP_S:
            self._doppler_m += complex(velocity[0], velocity[1]) * (now_s - self._doppler_s)
            self._votes.note("gps", self._doppler_m)
        else:
            self._votes.forget("gps")
        self._doppler_s = now_s

    def _track_offset(self, north_m: float, east_m: float) -> None:
        if self.gps_offset is None:
            self.gps_offset = (north_m, east_m)
            return
        n, e = self.gps_offset
        self.gps_offset = (n + 0.05 * (north_m - n), e + 0.05 * (east_m - e))

    def _take(
        self,
        name: str,
        north_m: float,
        east_m: float,
        sigma_m: float,
        now_s: float,
        *,
        latency_s: float,
    ) -> bool:
        """Correct by a position unless it is an outlier or outvoted; return whether it was used."""
        gate = self._gates[name]
        sigma_m = max(_SIGMA_RANGE_M[0], min(_SIGMA_RANGE_M[1], sigma_m))
        if self._accepted_s is None:
            self._restart(north_m, east_m, sigma_m, now_s)
            gate.accepts(0.0, 1.0, now_s)
            return True
        measured = (north_m, east_m)
        north_m += latency_s * self.velocity_mps[0]
        east_m += latency_s * self.velocity_mps[1]
        dn, de = north_m - self.position_m[0], east_m - self.position_m[1]
        far_m = hypot(dn, de)
        # From where it was last seen: an estimate running away must not keep its sources out.
        gone_m = hypot(measured[0] - self._seen_m[0], measured[1] - self._seen_m[1])
        if name in self._votes.outvoted and self.age_s(now_s) <= _STALE_S:
            gate.refuse(far_m, now_s)
            return False
        age_s = self.age_s(now_s)
        reach_m = self._noise.position_gate_m + self._speed_limit_mps * age_s
        if age_s > 2.0 * _STALE_S and gone_m <= reach_m:
            gate.accepts(0.0, 1.0, now_s)
            self._restart(*measured, sigma_m, now_s)
            return True
        self._grow()
        variance = self._p.pp + sigma_m * sigma_m
        surprise = min(_SURPRISING, 0.5 * far_m * far_m / variance)
        self._surprise += _SURPRISE_SHARE * (surprise - self._surprise)
        if gate.accepts(far_m, variance, now_s):
            self._accepted_s, self._seen_m = now_s, measured
            wander = self._wander_m**2
            self._correct(
                complex(dn, de), self._p.of_position, variance, _POSITION, variance + wander, now_s
            )
            return True
        # It insists: believed if nothing else speaks, and if the ship can have got there.
        if gate.refused_s(now_s) >= _PERSISTENT_S <= age_s and gone_m <= reach_m:
            self._restart(*measured, sigma_m, now_s)
            gate.accepts(0.0, 1.0, now_s)
            return True
        return False

    def _take_velocity(self, north_mps: float, east_mps: float) -> None:
        self._grow()
        dn, de = north_mps - self.velocity_mps[0], east_mps - self.velocity_mps[1]
        if hypot(dn, de) < _GPS_SPEED_GATE_MPS:
            variance = self._p.vv + self._noise.gps_velocity_sigma_mps**2
            self._correct(complex(dn, de), self._p.of_velocity, variance, _VELOCITY)

    # --- the vote -----------------------------------------------------------------------------

    def vote(self, now_s: float) -> None:
        """Compare the sources, twice a second; undo what an outvoted tag has done."""
        speed = hypot(*self.velocity_mps)
        if speed > self._speed_limit_mps:
            self.velocity_mps = [v * self._speed_limit_mps / speed for v in self.velocity_mps]
        if not self._votes.due(now_s):
            return
        self._marks.append(_Mark(self, now_s))
        out = self._votes.tick(self._predicted())
        self._doubt = self._votes.doubt
        changes = self._votes.changes
        gone_m = changes.get("gps", changes.get("gps-fix"))
        if out in _INDOORS and gone_m is not None:
            self._undo(gone_m)
            self._gates[out].forget()

    def _predicted(self) -> complex | None:
        """Return the change over the window by the accelerometer alone."""
        if len(self._marks) <= WINDOW_TICKS:
            return None
        old, new = self._marks[0], self._marks[-1]
        span_s = new.t_s - old.t_s
        if new.t_s - self._felt_s < span_s:  # it was not believed all the time
            return None
        return (old.velocity_mps - old.speed_mps) * span_s + new.way_m - old.way_m

    def _undo(self, moved_m: complex) -> None:
        """Go back to before the tag began to lie, and come here again with GPS."""
        old, new = self._marks[0], self._marks[-1]
        position = old.position_m + moved_m
        velocity = old.velocity_mps + new.speed_mps - old.speed_mps
        if new.t_s - self._felt_s < new.t_s - old.t_s:
            velocity = moved_m / max(1e-3, new.t_s - old.t_s)
        self.position_m = [position.real, position.imag]
        self.velocity_mps = [velocity.real, velocity.imag]
        self.gps_offset = old.gps_offset
        self._grow()
        self._restart_covariance(max(self._p.pp, 0.25), 0.02)

    # --- arithmetic -----------------------------------------------------------------------------

    def _correct(
        self,
        innovation: complex,
        column: Column,
        variance: float,
        seen: Column,
        shown: float = inf,
        now_s: float = 0.0,
    ) -> None:
        """shown: variance with which it shows the heading."""
        gains = self._p.correct(column, variance)
        kp, kv, kb, kc, kd = gains
        self._add(
            kp * innovation, kv * innovation, kb * innovation, kc * innovation, kd * innovation
        )
        if self._heading is not None:
            more = self._heading.see(seen, gains, innovation, shown, now_s)
            if more is not None:
                self._add(*more)

    def _add(
        self, place: complex, velocity: complex, tilt: complex, bias: complex, tilting: complex
    ) -> None:
        self.position_m[0] += place.real
        self.position_m[1] += place.imag
        self.velocity_mps[0] += velocity.real
        self.velocity_mps[1] += velocity.imag
        self._tilt += tilt
        self.bias_mps2 += bias
        self._tilting += tilting

    def _restart(self, north_m: float, east_m: float, sigma_m: float, now_s: float) -> None:
        """Believe this sample alone: the first one, or one that has insisted."""
        self.position_m = [north_m, east_m]
        self._grow()
        self._restart_covariance(sigma_m * sigma_m, 0.25)
        self._accepted_s, self._seen_m = now_s, (north_m, east_m)

    def _restart_covariance(self, pp: float, least_vv: float) -> None:
        self._p.restart(pp, max(self._p.vv, least_vv))
        if self._heading is not None:
            self._heading.forget()
