"""Attitude from gyro and accelerometer, with gyro bias.

Source: Mahony, Hamel, Pflimlin, "Nonlinear complementary filters on SO(3)" (2008), the
explicit filter. There is no magnetometer: yaw is what the gyro integrates, from 0 on the
pad, where the ship is laid down facing north. Its bias is measured there, at rest; what
remains (about 0.01 deg/s) is a few degrees over a flight.
"""

from math import atan2, hypot, isfinite, sqrt

from blimp.control.constants import GRAVITY_MPS2
from blimp.rotation import euler, from_euler, integrate, rotate_back
from blimp.types import LEVEL, ZERO3, ImuSample, Quaternion, Vec3

_DOWN = (0.0, 0.0, 1.0)

_GAIN_FLIGHT = 0.12  # 1/s: slow against the swing, whose acceleration tilts the plumb line
_GAIN_REST = 2.0  # 1/s: on the pad the plumb line is right
_BIAS_GAIN = 0.004  # 1/s^2, roll and pitch only: yaw's bias cannot be seen in flight
_BIAS_LIMIT_RADPS = 0.4  # MPU-6050 datasheet, 6.1: zero-rate output within 20 deg/s
_RATE_LIMIT_RADPS = 40.0  # past the 2000 deg/s full scale: not a gyro's value
_ACCEL_GATE_MPS2 = 2.0  # this far from g the plumb line says nothing
_STALE_S = 0.3
_REST_WINDOW_S = 0.5
_REST_GYRO_SPREAD_RADPS = 0.02  # four times the noise's own: MPU-6050 datasheet, 6.1
_REST_ACCEL_SPREAD_MPS2 = 0.6
_REST_WINDOWS = 4  # still for this many windows in a row: the bias is settled
# A ship that wind turns slowly on its pad looks like one with more bias. It does not turn
# evenly: at rest the windows agree to a few times their noise of 0.0001 rad/s.
_REST_AGREE_RADPS = 0.0015
_TRIM = 0.05  # of what a later window says
_SETTLED_AGREE_RADPS = 0.006  # from the settled bias: what warming up may do


