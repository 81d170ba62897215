"""One propeller with its motor: throttle in, force along its axis out."""

from blimp.airframe import Thruster
from blimp.sim.arithmetic import SCALARS, Arithmetic

SHORTEST_LAG_S = 1e-9  # stands for none


class Propeller:
    """A motor that needs time to turn up, behind a driver that feeds it a share of the supply.

    Rotor speed, as a fraction of that at full throttle on a full battery, follows
    throttle times supply with a first-order lag. Thrust is max_thrust_n (or
    reverse_thrust_n) times speed^exponent, and times 1 + asymmetry. Within its dead band the
    motor stands; from there to full throttle its speed grows evenly.
    """

    def __init__(self, *, thruster: Thruster, arithmetic: Arithmetic = SCALARS) -> None:
        self._thruster = thruster
        self._arithmetic = arithmetic
        self._speed = 0.0  # signed fraction
        self._thrust_n = 0.0
        self._dt_s = 0.0
        self._share = 0.0
        self._has_dead_band = arithmetic is not SCALARS or (
            thruster.dead_band > 0.0 or thruster.reverse_dead_band > 0.0
        )

    @property
    def thrust_n(self) -> float:
        return self._thrust_n

    @property
    def current_a(self) -> float:
        """Taken from the battery: power goes with thrust^1.5 (momentum theory)."""
        thruster = self._thruster
        share: float = abs(self._speed) ** (1.5 * thruster.exponent)
        return thruster.max_current_a * share

    def step(self, dt_s: float, throttle: float, supply: float) -> float:
        """Advance by `dt_s` and return the thrust in newtons.

        throttle: finite; what is outside -1 to 1 saturates.
        supply: battery voltage over that of a full battery, 0 to 1.
        """
        thruster, choose = self._thruster, self._arithmetic.choose
        clamp = self._arithmetic.clamp
        if dt_s != self._dt_s:
            self._dt_s = dt_s
            lag_s = clamp(thruster.lag_s, SHORTEST_LAG_S, 1e6)
            self._share = 1.0 - self._arithmetic.exp(-dt_s / lag_s)
        target = clamp(throttle, -1.0, 1.0) * supply
        if self._has_dead_band:
            ahead = target >= 0.0
            dead_band = choose(ahead, thruster.dead_band, thruster.reverse_dead_band)
            size = clamp((abs(target) - dead_band) / (1.0 - dead_band), 0.0, 1.0)
            target = choose(ahead, size, -size)
        speed = self._speed = self._speed + self._share * (target - self._speed)
        size = abs(speed) ** thruster.exponent
        full_n = choose(speed >= 0.0, thruster.max_thrust_n, -thruster.reverse_thrust_n)
        self._thrust_n = full_n * size * (1.0 + thruster.asymmetry)
        return self._thrust_n
