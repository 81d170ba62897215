"""Does the accelerometer or the gyro lie, when they disagree about where down is?

A hull whose weight hangs below its lift is a pendulum: its mean tilt is small whatever happens, and
its mean roll and pitch rates are zero. So of two that disagree for half a second, the one that is
farther from level is not believed: the accelerometer, or the gyro axis that turned. Each is
believed again when it has agreed for some seconds.
"""

from math import hypot

from blimp.types import Vec3

_PLUMB_S = 2.0  # averages the swing
_RATE_S = 5.0  # averages the rates
_GATE_RAD = 0.07  # accelerometer and gyro apart by more: one is wrong
_LASTS_S = 0.5  # for so long
_BACK_RAD = 0.04  # together again within
_TURNS_RADPS = 0.05  # a mean rate that is one: a hull does not roll on and on
_BACK_RADPS = 0.04  # and no more than this of one that is believed again
_BACK_S = 4.0  # for so long
_SETTLING_S = 8.0  # after which the level has been found again


class PlumbCheck:
    """Call `update` with each sample; read `accel_doubt` and `gyro_doubt`."""

    def __init__(self) -> None:
        self.plumb: Vec3 = (0.0, 0.0, 1.0)  # down in the body frame, averaged
        self.accel_doubt = ""
        self.gyro_doubt = ["", ""]  # x, y
        self.down: Vec3 = (0.0, 0.0, 1.0)  # as the filter has it, averaged likewise
        self._rates = [0.0, 0.0]
        self._means = [0.0, 0.0]  # smoother still: a swing that nobody damps must not show
        self._bad_s = 0.0
        self._good_s = 0.0
        self._steady_s = [0.0, 0.0]
        self._settling_s = 0.0

    @property
    def tilt_is_poor(self) -> bool:
        """Whether the swing is not followed: a gyro axis is missing, or has just come back."""
        return bool(self.gyro_doubt[0] or self.gyro_doubt[1]) or self._settling_s > 0.0

    def update(self, measured: Vec3, down: Vec3, rates: Vec3, dt_s: float) -> bool:
        """Take one sample; return whether the tilt is to be set again from `plumb`.

        measured, down: where down is by the accelerometer and by the filter, body frame.
        rates: of the gyro, its bias taken out.
        """
        k = dt_s / _PLUMB_S
        px, py, pz = self.plumb
        mx, my, mz = measured
        self.plumb = px, py, pz = px + k * (mx - px), py + k * (my - py), pz + k * (mz - pz)
        qx, qy, qz = self.down
        dx, dy, dz = down
        self.down = qx, qy, qz = qx + k * (dx - qx), qy + k * (dy - qy), qz + k * (dz - qz)
        k = dt_s / _RATE_S
        self._rates[0] += k * (rates[0] - self._rates[0])
        self._rates[1] += k * (rates[1] - self._rates[1])
        self._means[0] += k * (self._rates[0] - self._means[0])
        self._means[1] += k * (self._rates[1] - self._means[1])
        apart = hypot(px - qx, py - qy, pz - qz)  # of unit vectors: their angle
        self._believe_again(apart, dt_s)
        if apart < _GATE_RAD or self.accel_doubt:
            self._bad_s = 0.0
            return False
        self._bad_s += dt_s
        if self._bad_s < _LASTS_S:
            return False
        self._bad_s = 0.0
        if not self._accuse(apart, pz, qz):
            return False
        self.down = self.plumb
        return True

    def _accuse(self, apart: float, plumb_level: float, filter_level: float) -> bool:
        if plumb_level <= filter_level:
            self.accel_doubt = f"accelerometer: {57.3 * apart:.0f} degrees from the gyro's down"
            self._good_s = 0.0
            return False
        axis = 0 if abs(self._rates[0]) > abs(self._rates[1]) else 1
        if abs(self._rates[axis]) > _TURNS_RADPS:
            self.gyro_doubt[axis] = (
                f"gyro {'xy'[axis]}: turns at {self._rates[axis]:.2f} rad/s while down stands still"
            )
            self._steady_s[axis] = 0.0
        return True

    def _believe_again(self, apart: float, dt_s: float) -> None:
        self._settling_s = max(0.0, self._settling_s - dt_s)
        if self.accel_doubt:
            self._good_s = self._good_s + dt_s if apart < _BACK_RAD else 0.0
            if self._good_s > _BACK_S:
                self.accel_doubt = ""
        for axis in (0, 1):
            if self.gyro_doubt[axis]:
                steady = abs(self._means[axis]) < _BACK_RADPS
                self._steady_s[axis] = self._steady_s[axis] + dt_s if steady else 0.0
                if self._steady_s[axis] > _BACK_S:
                    self.gyro_doubt[axis] = ""
                    self._settling_s = _SETTLING_S
