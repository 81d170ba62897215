"""One propeller with its motor: throttle in, force along its axis out."""

from math import copysign, exp

from blimp.airframe import Thruster


class Propeller:
    """A motor that needs time to turn up, behind a driver that feeds it a share of the supply.

    Rotor speed, as a fraction of that at full throttle on a full battery, follows
    throttle times supply with a first-order lag. Thrust is max_thrust_n (or
    reverse_thrust_n) times speed^exponent, and times 1 + asymmetry. Within its dead band the
    motor stands; from there to full throttle its speed grows evenly.
    """

    def __init__(self, *, thruster: Thruster) -> None:
        self._thruster = thruster
        self._speed = 0.0  # signed fraction
        self._thrust_n = 0.0
        self._dt_s = 0.0
        self._share = 0.0

    @property
    def thrust_n(self) -> float:
        return self._thrust_n

    @property
    def current_a(self) -> float:
        """Taken from the battery: power goes with thrust^1.5 (momentum theory)."""
        thruster = self._thruster
        return float(thruster.max_current_a * abs(self._speed) ** (1.5 * thruster.exponent))

    def step(self, dt_s: float, throttle: float, supply: float) -> float:
        """Advance by `dt_s` and return the thrust in newtons.

        throttle: finite; what is outside -1 to 1 saturates.
        supply: battery voltage over that of a full battery, 0 to 1.
        """
        thruster = self._thruster
        if dt_s != self._dt_s:
            self._dt_s = dt_s
            self._share = 1.0 - exp(-dt_s / thruster.lag_s) if thruster.lag_s > 0.0 else 1.0
        target = min(max(throttle, -1.0), 1.0) * supply
        dead_band = thruster.dead_band if target >= 0.0 else thruster.reverse_dead_band
        if dead_band > 0.0:
            target = copysign(max(0.0, (abs(target) - dead_band) / (1.0 - dead_band)), target)
        speed = self._speed = self._speed + self._share * (target - self._speed)
        if speed >= 0.0:
            thrust = thruster.max_thrust_n * speed**thruster.exponent
        else:
            thrust = -thruster.reverse_thrust_n * (-speed) ** thruster.exponent
        self._thrust_n = float(thrust * (1.0 + thruster.asymmetry))
        return self._thrust_n
