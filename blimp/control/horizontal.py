"""Horizontal position and velocity from position tag or GPS, with acceleration between.

One Kalman filter with three states an axis: position, velocity and acceleration bias
(a tilt error of half a degree is 0.09 m/s^2, more than the ship ever accelerates). North
and east get the same samples with the same noise, so they share one covariance, and the
bias, which sits in the ship, may be turned with it.
"""

from math import cos, hypot, isfinite, radians, sin

from blimp.airframe import Home
from blimp.types import ZERO3, GpsSample, PositionSample, Vec3

_ACCEL_SIGMA_MPS2 = 0.06  # per sqrt(s)
_BIAS_DRIFT_MPS2 = 0.02  # per sqrt(s)
_BLIND_ACCEL_MPS2 = 0.2  # what a ship may accelerate by unseen, per sqrt(s)
_GPS_SHARE = 0.3  # of its stated accuracy that is noise; the rest wanders slowly
_GPS_FLOOR_M = 0.5
_GATE_SIGMAS = 5.0
_GATE_FLOOR_M = 0.6
_PERSISTENT_S = 1.5  # a source that disagrees this long is right after all
_STALE_S = 2.5
RECKONED_S = 8.0  # so long the accelerometer alone gives a velocity good for braking
_TAG_LOST_S = 1.0
_GPS_VELOCITY_SIGMA_MPS = 0.15
# From the air to the estimator: ranging or solving, the line, and half a polling period.
_TAG_LATENCY_S = 0.1
_GPS_LATENCY_S = 0.2
MAX_LATENCY_S = 0.5  # of a sample that says its own
_EARTH_RADIUS_M = 6_371_000.0  # sphere: 0.3 % of a leg, far below GPS noise here
_SIGMA_RANGE_M = (0.005, 20.0)


