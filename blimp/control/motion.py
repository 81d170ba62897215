"""The covariance of a motion on a plane: position, velocity, tilt and accelerometer bias.

North and east get the same samples with the same noise, so a state is one complex number, north +
i east, and a turn of the ship by an angle is a factor. Tilt and bias are errors of the measured
acceleration: the attitude's error times g, which stays where it is while the ship turns, and the
accelerometer's, which turns with it. Source: Bar-Shalom, "Estimation with Applications to Tracking
and Navigation", chapter 6; for complex states, Mandic & Goh, "Complex Valued Nonlinear Adaptive
Filters" (2009), chapter 12.
"""

from cmath import rect

_BIAS_SHARE = 0.01  # of the tilt's drift: the accelerometer's bias wanders with temperature only

Column = tuple[complex, complex, complex, complex]  # of position, velocity, tilt, bias


class MotionCovariance:
    """P, Hermitian: its upper half, of which the diagonal is real.

    F: p' = v; v' = a - b - c with the measured acceleration a; b' = 0; c' = i w c with the turn
    rate w. Q, per second: noise of the acceleration on v, drift on b, a hundredth of it on c.
    """

    __slots__ = ("bb", "bc", "cc", "pb", "pc", "pp", "pv", "vb", "vc", "vv")

    def __init__(
        self, *, position_m: float, velocity_mps: float, level_mps2: float, bias_mps2: float
    ) -> None:
        """Take standard deviations. level_mps2: of tilt and bias together, for a ship that has
        been levelled by its accelerometer; bias_mps2: of the bias alone."""
        self.cc = bias_mps2**2
        self.bb = level_mps2**2 + self.cc
        self.bc = complex(-self.cc)
        self.restart(position_m**2, velocity_mps**2)

    def restart(self, pp: float, vv: float) -> None:
        """Set position and velocity to these variances, and forget what they owe each other."""
        self.pp, self.vv = pp, vv
        self.pv = self.pb = self.pc = self.vb = self.vc = 0j

    def grow(self, dt_s: float, *, turn_rad: float, noise: float, drift: float) -> None:
        """Predict over `dt_s`; noise in (m/s^2)^2 s, drift in (m/s^2)^2 per second."""
        back = rect(1.0, -turn_rad)
        pv, vb, vc, bc = self.pv, self.vb, self.vc, self.bc
        vs, bb, cc = vb + vc, self.bb, self.cc
        self.pp += dt_s * (2.0 * pv.real + dt_s * self.vv) + 1e-8 * dt_s
        self.pv = pv + dt_s * (self.vv - self.pb - self.pc - dt_s * vs)
        self.pb += dt_s * vb
        self.pc = (self.pc + dt_s * vc) * back
        self.vv += dt_s * (dt_s * (bb + cc + 2.0 * bc.real) - 2.0 * vs.real + noise)
        self.vb = vb - dt_s * (bb + bc.conjugate())
        self.vc = (vc - dt_s * (bc + cc)) * back
        self.bc = bc * back
        self.bb = bb + drift * dt_s
        self.cc = cc + _BIAS_SHARE * drift * dt_s

    @property
    def of_position(self) -> Column:
        """What each state owes the position."""
        return (complex(self.pp), self.pv.conjugate(), self.pb.conjugate(), self.pc.conjugate())

    @property
    def of_velocity(self) -> Column:
        return (self.pv, complex(self.vv), self.vb.conjugate(), self.vc.conjugate())

    def correct(self, column: Column, variance: float) -> Column:
        """Take a measurement of what `column` belongs to; return the gains.

        variance: of the innovation.
        """
        p, v, b, c = column
        k = kp, kv, kb, kc = p / variance, v / variance, b / variance, c / variance
        v, b, c = v.conjugate(), b.conjugate(), c.conjugate()
        self.pp = max(1e-9, self.pp - (kp * p.conjugate()).real)
        self.pv -= kp * v
        self.pb -= kp * b
        self.pc -= kp * c
        self.vv = max(1e-9, self.vv - (kv * v).real)
        self.vb -= kv * b
        self.vc -= kv * c
        self.bb = max(1e-9, self.bb - (kb * b).real)
        self.bc -= kb * c
        self.cc = max(1e-9, self.cc - (kc * c).real)
        return k
