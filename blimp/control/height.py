"""Height and climb from barometer, downward ranger and vertical acceleration.

A Kalman filter with four states: height above the resting place on the pad, climb,
accelerometer bias along up, and the offset between barometer and height. The barometer
drifts with weather and is pushed about by gusts; the ranger is exact but sees a table as
ground. The offset state lets each correct the other. Source: Bar-Shalom, "Estimation with
Applications to Tracking and Navigation", chapter 5 (Joseph form not needed: scalar
updates on a 4 x 4 covariance that is kept symmetric by storing one half).
"""

from math import exp, isfinite, log

from blimp.control.constants import GRAVITY_MPS2

_BARO_SIGMA_M = 0.25  # gusts on the static port, not the chip's noise
_RANGER_SIGMA_M = 0.05
_REST_SIGMA_M = 0.03
_ACCEL_SIGMA_MPS2 = 0.15  # noise and swing, per sqrt(s)
_BIAS_DRIFT_MPS2 = 0.01  # per sqrt(s)
_OFFSET_DRIFT_M = 0.02  # per sqrt(s)
_GATE_SIGMAS = 5.0
_GATE_FLOOR_M = 0.4
_PERSISTENT_S = 3.0  # an instrument that disagrees this long is right after all
_STALE_S = 2.0
_NEAR_GROUND_S = 10.0
_NEAR_GROUND_M = 0.4
_BLIND_ACCEL_MPS2 = 0.3  # what a ship may accelerate by unseen, per sqrt(s)
_FADE_S = 2.0
_HEIGHT, _HEIGHT_AND_OFFSET, _CLIMB = range(3)  # what a measurement sees


class HeightFilter:
    """Height above the pad, up-positive. Call `predict` every cycle, then the updates."""

    def __init__(self) -> None:
        self.height_m = 0.0
        self.climb_mps = 0.0
        self.bias_mps2 = 0.0
        self.offset_m = 0.0
        # Upper half of the covariance, row by row: hh hv hb ho vv vb vo bb bo oo.
        self._p = [0.25, 0.0, 0.0, 0.0, 0.04, 0.0, 0.0, 0.04, 0.0, 25.0]
        self._accepted_s: float | None = None
        self._rested = False
        self._baro = _Gate()
        self._ranger = _Gate()

    def valid(self, now_s: float) -> bool:
        """Whether a measurement was accepted within the last 2 s.

        Close to the ground 10 s: there a ranger is blind by design.
        """
        if self._accepted_s is None:
            return False
        patience_s = _NEAR_GROUND_S if self.height_m < _NEAR_GROUND_M else _STALE_S
        return now_s - self._accepted_s <= patience_s

    @property
    def sigma_m(self) -> float:
        return float(self._p[0] ** 0.5)

    def predict(self, accel_up_mps2: float, dt_s: float) -> None:
        """Move on by `dt_s` under the measured upward acceleration, gravity taken out."""
        a = accel_up_mps2 - self.bias_mps2
        self.height_m += (self.climb_mps + 0.5 * a * dt_s) * dt_s
        self.climb_mps += a * dt_s
        hh, hv, hb, ho, vv, vb, vo, bb, bo, oo = self._p
        self._p = [
            hh + dt_s * (2.0 * hv + dt_s * vv) + 1e-8 * dt_s,
            hv + dt_s * (vv - hb - dt_s * vb),
            hb + dt_s * vb,
            ho + dt_s * vo,
            vv + dt_s * (dt_s * bb - 2.0 * vb) + _ACCEL_SIGMA_MPS2**2 * dt_s,
            vb - dt_s * bb,
            vo - dt_s * bo,
            bb + _BIAS_DRIFT_MPS2**2 * dt_s,
            bo,
            oo + _OFFSET_DRIFT_M**2 * dt_s,
        ]

    def drift(self, dt_s: float) -> None:
        """Move on by `dt_s` without an accelerometer."""
        self.predict(self.bias_mps2, dt_s)
        self._p[4] += _BLIND_ACCEL_MPS2**2 * dt_s

    def coast(self, dt_s: float) -> None:
        """Nothing measures height any more: let the climb fade instead of running away."""
        self.climb_mps *= max(0.0, 1.0 - dt_s / _FADE_S)

    def update_baro(self, baro_height_m: float, now_s: float) -> None:
        """Take a barometric height above the reference pressure."""
        innovation = baro_height_m - self.height_m - self.offset_m
        hh, _, _, ho, _, _, _, _, _, oo = self._p
        variance = hh + 2.0 * ho + oo + _BARO_SIGMA_M**2
        decision = self._baro.judge(innovation, variance, now_s)
        if decision == _ACCEPT:
            self._correct(innovation, variance, _HEIGHT_AND_OFFSET)
            self._accepted_s = now_s
        elif decision == _REACCEPT:
            if self._ranger.alive(now_s):
                self.offset_m += innovation  # the ranger vouches for the height
            else:
                self._jump(self.height_m + innovation)

    def update_ranger(self, height_m: float, now_s: float) -> None:
        """Take a ranger's height above the ground, tilt and mounting taken out.

        The first one is believed as it is, unless the ship has been seen at rest: it may
        have been switched on in the air.
        """
        if self._ranger.fresh and not self._rested:
            self._ranger.judge(0.0, 1.0, now_s)
            self._jump(height_m)
            self._accepted_s = now_s
            return
        innovation = height_m - self.height_m
        variance = self._p[0] + _RANGER_SIGMA_M**2
        decision = self._ranger.judge(innovation, variance, now_s)
        if decision == _ACCEPT:
            self._correct(innovation, variance, _HEIGHT)
            self._accepted_s = now_s
        elif decision == _REACCEPT:
            self.offset_m -= innovation  # what the barometer said stays as it was
            self._jump(height_m)

    def update_rest(self) -> None:
        """The ship lies on its pad: height 0, climb 0."""
        self._rested = True
        self._correct(-self.height_m, self._p[0] + _REST_SIGMA_M**2, _HEIGHT)
        self._correct(-self.climb_mps, self._p[4] + _REST_SIGMA_M**2, _CLIMB)

    def begin_at(self, height_m: float) -> None:
        """Start in the air: at `height_m`, give or take a metre, and as the barometer says."""
        self.height_m = height_m
        self._p = [1.0, 0.0, 0.0, 0.0, 0.25, 0.0, 0.0, 0.04, 0.0, 0.04]

    def land(self) -> None:
        """The ship has touched down: this height is 0 from now on."""
        self.offset_m += self.height_m
        self._jump(0.0)

    def _jump(self, height_m: float) -> None:
        self.height_m = height_m
        self._p[0] = max(self._p[0], 0.25)

    def _correct(self, innovation: float, variance: float, measured: int) -> None:
        hh, hv, hb, ho, vv, vb, vo, bb, bo, oo = self._p
        if measured == _HEIGHT:
            ch, cv, cb, co = hh, hv, hb, ho
        elif measured == _HEIGHT_AND_OFFSET:
            ch, cv, cb, co = hh + ho, hv + vo, hb + bo, ho + oo
        else:
            ch, cv, cb, co = hv, vv, vb, vo
        kh, kv, kb, ko = ch / variance, cv / variance, cb / variance, co / variance
        self.height_m += kh * innovation
        self.climb_mps += kv * innovation
        self.bias_mps2 += kb * innovation
        self.offset_m += ko * innovation
        self._p = [
            max(1e-9, hh - kh * ch),
            hv - kh * cv,
            hb - kh * cb,
            ho - kh * co,
            max(1e-9, vv - kv * cv),
            vb - kv * cb,
            vo - kv * co,
            max(1e-9, bb - kb * cb),
            bo - kb * co,
            max(1e-9, oo - ko * co),
        ]