class HorizontalFilter:
    """North and east of the pad. Call `predict` every cycle, then the updates."""

    def __init__(self, *, home: Home) -> None:
        self._home = home
        self._m_per_lat = radians(1.0) * _EARTH_RADIUS_M
        self._m_per_lon = self._m_per_lat * cos(radians(home.latitude_deg))
        self.position_m = [0.0, 0.0]
        self.velocity_mps = [0.0, 0.0]
        self._bias = [0.0, 0.0]
        self._p = (4.0, 0.0, 0.0, 0.04, 0.0, 0.01)  # pp pv pb vv vb bb
        self._accepted_s: float | None = None
        self._bad_since_s: float | None = None
        self._tag_s: float | None = None
        self._tag_t_s = -1.0
        self._gps_t_s = -1.0
        self._gps_offset: tuple[float, float] | None = None

    def age_s(self, now_s: float) -> float:
        """Return seconds since a position was accepted; infinite before the first."""
        return float("inf") if self._accepted_s is None else max(0.0, now_s - self._accepted_s)

    def valid(self, now_s: float) -> bool:
        return self.age_s(now_s) <= _STALE_S

    def predict(
        self,
        accel_north_mps2: float,
        accel_east_mps2: float,
        dt_s: float,
        *,
        turn_rad: float = 0.0,
    ) -> None:
        """Move on by `dt_s`. turn_rad: how far the ship has turned, and its bias with it."""
        c, s = cos(turn_rad), sin(turn_rad)
        north, east = self._bias
        self._bias = [c * north - s * east, s * north + c * east]
        position, velocity = self.position_m, self.velocity_mps
        for axis, measured in enumerate((accel_north_mps2, accel_east_mps2)):
            a = measured - self._bias[axis]
            position[axis] += (velocity[axis] + 0.5 * a * dt_s) * dt_s
            velocity[axis] += a * dt_s
        pp, pv, pb, vv, vb, bb = self._p
        self._p = (
            pp + dt_s * (2.0 * pv + dt_s * vv) + 1e-8 * dt_s,
            pv + dt_s * (vv - pb - dt_s * vb),
            pb + dt_s * vb,
            vv + dt_s * (dt_s * bb - 2.0 * vb) + _ACCEL_SIGMA_MPS2**2 * dt_s,
            vb - dt_s * bb,
            bb + _BIAS_DRIFT_MPS2**2 * dt_s,
        )

    def drift(self, dt_s: float) -> None:
        """Move on by `dt_s` without an accelerometer."""
        self.predict(self._bias[0], self._bias[1], dt_s)
        pp, pv, pb, vv, vb, bb = self._p
        self._p = (pp, pv, pb, vv + _BLIND_ACCEL_MPS2**2 * dt_s, vb, bb)

    def coast(self, now_s: float, dt_s: float) -> None:
        """No source is left: in time let the velocity fade instead of running away."""
        if self.age_s(now_s) > RECKONED_S:
            keep = max(0.0, 1.0 - dt_s / 2.0)
            self.velocity_mps = [v * keep for v in self.velocity_mps]

    def update_tag(self, sample: PositionSample, now_s: float, *, arm_ned_m: Vec3 = ZERO3) -> None:
        """Take a tag's position of the hull; `arm_ned_m` leads from there to the IMU."""
        if sample.t_s == self._tag_t_s:
            return
        self._tag_t_s = sample.t_s
        north_m, east_m, _ = sample.position_ned_m
        latency_s = _TAG_LATENCY_S if sample.latency_s is None else sample.latency_s
        if not isfinite(north_m + east_m + sample.accuracy_m + latency_s):
            return
        if not 0.0 <= latency_s <= MAX_LATENCY_S:
            return
        if self._take(
            north_m + arm_ned_m[0],
            east_m + arm_ned_m[1],
            sample.accuracy_m,
            now_s,
            latency_s=latency_s,
        ):
            self._tag_s = now_s

    def update_gps(
        self, sample: GpsSample, now_s: float, *, on_pad: bool, arm_ned_m: Vec3 = ZERO3
    ) -> None:
        """Take a GPS fix, shifted by the offset tracked while something better was there.

        on_pad: the ship rests on its pad, which is the origin whatever GPS says of it.
        """
        if sample.t_s == self._gps_t_s:
            return
        self._gps_t_s = sample.t_s
        if not isfinite(sample.latitude_deg + sample.longitude_deg + sample.accuracy_m):
            return
        north_m = (sample.latitude_deg - self._home.latitude_deg) * self._m_per_lat + arm_ned_m[0]
        east_m = (sample.longitude_deg - self._home.longitude_deg) * self._m_per_lon + arm_ned_m[1]
        tagged = self._tag_s is not None and now_s - self._tag_s <= _TAG_LOST_S
        if tagged or (on_pad and self._tag_s is None):
            reference = self.position_m if tagged else arm_ned_m
            self._track_offset(north_m - reference[0], east_m - reference[1])
            if tagged:
                return
        shift = self._gps_offset or (0.0, 0.0)
        accuracy_m = max(_GPS_FLOOR_M, _GPS_SHARE * sample.accuracy_m)
        if self._take(
            north_m - shift[0], east_m - shift[1], accuracy_m, now_s, latency_s=_GPS_LATENCY_S
        ):
            velocity = sample.velocity_ned_mps
            if velocity is not None and isfinite(velocity[0] + velocity[1]):
                self._take_velocity(velocity[0], velocity[1])

    def _track_offset(self, north_m: float, east_m: float) -> None:
        if self._gps_offset is None:
            self._gps_offset = (north_m, east_m)
            return
        n, e = self._gps_offset
        self._gps_offset = (n + 0.05 * (north_m - n), e + 0.05 * (east_m - e))

    def _take(
        self, north_m: float, east_m: float, sigma_m: float, now_s: float, *, latency_s: float
    ) -> bool:
        """Correct by a position unless it is an outlier; return whether it was used."""
        sigma_m = max(_SIGMA_RANGE_M[0], min(_SIGMA_RANGE_M[1], sigma_m))
        if self._accepted_s is None or self.age_s(now_s) > 2.0 * _STALE_S:
            self._restart(north_m, east_m, sigma_m, now_s)
            return True
        north_m += latency_s * self.velocity_mps[0]
        east_m += latency_s * self.velocity_mps[1]
        dn, de = north_m - self.position_m[0], east_m - self.position_m[1]
        pp, pv, pb, _, _, _ = self._p
        variance = pp + sigma_m * sigma_m
        if hypot(dn, de) > max(_GATE_FLOOR_M, _GATE_SIGMAS * variance**0.5):
            if self._bad_since_s is None:
                self._bad_since_s = now_s
            if now_s - self._bad_since_s >= _PERSISTENT_S:
                self._restart(north_m, east_m, sigma_m, now_s)
                return True
            return False
        self._bad_since_s = None
        self._accepted_s = now_s
        self._correct(dn, de, (pp, pv, pb), variance)
        return True

    def _take_velocity(self, north_mps: float, east_mps: float) -> None:
        _, pv, _, vv, vb, _ = self._p
        dn, de = north_mps - self.velocity_mps[0], east_mps - self.velocity_mps[1]
        if hypot(dn, de) < 3.0:
            self._correct(dn, de, (pv, vv, vb), vv + _GPS_VELOCITY_SIGMA_MPS**2)

    def _correct(
        self, dn: float, de: float, column: tuple[float, float, float], variance: float
    ) -> None:
        cp, cv, cb = column
        kp, kv, kb = cp / variance, cv / variance, cb / variance
        for axis, innovation in enumerate((dn, de)):
            self.position_m[axis] += kp * innovation
            self.velocity_mps[axis] += kv * innovation
            self._bias[axis] += kb * innovation
        pp, pv, pb, vv, vb, bb = self._p
        self._p = (
            max(1e-9, pp - kp * cp),
            pv - kp * cv,
            pb - kp * cb,
            max(1e-9, vv - kv * cv),
            vb - kv * cb,
            max(1e-9, bb - kb * cb),
        )

    def _restart(self, north_m: float, east_m: float, sigma_m: float, now_s: float) -> None:
        """Believe this sample alone: the first one, or one that has insisted."""
        self.position_m = [north_m, east_m]
        _, _, _, vv, _, bb = self._p
        self._p = (sigma_m * sigma_m, 0.0, 0.0, max(vv, 0.04), 0.0, bb)
        self._accepted_s = now_s
        self._bad_since_s = None