class AttitudeFilter:
    """Call `update` with the newest sample every cycle; read the attributes."""

    def __init__(self) -> None:
        self.attitude: Quaternion = LEVEL
        self.rates_body_radps: Vec3 = ZERO3
        self.specific_force_body_mps2: Vec3 = (0.0, 0.0, -GRAVITY_MPS2)
        self.bias_radps: Vec3 = ZERO3
        self.settled = False  # gyro bias measured at rest since start
        self.still = False  # the last window was at rest
        self._sample_s: float | None = None
        self._windows = 0
        self._rest = _RestWindow()

    def valid(self, now_s: float) -> bool:
        """Whether a believable sample came within the last 0.3 s."""
        return self._sample_s is not None and now_s - self._sample_s <= _STALE_S

    def turn(self, angle_rad: float, bias_radps: float) -> None:
        """Correct yaw by an angle, and yaw's bias."""
        roll, pitch, yaw = euler(self.attitude)
        self.attitude = from_euler(roll, pitch, yaw + angle_rad)
        bx, by, bz = self.bias_radps
        self.bias_radps = (bx, by, _bounded(bz + bias_radps))

    def update(self, sample: ImuSample | None, now_s: float, *, at_rest: bool) -> float:
        """Take `sample` if it is new; return the seconds it moved the filter on, or 0.

        at_rest: the ship may be lying still (nothing drives it); only then is bias learnt.
        """
        if sample is None or not _believable(sample):
            self._forget_rates(now_s)
            return 0.0
        if self._sample_s is None:
            self._sample_s = sample.t_s
            self._start(sample)
            return 0.0
        dt_s = sample.t_s - self._sample_s
        if dt_s <= 0.0:
            self._forget_rates(now_s)
            return 0.0
        self._sample_s = sample.t_s
        dt_s = min(dt_s, 0.1)
        self._learn_bias(sample, dt_s, at_rest)
        self._fuse(sample, dt_s, at_rest)
        return dt_s

    def _start(self, sample: ImuSample) -> None:
        ax, ay, az = sample.accel_body_mps2
        self.attitude = from_euler(atan2(-ay, -az), atan2(ax, hypot(ay, az)), 0.0)
        self.specific_force_body_mps2 = sample.accel_body_mps2

    def _fuse(self, sample: ImuSample, dt_s: float, at_rest: bool) -> None:
        gx, gy, gz = sample.gyro_body_radps
        bx, by, bz = self.bias_radps
        rates = (gx - bx, gy - by, gz - bz)
        accel = sample.accel_body_mps2
        ax, ay, az = accel
        norm = sqrt(ax * ax + ay * ay + az * az)
        wx, wy, wz = rates
        trust = 1.0 - abs(norm - GRAVITY_MPS2) / _ACCEL_GATE_MPS2
        if trust > 0.0:
            dx, dy, dz = rotate_back(self.attitude, _DOWN)
            mx, my, mz = -ax / norm, -ay / norm, -az / norm
            ex, ey, ez = my * dz - mz * dy, mz * dx - mx * dz, mx * dy - my * dx
            gain = trust * (_GAIN_REST if at_rest and self.still else _GAIN_FLIGHT)
            wx, wy, wz = wx + gain * ex, wy + gain * ey, wz + gain * ez
            if not (at_rest and self.still):
                k = trust * _BIAS_GAIN * dt_s
                self.bias_radps = (_bounded(bx - k * ex), _bounded(by - k * ey), bz)
        if not self.settled and at_rest:
            wz = 0.0  # on the pad, bias still unknown: yaw stays where it was laid down
        self.attitude = integrate(self.attitude, (wx, wy, wz), dt_s)
        self.rates_body_radps = rates
        self.specific_force_body_mps2 = accel

    def _learn_bias(self, sample: ImuSample, dt_s: float, at_rest: bool) -> None:
        if not at_rest:
            self.still = False
            self._windows = 0
            self._rest.clear()
            return
        mean = self._rest.add(sample, dt_s)
        if mean is None:
            return
        quiet = self._rest.quiet
        self._rest.clear()
        reference = self.bias_radps if self.settled or self._windows else mean
        agree = _SETTLED_AGREE_RADPS if self.settled else _REST_AGREE_RADPS
        off = max(abs(m - r) for m, r in zip(mean, reference, strict=True))
        self.still = quiet and off < agree and max(abs(m) for m in mean) < _BIAS_LIMIT_RADPS
        if not self.still:
            self._windows = 0
            return
        self._windows += 1
        share = 1.0 / min(self._windows, 16) if not self.settled else _TRIM
        bx, by, bz = self.bias_radps
        self.bias_radps = (
            bx + share * (mean[0] - bx),
            by + share * (mean[1] - by),
            bz + share * (mean[2] - bz),
        )
        if self._windows >= _REST_WINDOWS and not self.settled:
            self.settled = True
            roll, pitch, _ = euler(self.attitude)
            self.attitude = from_euler(roll, pitch, 0.0)

    def _forget_rates(self, now_s: float) -> None:
        """Without a new sample for a while, old rates are worse than none."""
        if self._sample_s is not None and now_s - self._sample_s > 0.1:
            self.rates_body_radps = ZERO3


class _RestWindow:
    """Mean and spread of the gyro and accelerometer over one window."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._time_s = 0.0
        self._count = 0
        self._sum = [0.0, 0.0, 0.0]
        self._low = [1e9] * 6
        self._high = [-1e9] * 6

    def add(self, sample: ImuSample, dt_s: float) -> Vec3 | None:
        """Return the mean gyro rates when the window is full."""
        gyro = sample.gyro_body_radps
        for axis in range(3):
            self._sum[axis] += gyro[axis]
        for axis, value in enumerate(gyro + sample.accel_body_mps2):
            if value < self._low[axis]:
                self._low[axis] = value
            if value > self._high[axis]:
                self._high[axis] = value
        self._count += 1
        self._time_s += dt_s
        if self._time_s < _REST_WINDOW_S:
            return None
        n = self._count
        return (self._sum[0] / n, self._sum[1] / n, self._sum[2] / n)

    @property
    def quiet(self) -> bool:
        spread = [high - low for low, high in zip(self._low, self._high, strict=True)]
        return max(spread[:3]) < _REST_GYRO_SPREAD_RADPS and max(spread[3:]) < (
            _REST_ACCEL_SPREAD_MPS2
        )


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
