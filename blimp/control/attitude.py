"""Attitude from the gyro, with its bias.

State: attitude q (body to world) and gyro bias. Prediction: q turns by the measured rates less the
bias. In flight the horizontal filter levels it (`right`): it knows what the ship accelerates by,
which turns the accelerometer's plumb line. At rest, and of an axis without a gyro, the plumb line
is followed with a fixed gain. Source: Mahony, Hamel, Pflimlin, "Nonlinear complementary filters on
SO(3)" (2008), the explicit filter.

Yaw is what the gyro integrates from 0 on the pad, where the ship is laid down facing north; what
its bias does to it is undone by `blimp/control/heading.py`. Neither sensor rewrites the other:
`PlumbCheck` says which is not believed when they disagree, and then the hull's own righting moment
takes its place, by which the ship hangs level.
"""

from cmath import rect
from math import atan2, hypot, isfinite, pi, sqrt

from blimp.constants import GRAVITY_MPS2
from blimp.control.coast import LOST_RAD, UNWATCHED_RADPS
from blimp.control.plumb import PlumbCheck
from blimp.control.rest import RestBias
from blimp.rotation import euler, from_euler, integrate, normalize, rotate_back, yaw_of
from blimp.types import LEVEL, ZERO3, ImuSample, QuantityHealth, Quaternion, Vec3, Vote

_DOWN = (0.0, 0.0, 1.0)  # along forward, right, down

_GAIN_REST = 2.0  # 1/s: on the pad the plumb line is right
_GAIN_NO_GYRO = 0.6  # 1/s: of an axis without a gyro
_GAIN_LEVEL = 0.05  # 1/s: without a plumb line, towards level
_BIAS_LIMIT_RADPS = 0.4  # MPU-6050 datasheet, 6.1: zero-rate output within 20 deg/s
_RATE_LIMIT_RADPS = 40.0  # past the 2000 deg/s full scale: not a gyro's value
_ACCEL_GATE_MPS2 = 2.0  # this far from g the plumb line says nothing
_APART_COS = 0.8  # nor when it is so far from the filter's
_DOUBT_SIGMA_RAD = 0.1  # while its gyro or its accelerometer is not believed


