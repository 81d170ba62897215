"""The heading, from how the ship moves when it accelerates, and from a magnetometer.

A gyro tells how far the nose has turned, and drifts. What the accelerometer feels along the nose
moves the ship along the nose: so position says where the nose points, the better the more the ship
accelerates. The heading's error e and that of the gyro's bias b (e' = -b, b' = 0) are no states of
the motion's filter: what one radian of either makes of its states is carried along, and its
innovations show both. Source: Friedland, "Treatment of bias in recursive filtering" (1969), the
two-stage filter.

F: what e makes of the states moves on as they do (`blimp/control/motion.py`), and v' = i a e with
the acceleration a.
Q: heading_drift on e, gyro_drift on b, per second.
H: a tag or GPS sees what e and b make of p, a Doppler of v; a magnetometer sees e.

In a calm hover nothing accelerates, so nothing is learnt: sigma grows with the gyro's drift,
slowly, and `doubt` says so when it is too large to steer by.
"""

from cmath import rect
from math import atan2, hypot, inf, isfinite, pi

from blimp.airframe import Airframe
from blimp.control.attitude import AttitudeFilter
from blimp.control.motion import Column
from blimp.rotation import rotate, wrap_pi
from blimp.types import QuantityHealth, Vec3, Vote

STEER_RAD = 0.6  # a heading less sure than this is no use for steering
_MAGNET_S = 0.2  # between two looks at the magnetometer
_DOUBT_RAD = 0.35  # above it the heading counts as doubtful
_START_RAD = 0.03  # laid down nose north by hand
_LARGEST_RAD = pi / 2.0  # nothing is known of a heading beyond
_LEAST_RAD = 0.01  # nor is any better known: half a degree, to which mounts are set by eye
_BIAS_RADPS = 3e-4  # what rest leaves of a gyro's bias
_FIELD_SHARE = 0.25  # a level field that has changed by more is iron
_FIELD_T = 2e-6  # a smaller one has no bearing
_MAGNET_GATE_RAD = 0.5  # a turn of the field that is refused
_NOTHING: Column = (0j, 0j, 0j, 0j, 0j)


