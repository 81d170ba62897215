"""The covariance of a motion on a plane: position, velocity, tilt, biases of both inertial sensors.

North and east get the same samples with the same noise, so a state is one complex number, north +
i east, and a turn of the ship by an angle is a factor. Tilt and bias are errors of the measured
acceleration: the attitude's error times g, which stays where it is while the ship turns, and the
accelerometer's, which turns with it. So does the gyro's bias about the level axes, which tilts the
attitude: it is held as the rate, in m/s^3, at which it turns gravity. Source: Bar-Shalom,
"Estimation with Applications to Tracking and Navigation", chapter 6; for complex states, Mandic &
Goh, "Complex Valued Nonlinear Adaptive Filters" (2009), chapter 12.
"""

from cmath import rect

_LEAST = 1e-9  # of a variance: .03 mm, .03 mm/s
_BIAS_SHARE = 0.01  # of the tilt's drift: the accelerometer's bias wanders with temperature only

# Of position, velocity, tilt, bias, and the gyro's bias.
Column = tuple[complex, complex, complex, complex, complex]


class MotionCovariance:
    """P, Hermitian: its upper half, of which the diagonal is real.

    F: p' = v; v' = a - b - c with the measured acceleration a; b' = d; c' = i w c and d' = i w d
    with the turn rate w. Q, per second: noise of the acceleration on v, drift on b, a hundredth of
    it on c, gyro on d.
    """

    __slots__ = (
        "bb", "bc", "bd", "cc", "cd", "dd", "pb", "pc", "pd", "pp", "pv", "vb", "vc", "vd", "vv",
    )  # fmt: skip

    def __init__(
        self,
        *,
        position_m: float,
        velocity_mps: float,
        level_mps2: float,
        bias_mps2: float,
        gyro_mps3: float,
    ) -> None:
        """Take standard deviations. level_mps2: of tilt and bias together, for a ship that has
        been levelled by its accelerometer; bias_mps2: of the bias alone."""
        self.cc = bias_mps2**2
        self.bb = level_mps2**2 + self.cc
        self.bc = complex(-self.cc)
        self.rest(gyro_mps3)
        self.restart(position_m**2, velocity_mps**2)

    def restart(self, pp: float, vv: float) -> None:
        """Set position and velocity to these variances, and forget what they owe each other."""
        self.pp, self.vv = pp, vv
        self.pv = 0j
        self.uncouple()

    def uncouple(self) -> None:
        """The ship has moved without its accelerometer: that says nothing of tilt and biases."""
        self.pb = self.pc = self.pd = self.vb = self.vc = self.vd = 0j

    def rest(self, gyro_mps3: float) -> None:
        """The gyro's bias has been measured, with this standard deviation."""
        self.dd = gyro_mps3**2
        self.pd = self.vd = self.bd = self.cd = 0j

    def grow(
        self, dt_s: float, *, turn_rad: float, noise: float, drift: float, gyro: float
    ) -> None:
        """Predict over `dt_s`; noise in (m/s^2)^2 s, drift in (m/s^2)^2 and gyro in (m/s^3)^2 per
        second."""
        back = rect(1.0, -turn_rad)
        pv, vb, vc, bc = self.pv, self.vb, self.vc, self.bc
        vs, bb, cc = vb + vc, self.bb, self.cc
        pd, vd, bd, cd, dd = self.pd, self.vd, self.bd, self.cd, self.dd
        self.pp += dt_s * (2.0 * pv.real + dt_s * self.vv) + 1e-8 * dt_s
        self.pv = pv + dt_s * (self.vv - self.pb - self.pc - dt_s * vs)
        self.pb += dt_s * (vb + pd + dt_s * vd)
        self.pd = (pd + dt_s * vd) * back
        self.pc = (self.pc + dt_s * vc) * back
        self.vv += dt_s * (dt_s * (bb + cc + 2.0 * bc.real) - 2.0 * vs.real + noise)
        self.vb = vb + dt_s * (vd - bb - bc.conjugate() - dt_s * (bd + cd))
        self.vd = (vd - dt_s * (bd + cd)) * back
        self.vc = (vc - dt_s * (bc + cc)) * back
        self.bc = (bc + dt_s * cd.conjugate()) * back
        self.bb = bb + dt_s * (2.0 * bd.real + dt_s * dd + drift)
        self.bd = (bd + dt_s * dd) * back
        self.dd = dd + gyro * dt_s
        self.cc = cc + _BIAS_SHARE * drift * dt_s
        # Rounding, or a variance that was set again, may leave less than nothing: its root would
        # be a complex number, which ends the flight loop.
        if self.pp < _LEAST or self.vv < _LEAST or self.bb < _LEAST:
            self.pp, self.vv = max(_LEAST, self.pp), max(_LEAST, self.vv)
            self.bb = max(_LEAST, self.bb)

    @property
    def of_position(self) -> Column:
        """What each state owes the position."""
        return (
            complex(self.pp),
            self.pv.conjugate(),
            self.pb.conjugate(),
            self.pc.conjugate(),
            self.pd.conjugate(),
        )

    @property
    def of_velocity(self) -> Column:
        return (
            self.pv,
            complex(self.vv),
            self.vb.conjugate(),
            self.vc.conjugate(),
            self.vd.conjugate(),
        )

    @property
    def of_acceleration(self) -> Column:
        """What each owes the acceleration that is felt, tilt and bias taken out."""
        return (
            -self.pb - self.pc,
            -self.vb - self.vc,
            -self.bb - self.bc,
            -self.bc.conjugate() - self.cc,
            -self.bd.conjugate() - self.cd.conjugate(),
        )

    def correct(self, column: Column, variance: float) -> Column:
        """Take a measurement of what `column` belongs to; return the gains.

        variance: of the innovation.
        """
        p, v, b, c, d = column
        k = kp, kv, kb, kc, kd = (
            p / variance,
            v / variance,
            b / variance,
            c / variance,
            d / variance,
        )
        v, b, c, d = v.conjugate(), b.conjugate(), c.conjugate(), d.conjugate()
        self.pp = max(_LEAST, self.pp - (kp * p.conjugate()).real)
        self.pv -= kp * v
        self.pb -= kp * b
        self.pc -= kp * c
        self.pd -= kp * d
        self.vv = max(_LEAST, self.vv - (kv * v).real)
        self.vb -= kv * b
        self.vc -= kv * c
        self.vd -= kv * d
        self.bb = max(_LEAST, self.bb - (kb * b).real)
        self.bc -= kb * c
        self.bd -= kb * d
        self.cc = max(_LEAST, self.cc - (kc * c).real)
        self.cd -= kc * d
        self.dd = max(1e-12, self.dd - (kd * d).real)
        return k