class AttitudeFilter:
    """Call `update` with the newest sample every cycle; read the attributes."""

    def __init__(self) -> None:
        self.attitude: Quaternion = LEVEL
        self.rates_body_radps: Vec3 = ZERO3
        self.specific_force_body_mps2: Vec3 = (0.0, 0.0, -GRAVITY_MPS2)
        self.bias_radps: Vec3 = ZERO3
        self.rest = RestBias()
        self.yaw_rate_radps: float | None = None  # of a model, while gyro z is not believed
        self.gyro_yaw_radps = 0.0  # what gyro z says, its bias taken out
        self.gyro_yaw_raw_radps = 0.0
        self.accel_bias_mps2 = (0.0, 0.0)  # forward and right, as the horizontal filter finds it
        self._sample_s: float | None = None
        self._moved_s = 0.0  # by samples or, without, by a model
        self._check = PlumbCheck()
        self._innovation_rad = 0.0
        self._first_yaw_rad = 0.0

    def begin_with(self, yaw_rad: float, bias_radps: Vec3) -> None:
        """Start with what a flight process has left a moment ago, before the first `update`."""
        self._first_yaw_rad = yaw_rad
        self.bias_radps = bias_radps
        self.rest.begin_with(bias_radps)

    @property
    def settled(self) -> bool:
        """Whether gyro bias was measured at rest since start."""
        return self.rest.settled

    @property
    def still(self) -> bool:
        """Whether the last window was at rest."""
        return self.rest.still

    @property
    def accel_believed(self) -> bool:
        return not self._check.accel_doubt

    @property
    def accel_usable(self) -> bool:
        """Whether the accelerometer, turned by this attitude, tells how the ship accelerates."""
        return not (self._check.accel_doubt or self._check.tilt_is_poor)

    def valid(self, now_s: float) -> bool:
        """Whether it is known: without samples for as long as a model carries it."""
        return self._sample_s is not None and self.unwatched_rad(now_s) <= LOST_RAD

    def unwatched_rad(self, now_s: float) -> float:
        """Return the deviation that the time without a sample has added."""
        return UNWATCHED_RADPS * max(0.0, now_s - (self._sample_s or 0.0))

    def health(self, now_s: float, sigma_rad: float) -> QuantityHealth:
        """sigma_rad: of roll and of pitch while nothing is in doubt."""
        check = self._check
        age_s = 1e6 if self._sample_s is None else max(0.0, now_s - self._sample_s)
        gyro = check.gyro_doubt[0] or check.gyro_doubt[1]
        doubt = check.accel_doubt or gyro
        votes = (
            Vote(
                sensor="accelerometer",
                value=self._innovation_rad,
                innovation=self._innovation_rad,
                age_s=age_s,
                agrees=not check.accel_doubt,
            ),
            Vote(sensor="gyro", value=0.0, innovation=0.0, age_s=age_s, agrees=not gyro),
        )
        sigma = _DOUBT_SIGMA_RAD if doubt else sigma_rad
        sigma = hypot(sigma, min(pi, self.unwatched_rad(now_s)))
        return QuantityHealth(sigma=sigma, age_s=age_s, doubt=doubt, votes=votes)

    def turn(self, angle_rad: float, bias_radps: float) -> None:
        """Correct yaw by an angle, and yaw's bias."""
        half = 0.5 * angle_rad
        w, x, y, z = self.attitude  # the product (1, 0, 0, half) q, to first order
        norm = sqrt(1.0 + half * half)
        self.attitude = (
            (w - half * z) / norm,
            (x - half * y) / norm,
            (y + half * x) / norm,
            (z + half * w) / norm,
        )
        bx, by, bz = self.bias_radps
        self.bias_radps = (bx, by, _bounded(bz + bias_radps))

    def right(self, turn_rad: complex, bias_radps: complex, accel_bias_mps2: complex) -> None:
        """Level it by what the horizontal filter has found: a turn about the level axes, the gyro's
        bias more than it was, and the accelerometer's bias, each north + i east."""
        w, x, y, z = self.attitude
        n, e = 0.5 * turn_rad.real, 0.5 * turn_rad.imag
        self.attitude = normalize(
            (w - n * x - e * y, x + n * w + e * z, y + e * w - n * z, z + n * y - e * x)
        )
        nose = rect(1.0, -yaw_of(self.attitude))
        bias, accel = bias_radps * nose, accel_bias_mps2 * nose
        bx, by, bz = self.bias_radps
        self.bias_radps = (_bounded(bx + bias.real), _bounded(by + bias.imag), bz)
        self.accel_bias_mps2 = (accel.real, accel.imag)

    def update(self, sample: ImuSample | None, *, at_rest: bool) -> float:
        """Take `sample` if it is new; return the seconds it moved the filter on, or 0.

        at_rest: the ship may be lying still (nothing drives it); only then is bias learnt.
        """
        if sample is None or not _believable(sample):
            return 0.0
        if self._sample_s is None:
            self._sample_s = self._moved_s = sample.t_s
            self._start(sample)
            return 0.0
        if sample.t_s <= self._sample_s:
            return 0.0
        dt_s = max(0.0, min(0.1, sample.t_s - self._moved_s))
        self._sample_s = self._moved_s = sample.t_s
        self._learn_bias(sample, dt_s, at_rest)
        self._fuse(sample, dt_s, at_rest)
        return dt_s

    def carry(self, attitude: Quaternion, yaw_radps: float, now_s: float) -> None:
        """Go on by a model. Nobody is to damp a swing that nobody feels: roll and pitch stand."""
        if self._sample_s is not None:
            self.attitude, self.rates_body_radps = attitude, (0.0, 0.0, yaw_radps)
            self._moved_s = now_s

    def begin_again(self, now_s: float) -> None:
        """The clock went back: go on from here."""
        if self._sample_s is not None:
            self._sample_s = self._moved_s = min(self._sample_s, now_s - 0.01)

    def _start(self, sample: ImuSample) -> None:
        ax, ay, az = sample.accel_body_mps2
        roll, pitch = atan2(-ay, -az), atan2(ax, hypot(ay, az))
        self.attitude = from_euler(roll, pitch, self._first_yaw_rad)
        self.specific_force_body_mps2 = sample.accel_body_mps2
        self._check.plumb = self._check.down = rotate_back(self.attitude, _DOWN)

    def _fuse(self, sample: ImuSample, dt_s: float, at_rest: bool) -> None:
        gx, gy, gz = sample.gyro_body_radps
        bx, by, bz = self.bias_radps
        wx, wy, wz = gx - bx, gy - by, gz - bz
        self.gyro_yaw_radps, self.gyro_yaw_raw_radps = wz, gz
        if self.yaw_rate_radps is not None:
            wz = self.yaw_rate_radps
        ax, ay, az = sample.accel_body_mps2
        bias_x, bias_y = self.accel_bias_mps2
        ax, ay = ax - bias_x, ay - bias_y
        norm = sqrt(ax * ax + ay * ay + az * az)
        down = dx, dy, dz = rotate_back(self.attitude, _DOWN)
        measured = mx, my, mz = -ax / norm, -ay / norm, -az / norm
        if self._check.update(measured, down, (wx, wy, wz), dt_s):
            self._hang(self._check.plumb)
            down = dx, dy, dz = rotate_back(self.attitude, _DOWN)
        no_x, no_y = self._check.gyro_doubt
        if no_x:
            wx = 0.0
        if no_y:
            wy = 0.0
        rates = (wx, wy, wz)
        if not self.accel_believed:
            # The pendulum hangs level in the mean: body z is down.
            wx, wy = wx - _GAIN_LEVEL * dy, wy + _GAIN_LEVEL * dx
        else:
            trust = 1.0 - abs(norm - GRAVITY_MPS2) / _ACCEL_GATE_MPS2
            if trust > 0.0 and mx * dx + my * dy + mz * dz > _APART_COS:
                ex, ey, ez = my * dz - mz * dy, mz * dx - mx * dz, mx * dy - my * dx
                self._innovation_rad = hypot(ex, ey)
                gain = 0.0  # in flight the horizontal filter levels it
                if self._check.tilt_is_poor:
                    gain = trust * _GAIN_NO_GYRO
                elif at_rest and self.still:
                    gain = trust * _GAIN_REST
                wx, wy, wz = wx + gain * ex, wy + gain * ey, wz + gain * ez
        if not self.rest.known and at_rest:
            wz = 0.0  # on the pad, bias still unknown: yaw stays where it was laid down
        self.attitude = integrate(self.attitude, (wx, wy, wz), dt_s)
        self.rates_body_radps = rates
        self.specific_force_body_mps2 = sample.accel_body_mps2

    def _hang(self, plumb: Vec3) -> None:
        """Set roll and pitch by the plumb line; yaw stays."""
        px, py, pz = plumb
        yaw = yaw_of(self.attitude)
        self.attitude = from_euler(atan2(py, pz), atan2(-px, hypot(py, pz)), yaw)

    def _learn_bias(self, sample: ImuSample, dt_s: float, at_rest: bool) -> None:
        rest = self.rest
        if not at_rest:
            rest.move()
            return
        better = rest.update(sample, dt_s)
        if better or rest.still:
            self.bias_radps = rest.bias_radps
        if better and rest.turned_rad is not None:
            roll, pitch, _ = euler(self.attitude)
            self.attitude = from_euler(roll, pitch, rest.turned_rad)


def _believable(sample: ImuSample) -> bool:
    ax, ay, az = sample.accel_body_mps2
    gx, gy, gz = sample.gyro_body_radps
    total = ax + ay + az + gx + gy + gz + sample.t_s
    if not isfinite(total):
        return False
    limit = _RATE_LIMIT_RADPS
    return (
        abs(gx) < limit
        and abs(gy) < limit
        and abs(gz) < limit
        and 1.0 < ax * ax + ay * ay + az * az < 4e4
    )


def _bounded(bias_radps: float) -> float:
    return max(-_BIAS_LIMIT_RADPS, min(_BIAS_LIMIT_RADPS, bias_radps))