class HeadingFilter:
    """The filter of the motion calls `grow` and `see` as it goes; `take` is for the attitude.

    watches: whether positions may show the heading: they do in flight.
    """

    def __init__(self, *, airframe: Airframe) -> None:
        self._noise = airframe.estimator
        self.watches = False
        self.sigma_rad = _START_RAD
        self._eb, self._bb = 0.0, _BIAS_RADPS**2  # covariance with b, and variance of b
        self._by_e = self._by_b = _NOTHING  # what a radian, a rad/s makes of the motion's states
        self._found = (0.0, 0.0)
        self._fixed_s = -1e9
        self._innovation_m = 0.0
        self._surprise = 1.0
        self._north: tuple[float, float] | None = None  # bearing and size of the level field
        self._magnet_s = -1e9
        self._magnet_rad = 0.0
        self._magnet_agrees = True

    # --- what it knows ----------------------------------------------------------------------

    def health(self, now_s: float, doubt: str, *, contested: bool = False) -> QuantityHealth:
        """doubt: of the gyro's yaw rate, "" if there is none. contested: see `QuantityHealth`."""
        age_s = min(1e6, max(0.0, now_s - self._fixed_s))
        if not doubt and self.sigma_rad > _DOUBT_RAD:
            doubt = f"may be off by {57.3 * self.sigma_rad:.0f} degrees: nothing shows it"
        vote = Vote(
            sensor="position",
            value=self._innovation_m,
            innovation=self._innovation_m,
            age_s=age_s,
            agrees=self._surprise < 4.0,
        )
        votes: tuple[Vote, ...] = (vote,)
        if self._north is not None:
            magnet = Vote(
                sensor="magnetometer",
                value=self._magnet_rad,
                innovation=self._magnet_rad,
                age_s=min(1e6, max(0.0, now_s - self._magnet_s)),
                agrees=self._magnet_agrees,
            )
            votes = (vote, magnet)
        return QuantityHealth(
            sigma=self.sigma_rad, age_s=age_s, doubt=doubt, votes=votes, contested=contested
        )

    # --- time -------------------------------------------------------------------------------

    def rest(
        self,
        sigma_radps: float,
        known_rad: float | None = None,
        turned_sigma_rad: float | None = None,
    ) -> None:
        """The ship lies on the ground: nothing is learnt, and what is known of the gyro is new.

        Where the nose points is known no better than on the way down. turned_sigma_rad: of what
        the ship has turned by since it was laid down nose north; None if it has flown.
        """
        self.forget()
        self._eb, self._bb, self._surprise = 0.0, sigma_radps**2, 1.0
        if turned_sigma_rad is not None:
            known_rad = hypot(_START_RAD, turned_sigma_rad)
        if known_rad is not None:
            self.sigma_rad = known_rad

    def forget(self) -> None:
        """What moves the ship does not come from its accelerometer, or its motion starts again."""
        self._by_e = self._by_b = _NOTHING

    def grow(self, dt_s: float, *, accel_mps2: complex, turn_rad: float) -> None:
        """Predict over `dt_s`; the acceleration is north + i east, of the IMU."""
        if not self.watches:
            return
        noise = self._noise
        ee = self.sigma_rad**2 + dt_s * (dt_s * self._bb - 2.0 * self._eb)
        ee = max(_LEAST_RAD**2, ee + noise.heading_drift_rad**2 * dt_s)
        self.sigma_rad = min(_LARGEST_RAD, ee**0.5)
        self._eb -= dt_s * self._bb
        self._bb += noise.gyro_drift_radps**2 * dt_s
        ahead = rect(1.0, turn_rad)
        p, v, tilt, accel, gyro = self._by_e
        v_mps2 = 1j * accel_mps2 - tilt - accel
        self._by_e = by_e = (
            p + dt_s * v,
            v + dt_s * v_mps2,
            tilt + dt_s * gyro,
            accel * ahead,
            gyro * ahead,
        )
        p, v, tilt, accel, gyro = self._by_b
        self._by_b = (
            p + dt_s * (v + by_e[0]),
            v + dt_s * (by_e[1] - tilt - accel),
            tilt + dt_s * (gyro + by_e[2]),
            accel * ahead + dt_s * by_e[3],
            gyro * ahead + dt_s * by_e[4],
        )

    def see(
        self, seen: Column, gains: Column, innovation: complex, variance: float, now_s: float
    ) -> Column | None:
        """Follow a correction of the motion; return what it changes by beside it, if anything.

        seen: how the measurement depends on the motion's states; gains, innovation and its variance
        a level axis: theirs. An infinite variance shows nothing of the heading.
        """
        if not self.watches:
            return None
        e = _seen(seen, self._by_e)
        b = _seen(seen, self._by_b)
        self._by_e = _less(self._by_e, gains, e)
        self._by_b = _less(self._by_b, gains, b)
        if variance == inf:
            return None
        ee, eb, bb = self.sigma_rad**2, self._eb, self._bb
        turn, bias, surprise = 0.0, 0.0, 0.0
        for he, hb, far in ((e.real, b.real, innovation.real), (e.imag, b.imag, innovation.imag)):
            ce, cb = ee * he + eb * hb, eb * he + bb * hb
            total = variance + he * ce + hb * cb
            left = far - he * turn - hb * bias
            turn, bias = turn + ce / total * left, bias + cb / total * left
            ee, eb, bb = ee - ce * ce / total, eb - ce * cb / total, bb - cb * cb / total
            surprise += 0.5 * left * left / total
        self._surprise += 0.02 * (surprise - self._surprise)
        self.sigma_rad, self._eb, self._bb = max(_LEAST_RAD**2, ee) ** 0.5, eb, max(1e-12, bb)
        self._innovation_m, self._fixed_s = abs(innovation), now_s
        self._found = (self._found[0] + turn, self._found[1] + bias)
        p, v, tilt, accel, gyro = (
            turn * x + bias * y for x, y in zip(self._by_e, self._by_b, strict=True)
        )
        return (p, v, tilt, accel, gyro)

    def take(self) -> tuple[float, float]:
        """Return what heading and gyro bias are found to be off by since the last call."""
        found, self._found = self._found, (0.0, 0.0)
        return found

    def magnet(
        self, field_body_t: Vec3, now_s: float, *, at_rest: bool, attitude: AttitudeFilter
    ) -> None:
        """Take a magnetic field. On the pad it shows where north is; iron may turn it later."""
        if now_s - self._magnet_s < _MAGNET_S or not isfinite(sum(field_body_t)):
            return
        self._magnet_s = now_s
        north, east, _ = rotate(attitude.attitude, field_body_t)
        size, bearing = hypot(north, east), atan2(east, north)
        if size < _FIELD_T:
            return
        if at_rest or self._north is None:
            if at_rest:
                self._north = (bearing, size)
            return
        error_rad = wrap_pi(self._north[0] - bearing)
        self._magnet_rad = error_rad
        sigma_rad = self._noise.magnetometer_sigma_rad
        gate_rad = max(_MAGNET_GATE_RAD, 4.0 * self.sigma_rad)
        self._magnet_agrees = (
            abs(size / self._north[1] - 1.0) < _FIELD_SHARE and abs(error_rad) < gate_rad
        )
        if not self._magnet_agrees:
            return
        # Iron stays as long as the ship does: samples in a row are one, so each counts little.
        gain = self.sigma_rad**2 / (self.sigma_rad**2 + 25.0 * sigma_rad**2)
        attitude.turn(gain * error_rad, 0.02 * gain * error_rad)
        self.seen(self.sigma_rad * (1.0 - gain) ** 0.5)

    def seen(self, sigma_rad: float) -> None:
        """Something else has shown the heading: it owes the gyro's bias less as well."""
        if sigma_rad < self.sigma_rad:
            sigma_rad = max(_LEAST_RAD, sigma_rad)
            self._eb *= (sigma_rad / self.sigma_rad) ** 2
            self.sigma_rad = sigma_rad

    def drift(self, sigma_rad: float) -> None:
        """The heading has become less sure by this."""
        self.sigma_rad = min(_LARGEST_RAD, hypot(self.sigma_rad, sigma_rad))


def _seen(seen: Column, by: Column) -> complex:
    return seen[0] * by[0] + seen[1] * by[1] + seen[2] * by[2] + seen[3] * by[3]


def _less(by: Column, gains: Column, seen: complex) -> Column:
    return (
        by[0] - gains[0] * seen,
        by[1] - gains[1] * seen,
        by[2] - gains[2] * seen,
        by[3] - gains[3] * seen,
        by[4] - gains[4] * seen,
    )
