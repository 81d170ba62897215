"""A proportional-integral(-derivative) controller that does not wind up."""

from math import isfinite

from blimp.vector import within


class Pid:
    """Error in, demand out; the units are the caller's.

    The integral is bounded by `integral_limit` and stops growing into a saturated output:
    `saturated` is +1 where the actuators cannot give more, -1 where they cannot give less
    (conditional integration: Astrom & Hagglund, "PID Controllers", section 3.5). The
    derivative acts on a measured rate the caller passes in, never on a differenced error.
    """

    def __init__(
        self, *, p: float, i: float = 0.0, d: float = 0.0, integral_limit: float = float("inf")
    ) -> None:
        self._p = p
        self._i = i
        self._d = d
        self._integral_limit = integral_limit
        self.integral = 0.0  # in units of the output

    def update(
        self,
        error: float,
        dt_s: float,
        *,
        rate: float = 0.0,
        saturated: int = 0,
        hold: bool = False,
    ) -> float:
        """Return the demand for `error`; `hold` keeps the integral as it is.

        rate: derivative of the measurement, so that a step of the setpoint does not kick.
        A non-finite error gives the integral alone and changes nothing.
        """
        if not (isfinite(error) and isfinite(rate)):
            return self.integral
        growth = self._i * error * dt_s
        if not hold and saturated * growth <= 0.0:
            self.integral = within(self.integral + growth, self._integral_limit)
        return self._p * error - self._d * rate + self.integral

    def reset(self, integral: float = 0.0) -> None:
        self.integral = within(integral, self._integral_limit)
