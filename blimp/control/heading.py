"""The heading, from how the ship moves when its thrusters push, and from a magnetometer.

A gyro tells how far the nose has turned, and drifts. A push along the nose moves the ship along the
nose: so position says where the nose points, the better the more the ship has to push. An extended
Kalman filter with eight error states: position p and velocity v (north, east), wind w (north,
east), heading error e and gyro bias error b.

F: p' = v; v' = R (M^-1 (f - D(u)) + turning), u = R^T (v - w), with the thrust f in the body frame,
mass with added mass M, drag D and R by the heading; w' = 0; e' = -b; b' = 0.
Q: thrust_accel_sigma on v, wind_accel_drift over the drag's slope on w, heading_drift on e,
gyro_drift on b, per second.
H: a tag or GPS sees p as it was its latency ago; a magnetometer sees e.
Source: Bar-Shalom, "Estimation with Applications to Tracking and Navigation", section 10.3; for the
idea, "airspeed and thrust aided" yaw: Johansen et al., "On estimation of wind velocity,
angle-of-attack and sideslip angle of small UAVs using standard sensors" (2015).

In a calm hover nothing pushes, so nothing is learnt: sigma grows with the gyro's drift, slowly, and
`doubt` says so when it is too large to steer by.
"""

from math import atan2, cos, hypot, isfinite, pi, sin

from blimp.airframe import Airframe
from blimp.control.attitude import AttitudeFilter
from blimp.control.horizontal import HorizontalFilter
from blimp.rotation import rotate, wrap_pi, yaw_of
from blimp.types import QuantityHealth, Vec3, Vote, Wrench

STEP_S = 0.2  # between two steps of the filter: the heading is seen in seconds, not in cycles
STEER_RAD = 0.6  # a heading less sure than this is no use for steering
_DOUBT_RAD = 0.35  # above it the heading counts as doubtful
_START_RAD = 0.03  # laid down nose north by hand
_START_WIND_MPS = 0.3  # of the wind before anything is known
_FLOOR_MPS = 0.15  # drag is flat below this airspeed
_POSITION_M = 0.05  # least noise of a position
_GATE_M = 1.0  # an innovation that is refused however wide the filter is
_LOST_S = 3.0  # without a position it begins again
_LARGEST_RAD = pi / 2.0  # nothing is known of a heading beyond
_BIAS_RADPS = 3e-4  # what rest leaves of a gyro's bias
_FIELD_SHARE = 0.25  # a level field that has changed by more is iron
_FIELD_T = 2e-6  # a smaller one has no bearing
_MAGNET_GATE_RAD = 0.5  # a turn of the field that is refused
_STRETCH = 25.0  # how fast surprise widens what is believed of the gyro's bias
N, E, VN, VE, WN, WE, PSI, B = range(8)