_ACCEPT, _REJECT, _REACCEPT = range(3)


class _Gate:
    """Refuses an outlier; gives in to a disagreement that lasts."""

    def __init__(self) -> None:
        self._bad_since_s: float | None = None
        self._good_s: float | None = None

    @property
    def fresh(self) -> bool:
        """Whether nothing has been judged yet."""
        return self._good_s is None and self._bad_since_s is None

    def alive(self, now_s: float) -> bool:
        return self._good_s is not None and now_s - self._good_s <= _STALE_S

    def judge(self, innovation: float, variance: float, now_s: float) -> int:
        limit = max(_GATE_FLOOR_M, _GATE_SIGMAS * variance**0.5)
        if abs(innovation) <= limit:
            self._bad_since_s = None
            self._good_s = now_s
            return _ACCEPT
        if self._bad_since_s is None:
            self._bad_since_s = now_s
        if now_s - self._bad_since_s < _PERSISTENT_S:
            return _REJECT
        self._bad_since_s = None
        return _REACCEPT


def baro_height_m(pressure_pa: float, temperature_c: float, reference_pa: float) -> float:
    """Return the height above the level of `reference_pa`, hypsometric equation.

    Uses the ISA temperature (ISO 2533) if the chip's own, warmed by its board, is not
    believable. Returns NaN for an impossible pressure.
    """
    if not (isfinite(pressure_pa) and 3e4 < pressure_pa < 1.2e5):
        return float("nan")
    kelvin = 273.15 + (temperature_c if -30.0 < temperature_c < 45.0 else 15.0)
    return 287.053 * kelvin / GRAVITY_MPS2 * log(reference_pa / pressure_pa)


def pad_ratio(height_m: float) -> float:
    """Return the pressure on the pad over that at `height_m` above it, at 15 degrees."""
    return exp(height_m * GRAVITY_MPS2 / (287.053 * 288.15))
