"""Does the gyro's yaw rate follow the torque that is given?

An observer of the yaw rate: the airframe's inertia and drag under the thrusters' torque, drawn
towards the gyro. A gyro that is far from it does not feel the ship turn, or feels it turn when it
does not; then the model alone carries the heading on, for a while. It is believed again when it has
followed the torque for some seconds.

But a motor that does not give its torque looks the same. A gyro that works has noise: one that says
the same to the last bit for a second is stuck, and judged soon. One that is alive is judged only
after the outputs have been (`blimp/control/effect.py`), and not for saying that the ship stands.
"""

from math import isfinite

from blimp.airframe import Airframe

_DRAWN_PER_S = 0.5  # of the model's rate to the measured one
_APART_RADPS = 0.25  # gyro and model apart by more: the gyro is wrong
_LASTS_S = 2.0  # for so long: it is judged if it shows the same number, else contested
_ALIVE_S = 8.0  # a broken output has been named by then
_TURNS_RADPS = 0.1  # a rate that is one
_STUCK_S = 1.0  # with the same number: it is stuck
_BACK_RADPS = 0.1  # together again within
_BACK_S = 6.0  # for so long
_MOVED_RADPS = 0.15  # and has moved by so much
_SMOOTH_S = 1.0  # averages noise


class YawRateCheck:
    """Call `update` each cycle in flight; read `doubt` and `rate_radps`."""

    def __init__(self, *, airframe: Airframe) -> None:
        self._inertia = airframe.mass.inertia_kg_m2[2] + airframe.aero.added_inertia_kg_m2[2]
        self._linear = airframe.aero.linear_drag[5]
        self._quadratic = airframe.aero.quadratic_drag[5]
        self.reset()

    def reset(self) -> None:
        self.doubt = ""
        self.rate_radps = 0.0
        self._apart_radps = 0.0
        self._raw_radps = self._same_s = 0.0
        self._bad_s = self._good_s = 0.0
        self._low_radps = self._high_radps = 0.0

    @property
    def contested(self) -> bool:
        """Whether gyro and torque are apart, and not yet which of them is wrong."""
        return self._bad_s > _LASTS_S or bool(self.doubt)

    def coast(self, rate_radps: float, torque_nm: float, dt_s: float) -> float:
        """Go on without a gyro; return by how much the ship turns faster, of its `rate_radps`."""
        self.rate_radps += self._gained(self.rate_radps, torque_nm) * dt_s
        return self._gained(rate_radps, torque_nm) * dt_s

    def _gained(self, rate_radps: float, torque_nm: float) -> float:
        drag_nm = rate_radps * (self._linear + self._quadratic * abs(rate_radps))
        return (torque_nm - drag_nm) / self._inertia

    def update(
        self, measured_radps: float, torque_nm: float, dt_s: float, *, raw_radps: float
    ) -> None:
        """Take one sample. raw_radps: as the chip gave it, bias and all."""
        if not isfinite(measured_radps + torque_nm + dt_s + raw_radps):
            return  # it would stay in every sum
        same = raw_radps == self._raw_radps
        self._same_s, self._raw_radps = (self._same_s + dt_s if same else 0.0), raw_radps
        stuck = self._same_s > _STUCK_S
        rate = self.rate_radps + self._gained(self.rate_radps, torque_nm) * dt_s
        apart = measured_radps - rate
        if not self.doubt:
            rate += _DRAWN_PER_S * apart * dt_s
        self.rate_radps = rate
        self._apart_radps += (apart - self._apart_radps) * min(1.0, dt_s / _SMOOTH_S)
        far = abs(self._apart_radps)
        if self.doubt:
            if far > _BACK_RADPS:
                self._good_s = 0.0
                self._low_radps = self._high_radps = measured_radps
            self._good_s += dt_s
            self._low_radps = min(self._low_radps, measured_radps)
            self._high_radps = max(self._high_radps, measured_radps)
            moved = self._high_radps - self._low_radps > _MOVED_RADPS  # a stuck one may agree, too
            if self._good_s > _BACK_S and moved:
                self.doubt = ""
            return
        bad = far > _APART_RADPS and (stuck or abs(measured_radps) > _TURNS_RADPS)
        self._bad_s = self._bad_s + dt_s if bad else 0.0
        if self._bad_s > (_LASTS_S if stuck else _ALIVE_S):
            self._good_s = 0.0
            self.doubt = (
                f"gyro z: {measured_radps:.2f} rad/s, where the torque makes {rate:.2f} rad/s"
            )