class HeadingFilter:
    """Call `push` every cycle in flight, `fix` with each position that is used.

    It corrects the attitude's yaw and yaw bias itself.
    """

    def __init__(self, *, airframe: Airframe) -> None:
        aero, noise = airframe.aero, airframe.estimator
        self._noise = noise
        self._mass = (
            airframe.mass_kg + aero.added_mass_kg[0],
            airframe.mass_kg + aero.added_mass_kg[1],
        )
        self._linear, self._quadratic = aero.linear_drag, aero.quadratic_drag
        self._begin()

    def _begin(self) -> None:
        self._bias_sigma = _BIAS_RADPS
        self.sigma_rad = _START_RAD
        self._state: list[float] | None = None  # p, v, w
        self._p: list[list[float]] = []
        self._sum = [0.0, 0.0, 0.0, 0.0]  # force x, y, turn rate, times dt; dt
        self._fixed_s = -1e9
        self._source = ""
        self._innovation_m = 0.0
        self._surprise = 1.0
        self._north: tuple[float, float] | None = None  # bearing and size of the level field
        self._magnet_s = -1e9
        self._magnet_rad = 0.0
        self._magnet_agrees = True

    # --- what it knows ----------------------------------------------------------------------

    def health(self, now_s: float, doubt: str) -> QuantityHealth:
        """doubt: of the gyro's yaw rate, "" if there is none."""
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
        return QuantityHealth(sigma=self.sigma_rad, age_s=age_s, doubt=doubt, votes=votes)

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
        if self._state is not None:
            north, sigma_rad = self._north, self.sigma_rad
            self._begin()
            self._north, self.sigma_rad = north, sigma_rad
        self._bias_sigma = sigma_radps
        if turned_sigma_rad is not None:
            known_rad = hypot(_START_RAD, turned_sigma_rad)
        if known_rad is not None:
            self.sigma_rad = known_rad

    def push(self, thrust: Wrench, yaw_rate_radps: float, dt_s: float) -> None:
        """Take the thrust of one cycle."""
        s = self._sum
        s[0] += thrust.force_body_n[0] * dt_s
        s[1] += thrust.force_body_n[1] * dt_s
        s[2] += yaw_rate_radps * dt_s
        s[3] += dt_s

    def fix(
        self,
        position_m: tuple[float, float],
        sigma_m: float,
        source: str,
        now_s: float,
        *,
        attitude: AttitudeFilter,
        horizontal: HorizontalFilter,
    ) -> None:
        """Take a position of the ship, as it was its source's latency ago."""
        if self._state is None or now_s - self._fixed_s > _LOST_S or source != self._source:
            self._start(position_m, sigma_m, horizontal.velocity_mps)
            self._fixed_s, self._source = now_s, source
            return
        if self._sum[3] < STEP_S:
            return
        self._fixed_s = now_s
        self._predict(yaw_of(attitude.attitude))
        latency_s = self._noise.tag_latency_s if source == "tag" else self._noise.gps_latency_s
        error_rad, error_radps = self._correct(position_m, sigma_m, latency_s)
        if error_rad or error_radps:
            attitude.turn(error_rad, error_radps)
            horizontal.turn(error_rad)

    def magnet(
        self, field_body_t: Vec3, now_s: float, *, at_rest: bool, attitude: AttitudeFilter
    ) -> None:
        """Take a magnetic field. On the pad it shows where north is; iron may turn it later."""
        if now_s - self._magnet_s < STEP_S or not isfinite(sum(field_body_t)):
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
        self.sigma_rad *= (1.0 - gain) ** 0.5
        if self._p:
            self._p[PSI][PSI] = self.sigma_rad**2

    def _start(self, position_m: tuple[float, float], sigma_m: float, v: list[float]) -> None:
        wind = self._state[4:] if self._state is not None else [0.0, 0.0]
        old = self._p
        self._state = [*position_m, *v, *wind]
        self._sum = [0.0, 0.0, 0.0, 0.0]
        variances = [sigma_m**2] * 2 + [0.04] * 2 + [_START_WIND_MPS**2] * 2
        variances += [self.sigma_rad**2, self._bias_sigma**2]
        self._p = [[v if i == j else 0.0 for j in range(8)] for i, v in enumerate(variances)]
        if old:
            for i in (WN, WE, PSI, B):
                for j in (WN, WE, PSI, B):
                    self._p[i][j] = old[i][j]

    def seen(self, sigma_rad: float) -> None:
        """Motion capture has shown the heading."""
        self.sigma_rad = min(self.sigma_rad, sigma_rad)
        if self._p:
            self._p[PSI][PSI] = self.sigma_rad**2

    def drift(self, sigma_rad: float) -> None:
        """The heading has become less sure by this."""
        self.sigma_rad = min(_LARGEST_RAD, hypot(self.sigma_rad, sigma_rad))
        if self._p:
            self._p[PSI][PSI] = self.sigma_rad**2

    # --- arithmetic -------------------------------------------------------------------------

    def _predict(self, yaw_rad: float) -> None:
        assert self._state is not None
        fx, fy, r, dt = self._sum
        fx, fy, r = fx / dt, fy / dt, r / dt
        self._sum = [0.0, 0.0, 0.0, 0.0]
        n, e, vn, ve, wn, we = self._state
        yaw = yaw_rad - 0.5 * r * dt
        c, s = cos(yaw), sin(yaw)
        mx, my = self._mass
        rn, re = vn - wn, ve - we
        ux, uy = c * rn + s * re, c * re - s * rn
        lx, ly, qx, qy = self._linear[0], self._linear[1], self._quadratic[0], self._quadratic[1]
        ax = (fx - ux * (lx + qx * abs(ux))) / mx + (my / mx - 1.0) * r * uy
        ay = (fy - uy * (ly + qy * abs(uy))) / my - (mx / my - 1.0) * r * ux
        kx = (lx + 2.0 * qx * max(_FLOOR_MPS, abs(ux))) / mx
        ky = (ly + 2.0 * qy * max(_FLOOR_MPS, abs(uy))) / my
        an, ae = c * ax - s * ay, s * ax + c * ay
        self._state = [
            n + (vn + 0.5 * an * dt) * dt,
            e + (ve + 0.5 * ae * dt) * dt,
            vn + an * dt,
            ve + ae * dt,
            wn,
            we,
        ]
        # By the heading: the force turns with the nose, the drag with the air in its frame.
        gx, gy = -ay - kx * uy, ax + ky * ux
        gn, ge = (c * gx - s * gy) * dt, (s * gx + c * gy) * dt
        knn, kne, kee = (
            (c * c * kx + s * s * ky) * dt,
            c * s * (kx - ky) * dt,
            (s * s * kx + c * c * ky) * dt,
        )
        p = self._p
        p = _times(p, dt, knn, kne, kee, gn, ge)
        p = _times([list(row) for row in zip(*p, strict=True)], dt, knn, kne, kee, gn, ge)
        noise = self._noise
        accel = noise.thrust_accel_sigma_mps2**2 * dt
        drag = max(ky, kx)  # none by these terms, if the airframe gives a polar instead
        wind = (noise.wind_accel_drift_mps2 / drag) ** 2 * dt if drag > 0.0 else 0.0
        gyro = noise.gyro_drift_radps**2 * max(1.0, _STRETCH * (self._surprise - 1.5)) * dt
        for i, q in enumerate(
            (0.0, 0.0, accel, accel, wind, wind, noise.heading_drift_rad**2 * dt, gyro)
        ):
            p[i][i] += q
        self._p = p

    def _correct(
        self, position_m: tuple[float, float], sigma_m: float, latency_s: float
    ) -> tuple[float, float]:
        """Return the error of the heading and of the gyro's bias."""
        assert self._state is not None
        state, p = self._state, self._p
        error = [0.0, 0.0]
        surprise = 0.0
        for axis in (0, 1):
            innovation = position_m[axis] - state[axis] + latency_s * state[axis + 2]
            column = [row[axis] - latency_s * row[axis + 2] for row in p]
            variance = column[axis] - latency_s * column[axis + 2] + sigma_m**2
            if abs(innovation) > max(_GATE_M, 5.0 * variance**0.5):
                surprise += 4.0
                continue
            surprise += innovation * innovation / variance
            gains = [c / variance for c in column]
            for i in range(6):
                state[i] += gains[i] * innovation
            error[0] += gains[PSI] * innovation
            error[1] += gains[B] * innovation
            p = [
                [a - k * c for a, c in zip(row, column, strict=True)]
                for row, k in zip(p, gains, strict=True)
            ]
            self._innovation_m = innovation
        self._surprise += 0.02 * (0.5 * surprise - self._surprise)
        self._p = p
        self.sigma_rad = min(_LARGEST_RAD, max(1e-4, p[PSI][PSI]) ** 0.5)
        return wrap_pi(error[0]), error[1]


def _times(
    p: list[list[float]], dt: float, knn: float, kne: float, kee: float, gn: float, ge: float
) -> list[list[float]]:
    """Return F p: the rows of position, velocity and heading change, the others stay."""
    pn, pe, vn, ve, wn, we, psi, b = p
    return [
        [a + dt * v for a, v in zip(pn, vn, strict=True)],
        [a + dt * v for a, v in zip(pe, ve, strict=True)],
        [
            a - knn * (a - x) - kne * (q - y) + gn * h
            for a, q, x, y, h in zip(vn, ve, wn, we, psi, strict=True)
        ],
        [
            a - kne * (q - x) - kee * (a - y) + ge * h
            for a, q, x, y, h in zip(ve, vn, wn, we, psi, strict=True)
        ],
        wn,
        we,
        [a - dt * v for a, v in zip(psi, b, strict=True)],
        b,
    ]
